"""The lexicon and the records in Chinese: no words between blanks, questions among the headings, denials of its own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from clinic.cases import Fact
from clinic.simplified import simplified
from clinic.understanding.lexicon import Lexicon, Reading
from clinic.understanding.phrases import Side, assembled, parted

FILE = Path(__file__).with_name("chinese.yaml")
SHORT_ANSWER = 16  # characters
SHOWN = frozenset({"onset", "frequency"})  # aspects that an answer to them shows, as a time or a number
_GAP = r"[^，。！？；,.!?;]{0,6}?"  # between two words of one clause
_RUN = re.compile(r"[\u3400-\u9fff]+")
_NO = re.compile(
    r"无(?!力|法|(?:明显)?(?:诱因|缓解|好转|改善|效))|没(?!力|劲|精神|胃口|兴趣)|否认|不(?!适|舒服|好|太|稳|着|规律)|未(?!缓解|好转|愈)|正常"
)
_NONE_AT_ALL = re.compile(r"\A(?:无|没有|无特殊|不详|否认|体健|无异常)[。！]?\Z|无特殊|均?无异常")
_ONLY_DENIES = re.compile(r"(?:无|没有?|否认|未)(?![^。]*(?:但|只是|除了))")
_OTHERS = re.compile(r"其[他它]")
_QUESTION = re.compile(r"[？?]|[吗呢]\Z")
_EMPTY = re.compile(r"\A(?:好的?|谢谢|嗯+|你好|您好|知道了|明白)[。！，]*\Z")
_YES_OR_NO = re.compile(r"\A(?:有|没|不|是|对|会|嗯|还|偶尔|从来|可能|好像)")


@dataclass(frozen=True, kw_only=True)
class ChineseLexicon(Lexicon):
    """A lexicon whose content words are pairs of characters."""

    filled: re.Pattern[str]  # what carries no meaning of its own in a question

    def plain(self, text: str) -> str:
        """Simplified characters, small letters, no blanks."""
        return re.sub(r"\s+", "", simplified(text).lower())

    def content(self, plain: str) -> list[tuple[int, str]]:
        """All pairs of characters that stand side by side, but those of fillers."""
        return [(start + i, run[i : i + 2]) for start, run in self._runs(plain) for i in range(len(run) - 1)]

    def unaccounted(self, plain: str, covered: list[tuple[int, int]]) -> frozenset[str]:
        """Of every run of characters that nothing accounts for its pairs, one after the other."""
        bare = list(plain)
        for start, end in covered:
            bare[start:end] = " " * (end - start)
        runs = [run for _, run in self._runs("".join(bare))]
        return frozenset(run[max(0, min(i, len(run) - 2)) :][:2] for run in runs for i in range(0, len(run), 2))

    def _runs(self, plain: str) -> list[tuple[int, str]]:
        bare = self.filled.sub(lambda match: " " * len(match[0]), plain)
        return [(run.start(), run[0]) for run in _RUN.finditer(bare) if len(run[0]) > 1]


@lru_cache(maxsize=1)
def chinese() -> ChineseLexicon:
    """The lexicon of `chinese.yaml`, compiled once."""
    source = YAML(typ="safe").load(FILE)
    fillers = sorted(source["fillers"].split(), key=len, reverse=True)
    return ChineseLexicon(
        **assembled(source, _compiled),
        fillers=frozenset(fillers),
        filled=re.compile("|".join(fillers)),
        common=frozenset(source["common"].split()),
    )


def typed_parts(fact: Fact, lexicon: Lexicon) -> dict[str, Any]:
    """What a fact tells: the fields of `clinic.understanding.record.Typed` but its kind."""
    heading, text = lexicon.plain(re.sub(r"\s*\(\d+\)\Z", "", fact.topic)), lexicon.plain(fact.text)
    own = lexicon.read(text, "tell")
    if "family" in own.aspects and own.concepts & {"sick_contacts", "support"}:  # a relative who caught it too
        own = replace(own, aspects=own.aspects - {"family"})
    asked = _answered(heading, text, own, lexicon) if _QUESTION.search(heading) else None
    under: set[str] = set()
    if asked is None:
        last = re.split(r"[：:]", heading)[-1]
        under = {name for name, words in lexicon.headings.items() if heading in words or last in words}
        if "家族史" in heading:
            under.add("family")
        if not under and not heading.endswith("史"):
            under = set(lexicon.read(heading, "tell").concepts) if len(heading) <= 6 else set()
    reading = own
    if asked is not None:
        reading = replace(
            own,
            concepts=own.concepts | asked.concepts,
            aspects=own.aspects | asked.aspects,
            places=own.places | asked.places,
            stems=own.stems | asked.stems,
        )
    if "family" in under:
        reading = replace(reading, aspects=reading.aspects | {"family"})
    return {
        "fact": fact,
        "own": own,
        "reading": reading,
        "asked": asked,
        "heading": frozenset(under),
        "denies": not fact.present or _NO.search(text) is not None,
        "nothing": _NONE_AT_ALL.search(text) is not None,
        "only_denies": _ONLY_DENIES.match(text) is not None,
        "others": _OTHERS.search(text) is not None,
        "empty": not text.strip("。-：:"),
    }


def _answered(heading: str, text: str, own: Reading, lexicon: Lexicon) -> Reading:
    """What the recorded question asked for, as far as the answer goes into it."""
    nothing = Reading(frozenset(), frozenset(), frozenset(), frozenset(), frozenset())
    if _EMPTY.match(text):
        return nothing
    parts = [lexicon.read(part, "ask") for part in re.split(r"[？?]", heading) if part]
    parts = [part for part in parts if (not part.silent or part.rest) and not part.aspects & SHOWN - own.aspects]
    touched = [
        part for part in parts if part.concepts & own.concepts or part.aspects & own.aspects or part.rest & own.stems
    ]
    short = len(text) <= SHORT_ANSWER and not own.concepts
    chosen = touched or (parts if short or len(parts) == 1 or _YES_OR_NO.match(text) else [])
    return Reading(
        nothing.concepts.union(*(part.concepts for part in chosen)),
        nothing.aspects.union(*(part.aspects for part in chosen)),
        nothing.places.union(*(part.places for part in chosen)),
        nothing.rest.union(*(part.rest for part in chosen)),
        nothing.stems.union(*(part.stems for part in chosen)),
    )


def _compiled(
    entries: Mapping[str, Mapping[str, str]], side: Side, sets: Mapping[str, list[str]]
) -> dict[str, re.Pattern[str]]:
    compiled = {}
    for name, entry in entries.items():
        phrases = [part for key in ("both", side) for part in parted(entry.get(key, ""))]
        if phrases:
            phrases.sort(key=lambda phrase: (not set("~>") & set(phrase), -len(phrase), phrase))  # the longest first
            compiled[name] = re.compile("|".join(_regex(phrase, sets) for phrase in phrases))
    return compiled


def _regex(phrase: str, sets: Mapping[str, list[str]]) -> str:
    if phrase.startswith("/") and phrase.endswith("/"):
        return phrase[1:-1]
    if "~" in phrase:
        one, other = (_regex(part.strip(), sets) for part in phrase.split("~", 1))
        return f"(?:(?:{one}){_GAP}(?:{other})|(?:{other}){_GAP}(?:{one}))"
    if ">" in phrase:
        return _GAP.join(f"(?:{_regex(part.strip(), sets)})" for part in phrase.split(">", 1))
    return "".join(
        "(?:" + "|".join(_regex(word, sets) for word in sets[piece[1:-1]]) + ")"
        if piece.startswith("{")
        else re.escape(piece).lower()
        for piece in re.split(r"({[^}]+})", phrase)
    )
