"""Task of `warm_start`: supervised fine-tuning of the base model on doctor turns of the resident's dialogues."""

from functools import partial
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from clinic.cases import read_cases
from doctor.environments import open_factory
from doctor.parameters import ROOT, Params
from doctor.warm_start import examples, forced_accuracy
from rl.chat import ChatFormat
from rl.models import load_model, save_model
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
    """
    section = params.warm_start
    base = str(ROOT / section.base) if (ROOT / section.base).exists() else section.base
    model, tokenizer = load_model(base, params.machines.compute)
    refuse_disagreement(base, model.eval(), params.rollout)
    chat = ChatFormat(tokenizer)
    factory = open_factory(params, index)
    drawn = [case for case in read_cases(cases / "cases.parquet", "train") if case.source == factory.clinic.name]
    loss = train_supervised(model, examples(chat, factory, drawn, params), section.sft, supervised("warm start"))
    model.eval()
    held_out = [
        case for case in read_cases(cases / "cases.parquet", "validation") if case.source == factory.clinic.name
    ][: section.forced_cases]
    forced, bayes = forced_accuracy(partial(continuation_logprobs, model), chat, factory, held_out, params)
    save_model(model, tokenizer, out)
    return {
        "loss": round(loss, 4),
        "forced_accuracy": forced,
        "bayes_accuracy": bayes,
        "forced_to_bayes": round(forced / bayes, 4) if bayes else 0.0,
    }
