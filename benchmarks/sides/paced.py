"""This project as the pipeline runs it: the bundled base model, real consultations, the committed recipe.

A quarter of a shipped step by default.
"""

import hashlib
import time
from multiprocessing.connection import Connection

from benchmarks.worker import Figures, serve
from clinic.rewards import Scorer
from clinic.starter import draw_cases
from doctor.environments import open_factory
from doctor.parameters import ROOT, load_params
from doctor.recipe import load_algorithm
from doctor.reward_recipe import load_reward
from doctor.scoring import score_all
from doctor.sources import cases_of_draw
from rl.machine import Place
from rl.workers.local import LocalSession


class Paced:
    """Whole steps, timed by phase; from the first step on, the same in every process."""

    def __init__(self, prompts: int) -> None:
        """Args: cases a step, each played as often as the recipe says."""
        self.params = load_params()
        algorithm = load_algorithm(self.params)
        self.group, self.prompts, self.number = algorithm.group_size, prompts, 0
        rollout = self.params.rollout.model_copy(update={"prompts": prompts})
        self.room = open_factory(self.params, ROOT / "data/kb_index")
        self.session = LocalSession(
            str(ROOT / "models/base"),
            Place(),
            rollout,
            algorithm,
            self.params.seed,
            temperature=self.params.decoding.train.temperature,
            seat=self.room.seat,
        )
        self.cases = list(
            draw_cases(self.room.clinic, 100, self.params.seed, self.params.patient_cases.split, keep=("train",))
        )
        self.scorer = Scorer(load_reward(self.params.reward.preset), [self.room.clinic])

    def run(self, channel: Connection) -> None:
        """Step whenever asked to."""
        serve(channel, self.step)

    def step(self) -> Figures:
        """One step: seconds of its phases, and a fingerprint of the weights after it."""
        self.number += 1
        cases = cases_of_draw(self.cases, self.prompts, self.number - 1, self.params.seed)
        specs = self.room.episodes(cases, self.group, self.params.seed, self.number)
        began = time.perf_counter()
        trajectories = self.session.rollout(specs, self.params.decoding.train.temperature)
        played = time.perf_counter()
        scores = score_all(self.scorer, cases, trajectories)
        scored = time.perf_counter()
        self.session.learn(trajectories, scores, self.number)
        return {
            "rollout_s": played - began,
            "update_s": time.perf_counter() - scored,
            "sampled_tokens": float(sum(t.sampled_tokens for t in trajectories)),
            "weights": float(int(self.fingerprint()[:12], 16)),  # 48 bits: exact in a float
        }

    def fingerprint(self) -> str:
        """sha256 of all weights."""
        digest = hashlib.sha256()
        for name, value in sorted(self.session.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.numpy().tobytes())
        return digest.hexdigest()
