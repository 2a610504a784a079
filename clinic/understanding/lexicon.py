"""The lexicon: which concepts, places and aspects a text speaks of; `english.yaml` holds its words, and those of Chinese
are in `chinese.yaml`, read by `chinese`.
"""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from clinic.understanding.coordination import written_out
from clinic.understanding.phrases import START, TOKEN, Side, assembled, compiled_patterns, starts_of

FILE = Path(__file__).with_name("english.yaml")
REMEMBERED = 16384  # texts; doctors ask the same of many patients, and one question is read several times a turn
LONGEST_PHRASE = 30  # characters; what stands in a longer stretch between two words is not taken for part of a phrase
# aspects whose words may be part of the name of something else
LOOSE = frozenset({"family", "pattern", "previous", "course", "amount", "character"})
# aspect -> those of which a question that has it too does not ask; in this order
YIELDING = {
    "aggravate": ("course",),  # "what makes it better or worse"
    "relieve": ("course",),
    "trigger": ("onset",),  # "what were you doing when it started"
    "manner": ("onset",),  # "did it come on suddenly"
    "timing": ("severity",),  # "when is it worst"
    "severity": ("location",),  # "where would you put it on a scale of ten"
    "onset": ("amount", "previous"),  # "how many days", "how long have you had this"
    "previous": ("character",),  # "have you had this kind of pain before"
}
# what can be anywhere in the body: where the question names a place, the fact must not leave it open
ANYWHERE = frozenset(
    {"pain", "weakness", "numbness", "swelling", "lump", "bleeding", "wound_discharge", "itching", "rash"}
)
# aspects that only narrow what is asked for besides
QUALIFIERS = frozenset({"time", "regular"})
_OR = re.compile(r",? (?:or|and) (?:(?:any|a|an|the|your) )?")
_WORD = re.compile(r"[a-z]+")
# where a second question begins
_PARTS = re.compile(
    r"(?<=[.?!])\s+|,? and (?=(?:do|does|did|is|are|was|were|have|has|had|how|what|when|where|who|which|any|can)\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Reading:
    """What a text speaks of."""

    concepts: frozenset[str]  # symptoms, diseases, topics
    aspects: frozenset[str]  # onset, severity, family ...
    places: frozenset[str]  # of the body
    rest: frozenset[str]  # stems of the content words that none of these accounts for
    stems: frozenset[str]  # of all content words

    @property
    def silent(self) -> bool:
        """Whether nothing was recognised."""
        return not (self.concepts or self.aspects)


@dataclass(frozen=True, kw_only=True, eq=False)
class Lexicon:
    """Compiled patterns, and how concepts relate. Two lexicons are never equal: what one has read is remembered as its own."""

    patterns: Mapping[Side, Mapping[str, re.Pattern[str]]]  # of concepts
    aspects: Mapping[Side, Mapping[str, re.Pattern[str]]]
    places: Mapping[str, re.Pattern[str]]
    circumstances: Mapping[str, re.Pattern[str]]  # that may make a complaint worse or better
    broader: Mapping[str, frozenset[str]]  # concept -> all that it is a kind of
    over: Mapping[str, frozenset[str]]  # concept -> those of which a question that names it too does not ask
    headings: Mapping[str, frozenset[str]]  # concept -> headings under which everything tells of it
    kinds: Mapping[str, str]  # concept -> symptoms, diseases or topics
    fillers: frozenset[str]  # words that carry no meaning of their own in a question
    common: frozenset[str]  # stems that a question may have and the fact that answers it lack
    # whether what is not understood, and an answer that names something else, speak against a fact
    strict: bool = False
    # concept -> beginnings of words; a text in which no word begins so does not name it. To save time, or empty
    starts: Mapping[Side, Mapping[str, frozenset[str]]] = field(default_factory=dict)

    def read(self, text: str, side: Side) -> Reading:
        """What a question asks for, or a statement tells; the texts read last are remembered."""
        return _remembered(self, text, side)

    def reading(self, text: str, side: Side) -> Reading:
        """As `read`, read now."""
        plain = self.plain(text)
        spans: dict[str, list[tuple[int, int]]] = {}
        begun = {word[:n] for word in TOKEN.findall(plain) for n in range(1, START + 1)} if self.starts else set()
        for name, pattern in self.patterns[side].items():
            if self.starts and not self.starts[side].get(name, begun) & begun:
                continue
            found = [match.span() for match in pattern.finditer(plain)]
            if found:
                spans[name] = found
        aspects = {name: [m.span() for m in p.finditer(plain)] for name, p in self.aspects[side].items()}
        aspects = {name: found for name, found in aspects.items() if found}
        if side == "tell" and "time" in aspects:
            aspects.setdefault("onset", aspects["time"])
        if side == "ask":  # "bleeding between periods" asks for no period, "friends and family" for no family history
            spans = {n: f for n, f in spans.items() if not _inside(n, f, spans)}
            aspects = {n: f for n, f in aspects.items() if n not in LOOSE or not _inside(n, f, spans)}
            aspects = _meant(aspects)
        places = {name: [m.span() for m in p.finditer(plain)] for name, p in self.places.items()}
        places = {name: found for name, found in places.items() if found}
        covered = [span for group in (spans, aspects, places) for found in group.values() for span in found]
        named = self._narrowest(spans)
        if side == "ask":
            besides = self._besides(named, spans, plain)
            named, aspects = named - besides, {name: found for name, found in aspects.items() if name not in besides}
        if "occasion" in aspects and not any(self.kinds[name] == "symptoms" for name in named):
            aspects["aggravate"] = aspects.pop("occasion")
        if not named and not aspects.keys() - QUALIFIERS:
            aspects = {}
        return Reading(
            frozenset(named),
            frozenset(aspects),
            frozenset(places),
            self.unaccounted(plain, covered),
            frozenset(word for _, word in self.content(plain)),
        )

    def plain(self, text: str) -> str:
        """The text in the form that the patterns read."""
        return plain_text(text)

    def parts(self, question: str) -> list[str]:
        """The questions that one question may hold."""
        return [part for part in _PARTS.split(question) if len(part.split()) > 2]

    def content(self, plain: str) -> list[tuple[int, str]]:
        """The stems of the content words, each with its place."""
        words = ((word.start(), word[0]) for word in _WORD.finditer(plain))
        return [(start, stem(word)) for start, word in words if word not in self.fillers and len(word) > 1]

    def unaccounted(self, plain: str, covered: list[tuple[int, int]]) -> frozenset[str]:
        """The content words that stand in none of these stretches."""
        return frozenset(word for start, word in self.content(plain) if not any(a <= start < b for a, b in covered))

    def _besides(self, named: set[str], spans: Mapping[str, list[tuple[int, int]]], plain: str) -> AbstractSet[str]:
        """What a question names, but does not ask for: "pain" in "are your testicles sore or tender", "sleep" in "how many
        pillows do you sleep on".
        """
        besides = frozenset().union(*(self.broader[name] | self.over[name] for name in named))
        return besides - {other for other in besides & named if self._listed(other, named, spans, plain)}

    def _listed(self, other: str, named: set[str], spans: Mapping[str, list[tuple[int, int]]], plain: str) -> bool:
        """Whether a wider concept is asked for beside the narrower one: "low mood or loss of interest"."""
        return other not in ANYWHERE and any(
            _OR.fullmatch(plain[min(end, b) : max(start, a)])
            for name in named
            if other in self.broader[name] | self.over[name]
            for start, end in spans[name]
            for a, b in spans[other]
            if end <= a or b <= start
        )

    def circumstances_of(self, text: str) -> frozenset[str]:
        """The circumstances that a text names."""
        plain = self.plain(text)
        return frozenset(name for name, pattern in self.circumstances.items() if pattern.search(plain))

    def _narrowest(self, spans: Mapping[str, list[tuple[int, int]]]) -> set[str]:
        """Concepts without those that are told only by the words of a narrower one."""
        kept = set(spans)
        for name, found in spans.items():
            for wider in self.broader[name] & set(spans):
                if all(
                    any((a <= start and end <= b) or start <= a < end for a, b in found) for start, end in spans[wider]
                ):
                    kept.discard(wider)
        return kept


@lru_cache(maxsize=REMEMBERED)
def _remembered(lexicon: Lexicon, text: str, side: Side) -> Reading:
    return lexicon.reading(text, side)


def _inside(name: str, found: list[tuple[int, int]], others: Mapping[str, list[tuple[int, int]]]) -> bool:
    """Whether all these words stand inside longer phrases of other concepts."""
    longer = [span for other, spans in others.items() if other != name for span in spans]
    return all(
        any(a <= start and end <= b and end - start < b - a <= LONGEST_PHRASE for a, b in longer)
        for start, end in found
    )


def _meant(aspects: dict[str, list[tuple[int, int]]]) -> dict[str, list[tuple[int, int]]]:
    """The aspects that a question asks for, of those that it names."""
    meant = dict(aspects)
    if {"pattern", "onset"} <= meant.keys() and _within(meant["onset"], meant["pattern"]):
        del meant["onset"]  # "how long does each attack last"
    for name, others in YIELDING.items():
        if name in meant:
            meant = {other: found for other, found in meant.items() if other not in others}
    if "onset" not in meant:
        meant.pop("time", None)
    return meant


def _within(found: list[tuple[int, int]], others: list[tuple[int, int]]) -> bool:
    return all(any(a <= start and end <= b for a, b in others) for start, end in found)


def plain_text(text: str) -> str:
    """Lower case, plain apostrophes, single blanks, lists of parts of the body written out."""
    return written_out(re.sub(r"\s+", " ", text.lower().replace("’", "'").replace("‘", "'")).strip())


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """A word without its commonest English endings."""
    for ending in (
        "ingly",
        "edly",
        "ations",
        "ation",
        "ings",
        "ing",
        "ies",
        "ied",
        "ness",
        "ment",
        "ed",
        "es",
        "ly",
        "s",
        "e",
        "y",
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


@lru_cache(maxsize=1)
def english() -> Lexicon:
    """The lexicon of `english.yaml`, compiled once."""
    return compiled(YAML(typ="safe").load(FILE))


def compiled(source: Mapping[str, Any]) -> Lexicon:
    """The lexicon of a file's content, of a language that parts its words by blanks."""
    return Lexicon(
        **assembled(source, compiled_patterns),
        starts={side: starts_of(source, side) for side in ("ask", "tell")},
        fillers=frozenset(source["fillers"].split()),
        common=frozenset(map(stem, source["common"].split())),
    )
