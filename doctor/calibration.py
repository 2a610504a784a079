"""How well the simulated patient understands questions, and how well a judge agrees with labels.

What is measured:

    questions   agreement of both ways of matching with data/calibration/questions_*.jsonl: right topic, or rightly none
    judge       the model of language_models.reward_judge (or evaluation_judge) against data/calibration/judge.jsonl
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError
from scipy.stats import spearmanr
from sklearn.metrics import cohen_kappa_score

from clinic.config import CaseSource
from clinic.judging import CRITERIA, FULL_MARKS, PROMPT_VERSION, Ask, Subject, judge
from clinic.loaders import load_source
from clinic.matching import MATCH_THRESHOLD, TopicMatcher
from doctor.environments import open_factory
from doctor.opinions import asking
from doctor.parameters import ROOT, ParameterError, Params
from rl.language_models import open_model

CALIBRATION = ROOT / "data" / "calibration"


def questions(params: Params) -> list[str]:
    """A line for each half and way of matching."""
    lines = []
    for way in ("lexical", "hybrid"):
        room = open_factory(
            params.model_copy(update={"consultation": params.consultation.model_copy(update={"matching": way})}),
            ROOT / "data/kb_index",
        )
        for half in ("open", "sealed"):
            found = agreement(room.matcher, read_lines(CALIBRATION / f"questions_{half}.jsonl"))
            lines.append(
                f"{way:<8} {half:<7} {found['all']:.3f} of {found['questions']:.0f}; on record {found['on_record']:.3f}, off record {found['off_record']:.3f}"
            )
    return lines


def recorded_pairs(params: Params, source: str) -> list[str]:
    """How often a recorded question finds its own answer among those of its consultation, when the patient knows the
    answers alone and not the questions they were given to.

    Cases with at least two answers. "lexical" as the patient matches them, or says that it does not know; "nearest" is
    forced to choose; "chance" is choosing at random.

    Raises:
        ParameterError: `source` is no FORMAT=FILE.
    """
    name, _, path = source.partition("=")
    stated = {"format": name, "path": path, "cases": 0, "licence": "see its source"}
    try:
        asked = CaseSource.model_validate(stated)
    except ValidationError as error:
        raise ParameterError(f"--imported {source}: {error.errors()[0]['msg']}; write FORMAT=FILE") from error
    cases, _ = load_source(asked, params.patient_cases.split)
    embed = open_factory(params, ROOT / "data/kb_index").embed
    right: dict[str, list[float]] = {"lexical": [], "nearest by words": [], "nearest by embedding": [], "chance": []}
    for case in (case for case in cases if len(case.facts) > 1):
        answers = {fact.topic: (fact.text,) for fact in case.facts}
        strict, forced = (TopicMatcher(answers, threshold).match for threshold in (MATCH_THRESHOLD, 0.0))
        vectors = embed([text for fact in case.facts for text in (fact.topic, fact.text)])
        nearest = (vectors[0::2] @ vectors[1::2].T).argmax(axis=1)
        for place, fact in enumerate(case.facts):
            right["lexical"].append(strict(fact.topic) == fact.topic)
            right["nearest by words"].append(forced(fact.topic) == fact.topic)
            right["nearest by embedding"].append(int(nearest[place]) == place)
            right["chance"].append(1 / len(case.facts))
    return [f"{way:<22}{np.mean(values):.3f} of {len(values)} pairs" for way, values in right.items()]


def agreement(match: Callable[[str], str | None], rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Share of labelled questions that are understood: all, those about a finding, those off the record."""
    right = np.array([match(row["question"]) == row["topic"] for row in rows])
    on = np.array([row["topic"] is not None for row in rows])
    return {
        "questions": len(rows),
        "all": float(right.mean()),
        "on_record": float(right[on].mean()),
        "off_record": float(right[~on].mean()),
    }


def judge_lines(params: Params, which: str) -> list[str]:
    """How a configured judge does on the labelled consultations.

    Raises:
        ParameterError: no such judge is configured.
    """
    model = getattr(params.language_models, which)
    if model is None:
        raise ParameterError(f"params.yaml: language_models.{which} is null; name a model or an endpoint there")
    table = judge_agreement(asking(open_model(model, ROOT, params.seed)), read_lines(CALIBRATION / "judge.jsonl"))
    head = f"{model.model}, prompt {PROMPT_VERSION}, {table['rows']} consultations, no verdict in {table['missing']}"
    columns = (
        f"{'criterion':<16}{'exact':>8}{'within 1':>10}{'kappa':>8}{'rank':>8}{'bias':>8}{'bias under attack':>20}"
    )
    cells = [
        f"{name:<16}" + "".join(f"{row[key]:>{width}.2f}" for key, width in COLUMNS)
        for name, row in table["criteria"].items()
    ]
    return [head, columns, *cells]


COLUMNS = (("exact", 8), ("within_1", 10), ("kappa", 8), ("rank", 8), ("bias", 8), ("bias_attacked", 20))


def judge_agreement(ask: Ask, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Agreement with the labels, per criterion.

    Returns:
        rows, missing (consultations without a verdict), and for each criterion over the others: exact, within_1
        (shares), kappa (quadratic weights), rank (Spearman), bias (mean of judge - label, points of 5), bias_attacked
        (the same where the doctor's text works on the judge); NaN where undefined.
    """

    async def all_of_them() -> list[dict[str, float] | None]:
        return list(await asyncio.gather(*(judge(ask, subject_of_row(row), tuple(CRITERIA)) for row in rows)))

    verdicts = asyncio.run(all_of_them())
    table: dict[str, Any] = {"rows": len(rows), "missing": sum(verdict is None for verdict in verdicts), "criteria": {}}
    for name in CRITERIA:
        kept = [
            (round(verdict[name] * FULL_MARKS), int(row["labels"][name]), bool(row["attack"]))
            for verdict, row in zip(verdicts, rows, strict=True)
            if verdict is not None
        ]
        table["criteria"][name] = _agreement(kept)
    return table


def _agreement(kept: Sequence[tuple[int, int, bool]]) -> dict[str, float]:
    if not kept:
        return dict.fromkeys((key for key, _ in COLUMNS), float("nan"))
    given, label, attacked = (np.array(column) for column in zip(*kept, strict=True))
    varied = len(set(given.tolist())) > 1 and len(set(label.tolist())) > 1
    return {
        "exact": float((given == label).mean()),
        "within_1": float((abs(given - label) <= 1).mean()),
        "kappa": float(cohen_kappa_score(given, label, weights="quadratic", labels=list(range(FULL_MARKS + 1))))
        if varied
        else float("nan"),
        "rank": float(spearmanr(given, label).statistic) if varied else float("nan"),
        "bias": float((given - label).mean()),
        "bias_attacked": float((given - label)[attacked].mean()) if attacked.any() else float("nan"),
    }


def subject_of_row(row: Mapping[str, Any]) -> Subject:
    """What the judge is shown of a labelled consultation."""
    case, given = row["case"], row["given"]
    reference = {
        "diagnosis": case["diagnosis"],
        "synonyms": [],
        "recommendation": case["recommendation"],
        "facts": case["facts"],
    }
    said = [
        {"speaker": "patient", "text": case["complaint"]},
        *({"speaker": turn["role"], "text": turn["content"]} for turn in row["transcript"]),
    ]
    material = {"transcript": said, "final_diagnosis": given["diagnosis"], "recommendation": given["recommendation"]}
    return Subject(reference, material, CRITERIA, "a doctor's consultation with a patient")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
