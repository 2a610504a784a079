"""Names of diseases in a normal form, and which of them mean the same.

A name is compared by its words without order: lower case, one spelling (British and American, with and without
accents), singular, without possessives and articles, Roman numerals as digits, organ adjectives as nouns ("renal" is
"kidney"), simplified characters. A second form keeps the order and drops the spaces, so that "heat stroke" is
"heatstroke". `disease_names.yaml` beside this file says which names mean the same where no rule can, and what short
forms stand for; an abbreviation of one bundled disease is written out inside a longer name too ("Acute MI").

An abbreviation that two diseases share is no name (`shared_names`); `clinic.diagnoses.with_names_of_run` gives it back to a
run in which one of the two is among the cases.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from clinic.simplified import simplified

_PIECE = re.compile("([A-Za-z0-9]+)")
_TOKEN = re.compile(r"[a-z]+|\d+|[^\W\d_a-z]+")
# what stands before it follows from what stands behind it
_CONSEQUENCE = re.compile(
    r"\b(?:due to|caused by|because of|secondary to|resulting from|from|induced by|following|after)\b", re.IGNORECASE
)
# what stands behind it follows from what stands before
_LEADS_TO = re.compile(
    r"\b(?:causing|leading to|complicated by|progressing to|resulting in|(?<=metastatic )to|with(?= [^,;]*\bmetasta))\b",
    re.IGNORECASE,
)
_APOSTROPHES = str.maketrans(dict.fromkeys("’‘`´ʼ′＇", "'"))
_NUMERALS = {
    numeral: str(n)
    for n, names in enumerate(("i one", "ii two", "iii three", "iv four", "v five", "vi", "vii", "viii", "ix"), start=1)
    for numeral in names.split()
}
ARTICLES = frozenset(
    [
        "the",
        "of",
        "in",
        "on",
        "at",
        "by",
        "for",
        "from",
        "to",
        "with",
        "and",
        "due",
        "caused",
        "because",
        "its",
        "his",
        "her",
        "your",
        "my",
        "induced",
        "related",
        "associated",
        "type",
    ]
)
_SAME_WORDS = {
    "renal": "kidney",
    "nephric": "kidney",
    "hepatic": "liver",
    "pulmonary": "lung",
    "cardiac": "heart",
    "gastric": "stomach",
    "cutaneous": "skin",
    "dermal": "skin",
    "ocular": "eye",
    "intestinal": "bowel",
    "intestine": "bowel",
    "uterine": "uterus",
    "ovarian": "ovary",
    "testicular": "testis",
    "testicle": "testis",
    "prostatic": "prostate",
    "pancreatic": "pancrea",
    "colonic": "colon",
    "rectal": "rectum",
    "esophageal": "esophagus",
    "duodenal": "duodenum",
    "jejunal": "jejunum",
    "cerebral": "brain",
    "aortic": "aorta",
    "mammary": "breast",
    "nasal": "nose",
    "venous": "vein",
    "arterial": "artery",
    "orbital": "orbit",
    "atrial": "atrium",
    "thyroidal": "thyroid",
    "laryngeal": "larynx",
    "pharyngeal": "pharynx",
    "meningeal": "meninge",
    "splenic": "spleen",
    "appendiceal": "appendix",
    "bronchial": "bronchus",
    "tracheal": "trachea",
    "urethral": "urethra",
    "vaginal": "vagina",
    "vulvar": "vulva",
    "peritoneal": "peritoneum",
    "pericardial": "pericardium",
    "pleural": "pleura",
    "femoral": "femur",
    "humeral": "humerus",
    "radial": "radius",
    "ulnar": "ulna",
    "tibial": "tibia",
    "fibular": "fibula",
    "patellar": "patella",
    "retinal": "retina",
    "corneal": "cornea",
    "paracetamol": "acetaminophen",
    "carcinoma": "cancer",
    "neoplasm": "tumor",
    "disorder": "disease",
    "illness": "disease",
    "condition": "disease",
    "morbus": "disease",
    "disk": "disc",
    "neurone": "neuron",
    "ruptured": "rupture",
    "perforated": "perforation",
    "herniated": "hernia",
    "herniation": "hernia",
    "embolus": "embolism",
    "calculus": "stone",
    "bleed": "hemorrhage",
    "bleeding": "hemorrhage",
}
_LETTERS = str.maketrans({"ß": "ss", "ø": "o", "ł": "l", "α": " alpha ", "β": " beta ", "γ": " gamma "})
MOST_FORMS = 16  # of one name with several abbreviations, each of which has several long names
HEADS = frozenset({"disease", "syndrome"})


@lru_cache(maxsize=65536)
def words(text: str) -> tuple[str, ...]:
    """The words of a name in their one spelling and in the singular, in order."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).translate(_APOSTROPHES)).lower()
    plain = "".join(c for c in plain if not unicodedata.combining(c) and unicodedata.category(c) != "Cf")
    plain = simplified(plain).translate(_LETTERS)
    plain = re.sub(r"(?<=[a-z])'s?(?![a-z])", "", plain)
    for short, (pattern, long) in _short_forms().items():
        plain = pattern.sub(long, plain) if short in plain else plain
    plain = re.sub(r"\bin (?:an? |the )?(?:child|children|infants?|baby|babies)\b|\bpa?ediatric\b(?=.*\w)", " ", plain)
    plain = re.sub(r"\bmalignant (?:neoplasms?|tumou?rs?)\b", "cancer", plain.replace("æ", "ae").replace("œ", "oe"))
    plain = re.sub(
        r"(?:\A\W*|\b(?:of|from|with|in|to|by|on|for|and|has|have|is)\s+)an?\s(?=\w)", " of ", plain
    )  # not "hepatitis A"
    return tuple(_one_word(token) for token in _TOKEN.findall(plain))


@lru_cache(maxsize=65536)
def _one_word(token: str) -> str:
    """One word in American spelling and in the singular; the same letters come out however it was written."""
    if token in _NUMERALS:
        return _NUMERALS[token]
    if not token.isascii() or len(token) < 4:
        return token
    token = re.sub(r"(?<=[^aeiou])ae\Z", "a", token)
    token = re.sub(r"(?<!^)our(?=s?\Z)", "or", re.sub("ae|oe", "e", token))
    token = re.sub("is(?=(?:e|ed|ing|ation)s?\\Z)", "iz", token) if len(token) > 6 else token
    token = re.sub(r"(?<=[bt])re(?=s?\Z)", "er", token)
    token = token.replace("yse", "yze").replace("sulph", "sulf").replace("leuco", "leuko")
    token = re.sub(r"omata\Z", "oma", re.sub(r"itides\Z", "itis", token))
    token = re.sub(r"(embol|thromb|calcul|bronch|toph|nev|cocc)i\Z", r"\1us", token)
    token = re.sub(r"(?<=diverticul)a\Z", "um", re.sub(r"(?<=var)ices\Z", "ix", token))
    if (re.search(r"(?:[oy]s|[cl]as|tas)es\Z", token) and not token.endswith(("noses", "uses"))) or token.endswith(
        "noses"
    ):
        token = f"{token[:-2]}is"
    elif token.endswith("ies") and len(token) > 4:
        token = f"{token[:-3]}y"
    elif token.endswith(("sses", "shes", "ches", "xes")):
        token = token[:-2]
    elif token.endswith("s") and not token.endswith(("ss", "us", "is")):
        token = token[:-1]
    return token


def is_abbreviation(name: str) -> bool:
    """Whether a name is written as an abbreviation: one word, two capitals at least, no more than eight
    characters.
    """
    bare = name.strip().removesuffix("s")
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.&/+-]{0,7}", bare)) and sum(c.isupper() for c in bare) >= 2


@lru_cache(maxsize=65536)
def keys(name: str) -> frozenset[str]:
    """The forms by which a name is compared; two names mean the same if they share one. None if it has no words.

    They are its full forms, and those without "disease" or "syndrome" where the rest still says which one.
    """
    rest = [word for word in _content(name) if same_word(word) not in HEADS]
    short = rest and _bag(rest) not in lexicon().incomplete and not full_keys(name) & {_spelled_word(name)}
    known = full_keys(name) | _keys_without_course(name)
    return known | {_bag(rest), _run(rest)} if short else known


def _keys_without_course(name: str) -> frozenset[str]:
    """The forms of a name without "acute" where the disease has no other course."""
    course, *rest = _content(name) or ("",)
    if course.startswith("急性"):
        course, rest = "acute", [course.removeprefix("急性"), *rest]
    return frozenset({_bag(rest), _run(rest)}) if course == "acute" and _bag(rest) in lexicon().acute else frozenset()


@lru_cache(maxsize=65536)
def full_keys(name: str) -> frozenset[str]:
    """The forms of a name with all its words, as it stands and with the abbreviations inside it written out.

    An abbreviation that spells an everyday word has one form of its own, so that COLD is never a cold.
    """
    if is_abbreviation(name) and name.strip().lower() in lexicon().everyday:
        return frozenset({_spelled_word(name)})
    said = (_content(name), *_written_out(name))
    return frozenset(form for content in said if content for form in (_bag(content), _run(content)))


def _written_out(name: str) -> Iterator[list[str]]:
    """The words of a name in which the abbreviations inside stand as what they mean."""
    if long := abbreviated_in(name):
        choices = (long.get(piece, (piece,)) for piece in _PIECE.split(name))
        for chosen in islice(product(*choices), MOST_FORMS):
            yield list(dict.fromkeys(_content("".join(chosen))))


@lru_cache(maxsize=65536)
def abbreviated_in(name: str) -> dict[str, tuple[str, ...]]:
    """Abbreviation inside a longer name -> the long names of the one bundled disease that bears it."""
    if is_abbreviation(name):
        return {}
    return {piece: long for piece in _PIECE.findall(name) if (long := _long_names(piece, name))}


def _long_names(piece: str, name: str) -> tuple[str, ...]:
    """The long names, in the script of a name, of the one bundled disease whose abbreviation a piece of it is."""
    known = _abbreviations()
    long = known.get(piece.upper()) or known.get(piece.removesuffix("s").upper(), ())
    everyday = piece.lower() in lexicon().everyday
    if (everyday and name.isupper()) or not (is_abbreviation(piece) or (len(piece) > 2 and not everyday)):
        return ()
    return tuple(one for one in long if is_chinese(one) == is_chinese(name))


@lru_cache(maxsize=1)
def _abbreviations() -> dict[str, tuple[str, ...]]:
    """Abbreviation that one bundled disease alone bears, in capitals -> the long names of the disease."""
    bearers: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for names in lexicon().groups:
        for short in {name.upper() for name in names if is_abbreviation(name)}:
            bearers[short].append(tuple(name for name in names if not is_abbreviation(name)))
    return {short: groups[0] for short, groups in bearers.items() if len(groups) == 1}


def is_listed_short(name: str) -> bool:
    """Whether an abbreviation is a bundled one as it is written, its plural apart: CRP is no CRPS."""
    return bool({name.upper(), name.removesuffix("s").upper()} & _listed_short())


@lru_cache(maxsize=1)
def _listed_short() -> frozenset[str]:
    return frozenset(name.upper() for names in lexicon().groups for name in names if is_abbreviation(name))


def is_chinese(name: str) -> bool:
    """Whether a name has a Chinese character."""
    return any("\u4e00" <= c <= "\u9fff" for c in name)


def chinese_names() -> frozenset[str]:
    """The bundled names in Chinese; a sentence has no spaces by which one could be found."""
    return frozenset(name for group in lexicon().groups for name in group if is_chinese(name))


def _spelled_word(name: str) -> str:
    return f"={name.strip().upper()}"


def _content(name: str) -> list[str]:
    """The words that tell one disease from another, in order."""
    given = [word for word in words(name) if word != "mellitus"]
    return [word for word in given if word not in ARTICLES] or given


def _bag(content: Iterable[str]) -> str:
    return " ".join(sorted(_SAME_WORDS.get(word, word) for word in content))


def same_word(word: str) -> str:
    """The word that stands for this one in a key: "kidney" for "renal"."""
    return _SAME_WORDS.get(word, word)


def _run(content: Sequence[str]) -> str:
    joined = re.sub(r"(?<=\d) (?=\d)", ".", " ".join(content)).replace(" ", "")  # 2.5 is not 25
    return re.sub("ae|oe", "e", joined)  # gastro-oesophageal


@dataclass(frozen=True, kw_only=True)
class Lexicon:
    """The bundled names."""

    groups: tuple[tuple[str, ...], ...]  # names that mean the same, the usual one first
    apart: tuple[frozenset[str], ...]
    incomplete: frozenset[str]
    acute: frozenset[str]  # keys of what has no other course
    complaints: frozenset[str]  # keys of what a patient feels
    organs: frozenset[str]  # and other words that begin a name like an eponym does
    surnames: frozenset[str]  # eponyms that are everyday words
    findings: Mapping[str, frozenset[str]]  # word -> words before it with which it is a finding ("ST depression")
    everyday: frozenset[str]  # words that are abbreviations in capitals alone
    corrections: Mapping[str, tuple[str, ...]]


@lru_cache(maxsize=1)
def lexicon() -> Lexicon:
    """Read `disease_names.yaml`."""
    content = _bundled()
    return Lexicon(
        groups=tuple(_several(line) for line in content["same"]),
        apart=tuple(frozenset(_several(line)) for line in content["apart"]),
        incomplete=frozenset(_bag(words(name)) for name in content["incomplete"]),
        acute=frozenset(_bag(_content(name)) for name in content["acute"]),
        complaints=frozenset(_bag(words(name)) for line in content["complaints"] for name in _several(line)),
        organs=frozenset(content["organs"]),
        surnames=frozenset(word for name in content["surnames"] for word in words(name)),
        findings={word: frozenset(before) for word, before in content["findings"].items()},
        everyday=frozenset(content["words"]),
        corrections={label: tuple(names) for label, names in content["corrections"].items()},
    )


@lru_cache(maxsize=1)
def _bundled() -> dict[str, Any]:
    content: dict[str, Any] = YAML(typ="safe").load(
        Path(__file__).with_name("disease_names.yaml").read_text(encoding="utf-8")
    )
    return content


@lru_cache(maxsize=1)
def _short_forms() -> dict[str, tuple[re.Pattern[str], str]]:
    """Short form -> where it stands in a text of small letters, and its long form; where that stands already it stays."""
    return {
        short: (
            re.compile(rf"(?<![a-z]){short}(?![a-z])" if short.isascii() else f"{short}(?!{long.removeprefix(short)})"),
            long,
        )
        for short, long in _bundled()["short"].items()
    }


def _several(line: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in line.split("|"))


@lru_cache(maxsize=1)
def _index() -> tuple[dict[str, int], frozenset[str]]:
    """Key -> the number of the group that it names; and the keys that name more than one and therefore none."""
    named: dict[str, set[int]] = defaultdict(set)
    for number, names in enumerate(lexicon().groups):
        for name in names:
            for key in keys(name):
                named[key].add(number)
    shared = frozenset(key for key, groups in named.items() if len(groups) > 1)
    return {key: next(iter(groups)) for key, groups in named.items() if key not in shared}, shared


def group_of(name: str) -> int | None:
    """The number of the bundled group that a name belongs to; None if it is in none, or in more than one."""
    index, _ = _index()
    found = {index[key] for key in keys(name) if key in index}
    return found.pop() if len(found) == 1 else None


def is_bundled(key: str) -> bool:
    """Whether a key is a form of a bundled name, be it shared by two diseases."""
    index, shared = _index()
    return key in index or key in shared


@lru_cache(maxsize=4096)
def shared_names(number: int) -> tuple[str, ...]:
    """The names of a bundled group that another group has too."""
    _, shared = _index()
    return tuple(name for name in lexicon().groups[number] if keys(name) & shared)


@lru_cache(maxsize=4096)
def names_of_group(number: int) -> tuple[str, ...]:
    """The names of a bundled group that no other group has."""
    _, shared = _index()
    return tuple(name for name in lexicon().groups[number] if not keys(name) & shared)


def _joined(name: str) -> tuple[set[str], set[str]]:
    """The words of a consequence and of what it follows from; none where a name has no such joint."""
    head, *rest = _CONSEQUENCE.split(name, maxsplit=1)
    if not rest:
        *rest, head = _LEADS_TO.split(name, maxsplit=1)
    return (
        ({same_word(w) for w in _content(head)}, {same_word(w) for w in _content(rest[0])}) if rest else (set(), set())
    )


def kept_apart(one: str, other: str) -> bool:
    """Whether two names are different diseases although they have the same words: listed ones, and those of which one
    is the other's consequence ("kidney failure due to heart disease").
    """
    (head, tail), (other_head, other_tail) = _joined(one), _joined(other)
    if (head - other_head) & other_tail and (other_head - head) & tail:
        return True
    pair = (frozenset(words(one)), frozenset(words(other)))
    return any(
        pair[0] != pair[1] and {frozenset(words(name)) for name in names} >= set(pair) for names in lexicon().apart
    )
