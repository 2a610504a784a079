"""How fast the engine of `rollout.engine` (or that of a profile) samples real consultations with scripted patients, and how well it agrees with the model."""

import argparse
import sys
import time

import numpy as np

from clinic.starter import draw_cases
from rl.config import RolloutParams
from rl.experience import Trajectory
from rl.records import logprobs_of
from rl.rollout import EpisodeSpec
from rl.workers.local import Session
from tasks.parameters import ROOT, Params, load_params, read_yaml
from tasks.wiring import open_waiting_room


def main() -> None:
    """Command line: plays the same number of episodes several times; the first rollout starts the engine."""
    parser = argparse.ArgumentParser(prog="python -m tasks.engine_speed", description=__doc__)
    parser.add_argument("--engine", choices=["transformers", "vllm"], help="that of recipes/profiles/<engine>.yaml; default: the one in params.yaml")
    parser.add_argument("--model", default=str(ROOT / "models/base"))
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--rollouts", type=int, default=3)
    given = parser.parse_args()
    params = load_params()
    rollout = params.rollout if given.engine is None else with_engine(params.rollout, given.engine)
    temperature = params.decoding.train.temperature
    session = Session(given.model, params.machines.compute, rollout, None, params.seed)
    for number in range(given.rollouts):
        specs = _episodes(params, given.episodes, number)
        began = time.monotonic()
        trajectories = session.rollout(specs, temperature)
        seconds, tokens = time.monotonic() - began, sum(t.sampled_tokens for t in trajectories)
        sys.stdout.write(f"{rollout.engine.kind}, rollout {number}: {len(specs)} episodes, {tokens} tokens in {seconds:.1f} s, {tokens / seconds:.0f} tokens/s\n")
    sys.stdout.write(f"largest |difference of a log-probability| from the model's: {_disagreement(session, trajectories, temperature):.1e}\n")


def with_engine(rollout: RolloutParams, name: str) -> RolloutParams:
    """The section with the engine that a profile of that name would write."""
    profile = read_yaml(ROOT / "recipes" / "profiles" / f"{name}.yaml")
    return RolloutParams.model_validate(rollout.model_dump() | {"engine": profile["params.yaml"]["rollout"]["engine"]})


def _episodes(params: Params, count: int, number: int) -> list[EpisodeSpec]:
    room = open_waiting_room(params, ROOT / "data/kb_index")
    return room.episodes(list(draw_cases(room.clinic, count, params.seed, params.patient_cases.split)), 1, params.seed, number)


def _disagreement(session: Session, trajectories: list[Trajectory], temperature: float) -> float:
    """Between what the engine recorded and one pass of the model over the same tokens."""
    recorded = [np.array([value for value, one in zip(t.logprobs, t.loss_mask, strict=True) if one]) for t in trajectories]
    again = logprobs_of(session.model, trajectories, 4096, temperature)
    return max(float(np.abs(a - b).max()) for a, b in zip(again, recorded, strict=True) if len(b))


if __name__ == "__main__":
    main()
