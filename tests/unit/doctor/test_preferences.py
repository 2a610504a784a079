"""Preference pairs out of stored experience: the best of a group against its worst."""

from dataclasses import replace

import pytest

from doctor.preferences import pairs, stored_pairs
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory, write_scores, write_trajectories

START = ({"role": "system", "content": "rules"}, {"role": "user", "content": "it hurts"})


def trajectory(group, sample, said, sampled=True):
    return Trajectory(
        episode_id=f"{group}/{sample}",
        case_id=group,
        group_id=group,
        sample=sample,
        policy_version=0,
        turn_budget=2,
        token_ids=(1, 2),
        logprobs=(0.0, -0.1),
        loss_mask=(0, int(sampled)),
        turns=((1, 2),),
        texts=(*START, {"role": "assistant", "content": said}),
        events=({"kind": "invalid"},),
        stop_reason="diagnosed",
        privileged={},
        started_s=0.0,
        ended_s=1.0,
    )


def score(value, of):
    return Scores(of.episode_id, ({"r": value},))


@pytest.fixture
def group():
    played = [trajectory("g", i, word) for i, word in enumerate(["middle", "best", "worst"])]
    return played, [score(value, t) for value, t in zip([0.5, 1.0, 0.0], played, strict=True)]


def test_best_against_worst_with_the_words_they_share_before(group):
    (row,) = pairs(*group, 0.1)
    assert row["prompt"] == list(START)
    assert [message["content"] for message in row["chosen"]] == ["best"]
    assert [message["content"] for message in row["rejected"]] == ["worst"]
    assert (row["chosen_reward"], row["rejected_reward"], row["group"]) == (1.0, 0.0, "g")


def test_what_stands_in_the_opening_was_said_by_nobody(group):
    played, scores = group
    searched = (*START, {"role": "assistant", "content": "search"}, {"role": "user", "content": "found"})
    played = [replace(one, texts=(*searched, one.texts[-1])) for one in played]
    (row,) = pairs(played, scores, 0.1)
    assert row["prompt"] == list(searched)
    assert [message["content"] for message in row["chosen"]] == ["best"]


def test_a_pair_that_is_near_is_none(group):
    assert pairs(*group, 1.0) == []


def test_groups_do_not_mix_and_silent_members_do_not_count(group):
    played, scores = group
    other = trajectory("h", 0, "alone")
    silent = trajectory("g", 3, "", sampled=False)
    rows = pairs([*played, other, silent], [*scores, score(9.0, other), score(-9.0, silent)], 0.1)
    assert [(row["group"], row["rejected_reward"]) for row in rows] == [("g", 0.0)]


def test_a_consultation_that_nobody_judged_is_not_the_worst(group):
    played, scores = group
    unjudged = trajectory("g", 3, "unjudged")
    rows = pairs(
        [*played, unjudged],
        [*[score(value, t) for value, t in zip((2, 3, 1), played, strict=True)], Scores("g/3", ())],
        0.1,
    )
    assert [(row["chosen_reward"], row["rejected_reward"]) for row in rows] == [(3, 1)]
    assert pairs([played[0], unjudged], [scores[0], Scores("g/3", ())], 0.1) == []


def test_all_rollouts_below_a_folder_are_read(group, tmp_path):
    played, scores = group
    for step in ("00001", "00002"):
        write_trajectories([replace(t, group_id=step) for t in played], tmp_path / step / "rollout.parquet")
        write_scores(scores, tmp_path / step / "scores.parquet")
    assert [row["group"] for row in stored_pairs(tmp_path, 0.1)] == ["00001", "00002"]
    assert len(stored_pairs(tmp_path / "00001", 0.1)) == 1
    with pytest.raises(TrainingError, match=r"more than 2\.0 apart; lower --margin"):
        stored_pairs(tmp_path, 2.0)


def test_a_folder_without_rollouts_and_a_margin_that_is_none_are_told(tmp_path):
    with pytest.raises(TrainingError, match=r"holds no rollout\.parquet; name the folder steps/"):
        stored_pairs(tmp_path, 0.1)
    for margin in (-1.0, float("nan")):
        with pytest.raises(TrainingError, match="give 0 or more reward units"):
            stored_pairs(tmp_path, margin)
