"""Experience on disk: what was written is read, or nothing is."""

import hashlib
import math
from dataclasses import replace

import pytest

from rl.errors import TrainingError
from rl.experience import Scores, Trajectory, intact, read_scores, read_trajectories, write_scores, write_trajectories

TALK = Trajectory(
    episode_id="fall/3", case_id="fall", group_id="7/fall", sample=3, policy_version=6, turn_budget=4,
    token_ids=(1, 5, 9, 4, 2, 8, 3, 7, 7), logprobs=(0.0, 0.0, -0.1, -1e-30, 0.0, 0.0, 0.0, -math.pi, -1 / 3), loss_mask=(0, 0, 1, 1, 0, 0, 0, 1, 1),
    turns=((2, 4), (7, 9)),
    texts=({"role": "user", "content": "我胸痛 \"since\"\n\x00 yesterday \U0001f912"}, {"role": "assistant", "content": ""}),
    events=({"kind": "ask", "revealed": ["f1", "f2"], "share": 0.1}, {"kind": "answer", "right": None, "by": {"id": 3}}),
    stop_reason="answered", privileged={"diagnosis": "D1", "facts": []}, started_s=0.25, ended_s=1.125,
)  # fmt: skip
EMPTY = Trajectory(
    episode_id="x/0",
    case_id="x",
    group_id="7/x",
    sample=0,
    policy_version=6,
    turn_budget=1,
    token_ids=(),
    logprobs=(),
    loss_mask=(),
    turns=(),
    texts=(),
    events=(),
    stop_reason="failed",
    privileged={},
    started_s=0.0,
    ended_s=0.0,
)


def test_a_rollout_comes_back_equal(tmp_path):
    path = tmp_path / "step_7" / "rollout.parquet"
    digest = write_trajectories([TALK, EMPTY], path)
    assert read_trajectories(path) == [TALK, EMPTY]
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest() == path.with_suffix(".sha256").read_text()
    assert sorted(p.name for p in path.parent.iterdir()) == ["rollout.parquet", "rollout.sha256"]


def test_the_same_rollout_has_the_same_hash(tmp_path):
    assert write_trajectories([TALK], tmp_path / "a.parquet") == write_trajectories([TALK], tmp_path / "b.parquet")
    assert write_trajectories([TALK], tmp_path / "a.parquet") != write_trajectories([EMPTY], tmp_path / "b.parquet")
    assert read_trajectories(tmp_path / "b.parquet") == [EMPTY]


def test_no_trajectories_are_a_rollout_too(tmp_path):
    write_trajectories([], tmp_path / "rollout.parquet")
    assert read_trajectories(tmp_path / "rollout.parquet") == []


def test_scores_add_up_and_come_back_equal(tmp_path):
    scores = Scores("fall/3", ({"fact": 0.25, "turn_cost": -0.125}, {"outcome": 1.0, "turn_cost": -0.125}))
    assert scores.turn_rewards == [0.125, 0.875]
    assert scores.reward == 1.0
    assert Scores("x/0", ()).reward == 0.0
    write_scores([scores, Scores("x/0", ())], tmp_path / "scores.parquet")
    assert read_scores(tmp_path / "scores.parquet") == [scores, Scores("x/0", ())]


def test_sampled_tokens_are_the_masked_ones():
    assert (TALK.sampled_tokens, EMPTY.sampled_tokens) == (4, 0)


def test_an_opening_ends_before_the_first_turn_that_was_played():
    said = [{"role": role, "content": role} for role in ("system", "user", "assistant", "user", "assistant", "user")]
    spans = [((1, 2), (3, 4)), ((3, 4),), ()]
    openings = [len(replace(TALK, texts=tuple(said), turns=turns).opening) for turns in spans]
    assert openings == [2, 4, 6]


DAMAGES = {
    "a flipped byte": lambda path: path.write_bytes(
        path.read_bytes()[:-9] + bytes([path.read_bytes()[-9] ^ 1]) + path.read_bytes()[-8:]
    ),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
    "without its hash": lambda path: path.with_suffix(".sha256").unlink(),
    "with another's hash": lambda path: path.with_suffix(".sha256").write_text("0" * 64),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, damage):
    for name, write, read in (
        ("rollout", write_trajectories, read_trajectories),
        ("scores", write_scores, read_scores),
    ):
        path = tmp_path / f"{name}.parquet"
        write([TALK] if name == "rollout" else [Scores("x/0", ())], path)
        assert intact(path)
        damage(path)
        assert not intact(path)
        with pytest.raises(TrainingError, match=rf"{name}\.parquet is missing or damaged; delete its folder") as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_a_file_is_frozen():
    with pytest.raises(AttributeError):
        TALK.stop_reason = "other"
