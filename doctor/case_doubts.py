"""What is doubtful of a table of own cases: groups, names of diagnoses, synonyms, and facts that give the diagnosis away."""

import re
from collections.abc import Iterator, Sequence

from clinic.cases import Case
from clinic.loaders.cells import text_of
from clinic.loaders.mapping import Mapping
from clinic.loaders.records import BadRecord
from clinic.loaders.rows import Table
from clinic.matching import normalise

SHOWN = 5  # names
_SEVERAL = re.compile(
    r"[;|；]|\bvs\.?\b| / |(?<=[^\W\d_]{4})/(?=[^\W\d_]{3})|\A\W*1\s*[.)、．]\s*\D"
)  # diagnoses in one cell
_SENTENCE = re.compile(
    r"\b(?:is|was|were|are|consistent with|established|diagnosed|confirmed by|suggest\w*|findings|presentation)\b"
    r"|[.。]\W*\Z|(?:\S+\s+){8}|考虑|符合|明确",
    re.IGNORECASE,
)  # told rather than named
_IN_DOUBT = re.compile(
    r"\A\W*(?:r/o|rule out|not|no|s/p|h/o|history of|suspected|possible|query|normal|see)\b"
    r"|\b(?:excluded|ruled out)\b|[?？]\W*\Z|排除|疑似|待排|可能",
    re.IGNORECASE,
)


def doubts(mapping: Mapping, tables: Sequence[Table], cases: Sequence[Case]) -> list[str]:
    """A line for each kind of doubt that there is.

    Args:
        mapping: of the tables.
        tables: that the cases were read from.
        cases: what could be read, one at least.
    """
    return [f"  {line}" for line in (*_of_groups(mapping, tables), *_of_names(mapping, cases), *_of_words(cases))]


def _of_groups(mapping: Mapping, tables: Sequence[Table]) -> Iterator[str]:
    rows = [row for table in tables for _, row in table.rows if not isinstance(row, BadRecord)]
    if isinstance(mapping.group, str) and (alone := sum(not text_of(row.get(mapping.group)) for row in rows)):
        yield f"rows without a group ({mapping.group} is empty), which may be parted from their patient's: {alone}"


def _of_names(mapping: Mapping, cases: Sequence[Case]) -> Iterator[str]:
    names = list(dict.fromkeys(case.diagnosis for case in cases))
    for what, words in (
        ("look like several, of which one alone is wrong", _SEVERAL),
        ("read like sentences, which few answers will match; name them under `corrections`", _SENTENCE),
        ("are in doubt, ruled out or past", _IN_DOUBT),
    ):
        if found := [name for name in names if words.search(name)]:
            yield f"diagnoses that {what}: {len(found)}, {', '.join(found[:SHOWN])}{', ...' if len(found) > SHOWN else ''}"
    if listed := [name for case in cases for name in case.synonyms if set(name) & set(",，")]:
        yield f"synonyms with a comma, each taken for one name: {len(listed)}, such as {listed[0]!r}; `separator` is {mapping.separator!r}"


def _of_words(cases: Sequence[Case]) -> Iterator[str]:
    named = {case.diagnosis: re.compile(rf"(?<!\w){re.escape(normalise(case.diagnosis))}(?!\w)") for case in cases}
    telling = [(c, f) for c in cases for f in c.facts if named[c.diagnosis].search(normalise(f.text))]
    if telling:
        (_, first), count = telling[0], len({case.case_id for case, _ in telling})
        yield f"cases whose facts name the diagnosis, which is masked where it is told: {count}, such as {first.topic}: {first.text}"
    diagnoses: dict[tuple[str, ...], set[str]] = {}
    for case in cases:
        diagnoses.setdefault((case.self_report, *(fact.text for fact in case.facts)), set()).add(case.diagnosis_id)
    if twice := sum(len(found) > 1 for found in diagnoses.values()):
        yield f"patients with the same words and different diagnoses: {twice}"
