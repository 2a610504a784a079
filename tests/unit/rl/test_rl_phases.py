"""Playing and learning take turns on one device: who sleeps, who is woken, and what an exception leaves behind."""

import copy

import pytest
import torch

from rl.algorithms import make_algorithm
from rl.engines.transformers import TransformersEngine
from rl.environment import EpisodeSpec
from rl.errors import TrainingError
from rl.machine import Place
from rl.models import save_model
from rl.workers.local import LocalSession
from tests.unit.rl.test_rl_checkpoint import RECIPES, ROLLOUT, experience, same_torch_after  # noqa: F401  a fixture

TEACHES = [(name, compute) for name in ("grpo", "ppo") for compute in ("float32", "bfloat16")]


class Reply:
    """Ends after one turn."""

    text, stop_reason = None, "ended"

    class event:  # noqa: N801  an attribute
        """Of nothing."""

        @staticmethod
        def to_json():
            return {"outcome": 1.0}


class OneTurn:
    """Says hello, hears one turn."""

    def opening(self):
        return [{"role": "user", "content": "you said hello"}]

    async def step(self, turn):
        return Reply()


SPECS = [
    EpisodeSpec(case_id="c", group_id="g", sample=i, turn_budget=1, noise=(0, 1), case=None, privileged={})
    for i in range(2)
]


@pytest.fixture(params=TEACHES, ids=lambda choice: ", ".join(choice))
def session(tmp_path, model, tokenizer, request) -> LocalSession:
    name, compute = request.param
    save_model(model, tokenizer, tmp_path / "base")
    place = Place(compute=compute, offload=True)
    return LocalSession(
        str(tmp_path / "base"),
        place,
        ROLLOUT,
        make_algorithm(RECIPES[name]),
        5,
        temperature=1.0,
        seat=lambda *_: OneTurn(),
    )


def forget_when_asleep(engine: TransformersEngine) -> None:
    """As memory that is given back: who plays on without new weights says nothing but nan."""
    sleep, engine.model = engine.sleep, copy.deepcopy(engine.model)
    engine.shares_weights = False

    def forget() -> None:
        sleep()
        with torch.no_grad():
            for parameter in engine.model.parameters():
                parameter.fill_(torch.nan)

    engine.sleep = forget


def test_rollouts_after_learning_play_with_what_was_learned(tmp_path, model, tokenizer):
    save_model(model, tokenizer, tmp_path / "base")
    ends = []
    for forgetful in (False, True):
        session = LocalSession(
            str(tmp_path / "base"),
            Place(),
            ROLLOUT,
            make_algorithm(RECIPES["grpo"]),
            5,
            temperature=1.0,
            seat=lambda *_: OneTurn(),
        )
        if forgetful:
            forget_when_asleep(session.engine)
        played = [session.rollout(SPECS, 1.0)]
        for version in (0, 1):
            session.learn(*experience(version), step=version + 1)
            played.append(session.rollout(SPECS, 1.0))
        ends.append([[(t.token_ids, t.logprobs, t.policy_version) for t in step] for step in played])
    assert [step[0][2] for step in ends[0]] == [0, 1, 2]
    for plain, forgetful in zip(*ends, strict=True):
        for (ids, logprobs, version), (ids_2, logprobs_2, version_2) in zip(plain, forgetful, strict=True):
            assert (ids, version) == (ids_2, version_2)
            assert logprobs == pytest.approx(logprobs_2, abs=1e-5)
    assert ends[0][0][0][1] != ends[0][1][0][1]  # it did learn


def test_a_skipped_handover_is_caught(session):
    session.rollout(SPECS, 1.0)
    session.learn(*experience(0), step=1)
    with pytest.raises(TrainingError, match="this engine sleeps; let it take a handover first"):
        session.rollout(SPECS, 1.0, held=True)
    assert session.rollout(SPECS, 1.0)[0].policy_version == 1


def test_an_exception_in_learning_leaves_the_engine_asleep_and_no_gradients(session, monkeypatch):
    session.rollout(SPECS, 1.0)

    def fails(*_args, **_named):
        raise RuntimeError("in the middle")

    monkeypatch.setattr(session.learner.optimizers, "step", fails)
    with pytest.raises(RuntimeError, match="in the middle"):
        session.learn(*experience(0), step=1)
    assert all(parameter.grad is None for parameter in session.learner.policy.parameters())
    with pytest.raises(TrainingError, match="this engine sleeps"):
        session.rollout(SPECS, 1.0, held=True)
    monkeypatch.undo()
    assert session.learn(*experience(0), step=1)["gradient_steps"] > 0


def test_a_session_in_either_precision_goes_on_from_its_checkpoint_and_back_to_its_start(session, tmp_path):
    first = session.rollout(SPECS, 1.0)
    session.learn(*experience(0), step=1)
    directory = session.save(tmp_path / "run", 1)
    metrics = session.learn(*experience(1), step=2)
    after = session.rollout(SPECS, 1.0)
    session.restore(directory)
    assert session.learn(*experience(1), step=2) == metrics
    assert [t.logprobs for t in session.rollout(SPECS, 1.0)] == [t.logprobs for t in after]
    session.reset()
    assert session.policy_version == 0
    assert [(t.token_ids, t.logprobs) for t in session.rollout(SPECS, 1.0)] == [
        (t.token_ids, t.logprobs) for t in first
    ]
    session.load(directory)
    assert torch.isfinite(session.rank([[2, 9]], [[41], [42]])).all()


def test_moments_that_were_read_from_a_checkpoint_wait_on_the_host_too(session, tmp_path, monkeypatch):
    """A resumed run would else have them beside the engine in its first rollout."""
    session.learn(*experience(0), step=1)
    directory = session.save(tmp_path / "run", 1)
    moved = []
    optimizers = session.learner.optimizers
    load = optimizers.load_state
    monkeypatch.setattr(optimizers, "moments_to", lambda device: moved.append(device.type))
    monkeypatch.setattr(optimizers, "load_state", lambda state: moved.append("read") or load(state))
    session.restore(directory)
    assert moved[-2:] == ["read", "cpu"]


def test_an_engine_one_step_ahead_stays_awake(tmp_path, model, tokenizer):
    """It plays while the learner learns, so nothing puts it to sleep."""
    save_model(model, tokenizer, tmp_path / "base")
    session = LocalSession(
        str(tmp_path / "base"),
        Place(),
        ROLLOUT,
        make_algorithm(RECIPES["grpo"]),
        5,
        temperature=1.0,
        seat=lambda *_: OneTurn(),
    )
    session._phases._ahead = True
    session.hold()
    session.learn(*experience(0), step=1)
    assert session.rollout(SPECS, 1.0, held=True)[0].policy_version == 0
