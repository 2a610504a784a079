"""Own cases: any table (`clinic.loaders.rows`) and a mapping file that says what its columns are
(`clinic.loaders.mapping`). A vignette and a diagnosis are enough.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Dict
from itertools import chain
from pathlib import Path
from typing import Any

from clinic.cases import Case, Rejected
from clinic.config import CaseSource, SplitParams
from clinic.errors import ClinicError
from clinic.language import EN, PHRASES
from clinic.loaders.cells import parsed, text_of, with_flags
from clinic.loaders.facts import told_by_facts, told_by_tests
from clinic.loaders.free_text import Statement, opening_of, statements_of
from clinic.loaders.mapping import Constant, Mapping, check_columns, read_mapping
from clinic.loaders.records import UNCLASSIFIED, BadRecord, collect, diagnosis_id, names_of, numbered
from clinic.loaders.rows import Row, read_table, tables_at
from clinic.loaders.talks import answers, complaints, recorded, turns_of
from clinic.loaders.text_lines import options_of
from clinic.loaders.text_rules import is_foreign
from clinic.matching import normalise
from clinic.splits import split_of

RED_FLAG = {"en": "Warning sign", "zh": "危险信号"}
_ICD = r"(?:ICD-?\d*(?:-CM)?:?\s*)?[A-TV-Z]\d[\dA-Z]\.[\dA-Z]{1,4}(?![A-Za-z\d])"
_HAN = re.compile(r"[\u4e00-\u9fff]")
_UNDOTTED = r"(?:[A-TV-Z]\d\d[\dA-Z]{1,4}|ICD-?\d*(?:-CM)?:?\s*[A-TV-Z]\d[\dA-Z]{1,5})"  # alone: J189, ICD-10: J45
_CODE = re.compile(rf"\A\W*{_ICD}\W*|\s*[(\[（]\s*{_ICD}\s*[)\]）]|[\s,;:–-]+{_ICD}\W*\Z")  # of ICD-10, with its dot
_LETTERED = re.compile(r"\A\(?[A-Ha-h][).:]\s+(?=\w{3})")  # "B) Gout"
_NO_NAME = re.compile(
    rf"(?=\W*\w)[\W\d_]*[A-Za-z]?[\W_]*|\W*(?:{_ICD}|{_UNDOTTED}|[A-TV-Z]\d\d|\d{{3}}\.\d{{1,2}})\W*"
)  # 3, A, J18.9: what stands for a name in a key elsewhere
_NO_DISEASE = frozenset(["other", "others", "unspecified", "undiagnosed", "no diagnosis", "none of the above", "其他", "其它", "待查"])  # fmt: skip
_AROUND = ' "“”'  # what a spreadsheet or a slip leaves around a name


def load(source: CaseSource, split: SplitParams) -> tuple[list[Case], list[Rejected]]:
    """Read the cases of one table, or of a folder's tables, which share the mapping; of two cases with one id the first is
    kept. See `clinic.loaders.load_source`.
    """
    if source.mapping is None:
        raise ClinicError(f"{source.path}: format own needs `mapping`, the file that says what its columns are")
    mapping = read_mapping(Path(source.mapping))

    def build(row: Row | BadRecord) -> Case:
        if isinstance(row, BadRecord):
            raise row
        return case_of(row, mapping, source, split)

    cases: list[Case] = []
    rejected: list[Rejected] = []
    seen: dict[str, str] = {}
    for path in tables_at(Path(source.path)):
        table = read_table(str(path))
        check_columns(mapping, Path(source.mapping), path, table.columns)
        rows = with_flags(table.rows, [*mapping.facts, *mapping.tests])
        found, bad = collect(path, rows, build, seen)
        seen |= {case.case_id: path.name for case in found}
        cases += found
        rejected += bad
    return cases, rejected


def case_of(row: Row, mapping: Mapping, source: CaseSource, split: SplitParams) -> Case:
    """A row as a case.

    Raises:
        BadRecord: it lacks a diagnosis, tells nothing, or says something that cannot be.
    """
    if not any(text_of(value) for value in row.values()):
        raise BadRecord("the row is empty")
    language = _field(row, mapping.language) or source.language or EN.code
    if language not in PHRASES:
        raise BadRecord(f"language {language!r} is not spoken here; use one of: {', '.join(PHRASES)}")
    diagnosis, names = _names(row, mapping)
    statements = list(_statements(row, mapping, language))
    vignette = _field(row, mapping.vignette)
    opening = _field(row, mapping.opening) or opening_of(_first_words(vignette, language), language)
    if not opening and mapping.dialogue is not None:
        opening = next(complaints(recorded(mapping.dialogue, row.get(mapping.dialogue), language), language), "")
    if not opening:
        column = mapping.opening or mapping.vignette or mapping.dialogue
        lacks = "tells nothing of the patient beside questions and conclusions" if vignette else "is empty"
        raise BadRecord(f"nothing to begin with: column {column!r} {lacks}")
    _refuse_another_language(opening, statements, language, diagnosis)
    flags = _several(row, mapping.red_flags, mapping.separator)
    statements += [Statement(RED_FLAG[language], True, flag) for flag in flags if not _named(flag, statements)]
    facts = numbered([(s.topic, s.present, s.text) for s in statements])
    told = tuple(fact.topic for fact in facts if normalise(fact.text) == normalise(opening))
    if len(facts) == len(told):
        raise BadRecord("nothing is left to ask: beside the opening words the row tells nothing of the patient")
    words = normalise(" ".join([opening, *(fact.text for fact in facts)]))
    digest = hashlib.sha256(words.encode()).hexdigest()[:16]
    group = f"{mapping.name}:{_field(row, mapping.group)}" if _field(row, mapping.group) else digest
    return Case(
        case_id=_case_id(row, mapping, digest, diagnosis),
        group_id=group,
        split=split_of(group, split),
        source=mapping.name,
        licence=_field(row, mapping.licence) or source.licence,
        language=language,
        category=_field(row, mapping.category) or UNCLASSIFIED,
        persona="plain",
        self_report=opening,
        opening=told,
        facts=facts,
        diagnosis_id=diagnosis_id(names[0]),
        diagnosis=diagnosis,
        synonyms=tuple(
            dict.fromkeys([*(names if len(names) > 1 else ()), *_several(row, mapping.synonyms, mapping.separator)])
        ),
        parents=(),
        recommendation=_field(row, mapping.recommendation),
        urgent=bool(flags),
        red_flags=tuple(
            fact.topic
            for fact in facts
            if _named(fact.text, [Statement("", True, f) for f in flags]) or fact.topic in flags
        ),
        flags=(),
    )


def _refuse_another_language(opening: str, statements: Sequence[Statement], language: str, diagnosis: str) -> None:
    """Words that are not of the language in which they would be read."""
    if language == EN.code and 2 * len(_HAN.findall(opening)) > len(opening):
        raise BadRecord(
            "its words are Chinese, but its language is en; say `language: zh` of the source, or --language zh"
        )
    if language != EN.code and not _HAN.search(" ".join([opening, diagnosis, *(s.text for s in statements)])):
        raise BadRecord(
            f"its words are not Chinese, but its language is {language}; say `language: en` of the source, or --language en"
        )
    if is_foreign(" ".join([opening, *(s.text for s in statements)]), language):
        raise BadRecord(
            "its words are neither English nor Chinese; denials would be missed: translate it, or leave it out"
        )


def _names(row: Row, mapping: Mapping) -> tuple[str, tuple[str, ...]]:
    """The diagnosis without a code of ICD-10, corrected, and the names in it."""
    stated, named = stated_diagnosis(row, mapping)
    if len(named) == 1 and isinstance(mapping.vignette, str):  # the letter of an exam question's option
        named = options_of(text_of(row.get(mapping.vignette))).get(named.upper(), named)
    if not stated:
        raise BadRecord(f"no diagnosis: column {mapping.diagnosis!r} {_blank(row.get(mapping.diagnosis))}")
    corrected = {normalise(wrong): right for wrong, right in mapping.corrections.items()}
    diagnosis = corrected.get(normalise(stated)) or corrected.get(normalise(named), named)
    if _NO_NAME.fullmatch(diagnosis):
        raise BadRecord(
            f"diagnosis {diagnosis!r} is a code or a number, no name; say what it stands for under `corrections` of the mapping"
        )
    if normalise(diagnosis) in _NO_DISEASE:
        raise BadRecord(
            f"diagnosis {diagnosis!r} is no disease; say which under `corrections` of the mapping, or leave it out"
        )
    return diagnosis, names_of(diagnosis)


def stated_diagnosis(row: Row, mapping: Mapping) -> tuple[str, str]:
    """The diagnosis of a row as it stands there, and without a code of ICD-10; corrections may name either."""
    stated = " ".join(_field(row, mapping.diagnosis).split()).strip(_AROUND)
    return stated, _LETTERED.sub("", _CODE.sub("", stated)).strip() or stated


def _blank(value: Any) -> str:
    return f"says {value!r}" if isinstance(value, str) and value.strip() else "is empty"


def _case_id(row: Row, mapping: Mapping, digest: str, diagnosis: str) -> str:
    if mapping.case_id is None:
        return f"{mapping.name}-{hashlib.sha256(f'{digest}{normalise(diagnosis)}'.encode()).hexdigest()[:10]}"
    stated = _field(row, mapping.case_id)
    if not stated:
        raise BadRecord(f"no case id: column {mapping.case_id!r} {_blank(row.get(mapping.case_id))}")
    return stated


def _statements(row: Row, mapping: Mapping, language: str) -> Iterator[Statement]:
    """Everything that the row tells, in the order vignette, facts, tests, dialogue."""
    if vignette := _field(row, mapping.vignette):
        yield from told_by_vignette(vignette, language)
    for column in mapping.facts:
        yield from told_by_facts(column, row.get(column), language)
    for column in mapping.tests:
        yield from told_by_tests(column, row.get(column), language)
    if mapping.dialogue is not None:
        yield from answers(recorded(mapping.dialogue, row.get(mapping.dialogue), language), language)


def told_by_vignette(vignette: str, language: str) -> Iterator[Statement]:
    """What a free text tells, which may be a talk."""
    turns = turns_of(vignette, language)
    return answers(turns, language) if turns else statements_of(vignette, language)


def _first_words(vignette: str, language: str) -> str:
    """What a vignette begins with: where it is a talk, what the patient says first."""
    turns = turns_of(vignette, language)
    return next(chain(complaints(turns, language), (turn["patient"] for turn in turns if "patient" in turn)), vignette)


def _named(text: str, statements: list[Statement]) -> bool:
    return any(normalise(text) in (normalise(s.text), normalise(s.topic)) for s in statements)


def _field(row: Row, column: str | Constant | None) -> str:
    if isinstance(column, Constant):
        return column.constant
    value = row.get(column) if column is not None else None
    if isinstance(value, list | Dict):
        raise BadRecord(
            f"column {column!r} holds a list or an object; it must be one text, so give it a column of its own"
        )
    return text_of(value)


def _several(row: Row, column: str | None, separator: str) -> list[str]:
    value = parsed(row.get(column)) if column is not None else None
    entries = value if isinstance(value, list) else text_of(value).split(separator)
    return [text for entry in entries if (text := text_of(entry))]
