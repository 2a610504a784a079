"""AgentClinic-MedQA: OSCE cases as JSON lines, patient script apart from examination and tests.

Every leaf of the OSCE record becomes a fact whose topic is the path of its headings ("Vital Signs: Temperature",
"Chest X-ray: Findings"); the patient's own prose is parted at sentence ends, so that a fact stays atomic. Left out:
the examiner's `Objective_for_Doctor`, the diagnosis, and fields that say "N/A".

Source: Schmidgall et al., AgentClinic, arXiv:2405.07960; agentclinic_medqa_extended.jsonl with ids and groups added.
"""

import re
from collections.abc import Iterator
from typing import Any

from clinic.cases import Case, Rejected
from clinic.config import CaseSource, SplitParams
from clinic.language import EN
from clinic.loaders.records import (
    UNCLASSIFIED,
    BadRecord,
    collect,
    diagnosis_id,
    existing,
    facts_of,
    lines,
    names_of,
    parse_line,
    text_at,
    value_at,
)
from clinic.splits import split_of

SECTIONS = ("Patient_Actor", "Physical_Examination_Findings", "Test_Results")
OPENING = ("Demographics", "Symptoms: Primary Symptom")  # what the self-report tells
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def load(source: CaseSource, split: SplitParams) -> tuple[list[Case], list[Rejected]]:
    """Read the cases of one AgentClinic file; see `clinic.loaders.load_source`."""
    path = existing(source.path)
    return collect(path, lines(path), lambda line: _case(parse_line(line), source, split))


def _case(record: Any, source: CaseSource, split: SplitParams) -> Case:
    case_id, group = text_at(record, "case_id"), text_at(record, "group")
    demographics = text_at(record, "OSCE_Examination", "Patient_Actor", "Demographics")
    complaint = text_at(record, "OSCE_Examination", "Patient_Actor", "Symptoms", "Primary_Symptom")
    diagnosis = text_at(record, "correct_diagnosis")
    names = names_of(diagnosis)
    told = [
        pair
        for name in SECTIONS
        for pair in _leaves((), value_at(record, "OSCE_Examination").get(name), name == "Patient_Actor")
    ]
    facts = facts_of(told)
    opening = tuple(fact.topic for fact in facts if fact.topic in OPENING)
    if len(facts) == len(opening):
        raise BadRecord("the record holds no answer of the patient")
    return Case(
        case_id=case_id,
        group_id=group,
        split=split_of(group, split),
        source="agentclinic",
        licence=source.licence,
        language=source.language or EN.code,
        category=UNCLASSIFIED,
        persona="plain",
        self_report=f"{complaint.rstrip('.')} ({demographics.rstrip('.')})",
        opening=opening,
        facts=facts,
        diagnosis_id=diagnosis_id(names[0]),
        diagnosis=diagnosis,
        synonyms=names if len(names) > 1 else (),
        parents=(),
        recommendation="",
        urgent=False,
        red_flags=(),
        flags=(),
    )


def _leaves(path: tuple[str, ...], value: Any, prose: bool) -> Iterator[tuple[str, str]]:
    """(heading path, text) of every leaf below a value, in file order."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves((*path, str(key).replace("_", " ").strip()), inner, prose)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(path, inner, prose)
    else:
        heading, text = ": ".join(path) or "Notes", _plain(value)
        if text.rstrip(".").upper() not in ("", "N/A"):
            yield from (
                (heading, part) for part in (_SENTENCE_END.split(text) if prose and heading not in OPENING else [text])
            )


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value).strip()
