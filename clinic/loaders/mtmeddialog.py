"""MTMedDialog (DoctorAgent-RL): online consultations with recorded patient answers, in two formats.

`mtmeddialog_turns` is the turn parquet (one row per doctor turn, the whole record repeated in each);
`mtmeddialog_cases` the same consultations regrouped as JSON lines. Both give the same cases: a fact is one
recorded answer, its topic the doctor's question before it. Consultations with the same self-report share a group.

The diagnosis is a sentence and is kept as one. Where a plain rule finds the name in it ("... you likely have
gastritis, possibly ..." -> gastritis), the name is a synonym and the diagnosis id; see `short_name`.

Source: Feng et al., DoctorAgent-RL, arXiv:2505.19630; data/MTMedDialog_sft_train.parquet.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet

from clinic.cases import Case, Rejected
from clinic.config import CaseSource, SplitParams
from clinic.language import EN
from clinic.loaders.records import (
    UNCLASSIFIED,
    BadRecord,
    collect,
    damaged,
    diagnosis_id,
    existing,
    facts_of,
    lines,
    names_of,
    parse_line,
    text_at,
    value_at,
)
from clinic.matching import normalise
from clinic.splits import split_of

COLUMNS = ["case_id", "prompt", "reward_model"]
# around the self-report in the first user message
BEFORE_REPORT, AFTER_REPORT = (
    "Patient's description:",
    "Decide next action:",
)

_LEAD = re.compile(
    r"\b(?:diagnos[ei]s (?:is|are)|diagnosed with|diagnose (?:you with|this as)|have|has|(?:\w+'ve|have) caught|experiencing|suffering from"
    r"|appears to be|it is|could be|confirm that you have|symptoms suggest)\b(?=\s)"
)
_ADVERBS = r"(?:(?:most |very )?likely|probably|possibly|currently|now|been diagnosed with|caught|be (?:experiencing|suffering from)|experiencing|suffering from)"
_LEADING = re.compile(
    rf"\A(?:(?:{_ADVERBS}|an?|the|your|(?:mild |acute )?(?:case|form|bout|recurrence|flare-up) of(?: an?| the)?)\s+)+",
    re.IGNORECASE,
)
_END = re.compile(
    r"\s*(?:[,.;:(]|\b(?:which|that|who|likely|possibly|probably|caused|causing|due|because|but|though|although|with|without|rather|as|from|given|along|accompanied"
    r"|specifically|based|by|in|on|after|during|when|where|exacerbated|aggravated|triggered|related|resulting|leading)\b|\Z)"
)
_UNSAFE = re.compile(
    r"\b(?:or|may|might|could|would|be|been|being|is|are|was|not|no|you|your|it|this|these|some|any|symptoms?|issues?|signs?|conditions?|problems?"
    r"|side|effects?|definition|need|needs|to|than|both|of|what|called|history|possible|unlikely)\b|-\Z",
    re.IGNORECASE,
)
_MORE = re.compile(
    r"\s*(?:\([^)]*\))?(?:-|\s+and\b|,(?!\s*(?:which|likely|possibly|probably|specifically|though|although|but|often|an?|given|and)\b))"
)
_NEGATED = re.compile(r"\b(?:not|no|never|unlikely|initially)\b")
MAX_NAME_WORDS = 4


def load_cases(source: CaseSource, split: SplitParams) -> tuple[list[Case], list[Rejected]]:
    """Read the regrouped consultations; see `clinic.loaders.load_source`."""
    path = existing(source.path)
    return collect(path, lines(path), lambda line: _case_of_line(parse_line(line), source, split))


def load_turns(source: CaseSource, split: SplitParams) -> tuple[list[Case], list[Rejected]]:
    """Read the turn parquet; the line of a rejection is the first row (from 1) of its consultation."""
    path = existing(source.path)
    return collect(path, _consultations(path), lambda rows: _case_of_rows(rows, source, split))


def _case_of_line(record: Any, source: CaseSource, split: SplitParams) -> Case:
    exchanges = [
        (value_at(turn, "doctor"), value_at(turn, "patient"))
        for turn in _list(value_at(record, "dialogue"), "dialogue")
    ]
    texts = {name: text_at(record, name) for name in ("case_id", "self_report", "diagnosis", "recommendation")}
    return _case(texts, exchanges, source, split)


def _consultations(path: Path) -> Iterator[tuple[int, list[Any]]]:
    """First row number and all rows of every consultation, in file order; a row without an id stands alone."""
    try:
        rows = pyarrow.parquet.read_table(path, columns=COLUMNS).to_pylist()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error
    groups: dict[Any, tuple[int, list[Any]]] = {}
    for number, row in enumerate(rows, start=1):
        case_id = row.get("case_id")
        groups.setdefault(case_id if isinstance(case_id, str) and case_id else number, (number, []))[1].append(row)
    yield from groups.values()


def _case_of_rows(rows: list[Any], source: CaseSource, split: SplitParams) -> Case:
    for row in rows[1:]:
        if row.get("reward_model") != rows[0].get("reward_model"):
            raise BadRecord("the rows of this consultation disagree about its truth")
    truth = value_at(rows[0], "reward_model")
    texts = {name: text_at(truth, "ground_truth", name) for name in ("diagnosis", "recommendation")} | {
        "case_id": text_at(rows[0], "case_id")
    }
    messages = _list(value_at(rows[0], "prompt"), "prompt")
    opening = next((text_at(message, "content") for message in messages if value_at(message, "role") == "user"), "")
    report = opening.removeprefix(BEFORE_REPORT).partition(AFTER_REPORT)[0].strip()
    if not opening.startswith(BEFORE_REPORT) or not report:
        raise BadRecord(f'the prompt holds no self-report ("{BEFORE_REPORT} ...")')
    turns = _list(value_at(truth, "patient_information"), "patient_information")
    exchanges = [(value_at(turn, "doctor_question"), value_at(turn, "patient_response")) for turn in turns]
    return _case(texts | {"self_report": report}, exchanges, source, split)


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadRecord(f"field {name} is no list")
    return value


def _case(texts: dict[str, str], exchanges: list[tuple[Any, Any]], source: CaseSource, split: SplitParams) -> Case:
    """Args: case_id, self_report, diagnosis and recommendation; then what doctor and patient said, turn by turn."""
    told = [(_joined(doctor) or "Unasked", answer) for doctor, patient in exchanges if (answer := _joined(patient))]
    name = short_name(texts["diagnosis"])
    names = names_of(name) if name else ()
    group = hashlib.sha256(normalise(texts["self_report"]).encode()).hexdigest()[:16]
    return Case(
        **texts,
        group_id=group,
        split=split_of(group, split),
        source="mtmeddialog",
        licence=source.licence,
        language=source.language or EN.code,
        category=UNCLASSIFIED,
        persona="plain",
        opening=(),
        facts=facts_of(told),
        diagnosis_id=diagnosis_id(names[0] if names else texts["diagnosis"]),
        synonyms=names,
        parents=(),
        urgent=False,
        red_flags=(),
        flags=(),
    )


def _joined(said: Any) -> str:
    """What one side said in one turn, as one text; an empty turn may be null, [] or blank."""
    parts = [part for part in _list(said, "dialogue") if part is not None] if said is not None else []
    if not all(isinstance(part, str) for part in parts):
        raise BadRecord("a turn of the dialogue is no text")
    return " ".join(part.strip() for part in parts if part.strip())


def short_name(sentence: str) -> str:
    """The diagnosis named in a sentence, or "" where the rule is not sure.

    Takes the words after the first phrase that introduces a diagnosis ("you have", "the diagnosis is", "suffering from"
    ...), drops adverbs and articles, and stops at the first punctuation or connective. Not sure: more than four words,
    words such as "or", "not", "symptoms", "condition" among them, a list that goes on after a comma, or a "not" or
    "unlikely" before.

    Source: written by reading the 695 sentences of MTMedDialog_sft_train (data part).
    """
    lead = _LEAD.search(sentence)
    if lead is None or _NEGATED.search(sentence, 0, lead.start()):
        return ""
    rest = _LEADING.sub("", sentence[lead.end() :].strip())
    end = _END.search(rest)
    name = rest[: end.start()].strip() if end else rest
    acronym = re.match(r"\s*\(([A-Z]{2,6})\)", rest[len(name) :])
    sure = 1 <= len(name.split()) <= MAX_NAME_WORDS and not _UNSAFE.search(name) and not _MORE.match(rest[len(name) :])
    return name + (f" ({acronym[1]})" if acronym else "") if sure else ""
