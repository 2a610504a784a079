"""Words that tell a diagnosis, and where a text says them.

Beside its names a disease is told by its head word ("melanoma" for nodular melanoma), by an adjective ("diabetic"), by
its eponym ("Crohn's"), by its initials and by a misspelling. An everyday word counts only where it stands as a name:
"a cold", not "felt cold"; "Still's", not "still". Complaints ("headache", "fever") are findings and tell nothing.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from clinic.diagnoses import initials
from clinic.naming import (
    ARTICLES,
    abbreviated_in,
    full_keys,
    group_of,
    is_abbreviation,
    keys,
    lexicon,
    names_of_group,
    same_word,
    shared_names,
    words,
)
from clinic.reading import is_disease_word, is_sentence, readings

LONGEST_WINDOW = 8  # words of a name in a text, articles included
LEAST_MISSPELT = 7  # letters; shorter words have too many neighbours
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_BOUNDARY = re.compile(r"[.!?;:,。！？；，、\n()]")
_HEAD_WORDS = frozenset(
    [
        "ulcer",
        "polyp",
        "cyst",
        "abscess",
        "tumor",
        "aneurysm",
        "palsy",
        "fibroid",
        "arrhythmia",
        "hemorrhage",
        "cardiomyopathy",
        "delirium",
        "autism",
        "sepsis",
        "eczema",
        "acne",
    ]
)
_ADJECTIVES = (  # ending -> what may stand for it
    ("diabetes", ("diabetic",)),
    ("tuberculosis", ("tuberculous", "tubercular")),
    ("syphilis", ("syphilitic",)),
    ("herpes", ("herpetic",)),
    ("asthma", ("asthmatic",)),
    ("gonorrhea", ("gonorrheal", "gonococcal")),
    ("malaria", ("malarial",)),
    ("leprosy", ("leprous",)),
    ("gout", ("gouty",)),
    ("cancer", ("cancerous",)),
    ("migraine", ("migrainous", "migraineur")),
    ("dementia", ("demented",)),
    ("hemophilia", ("hemophiliac", "hemophilic")),
    ("infarction", ("infarct", "infarcted")),
    ("thrombosis", ("thrombotic", "thrombosed")),
    ("hernia", ("herniated", "herniation", "hernial")),
    ("ulcer", ("ulcerous", "ulcerated")),
    ("hemorrhoid", ("hemorrhoidal",)),
    ("appendicitis", ("appendiceal", "appendicitic")),
    ("thyroidism", ("thyroid",)),
    ("tension", ("tensive",)),
    ("pathy", ("pathic",)),
    ("trophy", ("trophic",)),
    ("psy", ("ptic",)),
    ("psis", ("ptic",)),
    ("itis", ("itic",)),
    ("osis", ("otic",)),
    ("iasis", ("iatic", "iasic")),
    ("asis", ("atic",)),
    ("ema", ("ematous",)),
    ("oma", ("omatous",)),
    ("nism", ("nic", "nian")),
    ("lism", ("lic",)),
    ("tism", ("tistic",)),
    ("ism", ("ic",)),
    ("ia", ("ic",)),
)
_TITLE = re.compile(r"\b(?:dr|doctor|mr|mrs|ms|miss|prof|professor|nurse)\.?\s*\Z", re.IGNORECASE)
# "cold" is an illness after an article or a verb of having, and before nothing that it could describe
_A_COLD = re.compile(
    r"(?:\b(?:an?|my|the|this|that|his|her|your|our|bad|slight|heavy|nasty|head|chest|common|summer|winter"
    r"|another|of|from|with|have|had|has|got|getting over|catch|caught|catching|colds?,?|or|and|like|no"
    r"|just|simple|mild)\s+)\Z",
    re.IGNORECASE,
)
_NOT_A_COLD = re.compile(
    r"(?:\b(?:in the|the|feel|feels|felt|feeling|am|is|was|were|are|get|gets|got|getting|very|so|too|quite"
    r"|really|bit|hot (?:or|and)|warm (?:or|and)|of the|to the)\s+)\Z",
    re.IGNORECASE,
)
_IT_IS = re.compile(r"\bit(?: is|'s|’s| was| might be| may be| could be)\s+\Z", re.IGNORECASE)
_I_THINK = re.compile(
    r"\s*,?\s*(?:i|they|he|she|the doctor|my \w+) (?:think|thinks|thought|guess|believe|said|say|says)\b", re.IGNORECASE
)
_AFTER_A_COLD = re.compile(
    r"\s*(?:\Z|[^\w\s]|(?:and|or|for|since|with|but|that|which|who|last|this|about|a|two|three|some|few|in"
    r"|on|at|when|before|after|now|again|lately|recently|then|so|because|every|went|came|is|was|has|had"
    r"|from|lasting|going|coming|i|he|she|we|my|it|not|symptoms?|virus)\b)",
    re.IGNORECASE,
)
_IT = re.compile(r"(?:\A|[.!?;,:]|\b(?:and|but|because|if|that|until|when))\s*\b(?:it|he|she)\s+\Z", re.IGNORECASE)


class Span(NamedTuple):
    """Where a text names a disease."""

    start: int
    end: int
    keys: frozenset[str]


@dataclass(frozen=True)
class Wanted:
    """Names to look for in a text."""

    keys: frozenset[str]
    words: frozenset[str]  # of the keys
    short: frozenset[str]  # abbreviations


@lru_cache(maxsize=4096)
def wanted(names: frozenset[str], broader: frozenset[str] = frozenset()) -> Wanted:
    """Names by their keys, abbreviations apart, complaints left out; broader terms with all their words alone, so that
    "joint disease" is no joint.
    """
    own = {key for name in names if not is_abbreviation(name) and not is_complaint(name) for key in keys(name)}
    found = frozenset(own.union(*(full_keys(name) for name in broader if not is_complaint(name))))
    short = frozenset(name for name in names if is_abbreviation(name))
    return Wanted(found, frozenset(word for key in found for word in key.split()), short)


def is_complaint(name: str) -> bool:
    """Whether a name says what a patient feels rather than what it comes from."""
    return bool(keys(name) & lexicon().complaints)


def named_in(text: str, these: Wanted) -> Iterator[Span]:
    """Spans of a text that are one of the names, in any form; they may overlap."""
    found = [(match.start(), match.end(), said) for match in _WORD.finditer(text) if (said := words(match.group()))]
    content = [
        all(word in ARTICLES or same_word(word) in these.words or word in these.words for word in said)
        for _, _, said in found
    ]
    for first, (start, after, said) in enumerate(found):
        if _is_short(text[start:after].removesuffix("s"), these.short, text.isupper()):
            yield Span(start, after, keys(text[start:after].removesuffix("s").upper()))
        if first + 1 < len(found) and (joined := "".join((*said, *found[first + 1][2]))) in these.keys:
            yield Span(start, found[first + 1][1], frozenset({joined}))
        if not content[first] or said[0] in ARTICLES:
            continue
        for last in range(first, min(first + LONGEST_WINDOW, len(found))):
            end = found[last][1]
            if not content[last] or _BOUNDARY.search(text, start, end):
                break
            named = keys(text[start:end]) & these.keys
            if named and found[last][2][-1] not in ARTICLES and (last > first or stands_as_name(text, start, end)):
                yield Span(start, end, named)


def _is_short(written: str, short: frozenset[str], shouted: bool) -> bool:
    """Whether a word is one of the abbreviations: in its capitals, or in any letters if it is long and no everyday
    word; an everyday word in a text of capitals is none.
    """
    everyday = written.lower() in lexicon().everyday
    return (written in short and not (everyday and shouted)) or (
        len(written) > 2 and not everyday and written.upper() in short
    )


def stands_as_name(text: str, start: int, end: int) -> bool:
    """Whether one word of a text is meant as the name of a disease, where it could be an everyday word."""
    said, before, after = text[start:end], text[:start], text[end:]
    word = words(said)[0]
    if word == "cold":
        if _IT_IS.search(before) and _I_THINK.match(after):
            return True
        return bool(_A_COLD.search(before)) and not _NOT_A_COLD.search(before) and bool(_AFTER_A_COLD.match(after))
    if (
        _is_described(word, before) or _TITLE.search(before) or (said.endswith("s") and _IT.search(before))
    ):  # "it burns"
        return False
    if word in lexicon().surnames:
        return (
            "'" in said
            or "’" in said
            or (said[0].isupper() and bool(before.strip()) and before.rstrip()[-1] not in ".!?:;")
        )
    return True


def _is_described(word: str, before: str) -> bool:
    """Whether a word is a finding by the word before it: "ST depression"."""
    described = lexicon().findings.get(word, frozenset())
    return bool(described) and any(one.lower() in described for one in _WORD.findall(before)[-1:])


@lru_cache(maxsize=4096)
def telling_words(names: tuple[str, ...]) -> tuple[str, ...]:
    """Single words and abbreviations that tell the disease with these names: head words, adjectives, initials and the
    bundled abbreviations, and those inside a name that have a head word ("DVT" in "Left leg DVT"); none for a complaint.
    """
    own = tuple(name for name in _read(names) if not is_complaint(name))
    inside = {short: long[0] for name in own for short, long in abbreviated_in(name).items()}
    heads = {word for name in (*own, *inside.values()) for word in _WORD.findall(name) if _is_head(word)}
    heads |= {name for name in own if len(_WORD.findall(name)) == 1}
    adjectives = {adjective for word in heads for adjective in adjectives_of(word)}
    short = {name for name in all_names(names) if is_abbreviation(name)}
    short |= {name for name, long in inside.items() if any(map(_is_head, _WORD.findall(long)))}
    spelt = {
        initials(name) for name in own if 3 <= len(initials(name)) <= 5 and len(name.split()) == len(initials(name))
    }
    return tuple(sorted(heads | adjectives | short | spelt - lexicon().everyday))


@lru_cache(maxsize=4096)
def owners(names: tuple[str, ...]) -> re.Pattern[str] | None:
    """Finds the surname of an eponym with its 's alone: "Kaposi's" for Kaposi sarcoma."""
    first = sorted({name.split()[0] for name in all_names(names) if _is_owned(name)})
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, first))})['’]s\b", re.IGNORECASE) if first else None


def all_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names, as read, with the bundled ones of the same disease, those that another disease shares included; a
    complaint has its stated names alone.
    """
    own = _read(names)
    if any(map(is_complaint, own)):
        return own
    groups = dict.fromkeys(number for name in own if (number := group_of(name)) is not None)
    return tuple(
        dict.fromkeys((*own, *(name for number in groups for name in (*names_of_group(number), *shared_names(number)))))
    )


def _read(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that stand in the given ones; a sentence as it is only where no name can be read in it."""
    found = tuple(reading.name for name in names for reading in readings(name))
    return tuple(name for name in found if not is_sentence(name)) or found


def _is_owned(name: str) -> bool:
    """Whether a name is a surname and a disease word: "Kaposi sarcoma", of which "Kaposi's" tells as much."""
    first, _, second = name.partition(" ")
    surname = first.istitle() and len(first) > 3 and first.lower() not in lexicon().organs
    return surname and same_word(first.lower()) == first.lower() and second.islower() and _is_head(second)


def _is_head(word: str) -> bool:
    plain = words(word)
    return (
        len(plain) == 1
        and len(word) > 3
        and not is_complaint(word)
        and (is_disease_word(plain[0]) or plain[0] in _HEAD_WORDS)
    )


def adjectives_of(word: str) -> tuple[str, ...]:
    """What may be said for a disease as an adjective: "diabetic", "asthmatic", "psoriatic"."""
    plain = "".join(words(word.lower().removesuffix("s"))) if word.lower().endswith(("ids", "ines")) else word.lower()
    spelled = plain.replace("ae", "e").replace("oe", "e")
    for ending, forms in _ADJECTIVES:
        if spelled.endswith(ending):
            return tuple(spelled.removesuffix(ending) + form for form in forms)
    return ()


def misspelt_in(text: str, these: Iterable[str]) -> Iterator[Span]:
    """Spans of a text that are one letter, or two neighbouring letters, away from one of these words."""
    near = {form for word in these if len(word) >= LEAST_MISSPELT for form in (word.lower(), "".join(words(word)))}
    for match in _WORD.finditer(text) if near else ():
        said = {match.group().lower(), "".join(words(match.group()))}
        if (
            len(match.group()) >= LEAST_MISSPELT
            and any(
                one[:1] == word[0] and not word.startswith(one) and one_slip(one, word) for one in said for word in near
            )
            and not _is_described(match.group().lower(), text[: match.start()])
        ):
            yield Span(match.start(), match.end(), keys(match.group()))


def one_slip(said: str, meant: str) -> bool:
    """Whether one letter is missing, added or changed, or two neighbours are swapped."""
    if abs(len(said) - len(meant)) > 1:
        return False
    at = next((i for i, (a, b) in enumerate(zip(said, meant, strict=False)) if a != b), min(len(said), len(meant)))
    rest, wanted_rest = said[at:], meant[at:]
    return (
        rest[1:] == wanted_rest[1:]
        or rest == wanted_rest[1:]
        or rest[1:] == wanted_rest
        or (rest[:2] == wanted_rest[1::-1] and rest[2:] == wanted_rest[2:])
    )
