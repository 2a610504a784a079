"""How fast the engine that `rollout.engine` names (or another) samples real consultations with scripted patients, and how well it agrees with the model."""

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
from tasks.parameters import ROOT, Params, load_params
from tasks.wiring import open_waiting_room


def main() -> None:
    """Command line: plays the same number of episodes several times; the first rollout starts the engine."""
    parser = argparse.ArgumentParser(prog="python -m tasks.engine_speed", description=__doc__)
    parser.add_argument("--engine", choices=["transformers", "vllm"])
    parser.add_argument("--model", default=str(ROOT / "models/base"))
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--rollouts", type=int, default=3)
    given = parser.parse_args()
    params = load_params()
    rollout = params.rollout if given.engine is None else RolloutParams.model_validate(params.rollout.model_dump() | {"engine": given.engine})
    session = Session(given.model, params.warm_start.dtype, rollout, None, params.seed)
    for number in range(given.rollouts):
        specs = _episodes(params, given.episodes, number)
        began = time.monotonic()
        trajectories = session.rollout(specs, rollout.temperature)
        seconds, tokens = time.monotonic() - began, sum(t.sampled_tokens for t in trajectories)
        sys.stdout.write(f"{rollout.engine}, rollout {number}: {len(specs)} episodes, {tokens} tokens in {seconds:.1f} s, {tokens / seconds:.0f} tokens/s\n")
    sys.stdout.write(f"largest |difference of a log-probability| from the model's: {_disagreement(session, trajectories, rollout.temperature):.1e}\n")


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
