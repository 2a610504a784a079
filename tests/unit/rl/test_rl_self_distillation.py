"""A session whose policy is taught by what it was: nobody who plays sees a chart, and a run goes on bit for bit."""

# ruff: noqa: F811  fixtures of other tests are arguments here

import dataclasses
import json

import pytest
import torch
from safetensors import safe_open

from rl.algorithms import make_algorithm
from rl.config import RolloutParams
from rl.errors import TrainingError
from rl.experience import Scores
from rl.machine import Place
from rl.self_distillation import opening_with_chart
from rl.workers.local import LocalSession
from tests.recipes import recipe
from tests.unit.rl.test_rl_privileged import (  # noqa: F401  fixtures
    CHARTS,
    LORA,
    TwoTurns,
    base,
    bits,
    same_torch_after,
    specs,
    untied,
)


def open_session(folder, lora=None, learns=True) -> LocalSession:
    content = recipe(
        "privileged_distillation", group_size=4, own_turn=[], distillation={"coefficient": 1.0, "tau": 0.3}
    )
    content["optimizer"] = content["optimizer"] | {"mini_batch_size": 4, "learning_rate": 1e-2}
    rollout = RolloutParams(
        prompts=2, response_length=4, max_episode_tokens=48, slots=4, max_failed_share=0.5, ahead=0,
        engine={"kind": "transformers", "compile": False},
    )  # fmt: skip
    algorithm = make_algorithm(content) if learns else None
    return LocalSession(
        str(folder), Place(), rollout, algorithm, 5, lora=lora, temperature=1.0, seat=lambda *_: TwoTurns()
    )


def step(session: LocalSession, charts=CHARTS) -> dict[str, float]:
    """Played without a chart that could be read; told afterwards, to who learns."""
    number = session.policy_version + 1
    told = {spec.case_id: spec.privileged for spec in specs(charts, number)}
    played = session.rollout(specs(None, number), 1.0, to_learn=True)
    played = [dataclasses.replace(t, privileged=told[t.case_id]) for t in played]
    scores = [Scores(t.episode_id, tuple({"a": float(t.token_ids[turn[0]] % 7)} for turn in t.turns)) for t in played]
    return session.learn(played, scores, number)


def assert_equal(one: LocalSession, other: LocalSession) -> None:
    found = bits(other)
    assert all(torch.equal(value, found[name]) for name, value in bits(one).items())


@pytest.mark.parametrize("lora", [None, LORA], ids=["all weights", "adapter"])
def test_a_run_goes_on_bit_for_bit_and_reset_begins_anew(base, tmp_path, lora):
    session = open_session(base, lora)
    before, first = bits(session), step(session)
    step(session)
    directory = session.save(tmp_path / "run", 2)
    again = open_session(base, lora)
    again.restore(directory)
    for _ in range(2):
        assert_equal(session, again)
        assert step(session) == step(again)
    session.reset()
    after = bits(session)
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert step(session) == first


@pytest.mark.parametrize("lora", [None, LORA], ids=["all weights", "adapter"])
def test_a_chart_teaches_and_is_not_played_by(base, tmp_path, lora):
    """Another chart, another doctor; the folder is an ordinary model's, which plays as the session does."""
    one, other = open_session(base, lora), open_session(base, lora)
    metrics = [step(one), step(other, CHARTS[::-1])]
    assert metrics[0]["distillation/kl"] != metrics[1]["distillation/kl"]
    assert metrics[0]["distillation/untaught"] == 0
    assert metrics[0]["sampler_mismatch_max"] < 1e-4
    differ = [not torch.equal(value, bits(other)[name]) for name, value in bits(one).items()]
    assert any(differ)
    directory = one.save(tmp_path / "run", 1)
    files = json.loads((directory / "complete.json").read_text())["files"]
    assert not any("adaptation" in name or "teacher" in name for name in files)
    with safe_open(directory / "model.safetensors", "pt") as file, safe_open(base / "model.safetensors", "pt") as was:
        assert set(file.keys()) == set(was.keys())
    played = one.rollout(specs(None), 0.7)
    saved = open_session(directory, learns=False).rollout(specs(None), 0.7)
    assert [t.token_ids for t in saved] == [t.token_ids for t in played]


def test_the_chart_stands_before_what_was_said_first_also_where_the_opening_holds_a_turn(base):
    session = open_session(base, learns=False)
    (played, *_) = session.rollout(specs(None), 1.0)
    opening = [("system", "a"), ("user", "hello"), ("assistant", "turn"), ("user", "found")]
    said = [{"role": role, "content": text} for role, text in opening]
    told = dataclasses.replace(played, texts=(*said, *played.texts[1:]), privileged={"chart": {"facts": "ill"}})
    assert told.opening == tuple(said)
    said[1] = {"role": "user", "content": "ill hello"}
    assert opening_with_chart(told, "facts", session.chat) == session.chat.opening_ids(said)


def test_a_head_with_an_adapter_is_refused(base, tmp_path):
    lora = LORA.model_copy(update={"target_modules": ("lm_head",)})
    with pytest.raises(TrainingError, match=r"share one head; leave it out of train_doctor\.lora"):
        open_session(untied(base, tmp_path), lora)


def test_charts_that_are_mostly_too_long_are_told_of(base, caplog):
    metrics = step(open_session(base), ("hello " * 500, "hello"))
    assert metrics["distillation/untaught"] == 0.5
    assert not caplog.messages
    metrics = step(open_session(base), ("hello " * 500, "hello " * 400))
    assert metrics["distillation/untaught"] == 1
    assert "with their charts 100% of the episodes are longer than the" in caplog.text
