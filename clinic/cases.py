"""The case: one schema for generated and imported patients, stored as parquet.

Made by the `patient_cases` stage; read by `warm_start`, `train_doctor` and `evaluate_doctor`.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from clinic.errors import ClinicError

SPLITS = ("train", "validation", "test")
QUESTIONS = "questions"  # the source of single-turn questions, which stand in the table as cases without a patient
PERSONAS = ("plain", "terse", "talkative", "worried", "reluctant")
OPENING_STATES_DIAGNOSIS = "opening_states_diagnosis"
ORDERED = {
    "en": "Test results: ",
    "zh": "检查结果：",
}  # how the topic of a result begins that a column of a table holds
# a letter or digit of a script that parts its words, so that a Chinese term is found inside a sentence
_LETTER = r"[^\W_\u3040-\u30ff\u3400-\u9fff]"


@dataclass(frozen=True)
class Fact:
    """One atomic thing the patient can tell: a topic, whether it holds, and how this patient words it."""

    topic: str  # finding id where a vocabulary is known, else a heading of the source record
    present: bool
    text: str
    worth: float | None = None  # what it tells apart (`clinic.worth`); None where probabilities say it


@dataclass(frozen=True, kw_only=True)
class Case:
    """A patient: opening words, atomic facts and a diagnosis that is an id in a vocabulary."""

    case_id: str
    group_id: str  # near-duplicates share it, and with it their split
    split: str
    source: str  # "starter", "agentclinic" ...
    licence: str
    language: str
    category: str
    persona: str
    self_report: str
    opening: tuple[str, ...]  # topics that the self-report already tells, in order
    facts: tuple[Fact, ...]
    diagnosis_id: str
    diagnosis: str
    synonyms: tuple[str, ...]
    parents: tuple[str, ...]
    recommendation: str
    urgent: bool
    red_flags: tuple[str, ...]  # topics
    flags: tuple[str, ...]  # remarks of the loader, such as "opening_states_diagnosis"


@dataclass(frozen=True)
class Rejected:
    """A source record that could not become a case: where it stood and why."""

    path: str
    line: int
    reason: str


@lru_cache(maxsize=4096)
def mention_of(terms: frozenset[str]) -> re.Pattern[str] | None:
    """Finds any of the terms as whole words, longest first, in any case; None without terms."""
    body = "|".join(re.escape(term) for term in sorted(terms - {""}, key=lambda term: (-len(term), term)))
    return re.compile(rf"(?<!{_LETTER})(?:{body})(?!{_LETTER})", re.IGNORECASE) if body else None


def flag_opening(case: Case) -> Case:
    """The case, flagged "opening_states_diagnosis" if its self-report names the diagnosis or a synonym.

    For every source.
    """
    heard = case.self_report.lower()
    mention = mention_of(frozenset(term for term in (case.diagnosis, *case.synonyms) if term.lower() in heard))
    if mention is None or OPENING_STATES_DIAGNOSIS in case.flags or not mention.search(case.self_report):
        return case
    return replace(case, flags=(*case.flags, OPENING_STATES_DIAGNOSIS))


def persona_of(case_id: str, personas: Sequence[str]) -> str:
    """The persona of a case: dealt out by its id, evenly on average and always the same."""
    digest = hashlib.sha256(case_id.encode()).digest()
    return personas[int.from_bytes(digest[:4], "big") % len(personas)]


def write_cases(cases: Iterable[Case], path: Path) -> None:
    """Write cases as parquet, nested fields as JSON text."""
    # dataclasses.asdict copies every leaf
    contents = (vars(case) | {"facts": [_stored(fact) for fact in case.facts]} for case in cases)
    rows = [
        {k: v if isinstance(v, str | bool) else json.dumps(v, ensure_ascii=False) for k, v in content.items()}
        for content in contents
    ]
    pd.DataFrame(rows, columns=[f.name for f in fields(Case)]).to_parquet(path, index=False)


def _stored(fact: Fact) -> dict[str, Any]:
    return {name: value for name, value in vars(fact).items() if value is not None}


def read_cases(path: Path, split: str | None = None) -> list[Case]:
    """Read the cases of one split, or all, in file order.

    Raises:
        ClinicError: the file is missing, damaged, or has no case of that split.
    """
    if not path.exists():
        raise ClinicError(f"{path} does not exist; run `dvc repro patient_cases`")
    try:
        table = pd.read_parquet(path)
        if split is not None:
            table = table[table["split"] == split]
        cases = [_case(row) for row in table.to_dict("records")]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ClinicError(
            f"{path} is damaged ({' '.join(str(error).split())}); run `dvc repro --force patient_cases`"
        ) from error
    if not cases:
        raise ClinicError(f"{path} holds no case of split {split!r}; raise patient_cases.starter.cases in params.yaml")
    return cases


def _case(row: dict[Any, Any]) -> Case:
    nested = {name: tuple(json.loads(row[name])) for name in ("opening", "synonyms", "parents", "red_flags", "flags")}
    facts = tuple(Fact(**fact) for fact in json.loads(row["facts"]))
    return Case(**{**row, **nested, "facts": facts})


def write_rejected(rejected: Sequence[Rejected], path: Path) -> None:
    """Write one JSON line for every record that did not become a case."""
    path.write_text("".join(json.dumps(asdict(r), ensure_ascii=False) + "\n" for r in rejected), encoding="utf-8")
