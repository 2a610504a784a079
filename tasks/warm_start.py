"""Task of `warm_start`: supervised fine-tuning of the base model on doctor turns: the resident's, recorded ones, or its
own best.
"""

import hashlib
import logging
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from prefect import task
from prefect.cache_policies import NO_CACHE
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from clinic.cases import Case, read_cases
from doctor import learned_from
from doctor.environments import ConsultationFactory, open_factory
from doctor.lengths import check_openings, warn_of_long_turns
from doctor.lookups import copying_accuracy, lookup_examples
from doctor.parameters import HOME, ROOT, Params
from doctor.stages import files_hash, input_hash
from doctor.starts import best_examples, recorded_examples
from doctor.warm_start import examples, forced_accuracy
from rl import stoppable
from rl.chat import ChatFormat
from rl.engines.factory import open_engine
from rl.environment import EpisodeSpec, Seat
from rl.experience import StopReason, Trajectory, intact, read_trajectories, write_trajectories
from rl.files import held
from rl.flex import prefer_rows
from rl.halfway import Halfway
from rl.handover import handover_of
from rl.machine import place_of
from rl.models import load_model, save_model
from rl.policy import Policy, compute_in
from rl.ranking import continuation_logprobs
from rl.rollout import Progress, play
from rl.self_check import refuse_disagreement
from rl.sft import Example, train_supervised
from tracking.progress import Phase, supervised

log = logging.getLogger(__name__)
PART = 16  # rounds of the engine's slots that are played before they are kept


@task(cache_policy=NO_CACHE)
def fine_tune(params: Params, cases: Path, index: Path, out: Path) -> dict[str, float]:
    """Train as `warm_start.start` says, save to `out`, and measure forced diagnoses on the starter clinic's validation
    cases where there are some. What an interrupted run of the same inputs played and learned is gone on from.

    Returns:
        loss (nats per doctor token), what the start has to tell of itself, and forced_accuracy and bayes_accuracy on
        the same dialogues, and their ratio; nothing where nothing is learned.

    Raises:
        ParameterError: what it would learn to say and hear does not fit into the rollouts' tokens.
    """
    section = params.warm_start
    base = str(ROOT / section.base) if (ROOT / section.base).exists() else section.base
    place = place_of(params.machines)
    model, tokenizer = load_model(base, "float32", place.device)
    prefer_rows(model, place.compute)
    refuse_disagreement(base, model.eval(), params.rollout)
    chat = ChatFormat(tokenizer)  # its template is saved as it will be read, today's date included
    if section.start == "none":
        _save(model, tokenizer, base, (), out)
        return {}
    factory = open_factory(params, index, cases)
    training = read_cases(cases / "cases.parquet", "train")
    check_openings(factory, chat, training, params.rollout, "training")
    policy = Policy(model)
    unfinished = _unfinished(params, base, cases, index)
    with held(unfinished):
        lessons, told = _lessons(model, chat, factory, training, params, unfinished)
        warn_of_long_turns(lessons, params.rollout)
        compute_in(policy, place.compute)
        halfway = Halfway(unfinished / "learned")
        loss = train_supervised(policy, lessons, section.sft, supervised("warm start"), halfway)
        told |= _measured(policy.eval(), chat, factory, read_cases(cases / "cases.parquet", "validation"), params)
        _save(model, tokenizer, base, training, out)
        shutil.rmtree(unfinished, ignore_errors=True)
    return {"loss": round(loss, 4), **told}


def _save(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, base: str, training: Sequence[Case], out: Path
) -> None:
    """Write the model; where the base is a doctor that says which cases it learned from, these and the new ones stay
    known.
    """
    save_model(model, tokenizer, out)
    if (before := learned_from.read(Path(base))) is not None:
        learned_from.write(out, before.union(case.case_id for case in training))


def _unfinished(params: Params, base: str, cases: Path, index: Path) -> Path:
    """Where an interrupted run of the same inputs keeps what it has; gone at its end."""
    digest = input_hash("warm_start", params, {"data/cases": cases, "data/kb_index": index})
    weights = files_hash(Path(base)) if Path(base).exists() else base
    digest = hashlib.sha256(digest.encode() + weights.encode()).hexdigest()
    return HOME / "checkpoints" / params.train_doctor.project / f"warm_start-{digest[:12]}"


def _measured(
    policy: Policy, chat: ChatFormat, factory: ConsultationFactory, validation: Sequence[Case], params: Params
) -> dict[str, float]:
    """What the starter clinic's validation cases say of it."""
    section, rank = params.warm_start, partial(continuation_logprobs, policy)
    told: dict[str, float] = {}
    if section.lookups is not None and section.start == "imitation":
        told |= copying_accuracy(rank, chat, factory, section.lookups, params.seed, section.forced_cases)
    held_out = [case for case in validation if factory.common.draws(case)][: section.forced_cases]
    if held_out:
        forced, bayes = forced_accuracy(rank, chat, factory.common, held_out, params)
        told |= {
            "forced_accuracy": forced,
            "bayes_accuracy": bayes,
            "forced_to_bayes": round(forced / bayes, 4) if bayes else 0.0,
        }
    return told


def _lessons(
    model: PreTrainedModel,
    chat: ChatFormat,
    factory: ConsultationFactory,
    cases: Sequence[Case],
    params: Params,
    unfinished: Path,
) -> tuple[list[Example], dict[str, float]]:
    """What is learned, and what there is to tell of it."""
    if params.warm_start.start == "imitation":
        drawn = [case for case in cases if factory.common.draws(case)]
        lookups = params.warm_start.lookups
        searches = lookup_examples(chat, factory, drawn, lookups, params, params.seed) if lookups is not None else ()
        return [*examples(chat, factory.common, drawn, params), *searches], {}
    if params.warm_start.start == "recorded":
        found = recorded_examples(chat, factory, cases, params)
        return found, {"dialogues": len(found)}

    def play_as_it_is(specs: Sequence[EpisodeSpec], seat: Seat, temperature: float) -> Sequence[Trajectory]:
        engine = open_engine(params.rollout, model.eval(), copy=False)
        engine.take(handover_of(Policy(model), 0))

        def play_these(some: Sequence[EpisodeSpec], progress: Progress) -> list[Trajectory]:
            return stoppable.run(play(some, seat, engine, chat, params.rollout, temperature, progress))

        return in_parts(specs, play_these, PART * params.rollout.slots, unfinished / "played")

    with torch.no_grad():
        return best_examples(chat, factory, cases, params, play_as_it_is)


def in_parts(
    specs: Sequence[EpisodeSpec],
    play_these: Callable[[Sequence[EpisodeSpec], Progress], list[Trajectory]],
    size: int,
    folder: Path,
) -> list[Trajectory]:
    """Play episodes, so many at a time, and keep each part in a file; what an interrupted run kept is read instead.

    A part in which an episode failed is not kept: an endpoint may be mended until the next run.
    """
    played: list[Trajectory] = []
    phase: Phase | None = None
    for first in range(0, len(specs), size):
        these = specs[first : first + size]
        path = folder / f"{first:07d}-{first + len(these):07d}.parquet"
        part = _kept(path)
        if part is None:
            phase = phase or Phase("best of n", "episodes", first)
            part = play_these(these, _after(phase, first, len(specs)))
            if not any(trajectory.stop_reason == StopReason.FAILED for trajectory in part):
                write_trajectories(part, path)
        played += part
    return played


def _after(phase: Phase, before: int, total: int) -> Progress:
    return lambda done, _: phase(before + done, total)


def _kept(path: Path) -> list[Trajectory] | None:
    if not path.exists():
        return None
    if not intact(path):
        log.warning("%s is damaged; its episodes are played again", path)
        return None
    return read_trajectories(path)
