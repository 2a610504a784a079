"""The leak filter: what a patient says never names the case's diagnosis, its synonyms or accepted parents, whoever
plays the patient.

Text and terms are compared by their skeleton: letters and digits alone, folded (case, full-width forms, accents,
British ae and oe, Cyrillic, Greek and digit look-alikes), so that hyphens, dots, invisible characters or a spelled-out
word hide nothing. A Latin term counts as a whole word, in singular or plural, since the same letters inside another
word tell nothing; a Chinese one wherever it stands. Terms of up to four letters are compared without the digit
look-alikes, and abbreviations only in capitals or with dots: "10 lbs" is no IBS.
Not caught: paraphrase, another language than the terms', misspelling by other letters, traditional for simplified
characters.

A model that echoes a list of diseases without the true one would give it away as surely, so where a model plays the
patient every other disease known to the run is masked too (`others`).
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from clinic.cases import Case
from clinic.language import phrases

_LOOKALIKES = str.maketrans(
    {
        **dict(zip("авеікмнорстухѕјԁһӏԛԝьг", "abeikmhopctyxsjdhlqwbr", strict=True)),  # Cyrillic
        **dict(zip("αβειικνορτυχγηω", "abeiiknoptuxynw", strict=True)),  # Greek
        **dict(zip("ɑօսꜱıſæœøłđħʟɡ", "aousiseeoldhlg", strict=True)),
        **dict(zip("01345@$|", "oleasasl", strict=True)),
        "i": "l",  # i, l, 1 and | are told apart by nobody who wants to be understood
    }
)
_LETTERS_ALONE = {code: letter for code, letter in _LOOKALIKES.items() if not chr(code).isascii()}
SHORT = 4  # letters of a term that is compared strictly
_JOINERS = frozenset("-‐‑‒–—_.·•*/'’´`~+")
_SENTENCE_END = re.compile(r"[!?;:。！？；：]|\.\s")
_LONGEST_GAP = 3  # characters between two letters of a term


class _Skeleton(NamedTuple):
    letters: str  # one for each kept character of the text
    starts: tuple[int, ...]  # of each letter in the text
    ends: tuple[int, ...]
    gaps: tuple[str, ...]  # what stood before each letter and is no letter
    latin: tuple[bool, ...]  # whether it was written as a letter of a script that parts its words


@lru_cache(maxsize=16384)
def _fold(character: str, strict: bool) -> str:
    plain = "".join(c for c in unicodedata.normalize("NFKD", character).casefold() if not unicodedata.combining(c))
    # twice: what looks like i looks like l
    return plain.translate(_LETTERS_ALONE) if strict else plain.translate(_LOOKALIKES).translate(_LOOKALIKES)


@lru_cache(maxsize=8192)
def skeleton(text: str, strict: bool = False) -> _Skeleton:
    """The letters of a text by which it is compared, and where they stand; `strict` leaves digits and i apart."""
    kept: list[tuple[str, int, int, str, bool]] = []
    gap = ""
    for place, character in enumerate(text):
        if unicodedata.category(character) in ("Cf", "Mn", "Me"):
            continue
        folded = [c for c in _fold(character, strict) if c.isalnum()]
        start = place
        # anaemia and anemia are one word
        while folded == ["e"] and kept and kept[-1][0] in "ao" and set(gap) <= _JOINERS:
            _, start, _, before, _ = kept.pop()
            gap = gap or before
        for c in folded:
            kept.append((c, start, place + 1, gap, character.isalpha() and not "\u3040" <= character <= "\u9fff"))
            gap = ""
        if not folded:
            gap += character
    letters, starts, ends, gaps, latin = zip(*kept, strict=True) if kept else ((), (), (), (), ())
    return _Skeleton("".join(letters), starts, ends, gaps, latin)


def _held_together(term: _Skeleton, text: _Skeleton, start: int) -> bool:
    """Whether the text's letters from `start` are written as one expression: as the term is, with joiners, or spelled
    out letter by letter.
    """
    inner = range(1, len(term.letters))
    gaps = [text.gaps[start + k] for k in inner]
    if any(len(gap) > _LONGEST_GAP for gap in gaps):
        return False
    if not term.latin[0]:
        return all(set(gap) <= _JOINERS or gap.isspace() for gap in gaps)
    # a word broken at the end of a line
    gaps = ["-" if gap.startswith("-") and gap.strip() == "-" else gap for gap in gaps]
    spelled_out = len(gaps) > 1 and all(gaps)
    return spelled_out or all(
        set(gap) <= _JOINERS or (term.gaps[k] and not _SENTENCE_END.search(gap))
        for k, gap in zip(inner, gaps, strict=True)
    )


def _ends_at(term: _Skeleton, text: _Skeleton, start: int) -> int | None:
    """Index after the term's last letter, a plural's ending included, if it stands there as a whole word."""
    end = start + len(term.letters)
    if start and not text.gaps[start] and text.latin[start - 1] and term.latin[0]:
        return None
    for ending in ("", "s", "es"):
        after = end + len(ending)
        if text.letters[end:after] != ending or any(text.gaps[end:after]):
            continue
        if after == len(text.letters) or text.gaps[after] or not (text.latin[after] and term.latin[-1]):
            return after
    return None


@lru_cache(maxsize=65536)
def _forms(term: str) -> tuple[str, ...]:
    """A term in the forms in which it is said: as it is, in the singular, and an eponym without its noun."""
    singular = (
        re.sub(r"(?<=[a-z]{2}[^aeious\W])ies\Z", "y", term)
        if term.endswith("ies")
        else re.sub(r"(?<=[a-z]{3})(?<![siu])s\Z", "", term)
    )
    eponym = re.match(r"(\w{4,})['’]s (?:disease|syndrome)\Z", term, re.IGNORECASE)
    return tuple(
        dict.fromkeys((term, singular, *((f"{eponym[1]}'s", f"{eponym[1]} {term.split()[-1]}") if eponym else ())))
    )


def mentions(term: str, text: str) -> Iterator[tuple[int, int]]:
    """Half-open spans of a text that name a term, in any of its forms; they may overlap."""
    seen: set[tuple[int, int]] = set()
    for form in _forms(term):
        strict = len(skeleton(form).letters) <= SHORT and skeleton(form).latin[:1] == (True,)
        wanted, given = skeleton(form, strict), skeleton(text, strict)
        start = given.letters.find(wanted.letters) if wanted.letters else -1
        while start >= 0:
            after = _ends_at(wanted, given, start)
            if after is not None and _held_together(wanted, given, start):
                span = given.starts[start], given.ends[after - 1]
                if span not in seen and (not (strict and form.isupper()) or _abbreviated(text, *span)):
                    seen.add(span)
                    yield span
            start = given.letters.find(wanted.letters, start + 1)


def _abbreviated(text: str, start: int, end: int) -> bool:
    """Whether letters are written as an abbreviation: in capitals (a plural s apart), with dots, or with a capital in
    the middle of a sentence.
    """
    said, before = text[start:end], text[:start].rstrip()
    return (
        said.removesuffix("s").isupper()
        or "." in said
        or (said[0].isupper() and bool(before) and before[-1] not in ".!?:;。！？")
    )


class LeakFilter:
    """Removes one case's diagnosis, its synonyms and accepted parents from anything said to the doctor."""

    def __init__(self, case: Case, others: Collection[str] = ()) -> None:
        """Args: the case; names of other diseases that are masked too, uncounted (for patients that could echo the
        doctor), unless the record itself speaks of them.
        """
        self._terms = tuple(
            sorted({term for term in (case.diagnosis, *case.synonyms, *case.parents) if skeleton(term).letters})
        )
        record = "\n".join((case.self_report, *(fact.text for fact in case.facts)))
        self._others = tuple(other for other in others if next(mentions(other, record), None) is None)
        self._instead = phrases(case.language).that_illness

    def clean(self, text: str) -> tuple[str, int]:
        """Return the text without the terms, and how often one of the case's was removed; overlapping mentions count
        once.
        """
        text, leaks = self._without(self._terms, text)
        return self._without(self._others, text)[0] if self._others else text, leaks

    def _without(self, terms: Iterable[str], text: str) -> tuple[str, int]:
        spans = sorted(span for term in terms for span in mentions(term, text))
        if not spans:
            return text, 0
        merged = [spans[0]]
        for start, end in spans[1:]:
            if start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        for start, end in reversed(merged):
            text = text[:start] + self._instead + text[end:]
        return text, len(merged)
