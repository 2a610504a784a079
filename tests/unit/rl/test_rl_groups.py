"""A session made of groups: what it gives, who is refused, and what a lost worker costs. All workers are in this
process.
"""

from contextlib import ExitStack
from functools import partial

import pytest
import torch

from rl.config import LoraParams
from rl.errors import TrainingError
from rl.workers.group import LocalGroup, WorkerLostError, dealt_by_group
from rl.workers.grouped import GroupSession
from rl.workers.parcel import packed
from rl.workers.placement import ResourcePool, pools_of, refuse_what_does_not_fit
from rl.workers.roles import open_player
from rl.workers.trainer import open_trainer
from tests.learning.at_work import SAMPLES, SEED, TEMPERATURE, local, machines, open_toy, opening, save_school
from tests.learning.toy import HARD, episodes, score

LORA = LoraParams(rank=2, alpha=4.0, target_modules=("q_proj", "down_proj"))


@pytest.fixture(autouse=True)
def same_torch_after():
    """A session asks torch for deterministic algorithms, for good."""
    before = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_school(tmp_path_factory.mktemp("school") / "base")


class Mortal(LocalGroup):
    """Loses a worker when it is told to."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.loses = []

    def start(self, worker, method, *arguments):
        pending = super().start(worker, method, *arguments)
        if method in self.loses:
            self.loses.remove(method)
            self.workers[worker] = None
            return Lost(worker)
        return pending


class Lost:
    def __init__(self, worker):
        self.worker = worker

    def result(self):
        raise WorkerLostError(f"worker {self.worker} died", self.worker)


def grouped(folder, players: int = 1, lora: LoraParams | None = None) -> GroupSession:
    opened = opening(folder, lora)
    return GroupSession(
        Mortal(players, partial(open_player, opened, open_toy, None)),
        lambda exact: Mortal(1, partial(open_trainer, opening(folder, lora), exact, "shard", 60.0)),
        local(opened).chat,
        ExitStack(),
    )


def step(session, number: int):
    played = session.rollout(episodes(HARD, SAMPLES, number, SEED), TEMPERATURE)
    return played, session.learn(played, score(played), number)


def told(trajectories):
    return [(t.episode_id, t.token_ids, t.logprobs, t.policy_version, t.events) for t in trajectories]


def weights(session):
    return dict(session._trainers.workers[0].model.state_dict())


def test_one_trainer_and_one_player_are_one_process_bit_for_bit(folder, tmp_path):
    one, many = local(opening(folder)), grouped(folder)
    for number in (1, 2, 3):
        (played, metrics), (others, found) = step(one, number), step(many, number)
        assert told(played) == told(others)
        assert metrics == found
        assert one.policy_version == many.policy_version == number
    assert all(torch.equal(value, weights(many)[name]) for name, value in one.model.state_dict().items())
    assert torch.equal(one.rank([[1, 2]], [[7], [9]]), many.rank([[1, 2]], [[7], [9]]))
    saved = many.save(tmp_path / "run", 3)
    after = step(many, 4)
    many.restore(saved)
    assert many.policy_version == 3
    again = step(many, 4)
    assert (told(after[0]), after[1]) == (told(again[0]), again[1])
    many.reset()
    assert many.policy_version == 0
    assert told(step(many, 1)[0]) == told(step(local(opening(folder)), 1)[0])
    many.load(saved)
    one.restore(saved)
    specs = episodes(HARD, SAMPLES, 9, SEED)
    assert [t.token_ids for t in many.rollout(specs, 0.0)] == [t.token_ids for t in one.rollout(specs, 0.0)]


@pytest.mark.parametrize("lora", [None, LORA], ids=["whole", "lora"])
def test_more_players_say_the_same(folder, lora):
    one, many = local(opening(folder, lora)), grouped(folder, 3, lora)
    for number in (1, 2):
        (played, metrics), (others, found) = step(one, number), step(many, number)
        assert [t.token_ids for t in played] == [t.token_ids for t in others]
        assert found["policy_loss"] == pytest.approx(metrics["policy_loss"], rel=1e-3, abs=1e-6)


def test_who_skips_a_handover_is_refused_by_the_version_of_what_it_plays(folder):
    session = grouped(folder, 2)
    step(session, 1)
    stale = session._rollouts.workers[1]
    stale.take = lambda parcel: (parcel.version, 0.0)
    with pytest.raises(TrainingError, match="rollout worker 1 plays policy version 0 instead of 1"):
        step(session, 2)
    stale.take = lambda _: (stale.engine.policy_version, 0.0)
    session._held_part = ""
    with pytest.raises(TrainingError, match="rollout worker 1 plays policy version 0 instead of 1"):
        session.hold()


def test_who_takes_other_weights_is_refused_by_the_probe(folder):
    trainer = open_trainer(opening(folder), True, "shard", 60.0, 0, 1, None)
    player = open_player(opening(folder), open_toy, None)
    parcel = trainer.pack()
    assert player.take(parcel) == (0, pytest.approx(0.0, abs=1e-6))
    with torch.no_grad():
        trainer.model.get_decoder().norm.weight.mul_(1.5)
    later = trainer.pack()
    object.__setattr__(later, "weights", parcel.weights)
    with pytest.raises(TrainingError, match="log-probabilities differ from the trainer's"):
        player.take(later)


def test_a_parcel_is_a_copy_and_answers_about_one_sequence(folder):
    trainer = open_trainer(opening(folder), True, "shard", 60.0, 0, 1, None)
    parcel = trainer.pack()
    before = {name: value.clone() for name, value in trainer.handover().weights()}
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.zero_()
    handover = parcel.handover()
    assert all(torch.equal(value, before[name]) for name, value in handover.weights())
    assert handover.identity() != trainer.pack().handover().identity()
    with pytest.raises(TrainingError, match="of another sequence"):
        handover.logprobs([1, 2, 3])
    assert packed(trainer.handover(), [1, 2, 3], keep=False) is None


@pytest.mark.parametrize("method", ["play", "take"])
def test_a_lost_player_is_replaced_once_in_a_step_and_says_the_same(folder, method):
    session, whole = grouped(folder, 2), grouped(folder, 2)
    step(session, 1), step(whole, 1)
    session._rollouts.loses = [method]
    assert told(step(session, 2)[0]) == told(step(whole, 2)[0])
    session._rollouts.loses = [method, method]
    with pytest.raises(TrainingError, match=r"worker . died, after another one in the same step; run again"):
        step(session, 3)


def test_lost_trainers_take_the_policy_with_them_until_a_checkpoint_is_restored(folder, tmp_path):
    session = grouped(folder)
    step(session, 1)
    saved = session.save(tmp_path / "run", 1)
    played, metrics = step(session, 2)
    session.restore(saved)
    for _ in range(2):
        session._trainers.loses = ["learn"]
        with pytest.raises(WorkerLostError):
            session.learn(played, score(played), 2)
        assert session.policy_version < 0
        with pytest.raises(TrainingError, match="restore a checkpoint first"):
            session.hold()
        session.restore(saved)
        assert session.policy_version == 1
    assert session.learn(played, score(played), 2) == metrics


def test_trainers_that_are_lost_again_and_again_end_the_step_though_it_is_learned_in_between(folder, tmp_path):
    session = grouped(folder)
    first, _ = step(session, 1)
    for _ in range(2):
        session._trainers.loses = ["save"]
        with pytest.raises(WorkerLostError):
            session.save(tmp_path / "run", 1)
        session.reset()
        session.learn(first, score(first), 1)
    session._trainers.loses = ["save"]
    with pytest.raises(WorkerLostError):
        session.save(tmp_path / "run", 1)
    with pytest.raises(TrainingError, match="trainers were lost 3 times in one step"):
        session.reset()


def test_what_is_held_is_played_while_the_policy_learns(folder):
    session, whole = grouped(folder, 2), grouped(folder, 2)
    step(session, 1), step(whole, 1)
    specs = episodes(HARD, SAMPLES, 3, SEED)
    session.hold()
    expected = whole.rollout(specs, TEMPERATURE)
    step(session, 2)
    assert session.policy_version == 2
    session._rollouts.loses = ["play"]
    session._revived = False
    held = session.rollout(specs, TEMPERATURE, held=True)
    assert told(held) == told(expected)
    assert session.rollout(specs, TEMPERATURE)[0].policy_version == 2


def test_whole_groups_are_dealt_in_the_order_of_the_list():
    groups = ["a", "a", "b", "c", "c", "b"]
    assert dealt_by_group(groups, 1) == [[0, 1, 2, 3, 4, 5]]
    assert dealt_by_group(groups, 2) == [[0, 1, 3, 4], [2, 5]]
    assert dealt_by_group(["a"], 3) == [[0], [], []]


@pytest.mark.parametrize(
    ("pools", "told"),
    [
        (
            [ResourcePool("trainer", 1, 9, 0)],
            r"a trainer takes 9 processors, and no machine has as much \(.*4 proc.*\)",
        ),
        ([ResourcePool("trainer", 1, 1, 1)], "a trainer takes 1 processor and 1 GPU, and no machine has as much"),
        (
            [ResourcePool("rollout worker", 2, 2, 0), ResourcePool("trainer", 3, 1, 0)],
            r"3 trainers of 1 processor each do not fit beside 2 rollout workers: there is room for 2 .*lower machines\.ray\.trainers",
        ),
        ([ResourcePool("rollout worker", 4, 2, 0)], r"there is room for 3 .*lower machines\.ray\.rollout_workers"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_in_one_line(pools, told):
    with pytest.raises(TrainingError, match=told) as caught:
        refuse_what_does_not_fit(pools, [{"CPU": 4.0}, {"CPU": 2.0, "memory": 1e9}])
    assert "\n" not in str(caught.value)


def test_what_fits_is_not_refused():
    refuse_what_does_not_fit(pools_of(machines(2, 2)), [{"CPU": 4.0}])
    refuse_what_does_not_fit(pools_of(machines(2, 2, gpus_per_worker=1)), [{"CPU": 2.0, "GPU": 2.0}] * 2)
