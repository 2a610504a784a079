"""Groups of workers on a GPU: a trainer on a mesh of one, rollout workers that play copies, all in this process."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest
import torch

from rl.machine import Place
from rl.workers.group import LocalGroup
from rl.workers.grouped import GroupSession
from rl.workers.roles import open_player
from rl.workers.trainer import open_trainer
from tests.learning.at_work import SAMPLES, SEED, TEMPERATURE, local, open_toy, opening, save_school
from tests.learning.course import learn
from tests.learning.toy import HARD, episodes, score

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_school(tmp_path_factory.mktemp("school") / "base")


def opened(folder, compute: str):
    return replace(opening(folder), place=Place("cuda", compute))


def grouped(folder, compute: str, players: int) -> GroupSession:
    return GroupSession(
        LocalGroup(players, partial(open_player, opened(folder, compute), open_toy, None)),
        lambda exact: LocalGroup(1, partial(open_trainer, opened(folder, compute), exact, "shard", 60.0)),
        local(opened(folder, compute)).chat,
        ExitStack(),
    )


def step(session, number: int):
    played = session.rollout(episodes(HARD, SAMPLES, number, SEED), TEMPERATURE)
    return played, session.learn(played, score(played), number)


def test_workers_play_and_learn_as_one_session_does(folder):
    one, many = local(opened(folder, "float32")), grouped(folder, "float32", 2)
    for number in (1, 2):
        (played, metrics), (others, found) = step(one, number), step(many, number)
        assert [t.token_ids for t in played] == [t.token_ids for t in others]
        assert found["policy_loss"] == pytest.approx(metrics["policy_loss"], rel=1e-3, abs=1e-6)


def test_a_trainer_computes_in_bfloat16_on_a_mesh_of_one_and_goes_on_from_what_it_saved(folder, tmp_path):
    session = grouped(folder, "bfloat16", 2)
    trainer = session._trainers.workers[0]
    before = {name: value.detach().clone() for name, value in trainer.policy.named_parameters()}
    step(session, 1)
    after = dict(trainer.policy.named_parameters())
    assert {value.dtype for value in after.values()} == {torch.float32}
    assert {value.device.type for value in after.values()} == {"cuda"}
    assert all(not torch.equal(value.full_tensor(), before[name].full_tensor()) for name, value in after.items())
    saved = session.save(tmp_path / "run", 1)
    (played, metrics), _ = step(session, 2), session.restore(saved)
    (again, found) = step(session, 2)
    assert [t.token_ids for t in played] == [t.token_ids for t in again]
    assert found["policy_loss"] == pytest.approx(metrics["policy_loss"], rel=1e-2, abs=1e-4)


@pytest.mark.parametrize("name", ["grpo", "ppo", "ppo_roa", "privileged_distillation"])
def test_the_toy_is_learned_on_the_device(name):
    """Playing, and of ppo_roa teacher, student and soft tokens too."""
    assert learn(name, "easy", SEED, "cuda").solved
