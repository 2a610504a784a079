"""What stands beside the weights of every doctor: where it comes from, how good it was, what it is not for."""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from clinic import intervals
from clinic.cases import Case
from clinic.config import JUDGED, PresetParams
from doctor.parameters import ROOT, Params

FILE = "README.md"
LIMITS = (
    "## Limits",
    "",
    "- It has met simulated patients alone, who answer from a record, and knows the illnesses of its cases alone.",
    "- Its accuracy is a share of such cases. It says nothing of people who are ill.",
    "- It was not examined for differences between groups of patients.",
    "",
)
_LEARNED_BY = re.compile(r"^\| learned by \| `(?P<algorithm>[^`]+)`, .*seed (?P<seed>\d+) \|$", re.MULTILINE)
_LICENCE = re.compile(r"""^(license|license_name):[ \t]*(?:\n[ \t]*-[ \t]*)?["']?([^"'|`\n]+)""", re.MULTILINE)


def model_card(
    params: Params,
    reward: PresetParams,
    train: Sequence[Case],
    validation: Sequence[Case],
    accuracy: float,
    steps: int,
    chosen: Sequence[int],
) -> str:
    """A model card in Markdown, in the form that model hubs read. The same training gives the same text.

    Args:
        params: of the run.
        reward: constants of its preset.
        train: cases it learned from.
        validation: cases by which its checkpoint was chosen.
        accuracy: on these.
        steps: rollout steps that were played.
        chosen: steps whose weights it has, or the mean of them; 0: the warm start.
    """
    return "\n".join(
        [
            "---",
            f"language: [{', '.join(sorted({case.language for case in train}))}]",
            "library_name: transformers",
            "pipeline_tag: text-generation",
            "tags: [anamnesis, medical, reinforcement-learning, teaching-material]",
            "---",
            f"# {params.run_name}",
            "",
            "A doctor for simulated consultations: it asks a patient, looks things up and names a diagnosis, one action a turn.",
            "**Teaching and research material. It is no medical device and gives no medical advice.**",
            "",
            *_made(params, reward, steps, chosen),
            f"| accuracy on {len(validation)} validation cases | {_accuracy(accuracy, len(validation), weighted=bool(params.train_doctor.source_weights))} |",
            "",
            "The checkpoint may have been chosen by these validation cases; figures on held-out cases stand in the registry and in the",
            "evaluation's report. `learned_from.txt` names every case that it was trained or chosen on.",
            "",
            *_rewarded(params, reward),
            *_cases(train),
            *LIMITS,
        ]
    )


def learned_by(folder: Path) -> dict[str, str]:
    """Algorithm and seed by which the doctor in a folder learned, as its card says; nothing without one."""
    card = folder / FILE
    found = _LEARNED_BY.search(card.read_text(encoding="utf-8", errors="replace")) if card.exists() else None
    return found.groupdict() if found else {}


def _accuracy(accuracy: float, cases: int, *, weighted: bool) -> str:
    """With its interval where it is a share of the cases: a mean of sources by their weights is none, nor is it one where
    a case could not be played.
    """
    right = round(accuracy * cases)
    if weighted or not math.isclose(accuracy * cases, right, abs_tol=1e-6):
        return f"{accuracy:.3f}"
    found = intervals.proportion(right, cases)
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}] (95%)"


def _made(params: Params, reward: PresetParams, steps: int, chosen: Sequence[int]) -> list[str]:
    patient, planned = params.language_models.patient, params.train_doctor.steps
    licence = licence_of(params.warm_start.base)
    return [
        "| | |",
        "|---|---|",
        f"| began as | `{params.warm_start.base}`, warm start `{params.warm_start.start}` |",
        *([f"| licence of that model | {licence} |"] if licence else []),
        f"| learned by | `{params.algorithm.name}`, {steps} rollout steps"
        + (f" of {planned} planned" if steps != planned else "")
        + f", seed {params.seed} |",
        f"| weights | `{params.train_doctor.export}`: {_weights(chosen)} |",
        f"| reward | preset `{reward.name}`, below |",
        f"| patients | {patient.model if patient is not None else 'played by rules, from their records'} |",
        f"| turn budget | {params.consultation.turn_budget} |",
    ]


def _rewarded(params: Params, reward: PresetParams) -> list[str]:
    judge = params.language_models.reward_judge if reward.name in JUDGED else None
    return [
        "## What it was rewarded for",
        "",
        *([f"Judged by `{judge.model}`, temperature {judge.temperature:g}.", ""] if judge else []),
        f"| constant of `{reward.name}` | value |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in reward.model_dump(exclude={"name"}).items()),
        "",
    ]


def _cases(train: Sequence[Case]) -> list[str]:
    sources = Counter((case.source, case.language, case.licence) for case in train)
    return [
        "## Cases it learned from",
        "",
        "| source | language | cases | licence |",
        "|---|---|---|---|",
        *(
            f"| {source} | {language} | {count} | {licence} |"
            for (source, language, licence), count in sorted(sources.items())
        ),
        "",
        "The licences of these cases, and that of the model it began as, hold for what is done with it.",
        "",
    ]


def _weights(chosen: Sequence[int]) -> str:
    names = ["the warm start" if step == 0 else f"step {step}" for step in chosen]
    return names[0] if len(names) == 1 else f"mean of {', '.join(names)}"


def licence_of(base: str) -> str:
    """What the README or the configuration of a model's folder says, or where a hub says it; empty if nobody does."""
    folder = ROOT / base
    if not folder.is_dir():
        return f"as on the page of `{base}`"
    readme, config = folder / "README.md", folder / "config.json"
    text = readme.read_text(encoding="utf-8", errors="replace") if readme.exists() else ""
    said = dict(_LICENCE.findall(text.split("\n---")[0] if text.startswith("---") else ""))
    told = said.get("license_name") or said.get("license")
    if told is None and config.exists():
        told = json.loads(config.read_text(encoding="utf-8")).get("license")
    return f"`{told.strip()}`" if isinstance(told, str) else ""
