"""What an algorithm makes of the bundled clinic at equal episodes: `python -m tests.learning.clinic ppo_roa --seeds 0-2`.

A row is who played the test cases at which moment: a teacher's last rollout step, a student when it ends, the end, and the
folded one. Beside accuracy stands Bayes' decision from the same dialogues: what was asked, without how it was read.
Nothing versioned is touched. `--set feature.chart=facts` changes the recipe; rows are appended to `--out` as JSON lines.
"""

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ruamel.yaml import YAML

from clinic.cases import Case
from clinic.diagnoses import relation
from clinic.doctors import ReferenceDoctor, at_random
from clinic.events import one_by_one, read_events
from clinic.intervals import proportion
from clinic.metrics import Missing, Row, summarise
from doctor.environments import ConsultationFactory
from doctor.evaluation import EVALUATION_STEP, EvaluationSet, open_evaluation_sets
from doctor.parameters import ROOT, Params, load_params, read_recipe, recipe_path
from doctor.recipe import parse_algorithm
from doctor.scoring import accuracy, score_all, step_metrics
from doctor.training import Training
from rl.experience import Trajectory
from tasks.command_line import USER_ERRORS, process
from tasks.selection import fold
from tests.learning.rates import numbers

CASES, INDEX, WARM_START = ROOT / "data/cases", ROOT / "data/kb_index", ROOT / "models/warm_start"
SHOWN = ("accuracy", "reward", "turns", "valid_question_rate", "fact_recall", "red_flags_missed")


class Lesson:
    """One training of the clinic, measured along the way."""

    def __init__(self, params: Params, recipe: dict[str, Any], told: dict[str, Any], out: Path | None) -> None:
        """Open it; `told` stands in every row."""
        name = params.algorithm.name
        algorithm = parse_algorithm(recipe, params, recipe_path(name))
        test_set, *_ = open_evaluation_sets(params, CASES, INDEX)
        self.run = Training(params, algorithm, test_set.factory, WARM_START, CASES, "measured")
        self.test_set, self.out, self.told = test_set, out, told
        self.teaching = getattr(algorithm.recipe, "train_steps", 0)

    def learn(self) -> None:
        """Rollout, score, learn; and look."""
        run, session = self.run, self.run.session
        self.row("warm start", 0)
        for step in range(1, run.params.train_doctor.steps + 1):
            cases, began = run.cases(step, 0), time.process_time()
            every = run.params.train_doctor.searches_every
            specs = run.factory.episodes(cases, run.algorithm.group_size, run.params.seed, step, searches_every=every)
            temperature = run.params.decoding.train.temperature
            trajectories = session.rollout(specs, temperature, lambda _, __: None, to_learn=True)
            scores = score_all(run.scorer, cases, trajectories)
            metrics = step_metrics(cases, trajectories, scores) | session.learn(trajectories, scores, step)
            self.point(step, metrics, time.process_time() - began)
            if step == self.teaching - 1:
                self.row("teacher", step, teacher=True)
            if step == self.teaching:
                self.row("student after train", step)
        steps = run.params.train_doctor.steps
        self.row("end", steps)
        if run.algorithm.fold is not None:
            with tempfile.TemporaryDirectory() as place:
                fold(run, run.algorithm.fold, session.save(Path(place), steps))
            self.row("folded", steps)

    def point(self, step: int, metrics: dict[str, float], seconds: float) -> None:
        """One rollout step's metrics, and every fifth step what the validation cases say of the student."""
        if step % 5 == 0:
            run = self.run
            specs = run.factory.episodes(run.validation, 1, run.params.seed, -1)
            played = run.session.rollout(specs, run.params.decoding.evaluate.temperature, lambda _, __: None)
            metrics = metrics | {"validation/accuracy": accuracy(run.validation, played)}
        self._tell({"step": step, "cpu_s": round(seconds, 1)} | {name: round(metrics[name], 4) for name in metrics})
        named = ("reward/mean", "rollout/accuracy", "rollout/turns", "validation/accuracy", "adaptation/mse")
        named += ("adaptation/variance", "adaptation/kl", "entropy")
        text = "  ".join(f"{name.split('/')[-1]} {metrics[name]:.3f}" for name in named if name in metrics)
        print(f"{step:3}  {text}  {seconds:.0f} s", flush=True)

    def row(self, who: str, step: int, *, teacher: bool = False) -> None:
        """Play the test cases and tell what came of them."""
        test_set, run = self.test_set, self.run
        specs = run.factory.episodes(test_set.cases, 1, run.params.seed, EVALUATION_STEP)
        temperature = run.params.decoding.evaluate.temperature
        played = run.session.rollout(specs, temperature, lambda _, __: None, to_learn=teacher)
        rows = measured(test_set, played)
        found = summarise({case.case_id: row for case, row in zip(test_set.cases, rows, strict=True)}, 0.02).measures
        shown = {name: [one.mean, one.low, one.high] for name in SHOWN if (one := found[name]) is not None}
        asked = proportion(sum(decided(run.factory, test_set.cases, played)), len(played))
        self._tell({"who": who, "step": step} | shown | {"bayes": [asked.mean, asked.low, asked.high]})
        bayes = f"Bayes on its dialogues {asked.mean:.3f}"
        text = "  ".join(f"{name} {value[0]:.3f} [{value[1]:.3f}, {value[2]:.3f}]" for name, value in shown.items())
        print(f"{step:3}  {who}: {text}  {bayes}", flush=True)

    def _tell(self, line: dict[str, Any]) -> None:
        if self.out is not None:
            with self.out.open("a") as file:
                file.write(json.dumps(self.told | line) + "\n")


def measured(test_set: EvaluationSet, played: Sequence[Trajectory]) -> list[Row | Missing]:
    """The rows of consultations with the test cases, in their order."""
    scores = score_all(test_set.scorer, test_set.cases, played)
    return [
        test_set.measure(case, read_events(one.events), score.reward, one.sampled_tokens, [], None)
        for case, one, score in zip(test_set.cases, played, scores, strict=True)
    ]


def decided(factory: ConsultationFactory, cases: Sequence[Case], played: Sequence[Trajectory]) -> list[bool]:
    """Whether Bayes, who heard each dialogue, names the condition."""
    found = []
    for case, one in zip(cases, played, strict=True):
        doctor = ReferenceDoctor(
            clinic=factory.clinic, case=case, ask=at_random, questions=0, rng=np.random.default_rng(0)
        )
        for event in one_by_one(read_events(one.events)):
            doctor.hear(event)
        named = factory.clinic.conditions[int(doctor.posterior().argmax())].name
        found.append(relation(case, named) == "exact")
    return found


def setting(text: str) -> tuple[str, Any]:
    """A dotted key and its value, of `feature.chart=facts`."""
    key, _, value = text.partition("=")
    if not value:
        raise argparse.ArgumentTypeError(f"{text} has no value; write KEY=VALUE")
    return key, YAML(typ="safe").load(value)


def changed(recipe: dict[str, Any], changes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The recipe with values by dotted key."""
    for key, value in changes:
        *sections, last = key.split(".")
        place = recipe
        for section in sections:
            place = place.get(section, {}) if isinstance(place, dict) else {}
        if not isinstance(place, dict) or last not in place:
            raise SystemExit(f"error: --set {key}={value}: the recipe has no {key}")
        place[last] = value
    return recipe


def main() -> int:
    """Play the seeds, one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm")
    parser.add_argument("--seeds", type=numbers, default=[0])
    parser.add_argument("--steps", type=int, default=25)
    several: dict[str, Any] = {"type": setting, "action": "append", "default": [], "metavar": "KEY=VALUE"}
    parser.add_argument("--set", **several, dest="changes", help="a number of the recipe; may be repeated")
    parser.add_argument("--param", **several, dest="params", help="one of params.yaml; may be repeated")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    changes = [f"{key}={value}" for key, value in (*args.params, *args.changes)]
    with process("clinic", *USER_ERRORS):
        logging.disable(logging.INFO)
        torch.set_num_threads(args.threads)
        for seed in args.seeds:
            own = {"algorithm.name": args.algorithm, "train_doctor.steps": args.steps, "seed": seed}
            params = load_params(None, own | dict(args.params))
            recipe = changed(read_recipe(args.algorithm), args.changes)
            print(f"{args.algorithm}, seed {seed}: {' '.join(changes)}", flush=True)
            told = {"algorithm": args.algorithm, "seed": seed, "changes": changes}
            lesson = Lesson(params, recipe, told, args.out)
            with closing(lesson.run.session):
                lesson.learn()
    return 0


if __name__ == "__main__":
    sys.exit(main())
