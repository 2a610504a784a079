"""How well a patient of imported cases understands natural questions: data/calibration/patient_*.jsonl.

A row holds a source, a case id, a question and `answers`: digests of the facts that answer it (`digest`), none where it
is off the record. The cases themselves are not in the repository; they are read from a folder of the public sets.

    right     the patient told a fact that answers the question
    wrong     it told another one
    unknown   it said that it does not know
    unplaced  a model's words that match no fact on record
    invented  off the record, it told something all the same
"""

import asyncio
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clinic.cases import Case, Fact
from clinic.config import CaseSource, SplitParams
from clinic.language import ZH, says_unknown
from clinic.loaders import load_source
from clinic.loaders.records import facts_of
from clinic.patients.base import Answer, Patient, clauses, statement_matcher
from clinic.patients.llm import LanguageModelPatient
from clinic.patients.scripted import ScriptedPatient
from doctor.calibration import CALIBRATION, read_lines
from doctor.environments import open_factory, refuse_other_embedders
from doctor.parameters import ROOT, ParameterError, Params
from kb.config import DEFAULT_EMBEDDER

FILES = {
    "agentclinic": ("agentclinic", "agentclinic_medqa.jsonl"),
    "mtmeddialog": ("mtmeddialog_cases", "mtmeddialog_sft_cases.jsonl.gz"),
    "primock57": ("", "primock57.jsonl.gz"),
}
FIRST = ("open", "sealed", "fresh open", "fresh sealed")
HALVES_ZH = (*FIRST, "third open", "third sealed")
FITTED = ("third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh")
"""Hands after the first two, whose questions the weights of hybrid matching are fitted to."""
BLIND = ("twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth")
"""From whose questions nothing is learned."""
HALVES = (*FIRST, *(f"{hand} sealed" for hand in (*FITTED, *BLIND)))
WAYS = ("lexical", "hybrid", "cross_encoder")  # of matching; the last is the bundled embedder's
SHARES = ("right", "wrong", "unknown", "unplaced", "invented")
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


def cases_of(folder: Path) -> dict[str, Case]:
    """The cases of all of `FILES`, by id.

    Raises:
        ParameterError: a set is not in the folder.
    """
    for _, file in FILES.values():
        if not (folder / file).exists():
            raise ParameterError(f"{folder / file} does not exist; give --cases the folder of the public case sets")
    return {case.case_id: case for source in FILES for case in load_cases_of(source, folder)}


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
            yield untold_case(record["case_id"], "primock57", "CC BY 4.0", record["presenting_complaint"], told)


def untold_case(case_id: str, source: str, licence: str, report: str, told: Sequence[tuple[str, str]]) -> Case:
    """A case of which no more is known than what the patient came for and facts under headings."""
    return Case(
        case_id=case_id,
        group_id=case_id,
        split="test",
        source=source,
        licence=licence,
        language="en",
        category="unclassified",
        persona="plain",
        self_report=report,
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
    return _shares(zip(rows, asyncio.run(_outcomes(rows, cases, patient)), strict=True))


def _shares(outcomes: Iterable[tuple[Mapping[str, Any], str]]) -> dict[str, float]:
    on, off = list[str](), list[str]()
    for row, outcome in outcomes:
        (on if row["answers"] else off).append(outcome)
    shares = {name: on.count(name) / max(len(on), 1) for name in ("right", "wrong", "unknown", "unplaced")}
    return {
        "on_record": len(on),
        "off_record": len(off),
        **shares,
        "invented": 1 - off.count("unknown") / max(len(off), 1),
    }


async def _outcomes(
    rows: Sequence[Mapping[str, Any]], cases: Mapping[str, Case], patient: Callable[[Case], Patient]
) -> list[str]:
    played = [(row, cases[row["case_id"]], patient(cases[row["case_id"]])) for row in rows]
    answers = await asyncio.gather(*(seated.answer(row["question"]) for row, _, seated in played))
    return [
        _outcome(row, case, answer, by_rules=isinstance(seated, ScriptedPatient))
        for (row, case, seated), answer in zip(played, answers, strict=True)
    ]


def _outcome(row: Mapping[str, Any], case: Case, answer: Answer, *, by_rules: bool) -> str:
    labelled = {fact.topic for fact in case.facts if digest(fact) in row["answers"]}
    if answer.topic in labelled:
        return "right"
    if says_unknown(answer.text, case.language):
        return "unknown"
    if by_rules:
        return "wrong"
    match = statement_matcher(case)
    told = {topic for clause in clauses(answer.text) if (topic := match(clause)) is not None}
    if told & labelled:
        return "right"
    return "wrong" if told or not labelled else "unplaced"


def patient_lines(params: Params, folder: Path, ways: Sequence[str] = (), hands: Sequence[str] = ()) -> Iterator[str]:
    """A line for each half, source and way of matching, as soon as it is measured; where a model plays the patient, of
    that patient.

    Args:
        params: with the embedder, or the model that plays.
        folder: of the public case sets.
        ways: of matching that are measured; none: all that there are beside this embedder.
        hands: how the names of the halves begin that are measured; none: all.

    Raises:
        ParameterError: a set is not in the folder, no half's name begins so, or the way cannot be measured: a model
            plays the patient, or the embedder is not the cross-encoder's.
    """
    base, model = params.knowledge_base, params.language_models.patient
    if ways and model is not None:
        raise ParameterError(
            f"--matching: {model.model} plays the patient (language_models.patient) and matches nothing"
        )
    if "cross_encoder" in ways:
        refuse_other_embedders(base)
    for hand in hands:
        if not any(half.startswith(hand) for half in HALVES):
            raise ParameterError(f"--hands {hand}: there are {', '.join(HALVES)}")
    cases = cases_of(folder)
    there = WAYS if base.embedder == DEFAULT_EMBEDDER else WAYS[:-1]
    for way in (ways or there) if model is None else (model.model,):
        patient = _patient(params, way)
        for half in (half for half in HALVES if half.startswith(tuple(hands) or "")):
            rows = read_lines(CALIBRATION / f"patient_{half.replace(' ', '_')}.jsonl")
            outcomes = list(zip(rows, asyncio.run(_outcomes(rows, cases, patient)), strict=True))
            for source in (*FILES, "all"):
                asked = [(row, outcome) for row, outcome in outcomes if source in ("all", row["source"])]
                if not asked:
                    continue
                found = _shares(asked)
                shares = ", ".join(f"{name} {found[name]:.3f}" for name in SHARES)
                counts = f"{found['on_record']:.0f} on record, {found['off_record']:.0f} off"
                yield f"{way:<13} {half:<17} {source:<12} {shares} ({counts})"


def chinese_patient_lines(params: Params) -> list[str]:
    """The same for the Chinese halves, whose cases are in the repository."""
    model = params.language_models.patient
    lines = []
    for way in ("lexical", "hybrid") if model is None else (model.model,):
        patient = _patient(params, way)
        for half in HALVES_ZH:
            cases = chinese_cases(half)
            rows = read_lines(CALIBRATION / f"patient_zh_{half.replace(' ', '_')}.jsonl")
            found = understanding(rows, cases, patient)
            shares = ", ".join(f"{name} {found[name]:.3f}" for name in SHARES)
            counts = f"{found['on_record']:.0f} on record, {found['off_record']:.0f} off"
            lines.append(f"{way:<8} {half:<12} {shares} ({counts})")
    return lines


def chinese_cases(half: str) -> dict[str, Case]:
    """The Chinese cases of one of `HALVES_ZH`, by id; each hand wrote cases of its own."""
    hand = half.removesuffix("sealed").removesuffix("open").strip()
    table = CALIBRATION / f"patient_zh_{hand}_cases.jsonl".replace("__", "_")
    source = {"format": "own", "path": str(table), "mapping": str(table.with_suffix(".mapping.yaml"))}
    given = CaseSource.model_validate({**source, "language": ZH.code, "cases": 0, "licence": "CC0-1.0"})
    return {case.case_id: case for case in load_source(given, _SPLIT)[0]}


def _patient(params: Params, way: str) -> Callable[[Case], Patient]:
    factory = open_factory(params, ROOT / "data/kb_index")
    if params.language_models.patient is not None:
        return lambda case: LanguageModelPatient(case, None, factory.generate)
    understanding = replace(factory, rules=factory.rules.model_copy(update={"matching": way})).understanding()
    return lambda case: ScriptedPatient(case, None, *understanding)
