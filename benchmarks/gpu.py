"""What one GPU does with real model shapes: `python -m benchmarks.gpu`, part of `make gpu`.

Random weights, so that nothing has to be downloaded. Needs torch, transformers, peft, pydantic and ruamel.yaml; no
Prefect, MLflow or DVC. Every part writes what it found at once, so that a run cut short keeps what it has.

    train     the bundled model trained on the starter clinic, rollouts and updates on the device
    decode    tokens a second of an engine at full slots, and seconds to take over a policy's weights
    update    tokens a second and share of the device's peak of one update
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
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from rl.experience import Scores
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
SHAPES = {**GPU.shapes, "qwen2.5-7b + lora": SEVEN_B}
log = logging.getLogger("benchmarks")


def main() -> None:
    """Measure, and write after every part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results")
    parser.add_argument("--only", default="train,decode,update,teacher", help="parts, separated by commas")
    parser.add_argument("--models", default=",".join(SHAPES), help="shapes, separated by commas")
    parser.add_argument("--compile", action="store_true", help="compile decoding and the learner's layers")
    parser.add_argument("--quick", action="store_true", help="a tiny shape and hardly any work: whether it runs at all")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    if device() != "cuda" and not given.quick:
        parser.error("torch finds no GPU here; --quick tries it out on the processor")
    chosen = (
        {"tiny": replace(TINY, dtype="bfloat16")} if given.quick else {n: SHAPES[n] for n in given.models.split(",")}
    )
    began = datetime.now(UTC)
    path = given.out / f"gpu-{machine.kind()}-{began:%Y-%m-%d}.json"
    found: dict[str, Any] = {
        "began": began.isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "benchmarks.gpu", *sys.argv[1:]]),
        "machine": machine.machine(),
        "versions": machine.versions(),
        "checkout": machine.checkout(),
    }

    def keep(part: str, measure: Callable[[], dict[str, Any]]) -> None:
        if part.split(":")[0] not in given.only.split(","):
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
    for name, shape in chosen.items():
        choices = {"lora": "lora" in name, "compiled": given.compile, "quick": given.quick}
        keep(f"decode:{name}", partial(decode, shape, **choices))
        keep(f"update:{name}", partial(update, shape, **choices))
        keep(f"teacher:{name}", partial(teacher, shape, quick=given.quick))
    log.info("wrote %s", path)


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


def decode(shape: Shape, *, lora: bool, compiled: bool, quick: bool) -> dict[str, Any]:
    """Every slot samples one turn after an opening of its own."""
    slots, turn, opening = (4, 4, 8) if quick else (SLOTS, TURN, OPENING)
    session, memory = opened(shape, lora=lora, compiled=compiled, slots=slots, length=opening + 2 * turn + 2)
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
        "take_s": round(taken, 3),
        "peak_gib": peak(),
        "estimate_gib": of_phase(memory, memory.playing),
    }


def update(shape: Shape, *, lora: bool, compiled: bool, quick: bool) -> dict[str, Any]:
    """One gradient step on made-up episodes, checkpointing layer by layer."""
    load = Load(64, 4, 1, 128) if quick else Load(LENGTH, GROUP, PROMPTS, MICRO_BATCH)
    session, memory = opened(shape, lora=lora, compiled=compiled, slots=4, length=load.length, load=load)
    lengths, seconds = phases(session, load, shape.vocabulary, {}, quick=quick)
    tokens, squares = [sum(row) for row in lengths], [sum(n * n for n in row) for row in lengths]
    weights = session.model.num_parameters(exclude_embeddings=True) + shape.vocabulary * shape.width
    top = machine.machine()["peak_flops"]
    width = shape.heads * shape.head_width
    flops = [training_flops(weights, t, s, shape.layers, width) for t, s in zip(tokens, squares, strict=True)]
    share = 2 / 3 if lora else 1.0  # no gradient of frozen weights
    return {
        "in_rows": reads_rows(session.model.get_decoder()),
        "tokens": tokens[1:],
        "tokens_per_s": [round(t / s) for t, s in zip(tokens, seconds, strict=True)][1:],
        "model_flop_utilisation": [round(share * f / s / top, 4) for f, s in zip(flops, seconds, strict=True)][1:]
        if top
        else None,
        "peak_gib": peak(),
        "estimate_gib": of_phase(memory, memory.learning),
    }


def teacher(shape: Shape, *, quick: bool) -> dict[str, Any]:
    """Training phases of `ppo_roa`, each of the teacher's update and the student's lessons. No layer is checkpointed, so
    that micro-batches are smaller.
    """
    load = Load(64, 4, 1, 128) if quick else Load(LENGTH, GROUP, PROMPTS, MICRO_BATCH // 4)
    rule = teaching(load.group, load.episodes, load.micro_batch_tokens)
    session, memory = opened(shape, lora=True, compiled=False, slots=4, length=load.length, load=load, rule=rule)
    lengths, seconds = phases(session, load, shape.vocabulary, {"chart": {"facts": "fever, cough"}}, quick=quick)
    tokens = [sum(row) for row in lengths]
    return {
        "tokens": tokens[1:],
        "tokens_per_s": [round(t / s) for t, s in zip(tokens, seconds, strict=True)][1:],
        "peak_gib": peak(),
        "estimate_gib": {part: round(memory.parts[part] / GIB, 3) for part in memory.learning if part in memory.parts},
    }


def phases(
    session: LocalSession, load: Load, vocabulary: int, privileged: dict[str, Any], *, quick: bool
) -> tuple[list[list[int]], list[float]]:
    """Training phases on made-up episodes, of which only the simulator knows `privileged`: the lengths of the episodes of
    each, and its seconds.
    """
    session.engine.sleep()
    lengths, seconds = [], []
    for number in range(2 if quick else 4):
        made = [replace(t, policy_version=number, privileged=privileged) for t in experience(load, vocabulary, number)]
        forget_peak()
        began = time.perf_counter()
        session.learn(made, [Scores(t.episode_id, t.events) for t in made], number + 1)
        finish()
        seconds.append(time.perf_counter() - began)
        lengths.append([len(t.token_ids) for t in made])
    return lengths, seconds


def opened(
    shape: Shape,
    *,
    lora: bool,
    compiled: bool,
    slots: int,
    length: int,
    load: Load | None = None,
    rule: Algorithm | None = None,
) -> tuple[LocalSession, Estimate]:
    """A session on a model of this shape, weights of a fixed seed, and what memory it is said to need; `rule` in place of
    GRPO's.
    """
    size = load or Load(length, 4, 1, length)
    rollout = rollout_params(
        "transformers",
        prompts=size.prompts,
        response_length=min(TURN, length // 4),
        max_episode_tokens=length,
        slots=slots,
        max_failed_share=0.0,
        compiled=compiled,
    )
    rule = rule or algorithm(
        size.group, size.episodes, size.micro_batch_tokens, gradient_checkpointing=True, compiled=compiled
    )
    place, adapter = Place(device(), shape.dtype), LORA if lora else None
    with tempfile.TemporaryDirectory() as folder:
        path = str(write_model(shape, length, Path(folder) / "model"))
        memory = estimate(model_shape(path, place.compute, adapter), rollout, rule, place, holes=False)
        return LocalSession(path, place, rollout, rule, SEED, adapter, 1.0), memory


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
