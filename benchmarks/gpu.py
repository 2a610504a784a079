"""What one GPU does with real model shapes: `python -m benchmarks.gpu`, part of `make gpu`.

Random weights, so that nothing has to be downloaded. Needs torch, transformers, peft, pydantic and ruamel.yaml; no
Prefect, MLflow or DVC. Every part writes what it found at once, so that a run cut short keeps what it has.

    train     the bundled model trained on the starter clinic, rollouts and updates on the device
    decode    tokens a second of an engine at full slots, and seconds to take over a policy's weights
    update    tokens a second and share of the device's peak of one update, with and without checkpoints of every layer
    teacher   the same of a teacher that has read a chart and of its student, as adapters of one base; bytes by part

With --compile, decoding and layers are compiled too. What could not be recorded, compiled or read in rows is in what is
written.
"""

import argparse
import asyncio
import gc
import json
import logging
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import machine
from benchmarks.engines import algorithm, rollout_params, teaching
from benchmarks.figures import training_flops
from benchmarks.setting import GPU, SEED, TINY, Shape, device, write_model
from benchmarks.sides.updates import Load, experience
from clinic.rewards import Scorer
from clinic.starter import draw_cases
from doctor.environments import open_factory
from doctor.parameters import ROOT, load_params
from doctor.recipe import load_algorithm
from doctor.reward_recipe import load_reward
from doctor.scoring import accuracy, score_all
from doctor.sources import cases_of_draw
from rl.algorithms import Algorithm
from rl.config import LoraParams
from rl.engines.base import Request, Sampling, noise_key
from rl.engines.transformers import TransformersEngine
from rl.experience import Scores, Trajectory
from rl.flex import reads_rows
from rl.machine import Place
from rl.memory import Estimate, estimate, model_shape
from rl.workers.local import LocalSession

GIB = 2**30
LENGTH, GROUP, PROMPTS, MICRO_BATCH = 2048, 8, 8, 16_384  # of an update: 64 episodes of 1,024 to 2,048 tokens
SLOTS, TURN, OPENING = 256, 128, 256  # of decoding
LORA = LoraParams(
    rank=16, alpha=32.0, target_modules=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
)
SEVEN_B = Shape(
    family="qwen2",
    layers=28,
    width=3584,
    inner=18_944,
    heads=28,
    shared_heads=4,
    head_width=128,
    vocabulary=152_064,
    dtype="bfloat16",
)
PARTS = ("train", "decode", "update", "teacher")
SHAPES = {**GPU.shapes, "qwen2.5-7b + lora": SEVEN_B}
log = logging.getLogger("benchmarks")


@dataclass(frozen=True)
class Model:
    """Of random weights, where it was written."""

    shape: Shape
    path: str


def main() -> None:
    """Measure, and write after every part."""
    given = arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    chosen = {"tiny": replace(TINY, dtype="bfloat16")} if given.quick else {name: SHAPES[name] for name in given.models}
    began = datetime.now(UTC)
    path = given.out / f"gpu-{machine.kind()}-{began:%Y-%m-%d}{'-compiled' if given.compile else ''}.json"
    found: dict[str, Any] = {
        "began": began.isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "benchmarks.gpu", *sys.argv[1:]]),
        "machine": machine.machine(),
        "versions": machine.versions(),
        "checkout": machine.checkout(),
    }

    def keep(part: str, measure: Callable[[], dict[str, Any]]) -> None:
        if part.split(":")[0] not in given.only:
            return
        started = time.perf_counter()
        try:
            found[part] = measure()
        except (RuntimeError, ValueError) as error:  # one shape that does not fit leaves the others their turn
            found[part] = {"failed": str(error).splitlines()[0]}
        found[part]["seconds"] = round(time.perf_counter() - started, 1)
        gc.collect()
        if device() == "cuda":
            torch.cuda.empty_cache()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
        log.info("%s: %s", part, json.dumps(found[part]))

    keep("train", lambda: train(quick=given.quick))
    for name, shape in chosen.items() if given.only - {"train"} else ():
        with tempfile.TemporaryDirectory() as folder:
            model = Model(shape, str(write_model(shape, LENGTH, Path(folder) / "model")))
            choices = {"lora": "lora" in name, "compiled": given.compile, "quick": given.quick}
            keep(f"decode:{name}", partial(decode, model, **choices))
            keep(f"update:{name}", partial(update, model, given.micro_batch_tokens, checkpointed=True, **choices))
            keep(
                f"update:{name}, activations kept",
                partial(update, model, given.micro_batch_tokens // 2, checkpointed=False, **choices),
            )
            keep(f"teacher:{name}", partial(teacher, model, quick=given.quick))
    log.info("wrote %s", path)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--models", default=",".join(SHAPES), help="shapes, separated by commas")
    parser.add_argument(
        "--micro-batch-tokens", type=int, default=MICRO_BATCH, help="of an update (default: %(default)s)"
    )
    parser.add_argument("--compile", action="store_true", help="compile decoding and the learner's layers")
    parser.add_argument("--quick", action="store_true", help="a tiny shape and hardly any work: whether it runs at all")
    given = parser.parse_args()
    given.only, given.models = set(listed(parser, given.only, PARTS)), listed(parser, given.models, SHAPES)
    if device() != "cuda" and not given.quick and given.only != {"train"}:
        parser.error("torch finds no GPU here; --quick tries it out on the processor, and --only train trains there")
    return given


def listed(parser: argparse.ArgumentParser, text: str, there: Collection[str]) -> list[str]:
    """Names separated by commas, all of which are there; else the command ends with a line."""
    names = text.split(",")
    if unknown := [name for name in names if name not in there]:
        parser.error(f"no {', '.join(unknown)}; there are {', '.join(there)}")
    return names


def train(*, quick: bool) -> dict[str, Any]:
    """Ten steps of the shipped recipe on the device; accuracy on cases of the validation split before and after."""
    params = load_params()
    prompts, steps, held_out = (1, 1, 4) if quick else (16, 10, 200)
    rule = load_algorithm(params)
    rollout = params.rollout.model_copy(update={"prompts": prompts})
    factory = open_factory(params, ROOT / "data/kb_index")
    session = LocalSession(
        str(ROOT / "models/base"),
        Place(device()),
        rollout,
        rule,
        params.seed,
        temperature=params.decoding.train.temperature,
        seat=factory.seat,
    )
    split = params.patient_cases.split
    cases = list(draw_cases(factory.clinic, 100 if quick else 2000, params.seed, split, keep=("train",)))
    validation = list(draw_cases(factory.clinic, 10 * held_out, params.seed, split, keep=("validation",)))[:held_out]
    scorer = Scorer(load_reward(params.reward.preset), [factory.clinic])

    def validated() -> float:
        played = session.rollout(factory.episodes(validation, 1, params.seed, 0), params.decoding.evaluate.temperature)
        return round(accuracy(validation, played), 4)

    before, seconds, rewards = validated(), [], []
    for step in range(1, steps + 1):
        began = time.perf_counter()
        drawn = cases_of_draw(cases, prompts, step - 1, params.seed)
        played = session.rollout(
            factory.episodes(drawn, rule.group_size, params.seed, step), params.decoding.train.temperature
        )
        scores = score_all(scorer, drawn, played)
        session.learn(played, scores, step)
        seconds.append(round(time.perf_counter() - began, 3))
        rewards.append(round(sum(score.reward for score in scores) / len(scores), 4))
    return {"accuracy_before": before, "accuracy_after": validated(), "rewards": rewards, "step_s": seconds}


def decode(model: Model, *, lora: bool, compiled: bool, quick: bool) -> dict[str, Any]:
    """Every slot samples one turn after an opening of its own."""
    slots, turn, opening = (4, 4, 8) if quick else (SLOTS, TURN, OPENING)
    began = time.perf_counter()
    load = Load(opening + 2 * turn + 2, 4, 1, MICRO_BATCH)
    rule = algorithm(load.group, load.episodes, load.micro_batch_tokens, compiled=compiled)
    session, memory = opened(model, lora=lora, slots=slots, load=load, rule=rule, compiled=compiled)
    finish()
    opening_s = time.perf_counter() - began
    began = time.perf_counter()
    session.hold()
    finish()
    taken = time.perf_counter() - began
    forget_peak()

    async def turns(number: int) -> int:
        sampling = Sampling(1.0, turn, None)

        async def one(slot: int) -> int:
            ids = tuple((7 * slot + 31 * place) % 300 + 5 for place in range(opening))
            made = await session.engine.generate(Request(f"{number}.{slot}", ids, noise_key(number, slot), sampling))
            session.engine.release(f"{number}.{slot}")
            return len(made.token_ids)

        total = sum(await asyncio.gather(*(one(slot) for slot in range(slots))))
        await session.engine.close()
        return total

    rates = []
    for number in range(2 if quick else 4):
        began = time.perf_counter()
        tokens = asyncio.run(turns(number))
        finish()
        rates.append(round(tokens / (time.perf_counter() - began), 1))
    return {
        "slots": slots,
        "tokens_per_s": rates[1:],
        "refused": session.engine.refused if isinstance(session.engine, TransformersEngine) else {},
        "open_s": round(opening_s, 2),
        "take_s": round(taken, 3),
        "peak_gib": peak(),
        # nothing was learned yet, so there are no moments
        "estimate_gib": of_phase(memory, [part for part in memory.playing if part != "optimizer"]),
    }


def update(
    model: Model, micro_batch_tokens: int, *, lora: bool, compiled: bool, checkpointed: bool, quick: bool
) -> dict[str, Any]:
    """One gradient step on made-up episodes, with or without a checkpoint of every layer."""
    load = Load(64, 4, 1, 128) if quick else Load(LENGTH, GROUP, PROMPTS, micro_batch_tokens)
    rule = algorithm(
        load.group, load.episodes, load.micro_batch_tokens, gradient_checkpointing=checkpointed, compiled=compiled
    )
    session, memory = opened(model, lora=lora, slots=4, load=load, rule=rule)
    played, seconds = phases(session, load, model.shape.vocabulary, {}, number=2 if quick else 4)
    weights = session.model.num_parameters(exclude_embeddings=True)
    share = 2 / 3 if lora else 1.0  # no gradient of frozen weights
    flops = [share * needed(made, weights, model.shape) for made in played]
    top = machine.machine()["peak_flops"]
    return {
        "in_rows": reads_rows(session.model.get_decoder()),
        "micro_batch_tokens": load.micro_batch_tokens,
        **pace(played, seconds),
        "model_flop_utilisation": [round(f / s / top, 4) for f, s in zip(flops, seconds, strict=True)][1:]
        if top
        else None,
        "peak_gib": peak(),
        "estimate_gib": of_phase(memory, memory.learning),
    }


def needed(made: Sequence[Trajectory], weights: int, shape: Shape) -> float:
    """Floating-point operations of an update: of all tokens through the layers' weights, and of those that carry loss
    through the head.
    """
    lengths = [len(t.token_ids) for t in made]
    width = shape.heads * shape.head_width
    layers = training_flops(weights, sum(lengths), sum(n * n for n in lengths), shape.layers, width)
    return layers + training_flops(shape.vocabulary * shape.width, sum(sum(t.loss_mask) for t in made), 0, 0, 0)


def pace(played: Sequence[Sequence[Trajectory]], seconds: Sequence[float]) -> dict[str, Any]:
    """Of training phases but the first, which warms up."""
    tokens = [sum(len(t.token_ids) for t in made) for made in played]
    return {
        "tokens": tokens[1:],
        "tokens_per_s": [round(t / s) for t, s in zip(tokens, seconds, strict=True)][1:],
        "first_s": round(seconds[0], 2),
    }


def teacher(model: Model, *, quick: bool) -> dict[str, Any]:
    """Training phases of `ppo_roa`, each of the teacher's update and the student's lessons. No layer is checkpointed, so
    that micro-batches are smaller.
    """
    load = Load(64, 4, 1, 128) if quick else Load(LENGTH, GROUP, PROMPTS, MICRO_BATCH // 4)
    rule = teaching(load.group, load.episodes, load.micro_batch_tokens)
    session, memory = opened(model, lora=True, slots=4, load=load, rule=rule)
    played, seconds = phases(session, load, model.shape.vocabulary, {"chart": {"facts": "fever, cough"}}, number=2)
    return {
        "micro_batch_tokens": load.micro_batch_tokens,
        **pace(played, seconds),
        "peak_gib": peak(),
        "estimate_gib": {part: round(memory.parts[part] / GIB, 3) for part in memory.learning if part in memory.parts},
    }


def phases(
    session: LocalSession, load: Load, vocabulary: int, privileged: dict[str, Any], *, number: int
) -> tuple[list[list[Trajectory]], list[float]]:
    """Training phases on made-up episodes, of which only the simulator knows `privileged`: the episodes of each, and its
    seconds.
    """
    session.engine.sleep()
    played, seconds = [], []
    for at in range(number):
        made = [replace(t, policy_version=at, privileged=privileged) for t in experience(load, vocabulary, at)]
        forget_peak()
        began = time.perf_counter()
        session.learn(made, [Scores(t.episode_id, t.events) for t in made], at + 1)
        finish()
        seconds.append(time.perf_counter() - began)
        played.append(made)
    return played, seconds


def opened(
    model: Model, *, lora: bool, slots: int, load: Load, rule: Algorithm, compiled: bool = False
) -> tuple[LocalSession, Estimate]:
    """A session on this model, and what memory it is said to need."""
    rollout = rollout_params(
        "transformers",
        prompts=load.prompts,
        response_length=min(TURN, load.length // 4),
        max_episode_tokens=load.length,
        slots=slots,
        max_failed_share=0.0,
        compiled=compiled,
    )
    place, adapter = Place(device(), model.shape.dtype), LORA if lora else None
    memory = estimate(model_shape(model.path, place.compute, adapter), rollout, rule, place, holes=False)
    return LocalSession(model.path, place, rollout, rule, SEED, adapter, 1.0), memory


def of_phase(memory: Estimate, there: Sequence[str]) -> float:
    """GiB that the estimate gives a phase."""
    return round(sum(value for part, value in memory.parts.items() if part in there) / GIB, 2)


def finish() -> None:
    """Wait for the device."""
    if device() == "cuda":
        torch.cuda.synchronize()


def forget_peak() -> None:
    """From here on."""
    if device() == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak() -> float | None:
    """GiB that tensors took on the device at once; None on a processor."""
    return round(torch.cuda.max_memory_allocated() / GIB, 2) if device() == "cuda" else None


if __name__ == "__main__":
    main()
