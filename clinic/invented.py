"""Conditions that exist nowhere: what a doctor practises looking things up on.

A name that was met in training can be known by heart; one that was drawn for a single dialogue can only be read. An
invented condition takes its findings from two conditions of the clinic, so its patients say what real ones say, and its
article says in a few sentences what they have. Names are built from syllables and from parts of the clinic's own words,
so that no piece of a real name is one that never had to be copied.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from clinic.events import FoundPassage
from clinic.generative import Condition, GenerativeClinic

SOURCE = "invented for practice"
SECTIONS = ("How people describe it", "What it is", "Questions worth asking", "What it can be mistaken for")
_ONSETS = (
    *("b", "br", "c", "ch", "cr", "d", "dr", "f", "fl", "g", "gl", "gr", "h", "j", "k", "kr", "l", "m", "n", "p", "pl"),
    *("r", "s", "sch", "sh", "sk", "st", "str", "t", "th", "tr", "v", "w", "wh", "y", "z", ""),
)
_VOWELS = ("a", "ae", "e", "ee", "ei", "i", "ia", "ie", "o", "oe", "ou", "u", "y")
_CODAS = ("", "", "", "b", "ck", "d", "ff", "g", "l", "ll", "m", "n", "nd", "ng", "r", "rk", "rt", "s", "st", "t", "x")
_ENDINGS = ("aemia", "iasis", "itis", "oma", "osis", "opathy", "uria", "algia", "ism", "ia", "ine fever", "ic fever")
_KINDS = ("disease", "syndrome", "fever", "palsy", "arteritis", "anaemia")
_QUALITIES = ("Acute", "Hereditary", "Familial", "Systemic", "Chronic", "Relapsing", "Primary", "Diffuse", "Late")
_OPENINGS = (
    "People with it tell of {}",
    "Most patients describe {}",
    "Patients complain of {}",
    "Typical are {}",
    "It usually begins with {}",
    "The picture is one of {}",
)
_SECONDS = (
    "Many also have {}",
    "Others mention {}",
    "Often there is {} as well",
    "With time {} may follow",
    "Some notice {}",
)


def invented_name(rng: np.random.Generator, words: Sequence[str], taken: Collection[str] = ()) -> str:
    """A name like those of rare diseases, none of `taken` (in small letters).

    Args:
        rng: chance.
        words: whose parts are joined anew, in half of the names.
        taken: names that it must not be.
    """
    while True:
        root, second = _root(rng, words).capitalize(), _root(rng, words)
        kind, ending = _one(_KINDS, rng), _one(_ENDINGS, rng)
        forms = (
            *(f"{root}'s {kind}", f"{root} {kind}", f"{root}{ending}", f"{root}{ending}", f"{root} {second}"),
            *(f"{_one(_QUALITIES, rng)} {second}{ending}", f"{root} {second} {kind}", f"{root}{ending} with {second}"),
            *(f"{root}-{second.capitalize()} {kind}", f"{_one(_QUALITIES, rng)} {root.lower()} {second}"),
        )
        name = _one(forms, rng)
        if name.lower() not in taken:
            return name


def name_words(clinic: GenerativeClinic) -> tuple[str, ...]:
    """The words of a clinic's conditions and findings, of which parts of names are cut."""
    texts = [condition.name for condition in clinic.conditions] + [finding.name for finding in clinic.findings]
    return tuple(dict.fromkeys(word for text in texts for word in re.findall(r"[a-z]{4,}", text.lower())))


def _root(rng: np.random.Generator, words: Sequence[str]) -> str:
    if rng.random() < 0.5:
        return "".join(_syllable(rng) for _ in range(int(rng.integers(2, 4))))
    return "".join(_part(_one(words, rng), rng) for _ in range(2))


def _part(word: str, rng: np.random.Generator) -> str:
    start = int(rng.integers(len(word) - 1))
    return word[start : start + int(rng.integers(2, 6))]


def _syllable(rng: np.random.Generator) -> str:
    return _one(_ONSETS, rng) + _one(_VOWELS, rng) + _one(_CODAS, rng)


def _one(texts: Sequence[str], rng: np.random.Generator) -> str:
    return texts[int(rng.integers(len(texts)))]


def invented_clinic(
    clinic: GenerativeClinic, count: int, taken: Collection[str], rng: np.random.Generator
) -> GenerativeClinic:
    """A clinic of `count` invented conditions with the findings of `clinic`, all equally common.

    Args:
        clinic: whose findings and conditions they are mixed from.
        count: how many.
        taken: names that none may have, in small letters.
        rng: chance.
    """
    names: dict[str, None] = {}
    words = name_words(clinic)
    while len(names) < count:
        names.setdefault(invented_name(rng, words, taken))
    return replace(
        clinic, name="invented", conditions=tuple(_mixed(clinic, n, name, rng) for n, name in enumerate(names))
    )


def _mixed(clinic: GenerativeClinic, number: int, name: str, rng: np.random.Generator) -> Condition:
    """Half of the findings of one condition and half of another's."""
    first, second = (clinic.conditions[int(i)] for i in rng.choice(len(clinic.conditions), 2, replace=False))
    findings: dict[str, float] = {}
    for condition in (first, second):
        kept = rng.permutation(sorted(condition.findings))[: (len(condition.findings) + 1) // 2]
        findings |= {str(finding_id): float(rng.uniform(0.3, 0.9)) for finding_id in kept}
    return replace(
        first,
        condition_id=f"invented_{number}",
        name=name,
        synonyms=(),
        parents=(),
        prevalence=1.0,
        urgent=False,
        red_flags=(),
        findings=findings,
    )


def passage(clinic: GenerativeClinic, condition: Condition, rng: np.random.Generator) -> FoundPassage:
    """What an article says of a condition in two sentences, the likeliest findings among them first."""
    names = [
        clinic.findings[clinic.finding_index[finding_id]].name
        for finding_id in sorted(condition.findings, key=lambda f: -condition.findings[f] * rng.uniform(0.7, 1.3))
    ]
    first, later = names[:4], names[4 : 4 + int(rng.integers(1, 4))]
    sentences = [
        _one(_OPENINGS, rng).format(_list(first)),
        *([_one(_SECONDS, rng).format(_list(later))] if later else []),
    ]
    return FoundPassage(
        passage_id=f"{condition.condition_id}#{int(rng.integers(6))}",
        title=condition.name,
        section=_one(SECTIONS, rng),
        text="".join(f"{sentence}. " for sentence in sentences).strip(),
        source=SOURCE,
        licence="CC0-1.0",
        score=1.0,
    )


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
