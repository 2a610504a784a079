"""Orders of examinations and tests in Chinese, read against the results on record; `chinese_examinations.yaml` holds the words.

Orders and records are read alike: what is measured ("CT"), and where in the body, by the words nearest to it ("胸部CT"). A result
answers an order of the same, of what it is a part of ("血常规" of "WBC 16.2"), or of a part of it if it says that all is normal,
where no place contradicts. What the vocabulary does not know is found where it is written.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from clinic.cases import ORDERED, Fact
from clinic.matching import normalise
from clinic.simplified import simplified
from clinic.understanding.examinations import MOST, READ
from clinic.understanding.phrases import closure

FILE = Path(__file__).with_name("chinese_examinations.yaml")
EXAMINATION, TEST, BLOOD = "查体", "辅助检查", "血"
NOWHERE: frozenset[str] = frozenset()
SIDES = frozenset("左右")
SPLIT = 20  # characters of words that may stand in two places
_HEAD = re.compile(r"\A检查结果:(?=.)|\s*\(\d+\)\Z")
_SENTENCE = re.compile(r"[^。;!?\n]+")
_COMMA = re.compile(r",(?!\d)|(?<!\d),")
_PART = re.compile(r"(?:(?!和|及|与)[^,、;。+/()\s])+")  # of an order
_NEW = re.compile(r"[a-z][a-z0-9-]+|[\u4e00-\u9fff]{2,}")  # words that can be looked for
_LETTER = re.compile(r"[a-z\u4e00-\u9fff]")
_BLANK = re.compile(r"(?<=[\u4e00-\u9fff])\s+|\s+(?=[\u4e00-\u9fff])")
_NOT_DONE = re.compile(
    r"未(?:做|行|完善|进行|查(?![见出及体])|测(?![出到及])|检(?![出见测查]))|拒绝|拒[查做行]|(?:结果)?(?:待|未)回报?|待[查做]"
)
_ADVICE = re.compile(r"(?:建议|必要时|择期|拟[行做查]).*")
_BESIDE = re.compile(r"[、和及与]")
_NORMAL = re.compile(r"正常|(?:未见|无)(?:明显)?异常|阴性|\(-\)")
_PURPOSE = re.compile(
    r"(?:以|用于|为了?|来)?(?:排除|除外|明确|了解|看看|判断|评估|鉴别|确认|寻找|观察|是否|有没有|有无).*"
)
Span = tuple[int, int, str]


@dataclass(frozen=True, kw_only=True)
class Named:
    """One thing that an order asks for or a record tells."""

    measure: str
    places: frozenset[str]
    sides: frozenset[str]
    said: str  # the sentence around it
    start: int = 0  # where in the text
    normal: bool = False  # whether nothing but that all is normal is said of it
    rest: frozenset[str] = frozenset()  # of an order: words beside it that the vocabulary does not know


@dataclass(frozen=True)
class _Result:
    """A result on record."""

    topic: str
    heading: str
    text: str  # without what was not done
    headed: frozenset[str]  # what its heading names
    told: tuple[Named, ...]


class ChineseExaminations:
    """The vocabulary, compiled."""

    def __init__(self, source: Mapping[str, Any]) -> None:
        """Args: the content of `chinese_examinations.yaml`."""
        measures, places = source["measures"], source["places"]
        self._measures = {name: _pattern(entry["words"]) for name, entry in measures.items()}
        self._places = {name: _pattern(entry["words"]) for name, entry in places.items()}
        self.whole = _closed({name: entry.get("of", "") for name, entry in measures.items()})
        self.around = _closed({name: entry.get("in", "") for name, entry in places.items()})
        self.named_as = {name: entry["as"] for name, entry in measures.items() if "as" in entry}
        self.at = {name: frozenset({entry["at"]}) for name, entry in measures.items() if "at" in entry}
        self.drawn = {name: entry["from"] for name, entry in measures.items() if "from" in entry}
        self.shared = frozenset(name for name, entry in measures.items() if entry.get("shared"))
        self.open = frozenset(name for name, entry in measures.items() if entry.get("open"))
        idle = "|".join(sorted(source["idle"].split(), key=len, reverse=True))
        self.idle = re.compile(idle)
        self._around = re.compile(rf"\A(?:{idle})+|(?:{idle})+\Z")

    def is_examination(self, measure: str) -> bool:
        """Whether a hand or an eye finds it."""
        return measure == EXAMINATION or EXAMINATION in self.whole[measure]

    def is_test(self, measure: str) -> bool:
        """Whether a laboratory or a machine finds it. There is what is neither: "眼底"."""
        return measure == TEST or TEST in self.whole[measure]

    def touch(self, ordered: AbstractSet[str], found: AbstractSet[str]) -> bool:
        """Whether two sets of places have one in common, or one that lies in another."""
        return any(a == b or a in self.around[b] or b in self.around[a] for a in ordered for b in found)

    def bare(self, part: str) -> str:
        """A part of an order without what it says of how and for whom."""
        return self._around.sub("", part)

    def spans(self, plain: str) -> tuple[list[Span], list[Span]]:
        """Where measures and places are named; nothing inside a longer word of another measure."""
        measures = _longest(_found(self._measures, plain))
        places = _longest(_found(self._places, plain))
        return measures, [(a, b, n) for a, b, n in places if not any(x <= a and b <= y for x, y, _ in measures)]

    def read(self, plain: str, drawn: str = "") -> list[Named]:
        """What a text names, in its order.

        Args:
            plain: the text, as `plain_chinese` gives it.
            drawn: what is measured here if the text does not say it: blood, urine.
        """
        found: list[Named] = []
        for sentence in _SENTENCE.finditer(plain):
            said, fluid = sentence[0], drawn
            measures, places = self.spans(said)
            for start, end, name in measures:
                fluid = self.drawn.get(name, fluid)
                if name in self.shared and fluid not in ("", BLOOD):
                    continue
                begins = max((b for _, b, _ in measures if b <= start), default=0)
                further = min((a for a, _, _ in measures if a >= end), default=None)
                until = len(said) if further is None else _parted(said, end, further)
                where, sides = self._where(said, places, (start, end, name), (begins, until))
                found.append(
                    Named(
                        measure=self.named_as.get(name, name),
                        places=where,
                        sides=sides,
                        said=said,
                        start=sentence.start() + start,
                        normal=_says_normal(said, end, measures),
                    )
                )
        return found

    def _where(
        self, said: str, places: Sequence[Span], span: Span, reach: tuple[int, int]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Places and sides of one measure: named before it, behind it, or by what it is; of an examination also before that.

        Args:
            said: the sentence.
            places: named in it.
            span: of the measure.
            reach: from where to where nothing belongs to another measure.
        """
        (start, end, name), (begins, until) = span, reach
        comma = _COMMA.search(said, end, until)
        before, behind = (_clause(said, begins, start), start), (end, comma.start() if comma else until)
        regions = [before]
        if name not in self.at:
            regions += [behind] if self.is_examination(name) else [behind, (end, until)]
        for a, b in regions:
            if there := _within(places, a, b):
                return there, frozenset(said[a:b]) & SIDES
        if name in self.at or not self.is_examination(name):
            return self.at.get(name, NOWHERE), NOWHERE
        last = max((b for _, b, _ in places if b <= start), default=0)
        return _within(places, _clause(said, 0, last), last), NOWHERE


class ChineseExaminationMatcher:
    """The results of one record by what was ordered."""

    def __init__(self, facts: Sequence[Fact], words: ChineseExaminations | None = None) -> None:
        """Args: the results on record; the vocabulary, or None for the bundled one."""
        self._words = words or chinese_examinations()
        self._facts = facts
        self._topics = {
            normalise(name): f.topic for f in facts for name in (f.topic.removeprefix(ORDERED["zh"]), f.topic)
        }

    @cached_property
    def _results(self) -> list[_Result]:
        """What can be answered; read when the first order comes, for most consultations have none."""
        return [result for fact in self._facts if (result := _result(self._words, fact.topic, fact.text)) is not None]

    def match(self, order: str) -> list[str]:
        """Topics of the results that answer an order, `MOST` at most, in the order of the record; none: off the record."""
        exact = self._topics.get(normalise(order))
        if exact is not None:
            return [exact]
        wanted, literal = _asked(self._words, plain_chinese(order[:READ]))
        found: set[str] = set()
        for one in wanted:
            found |= self._measured(one)
        for words in literal:
            found |= {result.topic for result in self._results if _written(words, result)}
        topics = [result.topic for result in self._results if result.topic in found]
        whole = not literal and all(one.measure in self._words.open and not one.places for one in wanted)
        return topics[: 1 if whole else MOST]  # who orders everything gets something

    def _measured(self, wanted: Named) -> set[str]:
        """The topics under which a thing was measured; where it was not, those that say that all it is a part of is normal."""
        if wanted.measure in self._words.open and not wanted.places:
            headed = {result.topic for result in self._results if wanted.measure in result.headed}
            if headed:
                return headed
        for wide in (False, True):
            found = {r.topic for r in self._results if any(self._answers(wanted, one, r, wide) for one in r.told)}
            if found:
                return found
        return set()

    def _answers(self, wanted: Named, told: Named, result: _Result, wide: bool) -> bool:
        words = self._words
        parts = words.whole[wanted.measure] - words.open if wide and told.normal else NOWHERE
        named = told.measure in parts if wide else wanted.measure in {told.measure, *words.whole[told.measure]}
        if not named or any(word not in told.said and word not in result.heading for word in wanted.rest):
            return False
        if len(wanted.sides) == len(told.sides) == 1 and wanted.sides != told.sides:
            return False
        if not wanted.places:
            return True
        if not told.places:
            return not words.is_examination(told.measure)
        return words.touch(wanted.places, told.places)


def plain_chinese(text: str) -> str:
    """Simplified characters, small letters, no full-width forms, no blanks beside characters."""
    return _BLANK.sub("", simplified(unicodedata.normalize("NFKC", text)).lower())


@lru_cache(maxsize=4096)
def _result(words: ChineseExaminations, topic: str, text: str) -> _Result | None:
    """A fact as a result; None: it says only that nothing was done."""
    heading, done = _HEAD.sub("", plain_chinese(topic)), _done(plain_chinese(text))
    if text.strip() and not done:
        return None
    headed = words.read(heading) or _place_alone(words, heading)
    places = frozenset[str]().union(*(one.places for one in headed))
    fluid = next((words.drawn[one.measure] for one in headed if one.measure in words.drawn), "")
    told = [replace(one, places=one.places or places) for one in _results_only(words, words.read(done, fluid), headed)]
    normal = not told and _NORMAL.search(done) is not None
    told += [
        replace(one, said=done, normal=normal, places=one.places or _shown(words, one.measure, done)) for one in headed
    ]
    if headed and all(words.is_examination(one.measure) for one in headed):
        told += _looked_at(words, done)
    return _Result(topic, heading, done, frozenset(one.measure for one in headed), tuple(told))


def _shown(words: ChineseExaminations, measure: str, plain: str) -> frozenset[str]:
    """Where a test looked that does not say it in its heading."""
    if not words.is_test(measure):
        return NOWHERE
    return frozenset(place for said in _SENTENCE.findall(plain) for _, _, place in words.spans(said)[1])


def _place_alone(words: ChineseExaminations, plain: str) -> list[Named]:
    """A heading or an order that names nothing but where: an examination there."""
    where = frozenset(place for _, _, place in words.spans(plain)[1])
    return [Named(measure=EXAMINATION, places=where, sides=frozenset(plain) & SIDES, said=plain)] if where else []


def _results_only(words: ChineseExaminations, told: Iterable[Named], headed: Sequence[Named]) -> Iterator[Named]:
    """Without what a test shows in words of an examination: "胸部CT：淋巴结肿大"."""
    tests = any(words.is_test(one.measure) for one in headed)
    sentence, tested = "", False
    for one in told:
        if one.said != sentence or one.measure == EXAMINATION:
            sentence, tested = one.said, False
        tested |= words.is_test(one.measure)
        if not (words.is_examination(one.measure) and (tests or tested)):
            yield one


def _looked_at(words: ChineseExaminations, text: str) -> Iterator[Named]:
    """The places of an examination, clause by clause, whatever was done there."""
    for clause in _SENTENCE.findall(_COMMA.sub("\n", text)):
        yield from _place_alone(words, clause)


def _done(plain: str) -> str:
    """A text without what was not done or is only advised."""
    sentences = []
    for sentence in _SENTENCE.findall(re.sub(r"\.(?!\d)", "。", plain)):
        clauses = [_ADVICE.sub("", clause) for clause in _COMMA.split(sentence) if not _NOT_DONE.search(clause)]
        sentences.append(",".join(clause for clause in clauses if clause))
    return "。".join(sentence for sentence in sentences if sentence)


def _asked(words: ChineseExaminations, plain: str) -> tuple[list[Named], list[str]]:
    """What an order asks for: what the vocabulary knows, and words to look for."""
    alone = _PURPOSE.sub("", plain)
    plain = alone if words.spans(alone)[0] else plain
    measures, places = words.spans(plain)
    named, wanted, literal = words.read(plain), [], []
    for part in _PART.finditer(plain):
        unknown = _unknown(words, plain, part.span(), [*measures, *places])
        inside = [one for one in named if part.start() <= one.start < part.end()]
        told = [one for one in inside if one.measure not in words.open] or inside  # "神经系统查体"
        wanted += [replace(one, rest=frozenset(_NEW.findall(unknown))) for one in told]
        if not inside and _LETTER.search(unknown) and not (measures and _PURPOSE.search(part[0])):
            literal.append(words.bare(part[0]))
    return wanted or ([] if literal else _place_alone(words, plain)), literal


def _unknown(words: ChineseExaminations, plain: str, part: tuple[int, int], known: Iterable[Span]) -> str:
    """A part of an order without what is accounted for."""
    low, high = part
    left = list(plain)
    for a, b, _ in known:
        left[a:b] = " " * (b - a)
    return words.idle.sub(" ", "".join(left[low:high]))


def _written(words: str, result: _Result) -> bool:
    """Whether a result has these words, in one place or in two of a clause ("支原体IgM抗体")."""
    if len(words) < 2:
        return False
    cuts = range(2, len(words) - 1) if len(words) <= SPLIT else ()
    halves = [words, *(f"{words[:i]}\n{words[i:]}" for i in cuts)]
    forms = "|".join(re.escape(half).replace("\\\n", "[^,。]{0,6}") for half in halves)
    return re.search(rf"(?<![a-z])(?:{forms})(?![a-z])", f"{result.heading}。{result.text}") is not None


def _pattern(words: str) -> re.Pattern[str]:
    """Words parted by blanks; what begins or ends with a letter is a whole word."""
    edge = "(?:(?<![a-z])|(?![a-z]))"
    return re.compile("|".join(f"{edge}(?:{word}){edge}" for word in sorted(words.split(), key=len, reverse=True)))


def _says_normal(said: str, end: int, measures: Sequence[Span]) -> bool:
    """Whether what follows a measure, or the last of several ("血常规、电解质正常"), is that all is normal."""
    for low, further, _ in measures:
        if low > end and _BESIDE.fullmatch(said, end, low):
            end = further
    until = min((low for low, _, _ in measures if low >= end), default=len(said))
    return _NORMAL.search(_COMMA.split(said[end:until])[0]) is not None


def _parted(plain: str, low: int, high: int) -> int:
    """Where the words begin that belong to a measure at `high`: behind the last comma or "、"."""
    parting = [*_COMMA.finditer(plain, low, high), *_BESIDE.finditer(plain, low, high)]
    return max((match.start() for match in parting), default=high)


def _clause(plain: str, low: int, high: int) -> int:
    """Where the clause begins that ends at `high`, after `low` at the earliest."""
    return max([low, *(comma.end() for comma in _COMMA.finditer(plain, low, high))])


def _within(places: Iterable[Span], low: int, high: int) -> frozenset[str]:
    return frozenset(place for start, end, place in places if low <= start and end <= high)


def _found(patterns: Mapping[str, re.Pattern[str]], plain: str) -> list[Span]:
    return sorted((*m.span(), name) for name, pattern in patterns.items() for m in pattern.finditer(plain) if m[0])


def _longest(spans: Sequence[Span]) -> list[Span]:
    return [(a, b, n) for a, b, n in spans if not any(x <= a and b <= y and b - a < y - x for x, y, _ in spans)]


def _closed(direct: Mapping[str, str]) -> dict[str, frozenset[str]]:
    sets = {name: frozenset(wider.split()) for name, wider in direct.items()}
    return {name: closure(name, sets) for name in sets}


@lru_cache(maxsize=1)
def chinese_examinations() -> ChineseExaminations:
    """The vocabulary of `chinese_examinations.yaml`, compiled once."""
    return ChineseExaminations(YAML(typ="safe").load(FILE))
