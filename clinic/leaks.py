"""The leak filter: what a patient says never tells the case's diagnosis, whoever plays the patient.

What tells it: its names, synonyms and accepted parents and the bundled names of the same disease, in any spelling and
order of words (`clinic.naming`), its head word, adjective, eponym, initials, common abbreviation and a misspelling of
one letter (`clinic.telling`). A complaint ("fever") tells only where it is the diagnosis itself.

Names are also compared by their skeleton: letters and digits alone, folded (case, full-width forms, accents, British ae
and oe, traditional characters, Cyrillic, Greek and digit look-alikes), so that hyphens, dots, invisible characters or a spelled-out word hide
nothing. A Latin term counts as a whole word, in singular or plural, since the same letters inside another word tell
nothing; a Chinese one wherever it stands. Terms of up to four letters are compared without the digit look-alikes, and ae
and oe in them are no e ("me" is no MOE); abbreviations that are everyday words, or have two letters, only in capitals or
with dots: "10 lbs" is no IBS.
Not caught: paraphrase, another language than the terms', misspelling by several letters.

The mask confirms no guess. The patient of a record in free text plays it without the diagnosis (`without_diagnosis`), so
that asking for it by name finds nothing, as it does with who has nothing of it on record. Where findings have codes, every
patient of the source was asked whether he ever had a pneumonia, so that silence would tell: these are played as they are,
and every disease that the run knows is masked in them, whoever says it. Where a doctor names a disease that the run knows,
the reply says "that illness" for it, whether or not it is the true one; and other diseases (`others`) are masked unless
the record, its coded findings apart, speaks of them.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from clinic.cases import Case
from clinic.language import phrases
from clinic.matching import normalise
from clinic.naming import is_abbreviation, lexicon, words
from clinic.simplified import simplified
from clinic.telling import (
    Wanted,
    all_names,
    is_complaint,
    misspelt_in,
    named_in,
    owners,
    stands_as_name,
    telling_words,
    wanted,
)

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
LOWER_CASE = 3  # letters of an abbreviation that is known without capitals
SHORT = 4  # letters of a term that is compared strictly
_JOINERS = frozenset("-‐‑‒–—_.·•*/'’´`~+")
_SENTENCE_END = re.compile(r"[!?;:。！？；：]|\.\s")
_ID = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
_CODE = re.compile(r"E_\d+")  # of DDXPlus, whose every patient has answered every question
_LONGEST_GAP = 3  # characters between two letters of a term


class _Skeleton(NamedTuple):
    letters: str  # one for each kept character of the text
    starts: tuple[int, ...]  # of each letter in the text
    ends: tuple[int, ...]
    gaps: tuple[str, ...]  # what stood before each letter and is no letter
    latin: tuple[bool, ...]  # whether it was written as a letter of a script that parts its words


@lru_cache(maxsize=16384)
def _fold(character: str, strict: bool) -> str:
    decomposed = unicodedata.normalize("NFKD", simplified(character)).casefold()
    plain = "".join(c for c in decomposed if not unicodedata.combining(c))
    # twice: what looks like i looks like l
    return plain.translate(_LETTERS_ALONE) if strict else plain.translate(_LOOKALIKES).translate(_LOOKALIKES)


@lru_cache(maxsize=8192)
def skeleton(text: str, strict: bool = False) -> _Skeleton:
    """The letters of a text by which it is compared, and where they stand; `strict` leaves digits, i, ae and oe as they are."""
    kept: list[tuple[str, int, int, str, bool]] = []
    gap = ""
    for place, character in enumerate(text):
        if unicodedata.category(character) in ("Cf", "Mn", "Me"):
            continue
        folded = [c for c in _fold(character, strict) if c.isalnum()]
        start = place
        # anaemia and anemia are one word
        while not strict and folded == ["e"] and kept and kept[-1][0] in "ao" and set(gap) <= _JOINERS:
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
    spelled_out = len(gaps) > 1 and all(gaps) and len(set(term.letters)) > 1  # not "a, a, a cream"
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
        strict = skeleton(form).latin[:1] == (True,) and (
            len(skeleton(form).letters) <= SHORT or (form.isupper() and form.lower() in lexicon().everyday)
        )
        wanted, given = skeleton(form, strict), skeleton(text, strict)
        start = given.letters.find(wanted.letters) if wanted.letters else -1
        while start >= 0:
            after = _ends_at(wanted, given, start)
            if after is not None and _held_together(wanted, given, start):
                span = given.starts[start], given.ends[after - 1]
                if span not in seen and (not (strict and form.isupper()) or _abbreviated(form, text, *span)):
                    seen.add(span)
                    yield span
            start = given.letters.find(wanted.letters, start + 1)


def _abbreviated(form: str, text: str, start: int, end: int) -> bool:
    """Whether letters are written as an abbreviation: in capitals (a plural s apart) in a text that is not all
    capitals, with dots, or with a capital in the middle of a sentence; three letters that are no everyday word, anyhow.
    """
    said, before = text[start:end], text[:start].rstrip()
    everyday = not lexicon().everyday.isdisjoint((form.lower(), said.lower()))
    if everyday and text.isupper() and len(text) > len(said) + 2:
        return False
    return (
        said.replace(".", "") in (form, f"{form}s")
        or (len(form) >= LOWER_CASE and not everyday)
        or ("." in said and not everyday)
        or (said[0].isupper() and not everyday and bool(before) and before[-1] not in ".!?:;。！？")
    )


class LeakFilter:
    """Removes what tells one case's diagnosis from anything said to the doctor."""

    def __init__(self, case: Case, others: Collection[str] = ()) -> None:
        """Args: the case; names of the run's other diseases, masked too and uncounted where they echo the doctor or the
        record does not speak of them.
        """
        names = (case.diagnosis, *case.synonyms)
        self._terms, self._forms, self._single, self._owners = _telling(names, case.parents)
        self._stated = frozenset(normalise(name) for name in (*names, *case.parents))
        self._others = _others(frozenset(others)) if others else None
        self._case = case
        self._instead = phrases(case.language).that_illness

    def clean(self, text: str, asked: str = "") -> tuple[str, int]:
        """Return the text without what tells the diagnosis, and how often that was removed; overlapping mentions count
        once. `asked` is what the doctor said before.
        """
        found = [
            (start, end)
            for term in self._terms
            for start, end in mentions(term, text)
            if " " in text[start:end] or stands_as_name(text, start, end)
        ]
        found += [(start, end) for start, end, _ in (*named_in(text, self._forms), *misspelt_in(text, self._single))]
        found += [match.span() for match in self._owners.finditer(text)] if self._owners else []
        text, leaks = self._without([span for span in found if not self._is_finding(text[slice(*span)])], text)
        if self._others is None:
            return text, leaks
        echoed = {key for span in named_in(asked, self._others) for key in span.keys}
        known = self._on_record - echoed
        return self._without(
            [(start, end) for start, end, found in named_in(text, self._others) if not found & known], text
        )[0], leaks

    def _is_finding(self, said: str) -> bool:
        """Whether these words, no stated name of the case, are one of its findings ("a cold" for recent_cold): findings
        have ids, not headings.
        """
        return normalise(said) not in self._stated and any(set(words(said)) <= topic for topic in self._findings)

    @cached_property
    def _findings(self) -> frozenset[frozenset[str]]:
        return frozenset(frozenset(words(fact.topic)) for fact in self._case.facts if _ID.fullmatch(fact.topic))

    @cached_property
    def _on_record(self) -> frozenset[str]:
        """The keys of the other diseases that the record itself speaks of; wordings of coded findings are everybody's."""
        told = (fact.text for fact in self._case.facts if not _CODE.fullmatch(fact.topic))
        record = "\n".join((self._case.self_report, *told))
        return frozenset(key for span in named_in(record, self._others or wanted(frozenset())) for key in span.keys)

    def _without(self, spans: Sequence[tuple[int, int]], text: str) -> tuple[str, int]:
        if not spans:
            return text, 0
        merged: list[tuple[int, int]] = []
        for start, end in sorted(spans):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        for start, end in reversed(merged):
            text = text[:start] + self._instead + text[end:]
        return text, len(merged)


@lru_cache(maxsize=4096)
def _telling(
    names: tuple[str, ...], parents: tuple[str, ...]
) -> tuple[tuple[str, ...], Wanted, tuple[str, ...], re.Pattern[str] | None]:
    """Terms to compare by their skeletons, names to find in any form, single words to find misspelt, and owners."""
    told = telling_words(names)
    every = (*names, *parents, *all_names(names), *told)
    single = tuple(word for word in told if not is_abbreviation(word))
    return (
        tuple(sorted({term for term in every if skeleton(term).letters})),
        wanted(frozenset((*names, *all_names(names))), frozenset(parents)),
        single,
        owners(names),
    )


@lru_cache(maxsize=4)
def _others(names: frozenset[str]) -> Wanted:
    """Every disease of a run, by all that would tell it if it were the diagnosis."""
    return wanted(
        frozenset(
            form
            for name in names
            if not is_complaint(name)
            for form in (name, *all_names((name,)), *telling_words((name,)))
        )
    )


@lru_cache(maxsize=1024)
def without_diagnosis(case: Case) -> Case:
    """The record as the patient plays it: its own words do not tell the diagnosis. Coded findings, which everybody
    was asked for, stay as they are, or who cannot answer for one would be who has it.
    """
    clean = LeakFilter(case).clean
    return replace(
        case,
        self_report=clean(case.self_report)[0],
        facts=tuple(
            fact if _CODE.fullmatch(fact.topic) else replace(fact, text=clean(fact.text)[0]) for fact in case.facts
        ),
    )
