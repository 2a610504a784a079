"""A whole session: the toy's policy plays on vLLM, learns, and the engine follows."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from rl.algorithms import make_algorithm
from rl.config import LoraParams, RolloutParams
from rl.engines.vllm import VllmEngine
from rl.errors import TrainingError
from rl.machine import Place
from rl.models import new_model, save_model
from rl.workers.local import LocalSession
from tests.learning.toy import EASY, School, episodes, score, seat_in
from tests.recipes import recipe
from tests.vllm.conftest import PARAMS

pytestmark = pytest.mark.vllm
ROLLOUT = RolloutParams(
    prompts=4, response_length=3, max_episode_tokens=32, slots=16, max_failed_share=0.0, ahead=0, engine=PARAMS
)
SEED = 7
OPTIMIZER = {
    "num_epochs": 1,
    "mini_batch_size": 16,
    "learning_rate": 1e-2,
    "warmup_rollout_steps": 0,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "micro_batch_tokens": 4096,
}


@pytest.fixture
def base(tmp_path) -> str:
    school = School(EASY, SEED)
    # vLLM's attention on a CPU wants heads of 32 or more
    model = new_model(school.chat.tokenizer, width=64, layers=2, heads=2, context=32, seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter *= 4
    save_model(model, school.chat.tokenizer, tmp_path / "base")
    return str(tmp_path / "base")


@pytest.mark.parametrize(
    "lora",
    [None, LoraParams(rank=4, alpha=8.0, target_modules=("q_proj", "v_proj", "down_proj"))],
    ids=["all weights", "lora"],
)
def test_two_steps_of_training_on_vllm(base, lora):
    session = LocalSession(
        base,
        Place(),
        ROLLOUT,
        make_algorithm(recipe("grpo", group_size=8, optimizer=OPTIMIZER)),
        seed=1,
        seat=seat_in(EASY),
        lora=lora,
        temperature=1.0,
    )
    assert isinstance(session.engine, VllmEngine)
    assert not session.learner.sampler.exact
    for step in (1, 2):
        trajectories = session.rollout(episodes(EASY, 8, step, SEED), 1.0)
        assert {t.policy_version for t in trajectories} == {step - 1}
        metrics = session.learn(trajectories, score(trajectories), step)
        print(
            f"step {step}: probe error {session.engine.probe_error:.1e}, sampler mismatch, largest {metrics['sampler_mismatch_max']:.1e}"
        )
        assert metrics["sampler_mismatch_max"] < 1e-4
        assert metrics["gradient_steps"] == 2
        assert session.engine.probe_error < 1e-4


def test_the_next_step_is_played_while_the_learner_is_at_this_one(base):
    rollout = ROLLOUT.model_copy(update={"ahead": 1})
    session = LocalSession(
        base,
        Place(),
        rollout,
        make_algorithm(recipe("grpo", group_size=8, optimizer=OPTIMIZER, sampler_correction={"level": "token"})),
        seed=1,
        seat=seat_in(EASY),
        temperature=1.0,
    )
    session.hold()
    first = session.rollout(episodes(EASY, 8, 1, SEED), 1.0, held=True)
    alone = session.rollout(episodes(EASY, 8, 2, SEED), 1.0, held=True)
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(session.rollout, episodes(EASY, 8, 2, SEED), 1.0, held=True)
        assert session.learn(first, score(first), 1)["staleness"] == 0
    second = beside.result()
    assert {t.policy_version for t in second} == {0}
    assert [t.token_ids for t in second] == [t.token_ids for t in alone]  # what was learned meanwhile changed nothing
    metrics = session.learn(second, score(second), 2)
    assert metrics["staleness"] == 1
    assert metrics["sampler_mismatch_mean"] > 1e-5  # of the policy that learns it is below 1e-6
    session.hold()
    assert {t.policy_version for t in session.rollout(episodes(EASY, 8, 3, SEED), 1.0, held=True)} == {2}


def test_an_old_checkpoint_is_played_again_after_a_restore(base, tmp_path):
    session = LocalSession(
        base,
        Place(),
        ROLLOUT,
        make_algorithm(recipe("grpo", group_size=8, optimizer=OPTIMIZER)),
        seed=1,
        seat=seat_in(EASY),
        temperature=1.0,
    )
    first = session.rollout(episodes(EASY, 8, 1, SEED), 1.0)
    directory = session.save(tmp_path / "run", 0)
    session.learn(first, score(first), 1)
    assert [t.logprobs for t in session.rollout(episodes(EASY, 8, 1, SEED), 1.0)] != [t.logprobs for t in first]
    session.restore(directory)
    again = session.rollout(episodes(EASY, 8, 1, SEED), 1.0)
    assert [t.token_ids for t in again] == [t.token_ids for t in first]


def test_a_session_that_only_plays(base):
    session = LocalSession(base, Place(), ROLLOUT, None, seed=1, seat=seat_in(EASY))
    assert len(session.rollout(episodes(EASY, 4, 1, SEED), 0.0)) == 16


def forget_when_asleep(core, monkeypatch) -> None:
    """As a GPU's engine that gave its memory back: what it had is gone."""
    sleep = core.sleep

    def forget() -> None:
        sleep()
        core.llm.apply_model(
            lambda model: [parameter.data.fill_(torch.nan) for parameter in model.parameters()] and None
        )

    monkeypatch.setattr(core, "sleep", forget)


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_after_learning_the_engine_has_nothing_but_what_it_is_given(base, monkeypatch, compute):
    """The phases put it to sleep, and only a handover wakes it."""
    rollout = ROLLOUT.model_copy(update={"engine": PARAMS.model_copy(update={"probe_tolerance": 0.1})})
    algorithm = make_algorithm(recipe("grpo", group_size=8, optimizer=OPTIMIZER))
    session = LocalSession(
        base, Place(compute=compute), rollout, algorithm, seed=1, temperature=1.0, seat=seat_in(EASY)
    )
    first = session.rollout(episodes(EASY, 8, 1, SEED), 1.0)
    forget_when_asleep(session.engine._core, monkeypatch)
    session.learn(first, score(first), 1)
    assert session.engine._core.asleep
    with pytest.raises(TrainingError, match="no weights yet or sleeps"):
        session.rollout(episodes(EASY, 8, 2, SEED), 1.0, held=True)
    second = session.rollout(episodes(EASY, 8, 2, SEED), 1.0)
    assert session.engine.probe_error < (1e-4 if compute == "float32" else 0.1)
    assert {t.policy_version for t in second} == {1}
    metrics = session.learn(second, score(second), 2)
    assert metrics["sampler_mismatch_max"] < (1e-4 if compute == "float32" else 0.2)

    load = session.engine._core.load
    monkeypatch.setattr(session.engine._core, "load", lambda weights: load(list(weights)[:1]))
    with pytest.raises(TrainingError, match="differ from the trainer's"):
        session.rollout(episodes(EASY, 8, 3, SEED), 1.0)
    monkeypatch.setattr(session.engine._core, "load", load)

    def fails(*_args, **_named):
        raise RuntimeError("in the middle")

    monkeypatch.setattr(session.learner.optimizers, "step", fails)
    third = session.rollout(episodes(EASY, 8, 3, SEED), 1.0)
    with pytest.raises(RuntimeError, match="in the middle"):
        session.learn(third, score(third), 3)
    assert session.engine._core.asleep
