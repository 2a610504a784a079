"""What an answer says beside the name of its disease: "Gout (90% sure), start colchicine and drink water" is gout.

What stands around a name, evidence, advice or how sure the doctor is, is left out unless one of its clauses names another
disease without denying it, takes the first back, makes it somebody else's, long past or a mere possibility, or tells a
course, a type or a cause that the case's truth may not have (`answer_words.yaml` has the words). What stands before a
name must end as an introduction does, too. No answer is read as two diseases, so that a list earns no more than its
first name alone. Truths are not read so: they hold no advice, and what is behind their commas counts.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from clinic import answer_patterns as patterns
from clinic.matching import normalise
from clinic.naming import group_of, is_chinese
from clinic.reading import LONGEST_TEXT, Reading, diseases_in, readings, speaks_of_disease, takes_back

BARE = 2  # words of a noun that might be a further guess


@lru_cache(maxsize=65536)
def readings_of_answer(answer: str) -> tuple[Reading, ...]:
    """The names that an answer may be read as, likeliest first: `readings` of it and, where none of them is known, of what
    is left of it without the words that say nothing else of its disease. Never those of two diseases.
    """
    said = patterns.STRUCK.sub(" ", answer)
    plain = _plain(said)
    if patterns.CROSSED.search(said):
        return ()
    found = _read(said)
    if _lexicon()["reported"].match(plain.lower()):
        return found[:1]
    first = next((group for one in found if (group := group_of(one.name)) is not None), None)
    found = tuple(one for one in found if group_of(one.name) in (None, first))
    known = any(not one.asides and group_of(one.name) is not None for one in found)
    settled = not known and not patterns.UNSETTLED.search(plain) and len(plain) <= LONGEST_TEXT
    if not settled or _lexicon()["unsettled"].search(plain.lower()):
        return found
    named = _read(_settled(plain))
    every = tuple(dict.fromkeys((*found, *_read(plain), *named)))
    one_disease = len({group_of(reading.name) for reading in every} - {None}) <= 1
    return every if one_disease and all(_holds(reading, named) for reading in found) else found


def _read(text: str) -> tuple[Reading, ...]:
    """The readings of a text behind whose names nothing takes them back or tells their kind; without the whole text if a
    sentence or the mark of a list was cut from it, since with the words of both it may name another disease
    ("Hypertension; pulmonary", "1. Diabetes").
    """
    found = readings(text)
    cut = found[1:] if len(found) > 1 and patterns.CUT.search(found[0].name) else found
    return tuple(one for one in cut if _stands(one.name, text))


def _stands(name: str, text: str) -> bool:
    """Whether what follows a name at once tells no kind of it ("Pneumonia; viral"), takes nothing back ("which you do not
    have") and goes on with no bare nouns behind a semicolon, which might be further guesses.
    """
    _, there, tail = text.lower().partition(name.lower()) if name else ("", "", "")
    clauses = _clauses(patterns.MODAL.sub(" ", patterns.HEDGE.sub(" ", tail))) if there else []
    if not clauses or speaks_of_disease(clauses[0]):
        return True
    first, lexicon = clauses[0], _lexicon()
    if lexicon["kind"].search(lexicon["fixed"].sub(" ", first)):
        return False
    if patterns.SEMICOLON.match(tail) and not any(_is_no_noun(one) or len(one.split()) > BARE for one in clauses):
        return False
    return not (patterns.RELATIVE.match(first) and _is_doubted(first))


def _holds(reading: Reading, named: tuple[Reading, ...]) -> bool:
    """Whether a name stands in a reading; one in which it does not has been cut down to another."""
    texts = [normalise(text) for text in (reading.name, *reading.asides)]
    return any(normalise(one.name) in text for one in named for text in texts)


def _plain(answer: str) -> str:
    """Without the marks of Markdown, LaTeX, HTML and JSON, and without pictures."""
    text = patterns.FIELD.sub(r"\3", unicodedata.normalize("NFKC", answer).strip())
    while (inside := patterns.BOXED.sub(r"\1", text)) != text:
        text = inside
    text = patterns.MARKS.sub(" ", text.translate(patterns.SQUARE))
    text = "".join(
        ";" if unicodedata.category(c) == "So" or c == "•" else c for c in text if c not in patterns.INVISIBLE
    )
    return " ".join(text.split()).strip(" ;")


def _head(text: str) -> str:
    """What stands before the first boundary of a text behind which nothing else is said of the disease."""
    for found in patterns.BOUNDARY.finditer(text):
        head, tail = text[: found.start()], text[found.start() :]
        if _is_word(head) and _says_nothing_else(tail, diseases_in(head) - {None}):
            return head
    return text


def _settled(text: str) -> str:
    """The name that a text settles on: behind the longest lead and before the first tail that say nothing else of it."""
    denied = patterns.NOT_BUT.match(text)
    begin = (
        denied.end() if denied and speaks_of_disease(denied[0]) and not patterns.NEVER_DENIED.search(denied[0]) else 0
    )
    starts = {
        found.end() for pattern in (patterns.INTRODUCED, patterns.CLAUSE) for found in pattern.finditer(text, begin)
    }
    name = _head(text[begin:])
    for start in sorted(starts):
        rest = text[start:].strip()
        if _is_word(rest) and _leads(text[begin:start]) and (_is_frame(text[begin:start]) or _names_first(rest)):
            name = _head(rest)
    return name


def _names_first(text: str) -> bool:
    """Whether a text begins with a clause that speaks of a disease and does not deny it."""
    first = next(iter(_clauses(text)), "")
    return speaks_of_disease(first) and not _denies_another(first)


def _is_word(text: str) -> bool:
    return sum(c.isalpha() for c in text) > 1


def _is_frame(lead: str) -> bool:
    return bool(_lexicon()["frame"].fullmatch(lead.lower()))


def _leads(lead: str) -> bool:
    """Whether the words before a name are what speaks for it and an introduction, and say nothing else of it."""
    low, reported = lead.lower(), _lexicon()["reported"]
    if patterns.LESS_THAN_EVEN.search(low) or any(
        patterns.ASKED.match(one) or reported.search(one) for one in patterns.CLAUSE.split(low)
    ):
        return False
    if lead.rstrip().endswith(("(", ",")) and not (is_chinese(lead) or _is_frame(lead)):
        return False  # it may be one name: "Hand, foot and mouth disease"
    if lead.rstrip().endswith("(") and not patterns.HEADING.search(lead):
        return False
    *said, last = patterns.CLAUSE.split(lead)
    bare = bool(patterns.NO_LIST.search(lead[-4:]))  # or in brackets
    return _are_asides(tuple(filter(_is_word, said)), bare=bare) and (_is_frame(last) or _concludes(last))


def _concludes(clause: str) -> bool:
    """Whether a clause that a name ends has a verb before it by which what stands there speaks for the name."""
    verbs = patterns.CONCLUDES_CHINESE if is_chinese(clause) else patterns.CONCLUDES
    verb = max(verbs.finditer(clause), key=lambda found: found.end(), default=None)
    if verb is None or not _is_frame(clause[verb.end() :]):
        return False
    before = clause[: verb.start()]
    return _is_frame(before) or not (speaks_of_disease(before) or _is_doubted(before))


def _says_nothing_else(tail: str, own: frozenset[int | None]) -> bool:
    """Whether what stands behind a name leaves its disease, which belongs to these bundled groups, as it is."""
    if patterns.LESS_THAN_EVEN.search(tail.lower()) or _lexicon()["first"].match(tail.lower()):
        return False
    clauses = _clauses(tail)
    if not _are_asides(clauses, own, bare=bool(patterns.NO_LIST.match(tail))):
        return False
    return not takes_back(tail) or (bool(clauses) and _denies_another(clauses[0]))


def _clauses(text: str) -> list[str]:
    return [clause for clause in patterns.CLAUSE.split(text) if any(c.isalnum() for c in clause)]


def _are_asides(clauses: Sequence[str], own: frozenset[int | None] = frozenset(), bare: bool = False) -> bool:
    """Whether clauses say nothing of another disease but that it is not there, nor what kind of disease it is. Bare nouns
    behind a comma might be further guesses, or a kind.

    Args:
        clauses: without marks.
        own: the bundled groups of the disease that is named: its other names are no other disease.
        bare: whether bare nouns are evidence: in brackets, at a dash, a colon or an arrow.
    """
    left = [one for one in clauses if not _is_frame(one) and not _is_other_name(one, own)]
    if not all(_denies_another(one) if _names_another(one) else not _is_doubted(one) for one in left):
        return False
    return bare or not left or any(map(_is_no_noun, left))


def _is_other_name(clause: str, own: frozenset[int | None]) -> bool:
    return bool(own) and diseases_in(clause) == own and not _is_doubted(patterns.OR.sub("", clause))


def _names_another(clause: str) -> bool:
    """Whether a clause speaks of a disease, findings that are called like one apart."""
    return speaks_of_disease(clause) and speaks_of_disease(_lexicon()["findings"].sub(" ", clause))


def _is_no_noun(clause: str) -> bool:
    """Whether a clause is evidence, advice or a denial and no bare noun: by its words, by a number or a sign, or because
    it is long.
    """
    low, lexicon = clause.lower(), _lexicon()
    plain = patterns.ABSENT_CHINESE.sub(" ", patterns.ABSENT.sub(" ", lexicon["fixed"].sub(" ", low)))
    told = plain != low or lexicon["aside"].search(low) or patterns.MEASURED.search(low)
    return bool(told) or len(low.split()) > 3 or len(patterns.CHINESE.findall(low)) > 4 or _denies_another(clause)


def _is_doubted(clause: str) -> bool:
    """Whether a clause has words by which the disease may be another, another's, of another kind or not there."""
    lexicon = _lexicon()
    plain = patterns.ABSENT.sub(" ", lexicon["fixed"].sub(" ", clause.lower()))
    denied = lexicon["negative"].search(patterns.ABSENT_CHINESE.sub(" ", plain))
    return any((denied, lexicon["against"].search(plain), lexicon["kind"].search(plain)))


def _denies_another(clause: str) -> bool:
    """Whether a clause denies one disease, or two, and says nothing else."""
    denial = patterns.DENIES_CHINESE if is_chinese(clause) else patterns.DENIES
    denied = denial.fullmatch(clause) and not patterns.NEVER_DENIED.search(clause.lower())
    return bool(denied) and speaks_of_disease(patterns.ARTICLE.sub(" ", clause))


@lru_cache(maxsize=1)
def _lexicon() -> dict[str, re.Pattern[str]]:
    """Read `answer_words.yaml`: name of a list -> its words, of Latin letters whole ones."""
    content: dict[str, Any] = YAML(typ="safe").load(
        Path(__file__).with_name("answer_words.yaml").read_text(encoding="utf-8")
    )
    frame, first = content.pop("frame"), "|".join(content.pop("first"))
    content["aside"] = [line for lines in content["aside"].values() for line in lines]
    latin = "|".join(frame["words"])
    chinese = "|".join(sorted("|".join(frame["chinese"]).split("|"), key=len, reverse=True))
    found = {name: re.compile(rf"(?<![a-z])(?:{'|'.join(lines)})(?![a-z])") for name, lines in content.items()}
    found["findings"] = re.compile(found["findings"].pattern, re.IGNORECASE)
    found["first"] = re.compile(rf"\W*(?:{first})\b")
    # one reading of each place alone: a text made of such words would take for ever otherwise
    found["frame"] = re.compile(rf"(?>[^\w]|_|(?<![a-z])(?:{latin})(?![a-z])|{chinese})*+")
    return found
