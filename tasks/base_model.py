"""Tasks of `make base-model`: the bundled stand-in for a pretrained language model, from nothing, phase by phase."""

import hashlib
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from prefect import task
from prefect.cache_policies import NO_CACHE
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from doctor.base_model import first_texts, reading_texts, round_texts
from doctor.base_model_recipe import BaseModelParams
from doctor.environments import open_factory
from doctor.parameters import HOME, ROOT
from doctor.stages import files_hash
from rl.chat import ChatFormat
from rl.config import SFTParams
from rl.files import replace_folder
from rl.halfway import Halfway
from rl.machine import Place
from rl.models import load_model, new_model, save_model
from rl.policy import Policy
from rl.sft import Example, train_supervised
from rl.workers.local import LocalSession
from tracking.progress import Phase, supervised

log = logging.getLogger(__name__)
CODE = ("clinic", "doctor", "rl")
READER = "reader"


def phase_folder(params: BaseModelParams, number: int, chain: str = "phase") -> Path:
    """Where the model is after the first phase (0) or a round: complete or absent, and the same for equal parameters,
    clinic and code only. The `reader`'s rounds are a chain of their own, and go by the model that it is made from, too.
    """
    content = params.model_dump(mode="json", exclude={"machines"})
    read = [params.patient_cases.starter.directory, *CODE]
    if chain == READER:
        read.append(params.base_model.reader.base)
    else:
        del content["base_model"]["reader"]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name in read:
        digest.update(files_hash(ROOT / name).encode())
    return HOME / "runs" / "base_model" / digest.hexdigest()[:12] / f"{chain}-{number:02d}"


@task(cache_policy=NO_CACHE)
def read_first(params: BaseModelParams) -> None:
    """Train tokenizer and model on the first phase's texts, unless an earlier run did."""
    out, section = phase_folder(params, 0), params.base_model
    if out.exists():
        log.info("the first phase was done by an earlier run: %s", out)
        return
    log.info("writing what the first phase reads; this takes some minutes")
    chat, examples = first_texts(params)
    model = new_model(chat.tokenizer, section.width, section.layers, section.heads, section.context, section.seed)
    log.info(
        "base model: %d parameters, %d examples, %.1f million tokens",
        model.num_parameters(),
        len(examples),
        sum(e.tokens for e in examples) / 1e6,
    )
    _learn(params, model, chat.tokenizer, examples, section.sft, "reading", out)


@task(cache_policy=NO_CACHE, task_run_name="round {number}")
def teach_round(params: BaseModelParams, number: int) -> None:
    """Go on from the phase before with round `number` (from 1), unless an earlier run did."""
    out, section = phase_folder(params, number), params.base_model
    if out.exists():
        log.info("round %d was done by an earlier run: %s", number, out)
        return
    lesson = section.rounds[number - 1]
    factory = open_factory(params, ROOT / "data/kb_index").common
    session = LocalSession(
        str(phase_folder(params, number - 1)), Place(), params.rollout, None, section.seed, seat=factory.seat
    )
    temperature = lesson.temperature if lesson.kind == "own" else 0.0
    log.info("writing what round %d of %d reads; this takes some minutes", number, len(section.rounds))
    examples = round_texts(
        params,
        number,
        factory,
        session.chat,
        lambda cases: session.rollout(
            factory.episodes(cases, 1, section.seed, number), temperature, Phase(f"round {number}, playing", "episodes")
        ),
    )
    told = f"round {number}/{len(section.rounds)}, {lesson.kind}"
    _learn(params, session.model, session.tokenizer, examples, lesson.sft, told, out)


@task(cache_policy=NO_CACHE, task_run_name="reading round {number}")
def teach_reading(params: BaseModelParams, number: int) -> None:
    """Go on from the round before, or from the finished base model, with round `number` (from 1) of the reader, unless an
    earlier run did.
    """
    out, reader = phase_folder(params, number, READER), params.base_model.reader
    if out.exists():
        log.info("reading round %d was done by an earlier run: %s", number, out)
        return
    before = phase_folder(params, number - 1, READER) if number > 1 else ROOT / reader.base
    model, tokenizer = load_model(str(before), "float32")
    log.info("writing what reading round %d of %d reads; this takes some minutes", number, len(reader.rounds))
    examples = reading_texts(params, number, open_factory(params, ROOT / "data/kb_index"), ChatFormat(tokenizer))
    told = f"reading round {number}/{len(reader.rounds)}"
    _learn(params, model, tokenizer, examples, reader.rounds[number - 1].sft, told, out)


def _learn(
    params: BaseModelParams,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Example],
    sft: SFTParams,
    told: str,
    out: Path,
) -> None:
    """Train, from where an interrupted run kept it on, and save to `out`."""
    begun = out.with_name(f"{out.name}-begun")
    train_supervised(Policy(model), examples, sft, supervised(told), Halfway(begun))
    save_model(model.to(getattr(torch, params.base_model.store_dtype)), tokenizer, out)
    shutil.rmtree(begun, ignore_errors=True)


@task(cache_policy=NO_CACHE)
def deliver(last: Path, out: Path) -> None:
    """Copy the last round's model to `out`, whole or not at all."""
    temporary = out.with_name(f".{out.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(last, temporary)
    replace_folder(temporary, out)
