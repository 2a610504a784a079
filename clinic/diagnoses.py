"""Does a named diagnosis fit the case?

Both are read (`clinic.reading`) and compared in a normal form (`clinic.naming`); the names of a case are its diagnosis,
its synonyms and what the bundled list says of them. What no rule can decide is "other": a diagnosis is exact or it is
not, and credit is never given on a part of its words.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from clinic.answers import readings_of_answer
from clinic.cases import Case
from clinic.generative import Condition
from clinic.matching import normalise
from clinic.naming import (
    group_of,
    is_abbreviation,
    is_bundled,
    is_chinese,
    kept_apart,
    keys,
    lexicon,
    names_of_group,
    shared_names,
)
from clinic.reading import Reading, is_sentence, parts, readings, speaks_of_disease

LEAST_INITIALS = 3  # letters of an abbreviation that nobody listed: "Chronic granulomatous disease" is CGD
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_SIDES = re.compile(
    r"\b(?:left|right|bilateral)\b|[左右双](?=侧|耳|眼|膝|肩|足|手|髋|肾|肺|腕|踝|肘|上肢|下肢)", re.IGNORECASE
)
_SAME_SIDE = {"左": "left", "右": "right", "双": "bilateral"}
_DEGREES = re.compile(r"\b(?:mild|moderate|severe)\b|[轻中重]度", re.IGNORECASE)
_SAME_DEGREE = {"轻度": "mild", "中度": "moderate", "重度": "severe"}
_SMALL_WORDS = frozenset(["of", "the", "a", "an", "and", "in", "on", "to", "with", "by", "for", "or"])


def relation(case: Case | Condition, diagnosis: str) -> str:
    """How a named diagnosis relates to a case's own, or to a condition: "exact" (name or synonym), "parent" (accepted,
    broader) or "other".
    """
    own = case.diagnosis if isinstance(case, Case) else case.name
    if not normalise(diagnosis):
        return "other"
    said = _as_written(diagnosis)
    if said in map(_as_written, (own, *case.synonyms)):
        return "exact"
    if said in map(_as_written, case.parents):
        return "parent"
    if same_disease(diagnosis, (own, *case.synonyms)) and not _is_listed(
        diagnosis, case.parents, (own, *case.synonyms)
    ):
        return "exact"
    return "parent" if any(same_disease(diagnosis, (broader,)) for broader in case.parents) else "other"


@lru_cache(maxsize=65536)
def _as_written(name: str) -> str:
    """A name but for case, spaces and the stop at its end; a sign in it may strike it out."""
    return " ".join(name.casefold().split()).rstrip(" .。")


@lru_cache(maxsize=65536)
def same_disease(diagnosis: str, names: tuple[str, ...]) -> bool:
    """Whether an answer names the disease that has these names, the usual one first."""
    if _contradicts(diagnosis, names[0]):
        return False
    return any(_is_exact(reading, names) for reading in readings_of_answer(diagnosis))


def _is_listed(diagnosis: str, parents: tuple[str, ...], own: tuple[str, ...]) -> bool:
    """Whether an answer is one of the accepted broader terms, however it is introduced, and not by its words one of the
    case's own names; what the bundled list says of it does not count.
    """
    found = frozenset(key for reading in readings_of_answer(diagnosis) for key in keys(reading.name))
    return bool(parents) and bool(found & keys_of(parents)) and not found & keys_of(own)


def _contradicts(said: str, true: str) -> bool:
    """Whether two names are of different sides or degrees; what one of them leaves open is no difference."""
    return any(
        all(found := [set(map(str.lower, pattern.findall(name))) for name in (said, true)])
        and {same.get(one, one) for one in found[0]}.isdisjoint({same.get(one, one) for one in found[1]})
        for pattern, same in ((_SIDES, _SAME_SIDE), (_DEGREES, _SAME_DEGREE))
    )


def _is_exact(reading: Reading, names: tuple[str, ...]) -> bool:
    known = known_keys(names)
    outside = _names(reading.name, names, known)
    inside = [_names(aside, names, known) for aside in reading.asides]
    if not outside and _unknown_abbreviation(reading.name):  # "SSPE (subacute sclerosing panencephalitis)"
        return bool(inside) and all(inside) and all(_is_short_for(reading.name, aside) for aside in reading.asides)
    own = shared_names_of(names[0])  # an abbreviation that two diseases bear, behind the name of one
    return outside and all(
        fits or aside in own or _is_short_for(aside, reading.name)
        for fits, aside in zip(inside, reading.asides, strict=True)
    )


def _unknown_abbreviation(name: str) -> bool:
    return is_abbreviation(name) and not any(is_bundled(key) for key in keys(name))


def _is_short_for(short: str, name: str) -> bool:
    """Whether an abbreviation that nobody listed can be that of a name: its letters stand there in order."""
    if not _unknown_abbreviation(short):
        return False
    letters = iter(name.lower())
    return is_chinese(name) or all(letter in letters for letter in short.lower() if letter.isalpha())


def _names(name: str, names: tuple[str, ...], known: frozenset[str]) -> bool:
    """Whether a name is one of the case's, or names each of its parts where the truth is several diseases."""
    found = keys(name)
    if found & known:
        return not kept_apart(name, names[0])
    if _is_initials(name, names):
        return True
    said = parts(name)
    several = (reading.name for own in names for reading in readings(own) if group_of(reading.name) is None)
    return len(said) > 1 and any(_same_parts(said, parts(one)) for one in several)


def _same_parts(said: Sequence[str], true: Sequence[str]) -> bool:
    """Whether two lists of diseases are the same ones in any order."""
    fits = [[bool(keys(one) & known_keys((other,))) for other in true] for one in said]
    return len(said) == len(true) > 1 and all(map(any, fits)) and all(map(any, zip(*fits, strict=True)))


def _is_initials(name: str, names: Iterable[str]) -> bool:
    """Whether an abbreviation that the list does not know is the initials of one of the names."""
    if not is_abbreviation(name) or not name.isupper() or len(name) < LEAST_INITIALS or not _unknown_abbreviation(name):
        return False
    if name in shared_initials():
        return False
    return any(name == initials(reading.name) for own in names for reading in readings(own))


@lru_cache(maxsize=1)
def shared_initials() -> frozenset[str]:
    """The initials of two bundled diseases or more."""
    found = Counter(short for names in lexicon().groups for short in {initials(name) for name in names})
    return frozenset(short for short, times in found.items() if times > 1)


@lru_cache(maxsize=65536)
def initials(name: str) -> str:
    """The first letters of a name's words, in capitals, small words left out; "(" and "/" begin no word."""
    return "".join(word[0] for word in _WORD.findall(name) if word.lower() not in _SMALL_WORDS).upper()


@lru_cache(maxsize=16384)
def known_keys(names: tuple[str, ...]) -> frozenset[str]:
    """The keys of names that mean one disease, and of the bundled names of the first of them that is in the list."""
    read = [reading.name for own in names for reading in readings(own) if _stands_alone(own, reading)]
    short = [aside for own in names for reading in readings(own) for aside in reading.asides if is_abbreviation(aside)]
    group = next((number for name in read if (number := group_of(name)) is not None), None)
    listed = names_of_group(group) if group is not None else ()
    return frozenset(key for name in (*read, *short, *listed) for key in keys(name))


def _stands_alone(own: str, reading: Reading) -> bool:
    """Whether a truth may be called by this reading: its brackets hold an abbreviation or another name of it, and not a
    qualification such as "(initial infection)".
    """
    return not reading.asides or all(
        is_abbreviation(aside)
        or (group_of(aside) is not None and group_of(aside) == group_of(reading.name))
        or is_sentence(own)
        for aside in reading.asides
    )


def shared_names_of(diagnosis: str) -> tuple[str, ...]:
    """Abbreviations of a diagnosis that the bundled list gives to other diseases too."""
    groups = (group_of(reading.name) for reading in readings(diagnosis))
    group = next((number for number in groups if number is not None), None)
    return shared_names(group) if group is not None else ()


def is_placed(diagnosis: str, known: Collection[str] = ()) -> bool:
    """Whether an answer speaks of a disease at all: a bundled one, one of the run's by their keys (`keys_of_run`), or
    any word with such an ending.
    """
    return speaks_of_disease(diagnosis) or any(
        is_bundled(key) or key in known
        for reading in readings(diagnosis)
        for name in (reading.name, *parts(reading.name))
        for key in keys(name)
    )


DIAGNOSIS_IS_SENTENCE = "diagnosis_is_sentence"


def flag_diagnosis(case: Case) -> Case:
    """The case, flagged "diagnosis_is_sentence" if its truth is a sentence in which no name can be read and no synonym
    gives one, so that no answer can be right but by luck.
    """
    names = (reading.name for name in (case.diagnosis, *case.synonyms) for reading in readings(name))
    if DIAGNOSIS_IS_SENTENCE in case.flags or any(not is_sentence(name) for name in names):
        return case
    return replace(case, flags=(*case.flags, DIAGNOSIS_IS_SENTENCE))


def keys_of(names: Iterable[str]) -> frozenset[str]:
    """The keys of names: what `is_placed` looks an answer up in."""
    return frozenset(key for name in set(names) for reading in readings(name) for key in keys(reading.name))


def keys_of_run(cases: Iterable[Case]) -> frozenset[str]:
    """The keys of every name in a run's cases."""
    return keys_of(name for case in cases for name in (case.diagnosis, *case.synonyms, *case.parents))


def with_names_of_run(cases: Sequence[Case]) -> tuple[list[Case], dict[str, tuple[str, ...]]]:
    """Settle whose the names are that several diseases could bear.

    A synonym that is another disease's name or synonym is taken from both; an abbreviation that the bundled list gives
    to two diseases becomes a synonym where one of them alone is among the cases.

    Returns:
        the cases, in order, and each name that was taken: name -> the diagnoses that had it.
    """
    named = {(case.diagnosis, case.synonyms) for case in cases}
    diseases = _diseases({case.diagnosis: case.diagnosis_id for case in cases})
    bearers: dict[str, set[int]] = defaultdict(set)
    for diagnosis, synonyms in named:
        for key in _own_keys(diagnosis).union(*(keys(name) for name in synonyms)):
            bearers[key].add(diseases[diagnosis])
    short: dict[str, set[int]] = defaultdict(set)
    for diagnosis, _ in named:
        for name in shared_names_of(diagnosis):
            short[name].add(diseases[diagnosis])
    taken: dict[str, set[str]] = defaultdict(set)
    settled = {}
    for diagnosis, synonyms in named:
        own = _own_keys(diagnosis)
        kept = [name for name in synonyms if keys(name) & own or all(len(bearers[key]) == 1 for key in keys(name))]
        for name in set(synonyms) - set(kept):
            taken[name].add(diagnosis)
        given = [name for name in shared_names_of(diagnosis) if len(short[name]) == 1 and name not in kept]
        settled[diagnosis, synonyms] = (*kept, *given)
    return (
        [replace(case, synonyms=settled[case.diagnosis, case.synonyms]) for case in cases],
        {name: tuple(sorted(diagnoses)) for name, diagnoses in sorted(taken.items())},
    )


def _own_keys(diagnosis: str) -> frozenset[str]:
    return known_keys((diagnosis,))


def _diseases(ids: Mapping[str, str]) -> dict[str, int]:
    """Diagnosis -> the number of its disease; diagnoses that share a key or an id are one disease: of a sentence with an
    explanation the id is the name that the loader read in it, and its keys may be none of that name's.

    Args: diagnosis -> diagnosis id.
    """
    number: dict[str, int] = {}
    first: dict[str, int] = {}
    for place, diagnosis in enumerate(sorted(ids)):
        own = {*_own_keys(diagnosis), f"id {ids[diagnosis]}"}
        joined = {first[key] for key in own if key in first}
        least = min(joined, default=place)
        first |= dict.fromkeys(own, least)
        number[diagnosis] = least
        if len(joined) > 1:
            first = {key: least if n in joined else n for key, n in first.items()}
            number = {name: least if n in joined else n for name, n in number.items()}
    return number
