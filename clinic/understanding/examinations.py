"""Orders of examinations and tests, read against the results on record; `examinations.yaml` holds the words.

An order names what is measured ("CBC", "listen to"), where in the body ("chest") and in what ("urine"). So does the heading
of a result, or its text where the heading says nothing. A result answers an order of the same, of what it is a part of
("CBC" of hemoglobin), or of a part of it that the record does not hold apart ("potassium" of normal electrolytes), where
neither place nor specimen contradict. Words that the lexicon does not know must be on the record.
Under a heading as wide as "Labs" or "Imaging" every part of the text is a result of its own.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from clinic.cases import ORDERED, Fact
from clinic.matching import normalise
from clinic.telling import one_slip
from clinic.understanding.lexicon import plain_text, stem
from clinic.understanding.phrases import closure, compiled_patterns, parted

FILE = Path(__file__).with_name("examinations.yaml")
LEAST_MISSPELT = 6  # letters of a word that may be misspelt
SIDES = frozenset({"right", "left"})
SERUM = frozenset({"serum", "plasma"})
MOST = 6  # results that one order brings
READ = 400  # characters of an order; nobody orders in more, and spans are compared with each other
NO_MEASURE = ""  # for an order that names none
EXAMINATION, LABORATORY, IMAGING = "examination", "laboratory", "imaging"
_NUMBERED = re.compile(r"\s*\(\d+\)\Z")
_WORD = re.compile(r"[^\W_]+")
_PURPOSE = re.compile(
    r"\b(?:to (?:rule|look|check|see|evaluate|assess|exclude|confirm|find|detect|diagnose)|r/o|rule out|looking for"
    r"|because|given|in case|if )\b.*"
)
_SENTENCE_END = re.compile(r"\n|[.;](?!\d)|(?<!\d)[.;]")  # no point of a number
_COMMA = re.compile(r",(?!\d)|(?<!\d),")
_SAYS_NOTHING = re.compile(r"\A\W*(?:not (?:specified|done|performed|available)|n/?a)\W*\Z", re.IGNORECASE)
_NO_NAMES = frozenset(
    ["finding", "findings", "result", "results", "level", "report", "value", "interpretation", "general"]
)
Spans = Mapping[str, Sequence[tuple[int, int]]]


class Grade(NamedTuple):
    """How well a result answers an order; the greater the better."""

    exact: bool  # it is what was ordered, not a part or the whole of it
    words: int  # of the order that the lexicon does not know and the record has
    headed: bool  # by its heading


@dataclass(frozen=True, kw_only=True)
class Named:
    """What an order, or a part of a record, names."""

    measures: frozenset[str]  # the narrowest
    places: frozenset[str]
    specimens: frozenset[str]
    rest: frozenset[str]  # stems of words that nothing accounts for
    stems: frozenset[str]  # of all words
    strict: bool = False  # whether what is on record must have one of `rest`: "HSV PCR"


@dataclass(frozen=True)
class _Result:
    """A result on record."""

    topic: str
    heading: Named
    leaf: Named  # of the last part of the heading
    text: Named
    part: bool = False  # whether it is a part of a text under a wide heading


class Examinations:
    """The vocabulary, compiled."""

    def __init__(self, source: Mapping[str, Any]) -> None:
        """Args: the content of `examinations.yaml`."""
        self._patterns = {
            part: compiled_patterns({name: {"both": entry["words"]} for name, entry in source[part].items()}, "ask", {})
            for part in ("measures", "places", "specimens")
        }
        measures = source["measures"]
        self.whole = _closed({name: parted(entry.get("of", "")) for name, entry in measures.items()})
        self.around = _closed({name: parted(entry.get("in", "")) for name, entry in source["places"].items()})
        self.at = {name: entry["at"] for name, entry in measures.items() if "at" in entry}
        self.drawn = {name: entry["from"] for name, entry in measures.items() if "from" in entry}
        self.panels = frozenset(name for name, entry in measures.items() if entry.get("panel"))
        self.open = frozenset(name for name, entry in measures.items() if entry.get("open"))
        self.findings = self.with_parts(source["findings"].split())
        self._idle = frozenset(map(stem, source["idle"].split()))
        written = " ".join(entry["words"] for part in ("measures", "places") for entry in source[part].values())
        self._long = sorted({word for word in _WORD.findall(written.lower()) if len(word) >= LEAST_MISSPELT})

    def read(self, text: str) -> Named:
        """What a text names."""
        plain = plain_text(text)
        found = {part: _spans(patterns, plain) for part, patterns in self._patterns.items()}
        longest = _without_inner(found)
        measures = self.narrowest(longest["measures"])
        places = self._narrowest_places(longest["places"])
        covered = [span for spans in longest.values() for some in spans.values() for span in some]
        words = [(word.start(), stem(word[0])) for word in _WORD.finditer(plain)]
        rest = {w for start, w in words if w not in self._idle and not any(a <= start < b for a, b in covered)}
        return Named(
            measures=measures,
            places=places,
            specimens=frozenset(longest["specimens"]),
            rest=frozenset(word for word in rest if len(word) > 1 and not word.isdigit()),
            stems=frozenset(word for _, word in words),
        )

    def spelled(self, order: str) -> str:
        """The order with words that nothing accounts for and that are one slip away from one of the vocabulary as they are
        written there.
        """
        unknown = _read(self, order).rest

        def meant(match: re.Match[str]) -> str:
            said = match[0].lower()
            if len(said) < LEAST_MISSPELT or stem(said) not in unknown:
                return match[0]
            return next((word for word in self._long if word[0] == said[0] and one_slip(said, word)), match[0])

        return _WORD.sub(meant, order)

    def narrowest(self, measures: Iterable[str]) -> frozenset[str]:
        """Without those that others are parts or kinds of."""
        named = frozenset(measures)
        return named - frozenset().union(*(self.whole[name] for name in named))

    def meant(self, order: Named) -> frozenset[str]:
        """The measures of an order without those that only say how or in what others are looked for: "slit lamp exam", "blood
        test for HIV", "joint fluid gram stain", "lymph node biopsy".
        """
        vague = self.open | {EXAMINATION}
        looked_at = {name for name in order.measures if EXAMINATION in self.whole[name]}
        fluids = {name for name in order.measures if self.drawn.get(name, "blood") != "blood" and name in self.panels}
        tests = order.measures - vague - looked_at
        for idle in (vague, looked_at if tests - self.with_parts(["vital_signs"]) else set(), fluids):
            order = replace(order, measures=order.measures - idle or order.measures)
        return order.measures

    def with_parts(self, names: Iterable[str]) -> frozenset[str]:
        """Measures and all their parts and kinds."""
        wide = frozenset(names)
        return wide | {part for part, wholes in self.whole.items() if wholes & wide}

    def _narrowest_places(self, places: Iterable[str]) -> frozenset[str]:
        named = frozenset(places)
        return named - frozenset().union(*(self.around[name] for name in named))

    def touch(self, ordered: AbstractSet[str], found: AbstractSet[str]) -> bool:
        """Whether two sets of places have one in common, or one that lies in another."""
        return any(a == b or a in self.around[b] or b in self.around[a] for a in ordered for b in found)


class ExaminationMatcher:
    """The results of one record by what was ordered."""

    def __init__(self, facts: Sequence[Fact], words: Examinations | None = None) -> None:
        """Args: the results on record; the vocabulary, or None for the bundled one."""
        self._words = words or examinations()
        self._facts = facts
        self._topics = {
            normalise(name): fact.topic
            for fact in facts
            for name in (fact.topic.removeprefix(ORDERED["en"]), fact.topic)
        }

    @cached_property
    def _results(self) -> list[_Result]:
        """What can be answered; read when the first order comes, for most consultations have none."""
        told = [fact for fact in self._facts if not _SAYS_NOTHING.match(fact.text)]
        return [
            result for fact in told for whole in [self._result(fact)] for result in (whole, *self._parts(whole, fact))
        ]

    def _parts(self, whole: _Result, fact: Fact) -> Iterator[_Result]:
        """What the parts of a text say, if its heading is no more than "Labs" or "Imaging"."""
        heading, words = whole.heading, self._words
        if not heading.measures or heading.measures - (words.open & words.panels):
            return
        if not whole.leaf.measures and whole.leaf.rest:  # "Laboratory tests: calcitonin"
            return
        other = words.findings | words.open & words.panels
        if heading.measures == {IMAGING}:  # "calcium" in an artery
            other |= words.with_parts([LABORATORY])
        for part in _stated(words, fact.text, other):
            read = replace(part, places=part.places or heading.places, specimens=part.specimens or heading.specimens)
            yield _Result(fact.topic, read, read, read, part=True)

    def _result(self, fact: Fact) -> _Result:
        heading = _NUMBERED.sub("", fact.topic).replace("_", " ")
        leaf, path = _read(self._words, heading.rsplit(":", 1)[-1]), _read(self._words, heading)
        if leaf.measures:  # "ESR and CRP: CRP"
            own = leaf.measures | path.measures & (self._words.panels | {EXAMINATION})
            path = replace(path, measures=self._words.narrowest(own))
        return _Result(fact.topic, path, leaf, _read(self._words, fact.text))

    def match(self, order: str) -> list[str]:
        """Topics of the results that answer an order, `MOST` at most, in the order of the record; none: off the record."""
        exact = self._topics.get(normalise(order))
        if exact is not None:
            return [exact]
        asked = self._asked(order[:READ])
        found = self._best(asked) or (self._best(replace(asked, measures=frozenset())) if asked.rest else [])
        whole = not asked.places and asked.measures and asked.measures <= self._words.open | {EXAMINATION}
        return found[: 1 if whole else MOST]  # who orders everything gets something

    def _best(self, asked: Named) -> list[str]:
        graded = [(grade, one.topic) for one in self._results if (grade := self._grade(asked, one)) is not None]
        best = max((grade for grade, _ in graded), default=None)
        return list(dict.fromkeys(topic for grade, topic in graded if grade == best))

    def _asked(self, order: str) -> Named:
        """What an order asks for, without what it is for."""
        order = self._words.spelled(order)
        asked = _read(self._words, order)
        alone = _read(self._words, _PURPOSE.sub("", plain_text(order)))
        if alone.measures - self._words.open:
            asked = alone
        measures = self._words.meant(asked)
        if not measures and asked.places and not asked.rest:
            measures = frozenset({EXAMINATION})
        strict = bool(asked.rest and asked.measures & self._words.open - {LABORATORY, IMAGING})
        return replace(
            asked, measures=measures, specimens=asked.specimens - {"blood"} or asked.specimens, strict=strict
        )

    def _grade(self, asked: Named, result: _Result) -> Grade | None:
        """How well a result answers; None: not at all."""
        stems = result.heading.stems | result.text.stems
        met = asked.rest & stems
        if not asked.measures:
            known = asked.rest or asked.specimens
            if not known or asked.rest - stems or not self._fits(asked, result, NO_MEASURE):
                return None
            return Grade(False, len(met), asked.rest <= result.heading.stems)
        if not met and (asked.strict or (asked.rest and asked.measures <= self._words.open)):
            return None
        graded = {name: grade for name in asked.measures if (grade := self._told(name, asked, result)) is not None}
        if not graded:
            return None
        best = max(graded, key=lambda name: graded[name])
        if result.part:
            return Grade(graded[best].exact, len(met), headed=False)
        return graded[best] if best in self._words.panels else graded[best]._replace(words=len(met))

    def _told(self, name: str, asked: Named, result: _Result) -> Grade | None:
        """Whether a result is that of one thing that was ordered."""
        words, heading, text = self._words, result.heading, result.text
        own = heading.measures or text.measures
        if not self._fits(asked, result, name):
            return None
        if name in own or any(name in words.whole[one] for one in own):
            alike = name in words.panels  # of what has many parts any is as good as another
            return Grade(name in own or alike, 0, alike or bool(heading.measures))
        if own and own <= words.whole[name] & words.panels - words.open and not result.leaf.rest:
            named = name in text.measures or any(name in words.whole[one] for one in text.measures)
            return Grade(named, 0, True) if named or not text.measures else None
        return None

    def _fits(self, asked: Named, result: _Result, name: str) -> bool:
        """Whether neither place nor side nor specimen speaks against a result."""
        sides = (asked.stems & SIDES, result.heading.stems & SIDES)
        other_side = all(len(side) == 1 for side in sides) and sides[0] != sides[1]
        return not other_side and self._is_there(asked, result, name) and self._is_drawn(asked, result, name)

    def _is_there(self, asked: Named, result: _Result, name: str) -> bool:
        words, own = self._words, result.heading.measures or result.text.measures
        home = frozenset(words.at[one] for one in own if one in words.at)
        ordered = asked.places
        if not ordered and name in words.at and name not in result.heading.measures:
            ordered = frozenset({words.at[name]})
        if not ordered:
            return True
        if found := result.heading.places:
            return words.touch(ordered, found)
        if home:  # strength in the legs, of a record that has the strength of the nerves
            return words.touch(ordered, home) or words.at.get(name) in home
        if found := result.text.places:
            return words.touch(ordered, found)
        # of a record that does not say where: an examination of everything, or a test that is of one place anyway
        return own <= {EXAMINATION} or not any(one == EXAMINATION or EXAMINATION in words.whole[one] for one in own)

    def _is_drawn(self, asked: Named, result: _Result, name: str) -> bool:
        words, own = self._words, result.heading.measures or result.text.measures
        ordered = asked.specimens or (frozenset({words.drawn[name]}) if name in words.drawn else frozenset())
        found = self._specimens(result) or frozenset(words.drawn[one] for one in own if one in words.drawn)
        if not ordered and EXAMINATION in words.whole.get(name, ()):
            return not found
        return not ordered or not found or bool(ordered & found)

    def _specimens(self, result: _Result) -> frozenset[str]:
        """What a result was measured in: "Lumbar puncture: serum glucose", but "Urinalysis: blood"."""
        leaf, heading = result.leaf.specimens, result.heading.specimens
        if leaf and (leaf != {"blood"} or leaf == heading or result.leaf.stems & SERUM):
            return leaf
        return heading - {"blood"} or heading


def named_result(topic: str, text: str) -> str:
    """A result under the last name of its heading, for one of several: "Temperature: 37.2 °C."."""
    parts = [part.strip() for part in _NUMBERED.sub("", topic).split(":")]
    while len(parts) > 1 and parts[-1].lower() in _NO_NAMES:
        parts.pop()
    named = text.strip().casefold().startswith(f"{parts[-1]}:".casefold())
    said = text.strip() if named else f"{parts[-1]}: {text.strip()}"
    return said if said[-1] in ".!?" else f"{said}."


def _spans(patterns: Mapping[str, re.Pattern[str]], plain: str) -> dict[str, list[tuple[int, int]]]:
    found = {name: [match.span() for match in pattern.finditer(plain)] for name, pattern in patterns.items()}
    return {name: spans for name, spans in found.items() if spans}


def _without_inner(found: Mapping[str, Spans]) -> dict[str, dict[str, list[tuple[int, int]]]]:
    """Without what is named only inside longer words of another thing: "liver" in "liver function tests". A specimen
    stays: "urine culture" is a culture of urine.
    """
    everything = [span for part in ("measures", "places") for spans in found[part].values() for span in spans]

    def stands(span: tuple[int, int]) -> bool:
        start, end = span
        return not any(a <= start and end <= b and end - start < b - a for a, b in everything)

    return {
        part: {
            name: kept
            for name, spans in some.items()
            if (kept := [span for span in spans if part == "specimens" or stands(span)])
        }
        for part, some in found.items()
    }


def _closed(direct: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    sets = {name: frozenset(wider) for name, wider in direct.items()}
    return {name: closure(name, sets) for name in sets}


def _stated(words: Examinations, text: str, other: AbstractSet[str]) -> list[Named]:
    """What each part of a text names, from one measure to the next: "CRP 120, WBC 16" are two, "CT chest, abdomen" is one.
    What stands before the first colon of a sentence says what all its parts were measured in; a sentence that names no measure
    says where, if the one before it does not.

    Args:
        words: the vocabulary.
        text: of one fact.
        other: measures that the text may mention without giving their results.
    """
    found: list[Named] = []
    for sentence in _SENTENCE_END.split(text):
        parts: list[str] = []
        for piece in _COMMA.split(sentence):
            if parts and not (_read(words, piece).measures - other and _read(words, parts[-1]).measures - other):
                parts[-1] += f",{piece}"
            else:
                parts.append(piece)
        named = [replace(one, measures=one.measures - other) for one in (_read(words, part) for part in parts)]
        if not named[0].measures:
            if found and not found[-1].places:
                found[-1] = replace(found[-1], places=named[0].places)
            continue
        fluid = _fluid(words, _read(words, sentence.split(":")[0])) if ":" in parts[0] else frozenset()
        found += [replace(one, specimens=one.specimens or _fluid(words, one) or fluid) for one in named]
    return found


def _fluid(words: Examinations, named: Named) -> frozenset[str]:
    """What something else than blood was measured in."""
    drawn = frozenset(words.drawn[name] for name in named.measures if name in words.drawn)
    return (named.specimens or drawn) - {"blood"}


@lru_cache(maxsize=16384)
def _read(words: Examinations, text: str) -> Named:
    return words.read(text)


@lru_cache(maxsize=1)
def examinations() -> Examinations:
    """The vocabulary of `examinations.yaml`, compiled once."""
    return Examinations(YAML(typ="safe").load(FILE))
