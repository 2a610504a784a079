"""The lexicon and the records in Chinese: no words between blanks, questions among the headings, denials of its own."""

import re
from collections.abc import Mapping, Sequence
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
# what a relative has a part in without being ill, or without having left it to the patient
NOT_INHERITED = frozenset({"sick_contacts", "support", "relationship", "care", "living", "passive_smoking"})
OF_THE_PAST = frozenset({"past_illness", "surgery", "hospital", "injury", "transfusion", "tests_done"})
OF_ALLERGY = frozenset({"rash", "itching", "face_swelling", "swelling", "breathlessness"})  # what one does
_GAP = r"[^，。！？；,.!?;]{0,6}?"  # between two words of one clause
_RUN = re.compile(r"[\u3400-\u9fff]+")
_NO = re.compile(
    r"无(?!力|法|(?:明显)?(?:诱因|缓解|好转|改善|效))|没(?!力|劲|精神|胃口|兴趣|看|当|管用|什么用|效|拉干净|休息好|睡好|办法|多久|一会|几)|否认|不(?!适|舒服|好|太|稳|着|规律|准|管用|顶|清|住|敢|下|动|干净|安|宁|佳|振|足|全|齐|良|尽|止|能|会|得|断|停|自主|自觉|愿|想|够|了|出|到|起|开)|未(?!缓解|好转|愈)|正常"
)
_NONE_AT_ALL = re.compile(r"\A(?:无|没有|无特殊|不详|否认|体健|无异常)[。！]?\Z|无(?:特殊|类似|家族|遗传|殊)|均?无异常")
_ONLY_DENIES = re.compile(r"(?:无|没有?|否认|未)(?![^。]*(?:但|只是|除了))")
_OTHERS = re.compile(r"其[他它]")
_ASKED_BOTH_WAYS = re.compile(r"([\u4e00-\u9fff])(?:不|没有|没)\1")  # "抽不抽烟"
_INDEFINITE = re.compile(
    r"(有没有|有无|会不会|是不是|是否)(?:哪(?:[里边侧个些]|一[边侧])|什么(?:样的)?|啥)"
)  # asks whether, not where or what
_EXAMPLES = re.compile(r"[（(，,？?]?(?:比如|例如|譬如|诸如|包括).*")
_PARTS = re.compile(r"[，,。；;？?！!、]")
_SENTENCE = re.compile(r"[。！？；]")
_QUESTION = re.compile(r"[？?]|[吗呢]\Z")
_EMPTY = re.compile(r"\A(?:好的?|谢谢|嗯+|你好|您好|知道了|明白)[。！，]*\Z")
_YES_OR_NO = re.compile(r"\A(?:有|没|不|是|对|会|嗯|还|偶尔|从来|可能|好像)")


@dataclass(frozen=True, kw_only=True, eq=False)
class ChineseLexicon(Lexicon):
    """A lexicon whose content words are pairs of characters."""

    filled: re.Pattern[str]  # what carries no meaning of its own in a question
    dialect: Mapping[str, str]  # a word of a region, and the standard one
    spoken: re.Pattern[str]  # those words of a region

    def plain(self, text: str) -> str:
        """Simplified characters, small letters, no blanks, standard words; "抽不抽烟" is "抽烟"."""
        bare = _ASKED_BOTH_WAYS.sub(r"\1", re.sub(r"\s+", "", simplified(text).lower()))
        return self.spoken.sub(lambda match: self.dialect[match[0]], bare)

    def reading(self, text: str, side: Side) -> Reading:
        """As `Lexicon.reading`, but in a question no phrase of a wider concept hides a narrower one ("吃过激素药吗" asks for
        steroids), and beside a concept single characters are particles.
        """
        if side == "tell":
            return super().reading(text, side)
        text = _INDEFINITE.sub(r"\1", simplified(text))
        found = super().reading(_EXAMPLES.sub("", text), side)
        if found.silent:
            found = super().reading(text, side)
        if not found.concepts:
            return found
        plain, patterns = self.plain(_EXAMPLES.sub("", text)), self.patterns["ask"]
        narrower = {n for n, p in patterns.items() if self.broader[n] & found.concepts and p.search(plain)}
        wider = frozenset().union(*(self.broader[name] for name in narrower))
        rest = frozenset(word for word in found.rest if len(word) > 1)
        return replace(found, concepts=(found.concepts | narrower) - wider, rest=rest)

    def parts(self, question: str) -> list[str]:
        """The questions that one question may hold, as far as each names something."""
        return [part for part in _PARTS.split(_EXAMPLES.sub("", question)) if self.read(part, "ask").concepts]

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
        return [(run.start(), run[0]) for run in _RUN.finditer(bare)]


@lru_cache(maxsize=1)
def chinese() -> ChineseLexicon:
    """The lexicon of `chinese.yaml`, compiled once."""
    source = YAML(typ="safe").load(FILE)
    dialect = {word: standard for standard, words in source["dialect"].items() for word in words.split()}
    fillers = sorted(source["fillers"].split(), key=len, reverse=True)
    return ChineseLexicon(
        **assembled(source, _compiled),
        fillers=frozenset(fillers),
        filled=re.compile("|".join(fillers)),
        dialect=dialect,
        strict=True,
        spoken=re.compile("|".join(sorted(dialect, key=len, reverse=True))),
        common=frozenset(source["common"].split()),
    )


def typed_parts(fact: Fact, lexicon: Lexicon) -> dict[str, Any]:
    """What a fact tells: the fields of `clinic.understanding.record.Typed` but its kind."""
    heading, text = lexicon.plain(re.sub(r"\s*\(\d+\)\Z", "", fact.topic)), lexicon.plain(fact.text)
    own = _told(lexicon.read(text, "tell"), lexicon)
    asked = _answered(heading, text, own, lexicon) if _QUESTION.search(heading) else None
    under: set[str] = set()
    if asked is None:
        last = re.split(r"[：:]", heading)[-1]
        under = {name for name, words in lexicon.headings.items() if heading in words or last in words}
        if re.search(r"家族|家庭(?:病史|情况)", heading) and not own.concepts & NOT_INHERITED:
            under.add("family")
        if not under and not heading.endswith("史"):
            under = set(lexicon.read(heading, "tell").concepts) if len(heading) <= 6 else set()
    if own.concepts and not any(lexicon.kinds[c] == "diseases" or c in OF_THE_PAST for c in own.concepts):
        under.discard("past_illness")
    if asked is not None and "previous" in asked.aspects:  # its time is not that of the complaint
        own = replace(own, aspects=own.aspects - {"onset"})
    if "medicines" in under:
        own = replace(own, aspects=own.aspects | {"treatment"})
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
    said = [lexicon.read(one, "tell") for one in _SENTENCE.split(text) if one] if "family" in own.aspects else []
    return {
        "fact": fact,
        "mixed": any(one.concepts and "family" not in one.aspects for one in said) and "family" not in under,
        "own": own,
        "reading": reading,
        "asked": asked,
        "heading": frozenset(under),
        "denies": not fact.present or _denies(text, lexicon),
        "nothing": _NONE_AT_ALL.search(text) is not None,
        "only_denies": _ONLY_DENIES.match(text) is not None,
        "others": _OTHERS.search(text) is not None,
        "empty": not text.strip("。-：:"),
    }


def _denies(text: str, lexicon: Lexicon) -> bool:
    """Whether a fact that tells something says no to all of it that the lexicon knows: a pain that does not move is there."""
    clauses = [clause for clause in re.split("[，。；！]", text) if clause]
    telling = [clause for clause in clauses if lexicon.read(clause, "tell").concepts] or clauses
    return all(_NO.search(clause) for clause in telling)


def _told(own: Reading, lexicon: Lexicon) -> Reading:
    """A fact's reading without a relative who has no illness in it, and without what an allergy came from and did;
    whatever names a medicine tells of medicines.
    """
    concepts, aspects = own.concepts, own.aspects
    if concepts & NOT_INHERITED:
        aspects -= {"family"}
    if "allergies" in concepts or "food_allergy" in concepts:
        kept = frozenset(c for c in concepts - OF_ALLERGY if "medicines" not in lexicon.broader[c] | {c})
        return replace(own, concepts=kept, aspects=aspects - {"treatment"})
    if any("medicines" in lexicon.broader[c] for c in concepts):
        concepts |= {"medicines"}
    return replace(own, concepts=concepts, aspects=aspects)


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
        nothing.concepts.union(*(part.concepts for part in chosen)) | _wider(heading, chosen, lexicon),
        nothing.aspects.union(*(part.aspects for part in chosen)),
        nothing.places.union(*(part.places for part in chosen)),
        nothing.rest.union(*(part.rest for part in chosen)),
        nothing.stems.union(*(part.stems for part in chosen)),
    )


def _wider(heading: str, chosen: Sequence[Reading], lexicon: Lexicon) -> frozenset[str]:
    """What a recorded question names beside a kind of it: "大便多久一次，干不干" asks for bowels, too."""
    wider = frozenset().union(*(lexicon.broader[c] for part in chosen for c in part.concepts))
    return lexicon.read(heading, "tell").concepts & wider


def _compiled(
    entries: Mapping[str, Mapping[str, str]], side: Side, sets: Mapping[str, list[str]]
) -> dict[str, re.Pattern[str]]:
    compiled = {}
    for name, entry in entries.items():
        phrases = [part for key in ("both", side) for part in parted(entry.get(key, ""))]
        if phrases:  # the longest first
            phrases.sort(key=lambda phrase: (not set("~>") & set(phrase), phrase[0] == "/", -len(phrase), phrase))
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
