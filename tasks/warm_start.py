"""Task of `warm_start`: supervised fine-tuning of the base model on doctor turns of the resident's dialogues."""

from functools import partial
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from clinic.cases import read_cases
from doctor.environments import open_factory
from doctor.lengths import check_openings, warn_of_long_turns
from doctor.parameters import ROOT, Params
from doctor.warm_start import examples, forced_accuracy
from rl.chat import ChatFormat
from rl.machine import place_of
from rl.models import load_model, save_model
from rl.policy import Policy, compute_in
from rl.ranking import continuation_logprobs
from rl.self_check import refuse_disagreement
from rl.sft import train_supervised
from tracking.progress import supervised


@task(cache_policy=NO_CACHE)
def fine_tune(params: Params, cases: Path, index: Path, out: Path) -> dict[str, float]:
    """Train on the resident's dialogues with training cases, save to `out`, and measure forced diagnoses on validation
    cases.

    Returns:
        loss (nats per doctor token), forced_accuracy and bayes_accuracy on the same dialogues, and their ratio.

    Raises:
        ParameterError: what it would learn to say and hear does not fit into the rollouts' tokens.
    """
    section = params.warm_start
    base = str(ROOT / section.base) if (ROOT / section.base).exists() else section.base
    place = place_of(params.machines)
    model, tokenizer = load_model(base, "float32", place.device)
    refuse_disagreement(base, model.eval(), params.rollout)
    policy = Policy(model)
    compute_in(policy, place.compute)
    chat = ChatFormat(tokenizer)
    factory = open_factory(params, index)
    drawn = [case for case in read_cases(cases / "cases.parquet", "train") if case.source == factory.clinic.name]
    check_openings(factory, chat, drawn, params.rollout, "training")
    dialogues = examples(chat, factory, drawn, params)
    warn_of_long_turns(dialogues, params.rollout)
    loss = train_supervised(policy, dialogues, section.sft, supervised("warm start"))
    policy.eval()
    held_out = [
        case for case in read_cases(cases / "cases.parquet", "validation") if case.source == factory.clinic.name
    ][: section.forced_cases]
    forced, bayes = forced_accuracy(partial(continuation_logprobs, policy), chat, factory, held_out, params)
    save_model(model, tokenizer, out)
    return {
        "loss": round(loss, 4),
        "forced_accuracy": forced,
        "bayes_accuracy": bayes,
        "forced_to_bayes": round(forced / bayes, 4) if bayes else 0.0,
    }
