"""GRPO by hand: advantages, the clipped loss, and a naive derivation in float64."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.algorithms import make_algorithm
from rl.algorithms.advantages import deviation, group_centred, turn_returns
from rl.algorithms.base import TokenBatch
from rl.algorithms.losses import Totals, clipped_ratio_loss
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from rl.models import new_model, new_tokenizer
from rl.records import make_records
from tests.handing import learner_for, watched
from tests.recipes import recipe

RECIPE = recipe(
    "grpo",
    group_size=2,
    credit="episode",
    discount=0.5,
    own_turn=[],
    own_turn_weight=1.0,
    divide_by_std="group",
    eps=1e-6,
    clip_low=0.2,
    clip_high=0.3,
    optimizer={"max_grad_norm": 1e9},
)


def test_turn_returns():
    assert turn_returns([1.0, 2.0, 3.0], 0.5) == [2.75, 3.5, 3.0]
    assert turn_returns([1.0, 2.0, 3.0], 1.0) == [6.0, 5.0, 3.0]
    assert turn_returns([1.0, 2.0, 3.0], 0.0) == [1.0, 2.0, 3.0]
    assert turn_returns([], 0.5) == []


def test_episode_credit_by_hand():
    """R = 2, 4, 4, 6: mean 4, population deviation sqrt(2)."""
    centred = group_centred([[2.0], [4.0], [4.0], [6.0]])
    assert centred == [[-2.0], [0.0], [0.0], [2.0]]
    assert deviation(centred) == pytest.approx(math.sqrt(2), rel=1e-12)


def test_turn_credit_by_hand():
    """Turn 1: R = 3, 1, 5, mean 3.

    Turn 2: 1, -, 2, mean 1.5. Turn 3: one member alone, 0. Deviation over all six entries: sqrt(8.5 / 6).
    """
    centred = group_centred([[3.0, 1.0], [1.0], [5.0, 2.0, 9.0]])
    assert centred == [[0.0, -0.5], [-2.0], [2.0, 0.5, 0.0]]
    assert deviation(centred) == pytest.approx(math.sqrt(8.5 / 6), rel=1e-12)
    assert deviation([]) == 0.0


def test_a_group_of_one_is_refused():
    with pytest.raises(
        TrainingError, match="group_size 1 leaves no other sample to compare with; set group_size to 2 or more"
    ):
        group_centred([[1.0]])
    with pytest.raises(ValueError, match="group_size"):
        make_algorithm(RECIPE | {"group_size": 1})


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    rewards=st.lists(st.floats(-10, 10).map(lambda x: round(x, 3)), min_size=2, max_size=8, unique=True),
    shift=st.floats(-5, 5),
    scale=st.floats(0.1, 10),
)
def test_divided_advantages_ignore_shift_and_scale(rewards, shift, scale):
    """Centred, of unit deviation, and the same whatever unit the reward has."""
    group = [episode("g", i, ((0, 1),), 1) for i in range(len(rewards))]
    grpo = make_algorithm(RECIPE | {"eps": 1e-12})
    one = np.array(advantages(grpo, group, [score(x) for x in rewards])[0])
    moved = np.array(advantages(grpo, group, [score(x * scale + shift) for x in rewards])[0])
    assert abs(one.mean()) < 1e-6
    np.testing.assert_allclose(one.std(), 1, rtol=1e-6)
    np.testing.assert_allclose(one, moved, atol=1e-5)


CLIP_CASES = {  # ratio, advantage: loss, d loss / d logprob, clip in force
    "good and already likelier": (1.5, 2.0, -2.6, 0.0, True),
    "good and still less likely": (0.5, 2.0, -1.0, -1.0, False),
    "bad and already less likely": (0.5, -2.0, 1.6, 0.0, True),
    "bad and still likelier": (1.5, -2.0, 3.0, 3.0, False),
    "good, inside": (1.1, 2.0, -2.2, -2.2, False),
    "bad, inside": (0.9, -2.0, 1.8, 1.8, False),
    "first update, good": (1.0, 3.0, -3.0, -3.0, False),
    "no advantage": (1.5, 0.0, 0.0, 0.0, False),
}


@pytest.mark.parametrize(("ratio", "advantage", "loss", "slope", "clipped"), CLIP_CASES.values(), ids=CLIP_CASES)
def test_the_clip_by_hand(ratio, advantage, loss, slope, clipped):
    """Bounds 0.8 and 1.3; where the clip is in force the gradient is zero, elsewhere it is -ratio x advantage."""
    log_ratio_N = torch.tensor([math.log(ratio)], requires_grad=True)
    loss_N, clipped_N = clipped_ratio_loss(log_ratio_N, torch.tensor([advantage]), 0.2, 0.3)
    loss_N.sum().backward()
    assert (loss_N.item(), log_ratio_N.grad.item()) == pytest.approx((loss, slope), abs=1e-6)
    assert bool(clipped_N) == clipped


def test_loss_and_gradient_agree_with_a_naive_float64_derivation():
    generator = torch.Generator().manual_seed(0)
    new, old, advantage = (torch.randn(500, generator=generator, dtype=torch.float64) for _ in range(3))
    old = new + 0.4 * old
    logprob_N = new.float().requires_grad_()
    one, zero = torch.ones(500), torch.zeros(500)
    batch = TokenBatch(
        sequence_N=zero.long(),
        unit_S=zero[:1].long(),
        logprob_N=logprob_N,
        entropy_N=zero,
        value_N=None,
        old_logprob_N=old.float(),
        frozen_logprob_N={},
        old_value_N=None,
        advantage_N=advantage.float(),
        weight_N=one,
        target_N=None,
        total=Totals(800, 4, 4),
    )
    loss, means = make_algorithm(RECIPE).loss(batch)
    loss.backward()

    leaf = new.clone().requires_grad_()
    terms = []
    for i in range(500):
        ratio = torch.exp(leaf[i] - old[i])
        terms.append(min(ratio * advantage[i], max(0.8, min(1.3, ratio)) * advantage[i], key=lambda x: x.detach()))
    naive = -sum(terms) / 800
    naive.backward()
    assert loss.item() == pytest.approx(naive.item(), abs=1e-6)
    torch.testing.assert_close(logprob_N.grad.double(), leaf.grad, atol=1e-6, rtol=0)

    ratio = torch.exp(new - old)
    clipped = ((advantage > 0) & (ratio > 1.3)) | ((advantage < 0) & (ratio < 0.8))
    assert int(clipped.sum()) > 50
    assert means["clip_fraction"] == pytest.approx(int(clipped.sum()) / 800)
    assert means["policy_loss"] == pytest.approx(naive.item(), abs=1e-6)
    assert means["kl_to_sampler"] == pytest.approx(float((ratio - 1 - (new - old)).sum()) / 800, rel=1e-4)


def episode(group: str, sample: int, turns: tuple[tuple[int, int], ...], size: int, failed: bool = False) -> Trajectory:
    mask = [0] * size
    for start, end in turns:
        mask[start:end] = [0 if failed else 1] * (end - start)
    ids = tuple(5 + (7 * i + 3 * sample + len(group)) % 60 for i in range(size))
    logprobs = tuple(-3.0 - 0.1 * ((i + sample) % 5) if one else 0.0 for i, one in enumerate(mask))
    return Trajectory(
        episode_id=f"{group}/{sample}",
        case_id=group,
        group_id=group,
        sample=sample,
        policy_version=0,
        turn_budget=3,
        token_ids=ids,
        logprobs=logprobs,
        loss_mask=tuple(mask),
        turns=turns,
        texts=(),
        events=(),
        stop_reason="ended",
        privileged={},
        started_s=0.0,
        ended_s=1.0,
    )


def score(*turn_rewards: float) -> Scores:
    return Scores("", tuple({"a": reward / 2, "b": reward / 2} for reward in turn_rewards))


def advantages(algorithm, trajectories, scores):
    """Of every action token, and the metrics."""
    lesson = algorithm.signal(make_records(trajectories, scores, None, {}, None))
    return [list(values) for values in lesson.advantage], lesson.metrics


TRAJECTORIES = [
    episode("g", 0, ((2, 4), (6, 7)), 7),
    episode("g", 1, ((2, 3),), 3),
    episode("h", 0, ((1, 3),), 4),
    episode("h", 1, ((1, 2),), 3, failed=True),
]
SCORES = [score(1.0, 2.0), score(-1.0), score(5.0), score(-9.0)]


def test_advantages_reach_the_tokens_of_their_turns():
    """Group g scores 3 and -1; in group h one episode failed, so the other has nobody to be compared with."""
    spread, metrics = advantages(make_algorithm(RECIPE | {"divide_by_std": "none"}), TRAJECTORIES, SCORES)
    assert spread == [[2, 2, 2], [-2], [0, 0], []]
    assert metrics == {"groups": 2.0, "groups_without_signal": 1.0}
    by_turn, _ = advantages(make_algorithm(RECIPE | {"divide_by_std": "none", "credit": "turn"}), TRAJECTORIES, SCORES)
    assert by_turn == [[1.5, 1.5, 0], [-1.5], [0, 0], []]  # returns 1 + 0.5 x 2 = 2, 2 against -1


def test_own_turn_components_credit_only_their_turn_by_hand():
    """Group g: two turns earn i = .4, 0 and outcome 0, 1; the other i = .2 and outcome 0.

    Group h: i = 1 and 0, no outcome. Discount 1.

    Returns without i: turn 1 1 against 0, turn 2 1 alone; own: .4 against .2 -> +-.1, and +-.5 in h.
    """
    scores = [
        Scores("", ({"i": 0.4, "o": 0.0}, {"i": 0.0, "o": 1.0})),
        Scores("", ({"i": 0.2, "o": 0.0},)),
        Scores("", ({"i": 1.0},)),
        Scores("", ({"i": 0.0},)),
    ]
    group = [
        episode("g", 0, ((0, 1), (2, 3)), 3),
        episode("g", 1, ((0, 1),), 1),
        episode("h", 0, ((0, 1),), 1),
        episode("h", 1, ((0, 1),), 1),
    ]
    numbers = RECIPE | {
        "credit": "turn",
        "discount": 1.0,
        "own_turn": ["i"],
        "own_turn_weight": 2.0,
        "divide_by_std": "none",
        "eps": 1e-9,
    }
    assert flat(numbers, group, scores) == pytest.approx([0.5 + 0.2, 0.0, -0.5 - 0.2, 1.0, -1.0])
    s, s_own = math.sqrt(0.5 / 5), math.sqrt((2 * 0.01 + 2 * 0.25) / 5)  # over the five turns of the step; turn 2 is 0
    assert flat(numbers | {"divide_by_std": "step"}, group, scores) == pytest.approx(
        [0.5 / s + 0.2 / s_own, 0, -0.5 / s - 0.2 / s_own, 1 / s_own, -1 / s_own]
    )
    # over the three turns of g; in h the own part is +-1 and the rest 0
    s, s_own = (
        math.sqrt(0.5 / 3),
        math.sqrt(0.02 / 3),
    )
    assert flat(numbers | {"divide_by_std": "group"}, group, scores) == pytest.approx(
        [0.5 / s + 0.2 / s_own, 0, -0.5 / s - 0.2 / s_own, 2, -2]
    )
    assert flat(numbers | {"credit": "episode"}, group, scores) == pytest.approx([0.6, 0.6, -0.6, 0.5, -0.5])


def test_turns_of_another_kind_are_compared_on_own_components_with_each_other_alone():
    """Two ask (i = .4, .2) and two search (i = 0, and one costs .1 of its return): among four a search is the worst."""
    scores = [Scores("", (turn,)) for turn in ({"i": 0.4}, {"i": 0.2}, {"i": 0.0, "s": 0.0}, {"i": 0.0, "s": -0.1})]
    group = [episode("g", i, ((0, 1),), 1) for i in range(4)]
    numbers = RECIPE | {"credit": "turn", "own_turn": ["i"], "own_turn_weight": 2.0, "divide_by_std": "none"}
    returns = [0.025, 0.025, 0.025, -0.075]
    for kinds, own in (((), (0.25, 0.05, -0.15, -0.15)), (("s",), (0.1, -0.1, 0.0, 0.0))):
        expected = [r + 2 * o for r, o in zip(returns, own, strict=True)]
        assert flat(numbers | {"own_turn_kinds": list(kinds)}, group, scores) == pytest.approx(expected)


def flat(numbers, trajectories, scores):
    return [x for values in advantages(make_algorithm(numbers), trajectories, scores)[0] for x in values]


def test_a_group_that_always_scores_the_same_teaches_nothing_under_any_division():
    group = [episode("g", i, ((0, 1),), 1) for i in range(3)] + [episode("h", i, ((0, 1),), 1) for i in range(2)]
    scores = [score(0.7)] * 3 + [score(1.0), score(0.0)]
    for division in ("none", "group", "step"):
        spread, metrics = advantages(make_algorithm(RECIPE | {"divide_by_std": division}), group, scores)
        np.testing.assert_allclose(spread[:3], 0, atol=1e-9)  # 0.7 has no exact mean
        assert metrics == {"groups": 2.0, "groups_without_signal": 1.0}


@pytest.mark.parametrize("credit", ["episode", "turn"])
def test_the_learners_gradient_is_that_of_the_formula(credit):
    """Model, batching, advantages and loss together, against a token-by-token float64 derivation."""
    model = new_model(new_tokenizer(["a"], 280), width=32, layers=2, heads=2, context=16, seed=3)
    naive = copy.deepcopy(model).double()
    learner = learner_for(model, make_algorithm(RECIPE | {"credit": credit}), prompts=2, temperature=0.7, seed=0)
    more = [episode("h", 2, ((1, 2), (3, 4)), 4)]
    trajectories, scores = TRAJECTORIES + more, [*SCORES, score(1.0, 1.0)]
    gradient = watched(learner)
    metrics = learner.update(trajectories, scores, step=1)

    returns = {
        "episode": [[3.0, 3.0], [-1.0], [5.0], [], [2.0, 2.0]],
        "turn": [[2.0, 2.0], [-1.0], [5.0], [], [1.5, 1.0]],
    }[credit]
    loss, count = torch.zeros((), dtype=torch.float64), sum(t.sampled_tokens for t in trajectories)
    for members in ([0, 1], [2, 4]):
        entries = [(i, k) for i in members for k in range(len(returns[i]))]
        mean = {k: np.mean([returns[i][k] for i, kk in entries if kk == k]) for _, k in entries}
        if credit == "episode":
            entries, mean = [(i, 0) for i in members], dict.fromkeys((0, 1), np.mean([returns[i][0] for i in members]))
        std = np.sqrt(np.mean([(returns[i][k] - mean[k]) ** 2 for i, k in entries]))
        for i in members:
            t = trajectories[i]
            logits_TV = naive(input_ids=torch.tensor([t.token_ids])).logits[0] / 0.7
            for k, (start, end) in enumerate(t.turns):
                advantage = (returns[i][k] - mean[k]) / (std + 1e-6)
                for place in range(start, end):
                    ratio = torch.exp(
                        torch.log_softmax(logits_TV[place - 1], -1)[t.token_ids[place]] - t.logprobs[place]
                    )
                    loss = loss - torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.3) * advantage) / count
    loss.backward()
    assert metrics["policy_loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert metrics["gradient_steps"] == 1
    for name, theirs in naive.named_parameters():
        torch.testing.assert_close(
            gradient[name].double(), theirs.grad, atol=1e-6, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
