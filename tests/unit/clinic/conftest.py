"""A toy clinic whose numbers are easy to check, the bundled one, and builders of cases and clinic folders."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from clinic.cases import Case, Fact
from clinic.config import ConsultationParams, SplitParams
from clinic.dialogues import topic_matcher
from clinic.generative import Condition, Finding, GenerativeClinic, Wordings
from clinic.matching import TopicMatcher
from clinic.starter import load_starter

ROOT = Path(__file__).parents[3]
# complaint weight, background
TOY_FINDINGS = {
    "fever": (1.0, 0.1),
    "cough": (0.5, 0.2),
    "rash": (2.0, 0.05),
    "age": (0.0, 0.3),
}
TOY_CONDITIONS = {  # prevalence, P(finding | condition)
    "flu": (5.0, {"fever": 0.9, "cough": 0.6}),
    "measles": (1.0, {"fever": 0.8, "rash": 0.95}),
    "bronchitis": (4.0, {"cough": 0.97, "age": 0.7}),
}


def entry_finding(name: str, complaint: float, background: float) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "complaint": complaint,
        "background": background,
        "patient": {"train": [f"I have {name}"], "test": [f"there is {name} here"]},
        "denial": {"train": [f"I have no {name}"], "test": [f"there is no {name} here"]},
        "doctor": {"train": [f"Do you have {name}?"], "test": [f"Any {name} lately?"]},
    }


def entry_condition(name: str, prevalence: float, findings: dict[str, float]) -> dict[str, Any]:
    return {
        "id": name,
        "name": name.capitalize(),
        "specialty": "general",
        "icd10": "Z00",
        "synonyms": [f"{name} disease"],
        "parents": ["illness"],
        "prevalence": prevalence,
        "urgent": name == "measles",
        "red_flags": [next(iter(findings))],
        "next_steps": ["Rest"],
        "findings": dict(findings),
    }


@pytest.fixture(scope="session")
def toy() -> GenerativeClinic:
    findings = [entry_finding(name, *numbers) for name, numbers in TOY_FINDINGS.items()]
    conditions = [entry_condition(name, *numbers) for name, numbers in TOY_CONDITIONS.items()]
    words = ("patient", "denial", "doctor")
    return GenerativeClinic(
        "toy",
        tuple(
            Condition(
                condition_id=c["id"],
                name=c["name"],
                specialty=c["specialty"],
                icd10=c["icd10"],
                synonyms=tuple(c["synonyms"]),
                parents=tuple(c["parents"]),
                prevalence=c["prevalence"],
                urgent=c["urgent"],
                red_flags=tuple(c["red_flags"]),
                next_steps=tuple(c["next_steps"]),
                findings=c["findings"],
            )
            for c in conditions
        ),
        tuple(
            Finding(
                finding_id=f["id"],
                name=f["name"],
                complaint=f["complaint"],
                background=f["background"],
                **{w: Wordings(tuple(f[w]["train"]), tuple(f[w]["test"])) for w in words},
            )
            for f in findings
        ),
        second_complaint=0.4,
    )


@pytest.fixture
def clinic_files() -> dict[str, Any]:
    """The toy clinic as the contents of its folder, to be spoilt by a test."""
    return copy.deepcopy(
        {
            "findings": [entry_finding(name, *numbers) for name, numbers in TOY_FINDINGS.items()],
            "conditions": [entry_condition(name, *numbers) for name, numbers in TOY_CONDITIONS.items()],
        }
    )


@pytest.fixture
def write_clinic(tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    def write(files: dict[str, Any]) -> Path:
        for folder, entries in files.items():
            (tmp_path / folder).mkdir(exist_ok=True)
            YAML().dump(entries, tmp_path / folder / "all.yaml")
        return tmp_path

    return write


@pytest.fixture(scope="session")
def starter_folder() -> Path:
    return ROOT / "data" / "starter"


@pytest.fixture(scope="session")
def starter(starter_folder: Path) -> GenerativeClinic:
    return load_starter(starter_folder, 0.8)


@pytest.fixture(scope="session")
def starter_matcher(starter: GenerativeClinic) -> TopicMatcher:
    return topic_matcher(starter)


@pytest.fixture(scope="session")
def split() -> SplitParams:
    return SplitParams(salt="anamnesis", validation=0.10, test=0.15)


@pytest.fixture(scope="session")
def rules() -> ConsultationParams:
    return ConsultationParams(
        turn_budget=4, instructions="short", search_results=2, search_tokens=96, max_questions=1, matching="lexical"
    )


@pytest.fixture(scope="session")
def make_case() -> Callable[..., Case]:
    """A case of no generative clinic: four present facts and one denied, the first told at the opening."""

    def make(**changes: Any) -> Case:
        texts = {
            "pain": "my chest hurts",
            "cough": "I cough all day",
            "sweat": "I sweat at night",
            "smoking": "I smoke",
        }
        facts = (*(Fact(topic, True, text) for topic, text in texts.items()), Fact("fever", False, "I have no fever"))
        fields: dict[str, Any] = {
            "case_id": "c1",
            "group_id": "g1",
            "split": "train",
            "source": "records",
            "licence": "CC0-1.0",
            "language": "en",
            "category": "chest",
            "persona": "plain",
            "self_report": "My chest hurts.",
            "opening": ("pain",),
            "facts": facts,
            "diagnosis_id": "pneumonia",
            "diagnosis": "Pneumonia",
            "synonyms": ("lung infection",),
            "parents": ("chest disease",),
            "recommendation": "Chest X-ray",
            "urgent": False,
            "red_flags": ("sweat",),
            "flags": (),
        }
        return Case(**fields | changes)

    return make
