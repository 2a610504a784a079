"""Task of `retrain`: keep an immutable copy of the doctor and register it, once per hash."""

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from clinic.config import JUDGED, HumanParams, RewardModelParams
from clinic.tables import Evaluation
from doctor.gate import CHALLENGER
from doctor.parameters import HOME, ROOT, Params
from doctor.reward_recipe import load_reward
from rl.files import folder_hash
from tracking import registry, runs
from tracking.errors import TrackingError
from tracking.provenance import input_digest, output_digest, parameters_of
from tracking.registry import COPIES, Version, making

log = logging.getLogger(__name__)
MODEL_NAME = "anamnesis-doctor"
HEADLINE = ("accuracy", "red_flags_missed", "turns")  # measures of the evaluation that a version is tagged with


def immutable_copy(model: Path, registry: Path) -> tuple[Path, str]:
    """`registry/<sha256>/` with the model's files, read-only; returns folder and hash.

    A DVC output may itself be a link into DVC's cache, and the next run writes over it; the copy shares no byte with
    either. A damaged one is made anew.
    """
    digest = folder_hash(model)
    copy = registry / digest
    with making(copy) as partial:
        if partial is not None:
            shutil.copytree(model, partial, dirs_exist_ok=True)
    return copy, digest


def folder_of(doctor: str) -> Path:
    """The folder of a doctor that is named by its path, or by an alias of the registry.

    Raises:
        TrackingError: there is neither, or the registered folder is missing or changed.
    """
    path = Path(doctor) if Path(doctor).is_absolute() else ROOT / doctor
    if path.is_dir():
        return path
    runs.setup(ROOT)
    found = registry.version_at(MODEL_NAME, doctor, folder_hash) if "/" not in doctor else None
    if found is None:
        raise TrackingError(
            f"{doctor} is neither a folder nor an alias of {MODEL_NAME}; run `make run`, or name champion, challenger or a folder"
        )
    return found.path


@task(cache_policy=NO_CACHE)
def register_challenger(params: Params, model: Path) -> tuple[Version, str]:
    """Register the model as `challenger` unless this hash is registered already; returns the version and a line that
    says what was done.

    Raises:
        TrackingError: there is no model.
    """
    if not model.is_dir():
        raise TrackingError(f"{model} is not there, so no doctor is registered; bring train_doctor up to date, too")
    copy, digest = immutable_copy(model, COPIES)
    runs.setup(ROOT)
    run_id = runs.run_of(model, HOME)
    evaluation = measured()
    tags = _made_by(params) | (runs.origin(run_id) if run_id else {}) | _figures(evaluation)
    number, created = registry.register(
        MODEL_NAME, copy, digest, run_id, CHALLENGER, tags, _description(tags, evaluation)
    )
    version = registry.numbered(MODEL_NAME, number)
    if version is None:
        raise TrackingError(f"{MODEL_NAME} version {number} was registered and is not there; is the store being moved?")
    if created:
        return version, f"registered {MODEL_NAME} version {number} as challenger (sha256 {digest[:12]})"
    return (
        version,
        f"unchanged: {MODEL_NAME} version {number} already holds this model (sha256 {digest[:12]}), nothing registered",
    )


@task(cache_policy=NO_CACHE)
def prune_copies(promoted: int) -> None:
    """Delete copies of models that nothing needs, without the last so many that were promoted."""
    for copy in registry.superfluous(registry.copies(MODEL_NAME), promoted):
        registry.prune(MODEL_NAME, copy)
        log.info("version %s: its copy was deleted (retrain.keep_promoted: %d)", copy.number, promoted)


def _made_by(params: Params) -> dict[str, str]:
    """What made a doctor: its algorithm and reward, who judged, and DVC's hashes of all that, of its data and of the
    texts in its index. As dvc.lock has it of its training: parameters and data may have changed since.
    """
    then = parameters_of("train_doctor")
    algorithm = then.get("algorithm", {}).get("name", params.algorithm.name)
    reward = load_reward(then.get("reward", {}).get("preset", params.reward.preset))
    judge = params.language_models.reward_judge if reward.name in JUDGED else None
    path = reward.path if isinstance(reward, RewardModelParams | HumanParams) else None
    recipes = [f"recipes/{algorithm}.yaml", f"recipes/rewards/{reward.name}.yaml", "clinic/rewards"]
    opinion = ["clinic/judging.py"] if judge else [path] if path else []
    texts = [Path(source.path).as_posix() for source in params.knowledge_base.sources]
    digests = {
        "models/doctor": output_digest("models/doctor"),
        **{name: input_digest("train_doctor", name) for name in ["data/cases", "data/kb_index", *recipes, *opinion]},
        **{name: input_digest("knowledge_base", name) for name in texts},
    }
    told = {
        "algorithm": algorithm,
        "reward": reward.name,
        "reward.judge": judge.model if judge else "",
        "reward.path": path or "",
        "seed": str(then.get("seed", params.seed)),
        **{f"dvc.md5 {name}": digest or "" for name, digest in digests.items()},
    }
    return {name: value for name, value in told.items() if value}


def measured() -> Evaluation:
    """What was measured of this doctor; nothing if the figures are of another one."""
    found, evaluated = ROOT / "metrics/evaluate_doctor.json", input_digest("evaluate_doctor", "models/doctor")
    if evaluated is None or evaluated != output_digest("models/doctor") or not found.exists():
        return Evaluation()
    return Evaluation.from_json(json.loads(found.read_text(encoding="utf-8")))


def _figures(evaluation: Evaluation) -> dict[str, str]:
    """Of the doctor, with 95% intervals, under the names that they have in its run."""
    return {
        f"test/{measure}{f' at {source}' if source else ''}": f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"
        for name, table in evaluation.doctors.items()
        for doctor, _, source in [name.partition("@")]
        for measure in HEADLINE
        if doctor == "trained" and (found := table.overall.measures.get(measure))
    }


def _description(tags: Mapping[str, str], evaluation: Evaluation) -> str:
    """What a person reads of a version in the registry: its figures, and what made it."""
    rows = [
        f"| {name} | {accuracy.mean:.3f} | {accuracy.low:.3f} to {accuracy.high:.3f} |"
        for name, accuracy in evaluation.accuracies.items()
    ]
    table = ["| doctor | accuracy | 95% interval |", "|---|---|---|", *rows, ""] if rows else []
    return "\n".join([*table, *(f"- {name}: `{value}`" for name, value in tags.items() if value)])
