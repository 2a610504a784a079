"""How well a patient of imported cases understands natural questions: data/calibration/patient_*.jsonl.

A row holds a source, a case id, a question and `answers`: digests of the facts that answer it (`digest`), none where it
is off the record. The cases themselves are not in the repository; they are read from a folder of the public sets.

    right     the patient told a fact that answers the question
    wrong     it told another one
    unknown   it said that it does not know
    invented  off the record, it told a fact all the same
"""

import asyncio
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clinic.cases import Case, Fact
from clinic.config import CaseSource, SplitParams
from clinic.loaders import load_source
from clinic.loaders.records import facts_of
from clinic.patients.base import Patient

FILES = {
    "agentclinic": ("agentclinic", "agentclinic_medqa.jsonl"),
    "mtmeddialog": ("mtmeddialog_cases", "mtmeddialog_sft_cases.jsonl.gz"),
    "primock57": ("", "primock57.jsonl.gz"),
}
_SPLIT = SplitParams(salt="calibration", validation=0.0, test=0.0)
_CONCLUSION = re.compile(r"\A\s*(?:imp|plan|ddx|diagnosis)\b", re.IGNORECASE)
_HEADING = re.compile(r"\A\s*([A-Za-z][A-Za-z /]{0,24}?)\s*[:;]\s*(.*)\Z")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def digest(fact: Fact) -> str:
    """A fact's text as 12 hexadecimal digits, so that labels can name it without quoting it."""
    return hashlib.sha256(fact.text.encode()).hexdigest()[:12]


def load_cases_of(source: str, folder: Path) -> list[Case]:
    """The cases of one of `FILES`."""
    name, file = FILES[source]
    if not name:
        return list(_clinical_notes(folder / file))
    given = CaseSource.model_validate({"format": name, "path": str(folder / file), "cases": 0, "licence": "-"})
    return load_source(given, _SPLIT)[0]


def _clinical_notes(path: Path) -> Iterator[Case]:
    """PriMock57: every sentence of the clinician's note before the conclusion is a fact under its heading ("PMH")."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for record in map(json.loads, file):
            told: list[tuple[str, str]] = []
            heading = "Note"
            for line in record["note"].splitlines():
                if _CONCLUSION.match(line):
                    break
                found = _HEADING.match(line)
                heading, text = (found[1], found[2]) if found else ("Note", line)
                told += [(heading, part.strip()) for part in _SENTENCE_END.split(text) if part.strip(" .-")]
            yield Case(
                case_id=record["case_id"],
                group_id=record["case_id"],
                split="test",
                source="primock57",
                licence="CC BY 4.0",
                language="en",
                category="unclassified",
                persona="plain",
                self_report=record["presenting_complaint"],
                opening=(),
                facts=facts_of(told),
                diagnosis_id="unknown",
                diagnosis="unknown",
                synonyms=(),
                parents=(),
                recommendation="",
                urgent=False,
                red_flags=(),
                flags=(),
            )


def understanding(
    rows: Sequence[Mapping[str, Any]], cases: Mapping[str, Case], patient: Callable[[Case], Patient]
) -> dict[str, float]:
    """Shares of the labelled questions; see the head of this module.

    Args:
        rows: labelled questions of cases in `cases`.
        cases: by id.
        patient: makes the patient of a case; each question meets a fresh one.
    """
    outcomes = [_outcome(row, cases[row["case_id"]], patient) for row in rows]
    on = [outcome for outcome, row in zip(outcomes, rows, strict=True) if row["answers"]]
    off = [outcome for outcome, row in zip(outcomes, rows, strict=True) if not row["answers"]]
    shares = {name: on.count(name) / max(len(on), 1) for name in ("right", "wrong", "unknown")}
    return {"on_record": len(on), "off_record": len(off), **shares, "invented": off.count("wrong") / max(len(off), 1)}


def _outcome(row: Mapping[str, Any], case: Case, patient: Callable[[Case], Patient]) -> str:
    topic = asyncio.run(_told(patient(case), row["question"]))
    if topic is None:
        return "unknown"
    told = next(fact for fact in case.facts if fact.topic == topic)
    return "right" if digest(told) in row["answers"] else "wrong"


async def _told(patient: Patient, question: str) -> str | None:
    return (await patient.answer(question)).topic
