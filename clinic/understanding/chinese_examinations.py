"""Orders of examinations and tests in Chinese, read against the results on record; `chinese_examinations.yaml` holds the words.

Orders and records are read alike: what is measured ("CT"), and where in the body, by the words nearest to it ("胸部CT"). A result
answers an order of the same, of what it is a part of ("血常规" of "WBC 16.2"), or of a part of it if it says that all is normal,
where no place contradicts. What the vocabulary does not know is found where it is written.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from clinic.cases import Fact
from clinic.matching import normalise
from clinic.simplified import simplified
from clinic.understanding.examinations import MOST, READ
from clinic.understanding.phrases import closure

FILE = Path(__file__).with_name("chinese_examinations.yaml")
EXAMINATION, BLOOD = "查体", "血"
NOWHERE: frozenset[str] = frozenset()
_HEAD = re.compile(r"\A检查结果:(?=.)|\s*\(\d+\)\Z")
_SENTENCE = re.compile(r"[^。;!?\n]+")
_COMMA = re.compile(r",(?!\d)|(?<!\d),")
_PART = re.compile(r"(?:(?!和|及|与)[^,、;。+/()\s])+")  # of an order
_NEW = re.compile(r"[a-z][a-z0-9-]+|[\u4e00-\u9fff]{2,}")  # words that can be looked for
_BLANK = re.compile(r"(?<=[\u4e00-\u9fff])\s+|\s+(?=[\u4e00-\u9fff])")
_NOT_DONE = re.compile(
    r"未(?:做|行|完善|进行|查(?![见出及体])|测(?![出到及])|检(?![出见测查]))|拒绝|拒[查做行]|(?:结果)?(?:待|未)回报?|待[查做]"
)
_ADVICE = re.compile(r"(?:建议|必要时|择期|拟[行做查]).*")
_NORMAL = re.compile(r"正常|(?:未见|无)(?:明显)?异常|阴性")
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
        """Whether a hand or an eye finds it, no laboratory and no machine."""
        return measure == EXAMINATION or EXAMINATION in self.whole[measure]

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
        measures, places = self.spans(plain)
        found: list[Named] = []
        for sentence in _SENTENCE.finditer(plain):
            start, end, fluid = *sentence.span(), drawn
            inside = [span for span in measures if start <= span[0] < end]
            for i, (a, b, name) in enumerate(inside):
                fluid = self.drawn.get(name, fluid)
                if name in self.shared and fluid not in ("", BLOOD):
                    continue
                limits = (
                    max(start, inside[i - 1][1]) if i else start,
                    inside[i + 1][0] if i + 1 < len(inside) else end,
                )
                where, sides = self._where(plain, places, (a, b, name), (start, *limits))
                follows = _COMMA.split(plain[b : limits[1]])[0]
                found.append(
                    Named(
                        measure=self.named_as.get(name, name),
                        places=where,
                        sides=sides,
                        said=sentence[0],
                        normal=_NORMAL.search(follows) is not None,
                    )
                )
        return found

    def _where(
        self, plain: str, places: Sequence[Span], span: Span, limits: tuple[int, int, int]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Places and sides of one measure: named before it, behind it, or by what it is; of an examination also before that.

        Args:
            plain: the text.
            places: named in it.
            span: of the measure.
            limits: where its sentence begins, and how far the words reach that belong to no other measure.
        """
        start, name = span[0], span[2]
        clause = max([limits[1], *(limits[1] + comma.end() for comma in _COMMA.finditer(plain[limits[1] : start]))])
        behind = _COMMA.search(plain, span[1], limits[2])
        regions = [(clause, start), (span[1], behind.start() if behind else limits[2])]
        if not self.is_examination(name):
            regions.append((span[1], limits[2]))
        for low, high in regions:
            if there := frozenset(place for a, b, place in places if low <= a and b <= high):
                return there, frozenset(plain[low:high]) & {"左", "右"}
        if name in self.at:
            return self.at[name], NOWHERE
        if self.is_examination(name):
            return self._before(plain, places, limits[0], start), NOWHERE
        return NOWHERE, NOWHERE

    @staticmethod
    def _before(plain: str, places: Sequence[Span], low: int, high: int) -> frozenset[str]:
        """The places of the last clause that names any."""
        named = [(b, place) for a, b, place in places if low <= a and b <= high]
        commas = [low, *(low + comma.end() for comma in _COMMA.finditer(plain[low:high]))]
        last = max((comma for comma in commas if named and comma <= named[-1][0]), default=low)
        return frozenset(place for end, place in named if end > last)


class ChineseExaminationMatcher:
    """The results of one record by what was ordered."""

    def __init__(self, facts: Sequence[Fact], words: ChineseExaminations | None = None) -> None:
        """Args: the results on record; the vocabulary, or None for the bundled one."""
        self._words = words or chinese_examinations()
        self._facts = facts
        self._topics = {normalise(fact.topic): fact.topic for fact in facts}

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
        if wide:
            named = told.normal and told.measure in words.whole[wanted.measure] - words.open
        else:
            named = told.measure == wanted.measure or wanted.measure in words.whole[told.measure]
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


def _result(words: ChineseExaminations, topic: str, text: str) -> _Result | None:
    """A fact as a result; None: it says only that nothing was done."""
    heading, whole = _HEAD.sub("", plain_chinese(topic)), _sentences(plain_chinese(text))
    done = _done(whole)
    if not done.strip("。,") and whole:
        return None
    headed = words.read(heading)
    fluid = next((words.drawn[one.measure] for one in headed if one.measure in words.drawn), "")
    told = list(_results_only(words, words.read(done, fluid), headed))
    places = frozenset[str]().union(*(one.places for one in headed))
    told = [one if one.places or not places else _at(one, places) for one in told]
    normal = not told and _NORMAL.search(done) is not None
    for one in headed:
        told.append(Named(measure=one.measure, places=one.places, sides=one.sides, said=done, normal=normal))
    if headed and all(words.is_examination(one.measure) for one in headed):
        told += _looked_at(words, done)
    return _Result(topic, heading, done, frozenset(one.measure for one in headed), tuple(told))


def _at(named: Named, places: frozenset[str]) -> Named:
    return Named(measure=named.measure, places=places, sides=named.sides, said=named.said, normal=named.normal)


def _results_only(words: ChineseExaminations, told: Iterable[Named], headed: Sequence[Named]) -> Iterator[Named]:
    """Without what a test shows in words of an examination: "胸部CT：淋巴结肿大"."""
    tests = any(not words.is_examination(one.measure) for one in headed)
    sentence, tested = "", False
    for one in told:
        if one.said != sentence or one.measure == EXAMINATION:
            sentence, tested = one.said, False
        if not words.is_examination(one.measure):
            tested = True
        elif tests or tested:
            continue
        yield one


def _looked_at(words: ChineseExaminations, text: str) -> Iterator[Named]:
    """The places of an examination, clause by clause, whatever was done there."""
    for clause in _SENTENCE.findall(_COMMA.sub("\n", text)):
        _, places = words.spans(clause)
        where = frozenset(place for _, _, place in places)
        if where:
            yield Named(measure=EXAMINATION, places=where, sides=frozenset(clause) & {"左", "右"}, said=clause)


def _sentences(plain: str) -> str:
    """With one kind of stop; a point of a number is none."""
    return re.sub(r"\.(?!\d)", "。", plain)


def _done(plain: str) -> str:
    """A text without what was not done or is only advised."""
    sentences = []
    for sentence in _SENTENCE.findall(plain):
        clauses = [_ADVICE.sub("", clause) for clause in _COMMA.split(sentence) if not _NOT_DONE.search(clause)]
        sentences.append(",".join(clause for clause in clauses if clause))
    return "。".join(sentence for sentence in sentences if sentence)


def _asked(words: ChineseExaminations, plain: str) -> tuple[list[Named], list[str]]:
    """What an order asks for: what the vocabulary knows, and words to look for."""
    alone = _PURPOSE.sub("", plain)
    plain = alone if words.spans(alone)[0] else plain
    measures, places = words.spans(plain)
    parts = [(part.start(), part.end()) for part in _PART.finditer(plain)]
    rest = {part: _unknown(words, plain, part, [*measures, *places]) for part in parts}
    named = words.read(plain)
    wanted: list[Named] = []
    for one in named:
        wanted.append(one)
    literal = []
    for (low, high), unknown in rest.items():
        inside = [span for span in measures if low <= span[0] < high]
        if not inside and unknown and not (measures and _PURPOSE.search(plain[low:high])):
            literal.append(words.bare(plain[low:high]))
    where = frozenset(place for _, _, place in places)
    if not named and where and not literal:
        sides = frozenset(plain) & {"左", "右"}
        wanted = [Named(measure=EXAMINATION, places=where, sides=sides, said=plain)]
    return wanted, literal


def _unknown(words: ChineseExaminations, plain: str, part: tuple[int, int], known: Iterable[Span]) -> frozenset[str]:
    """Words of a part of an order that nothing accounts for."""
    low, high = part
    left = list(plain)
    for a, b, _ in known:
        left[a:b] = " " * (b - a)
    return frozenset(_NEW.findall(words.idle.sub(" ", "".join(left[low:high]))))


def _written(words: str, result: _Result) -> bool:
    """Whether a result has these words, in one place or in two of a clause ("支原体IgM抗体")."""
    if len(words) < 2:
        return False
    halves = [words, *(f"{words[:i]}\n{words[i:]}" for i in range(2, len(words) - 1))]
    forms = "|".join(re.escape(half).replace("\\\n", "[^,。]{0,6}") for half in halves)
    return re.search(rf"(?<![a-z])(?:{forms})(?![a-z])", f"{result.heading}。{result.text}") is not None


def _pattern(words: str) -> re.Pattern[str]:
    """Words parted by blanks; letters at either end are a whole word."""
    bounded = [
        f"{'(?<![a-z])' if re.match('[a-z]', word) else ''}(?:{word}){'(?![a-z])' if re.search('[a-z]$', word) else ''}"
        for word in words.split()
    ]
    return re.compile("|".join(sorted(bounded, key=len, reverse=True)))


def _found(patterns: Mapping[str, re.Pattern[str]], plain: str) -> list[Span]:
    return sorted((*m.span(), name) for name, pattern in patterns.items() for m in pattern.finditer(plain) if m[0])


def _longest(spans: Sequence[Span]) -> list[Span]:
    return [
        (a, b, n) for a, b, n in spans if not any(x <= a and b <= y and b - a < y - x for x, y, _ in spans if x <= a)
    ]


def _closed(direct: Mapping[str, str]) -> dict[str, frozenset[str]]:
    sets = {name: frozenset(wider.split()) for name, wider in direct.items()}
    return {name: closure(name, sets) for name in sets}


@lru_cache(maxsize=1)
def chinese_examinations() -> ChineseExaminations:
    """The vocabulary of `chinese_examinations.yaml`, compiled once."""
    return ChineseExaminations(YAML(typ="safe").load(FILE))
