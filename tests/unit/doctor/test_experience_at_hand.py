"""A run reads its experience from memory, and after a kill from disk: both must be the same."""

from pathlib import Path

from clinic.rewards import Scorer
from clinic.starter import draw_cases
from doctor.environments import open_factory
from doctor.parameters import ROOT, load_params
from doctor.reward_recipe import load_reward
from doctor.scoring import score_all
from doctor.training import _keep
from rl.experience import read_scores, read_trajectories, write_scores, write_trajectories
from rl.machine import Place
from rl.workers.local import LocalSession


def test_what_was_played_and_scored_is_what_is_read_back(tmp_path):
    params = load_params()
    factory = open_factory(params, Path("unused"))
    cases = list(draw_cases(factory.clinic, 3, 0, params.patient_cases.split, keep=("train",)))
    session = LocalSession(
        str(ROOT / "models/base"), Place(), params.rollout.model_copy(update={"slots": 12}), None, 0, seat=factory.seat
    )
    played = session.rollout(factory.episodes(cases, 4, 0, 1), 1.0)
    scores = score_all(Scorer(load_reward("outcome"), [factory.clinic]), cases, played)
    assert {event["kind"] for trajectory in played for event in trajectory.events} >= {"question"}
    assert any(score.turns for score in scores)
    write_trajectories(played, tmp_path / "rollout.parquet")
    write_scores(scores, tmp_path / "scores.parquet")
    assert read_trajectories(tmp_path / "rollout.parquet") == played
    assert read_scores(tmp_path / "scores.parquet") == scores


def test_a_step_and_its_neighbours_are_at_hand():
    held = {}
    for step, draw in ((1, 0), (1, 1), (2, 0), (2, 1), (3, 0)):
        _keep(held, step, draw, [step])
    assert held == {(2, 0): [2], (2, 1): [2], (3, 0): [3]}
