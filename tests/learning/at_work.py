"""The toy's roles as workers elsewhere are told to be: what opens them travels by name."""

from functools import partial
from pathlib import Path

from rl.algorithms import make_algorithm
from rl.config import LoraParams, MachinesParams
from rl.machine import Place
from rl.models import save_model
from rl.workers.local import LocalSession
from rl.workers.roles import Opening
from tests.learning.toy import HARD, School, seat_in
from tests.recipes import recipe

SAMPLES, SEED, TEMPERATURE = 8, 0, 1.0
OPTIMIZER = {"num_epochs": 1, "mini_batch_size": 24, "learning_rate": 3e-3, "micro_batch_tokens": 256}


def save_school(folder: Path) -> Path:
    """A policy that can speak."""
    school = School(HARD, SEED)
    school.warm_start(400)
    save_model(school.model, school.chat.tokenizer, folder)
    return folder


def opening(folder: Path, lora: LoraParams | None = None) -> Opening:
    """Of a session that learns the hard toy."""
    grpo = recipe("grpo", group_size=SAMPLES, credit="episode", own_turn=[], divide_by_std="group", optimizer=OPTIMIZER)
    return Opening(
        model=str(folder),
        place=Place(),
        rollout=School(HARD, SEED).params.model_copy(update={"slots": 48}),
        algorithm=make_algorithm(grpo),
        seed=SEED,
        lora=lora,
        temperature=TEMPERATURE,
    )


open_toy = partial(seat_in, HARD)


def local(opened: Opening) -> LocalSession:
    return LocalSession(
        opened.model, opened.place, opened.rollout, opened.algorithm, SEED, opened.lora, TEMPERATURE, open_toy()
    )


def machines(trainers: int, rollout_workers: int, **ray: object) -> MachinesParams:
    numbers = {
        "address": None,
        "trainers": trainers,
        "rollout_workers": rollout_workers,
        "model_workers": 0,
        "gpus_per_worker": 0,
        "sharding": "shard",
        "timeout_s": 600,
    }
    return MachinesParams(
        backend="ray",
        ray=numbers | ray,
        device="auto",
        compute="float32",
        offload=False,
        threads=1,
        spare_memory=False,
    )
