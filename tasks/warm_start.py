"""Task of `warm_start`: supervised fine-tuning of the base model on doctor turns: the resident's, recorded ones, or its
own best.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from prefect import task
from prefect.cache_policies import NO_CACHE
from transformers import PreTrainedModel

from clinic.cases import Case, read_cases
from doctor.environments import ConsultationFactory, open_factory
from doctor.lengths import check_openings, warn_of_long_turns
from doctor.lookups import copying_accuracy, exercises, lookup_examples
from doctor.parameters import ROOT, Params
from doctor.starts import best_examples, recorded_examples
from doctor.warm_start import examples, forced_accuracy
from rl import stoppable
from rl.chat import ChatFormat
from rl.engines.factory import open_engine
from rl.environment import EpisodeSpec, Seat
from rl.experience import Trajectory
from rl.flex import prefer_rows
from rl.handover import handover_of
from rl.machine import place_of
from rl.models import load_model, save_model
from rl.policy import Policy, compute_in
from rl.ranking import continuation_logprobs
from rl.rollout import play
from rl.self_check import refuse_disagreement
from rl.sft import Example, train_supervised
from tracking.progress import Phase, supervised


@task(cache_policy=NO_CACHE)
def fine_tune(params: Params, cases: Path, index: Path, out: Path) -> dict[str, float]:
    """Train as `warm_start.start` says, save to `out`, and measure forced diagnoses on the starter clinic's validation
    cases where there are some.

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
    chat = ChatFormat(tokenizer)
    if section.start == "none":
        save_model(model, tokenizer, out)
        return {}
    factory = open_factory(params, index, cases)
    training = read_cases(cases / "cases.parquet", "train")
    check_openings(factory, chat, training, params.rollout, "training")
    lessons, told = _lessons(model, chat, factory, training, params)
    warn_of_long_turns(lessons, params.rollout)
    policy = Policy(model)
    compute_in(policy, place.compute)
    if section.lookups is not None and section.start == "imitation":
        for name, practised, sft in exercises(chat, factory, section.lookups, params.seed):
            train_supervised(policy, practised, sft, supervised(f"warm start, {name}"))
    loss = train_supervised(policy, lessons, section.sft, supervised("warm start"))
    policy.eval()
    held_out = [case for case in read_cases(cases / "cases.parquet", "validation") if factory.common.draws(case)][
        : section.forced_cases
    ]
    rank = partial(continuation_logprobs, policy)
    if section.lookups is not None and section.start == "imitation":
        told |= copying_accuracy(rank, chat, factory, section.lookups, params.seed, section.forced_cases)
    if held_out:
        forced, bayes = forced_accuracy(rank, chat, factory.common, held_out, params)
        told |= {
            "forced_accuracy": forced,
            "bayes_accuracy": bayes,
            "forced_to_bayes": round(forced / bayes, 4) if bayes else 0.0,
        }
    save_model(model, tokenizer, out)
    return {"loss": round(loss, 4), **told}


def _lessons(
    model: PreTrainedModel, chat: ChatFormat, factory: ConsultationFactory, cases: Sequence[Case], params: Params
) -> tuple[list[Example], dict[str, float]]:
    """What is learned, and what there is to tell of it."""
    if params.warm_start.start == "imitation":
        drawn = [case for case in cases if factory.common.draws(case)]
        lookups = params.warm_start.lookups
        searches = lookup_examples(chat, factory, drawn, lookups, params) if lookups is not None else ()
        return [*examples(chat, factory.common, drawn, params), *searches], {}
    if params.warm_start.start == "recorded":
        found = recorded_examples(chat, factory, cases, params)
        return found, {"dialogues": len(found)}

    def play_as_it_is(specs: Sequence[EpisodeSpec], seat: Seat, temperature: float) -> Sequence[Trajectory]:
        engine = open_engine(params.rollout, model.eval(), copy=False)
        engine.take(handover_of(Policy(model), 0))
        return stoppable.run(
            play(specs, seat, engine, chat, params.rollout, temperature, Phase("best of n", "episodes"))
        )

    with torch.no_grad():
        return best_examples(chat, factory, cases, params, play_as_it_is)
