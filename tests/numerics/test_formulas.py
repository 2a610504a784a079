"""The pure functions, with numbers worked out by hand."""

import math
from typing import get_args

import numpy as np
import pytest
import torch

from rl.algorithms import make_algorithm
from rl.algorithms.advantages import (
    discounted,
    explained_variance,
    generalized_advantages,
    leave_one_out,
    normalised_rewards,
    whitened,
)
from rl.algorithms.base import TokenRecord
from rl.algorithms.correction import CorrectionParams, mismatch, sampler_weights
from rl.algorithms.dapo import OverlongParams, overlong_penalty
from rl.algorithms.kl import Estimator, KLCoefficient, KLParams, kl_estimate
from rl.algorithms.losses import (
    Totals,
    clipped_ratio_loss,
    clipped_value_loss,
    clipped_weight_loss,
    preference_loss,
    sequence_log_ratio,
    token_shares,
)
from rl.algorithms.sampling import DynamicSamplingParams, informative_groups, keep_informative
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from tests.recipes import recipe


def test_leave_one_out():
    """R = 1, 2, 6: 1 - 4, 2 - 3.5, 6 - 1.5. Turn 2 has one member, turn 3 none else."""
    assert leave_one_out([[1.0], [2.0], [6.0]]) == [[-3.0], [-1.5], [4.5]]
    assert leave_one_out([[1.0, 5.0], [2.0], [6.0]]) == [[-3.0, 0.0], [-1.5], [4.5]]
    assert leave_one_out([[1.0, 5.0], [2.0, 3.0], [6.0]], [[0, 1], [1, 1], [0]]) == [[-5.0, 2.0], [0.0, -2.0], [5.0]]
    with pytest.raises(TrainingError, match="group_size 1"):
        leave_one_out([[1.0]])


def test_generalized_advantages():
    """r = 0, 1; V = .5, .2; gamma .9, lambda .5.

    Ended: delta = .9 x .2 - .5 = -.32, 1 - .2 = .8; A = -.32 + .45 x .8 = .04, .8.
    """
    reward, value = np.array([0.0, 1.0]), np.array([0.5, 0.2])
    assert generalized_advantages(reward, value, 0.0, 0.9, 0.5) == pytest.approx([0.04, 0.8])
    # cut: .9 x 1 more at the end
    assert generalized_advantages(reward, value, 1.0, 0.9, 0.5) == pytest.approx([-0.32 + 0.45 * 1.7, 1.7])
    assert generalized_advantages(reward, value, 0.0, 1.0, 1.0) == pytest.approx([0.5, 0.8])  # return minus V
    assert discounted(np.array([1.0, 0.0, 2.0]), 0.5) == pytest.approx([1.5, 1.0, 2.0])


def test_whitening_counts_every_token_once():
    """1, 3 and 5: mean 3, deviation sqrt(8 / 3)."""
    one, other = whitened([np.array([1.0, 3.0]), np.array([5.0])], 0.0)
    s = math.sqrt(8 / 3)
    assert (list(one), list(other)) == ([pytest.approx(-2 / s), pytest.approx(0.0)], [pytest.approx(2 / s)])
    assert whitened([], 0.0) == []


def test_whitening_by_parts_centres_each_part_and_divides_by_one_deviation():
    """Parts 0 and 1 have means 2 and 10; what is left is -1, 1 and -2, 2, of variance 2.5."""
    one, other = whitened([np.array([1.0, 8.0]), np.array([3.0, 12.0])], 0.0, [np.array([0, 1]), np.array([0, 1])])
    assert one == pytest.approx(np.array([-1.0, -2.0]) / np.sqrt(2.5))
    assert other == pytest.approx(np.array([1.0, 2.0]) / np.sqrt(2.5))


def test_reinforce_pp_as_shipped_is_that_of_its_paper():
    """One reward an episode, whitened over the step's tokens: no turn is better off for being early.

    Consultations of three turns with shaping rewards, worth .5, 1.1, .2 and .6; population deviation of these.
    """
    shaped = [(0.3, 0.2, 0.0), (0.4, -0.3, 1.0), (0.2, 0.0, 0.0), (0.1, 0.5, 0.0)]
    numbers = recipe("reinforce_pp", kl={"place": "none", "coefficient": 0.0})
    records = [
        TokenRecord(
            group_id=f"case {place}",
            scores=Scores("e", tuple({"information": reward} for reward in rewards)),
            turn_A=np.array([0, 0, 1, 2, 2]),
            truncated=False,
            sampler_logprob_A=np.zeros(5),
            old_logprob_A=np.zeros(5),
            frozen_logprob_A={},
            privileged={},
            value_A=None,
            next_value=0.0,
        )
        for place, rewards in enumerate(shaped)
    ]
    advantage = make_algorithm(numbers).signal(records).advantage
    totals = np.array([0.5, 1.1, 0.2, 0.6])
    expected = (totals - totals.mean()) / (totals.std() + numbers["eps"])
    assert np.array(advantage) == pytest.approx(np.repeat(expected, 5).reshape(4, 5))
    assert np.array(advantage).mean(axis=0) == pytest.approx(np.zeros(5))


def test_a_large_eps_takes_no_group_for_one_without_signal():
    """Returns .1 and -.1 differ, however little is made of it."""
    for name in ("grpo", "reinforce_pp"):
        numbers = recipe(name, eps=0.5, credit="episode", kl={"place": "none", "coefficient": 0.0})
        records = [
            TokenRecord(
                group_id="g",
                scores=Scores("e", ({"outcome": reward},)),
                turn_A=np.array([0]),
                truncated=False,
                sampler_logprob_A=np.zeros(1),
                old_logprob_A=np.zeros(1),
                frozen_logprob_A={},
                privileged={},
                value_A=None,
                next_value=0.0,
            )
            for reward in (0.1, -0.1)
        ]
        assert make_algorithm(numbers).signal(records).metrics == {"groups": 1.0, "groups_without_signal": 0.0}


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("grpo", {"own_turn_weight": math.inf}),
        ("grpo", {"entropy_coefficient": math.inf}),
        ("grpo", {"kl": {"coefficient": math.inf}}),
        ("grpo", {"eps": math.inf}),
        ("reinforce_pp", {"eps": math.inf}),
        ("ppo", {"eps": math.inf}),
        ("ppo", {"critic": {"loss_weight": math.inf}}),
        ("dapo", {"overlong": {"penalty": math.inf}}),
        ("dpo", {"beta": math.inf}),
        ("dpo", {"chosen_weight": math.inf}),
        ("ppo_roa", {"regularisation": {"coefficient": math.inf}}),
        ("privileged_distillation", {"distillation": {"coefficient": math.inf}}),
    ],
)
def test_an_infinite_weight_is_refused_where_it_would_make_every_loss_nan(name, numbers):
    with pytest.raises(ValueError, match="finite number"):
        make_algorithm(recipe(name, **numbers))


@pytest.mark.parametrize("baseline", ["none", "group"])
def test_reinforce_pp_blames_no_turn_of_consultations_that_are_all_alike(baseline):
    """Returns 1.2 and 1.0 of the two turns: with one mean for both, the second would have a negative advantage."""
    numbers = recipe(
        "reinforce_pp", credit="turn", baseline=baseline, group_size=2, kl={"place": "none", "coefficient": 0.0}
    )
    scores = Scores("e", ({"information": 0.2}, {"outcome": 1.0}))
    records = [
        TokenRecord(
            group_id=group,
            scores=scores,
            turn_A=np.array([0, 0, 1, 1]),
            truncated=False,
            sampler_logprob_A=np.zeros(4),
            old_logprob_A=np.zeros(4),
            frozen_logprob_A={},
            privileged={},
            value_A=None,
            next_value=0.0,
        )
        for group in "aabb"
    ]
    assert all(
        np.array_equal(advantage, np.zeros(4)) for advantage in make_algorithm(numbers).signal(records).advantage
    )


def test_reward_normalisation():
    """Group a: 1, 3 (mean 2, deviation sqrt 2 with n - 1); b: alone, keeps its reward.

    Batch: 1, 3, 8, mean 4, deviation sqrt 13.
    """
    rewards, groups = [1.0, 3.0, 8.0], ["a", "a", "b"]
    assert normalised_rewards(rewards, groups, "grpo", 0.0) == pytest.approx([-1 / math.sqrt(2), 1 / math.sqrt(2), 8.0])
    assert normalised_rewards(rewards, groups, "brpo", 0.0) == pytest.approx(
        [-3 / math.sqrt(13), -1 / math.sqrt(13), 4 / math.sqrt(13)]
    )
    assert normalised_rewards(rewards, groups, "arpo", 0.0) == rewards


def test_rewards_are_never_normalised_twice():
    """Only PPO takes the setting; those that normalise themselves do not know it, and per-turn rewards have no one
    reward to normalise.
    """
    for name in ("grpo", "dr_grpo", "rloo", "dapo", "gspo", "cispo", "reinforce_pp"):
        with pytest.raises(ValueError, match="reward_normalisation"):
            make_algorithm(recipe(name) | {"reward_normalisation": "grpo"})
    with pytest.raises(ValueError, match="set credit: episode"):
        make_algorithm(recipe("ppo", credit="turn", reward_normalisation="brpo"))


def test_explained_variance():
    target = np.array([1.0, 2.0, 3.0])
    assert explained_variance(target, target) == 1.0
    assert explained_variance(np.full(3, 2.0), target) == pytest.approx(0.0)
    assert explained_variance(-target, target) == pytest.approx(-3.0)
    assert math.isnan(explained_variance(target, np.ones(3)))
    assert math.isnan(explained_variance(target, 0.1 * target - (0.1 * target - 0.7)))  # .7 but for rounding


@pytest.mark.parametrize(
    ("estimator", "value"), [("k1", 0.5), ("abs", 0.5), ("mse", 0.125), ("k3", math.exp(-0.5) - 0.5)]
)
def test_kl_estimators(estimator, value):
    assert kl_estimate(torch.tensor([0.5, -0.5]), estimator).tolist() == pytest.approx(
        [value, {"k1": -0.5, "k3": math.exp(0.5) - 1.5}.get(estimator, value)]
    )


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_unbiased_estimators_have_the_kl_as_their_mean(estimator):
    p, q = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64), torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    assert float((p * kl_estimate((p / q).log(), estimator)).sum()) == pytest.approx(
        float((p * (p / q).log()).sum()), rel=1e-12
    )


def test_what_is_in_the_loss_has_a_gradient_of_a_kl():
    """Expected over all tokens: of k1 there is none; mse has that of KL(policy || reference), k3 that of
    KL(reference || policy); abs has neither.
    """
    logit = torch.tensor([0.4, -0.3, 0.9], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    logprob = torch.log_softmax(logit, 0)
    own = logprob.detach().exp()

    def gradient(value):
        return torch.autograd.grad(value, logit, retain_graph=True)[0]

    expected = {
        name: gradient((own * kl_estimate(logprob - reference.log(), name)).sum()) for name in get_args(Estimator)
    }
    reverse = gradient((logprob.exp() * (logprob - reference.log())).sum())
    forward = gradient((reference * (reference.log() - logprob)).sum())
    torch.testing.assert_close(expected["k1"], torch.zeros_like(logit), rtol=0, atol=1e-12)
    torch.testing.assert_close(expected["mse"], reverse)
    torch.testing.assert_close(expected["k3"], forward)
    for kl in (reverse, forward):
        assert torch.nn.functional.cosine_similarity(expected["abs"], kl, 0) < 0.999


@pytest.mark.parametrize("estimator", ["k1", "abs"])
def test_an_estimator_without_that_gradient_is_refused_in_the_loss(estimator):
    numbers = {"coefficient": 0.1, "estimator": estimator, "target": math.inf, "horizon": 1.0}
    with pytest.raises(ValueError, match=f"estimator is {estimator}.*set estimator: mse or k3, or place: reward"):
        KLParams(place="loss", **numbers)
    assert KLParams(place="reward", **numbers).estimator == estimator
    assert KLParams(place="none", **numbers).estimator == estimator


def test_the_kl_coefficient_adapts():
    """Twice the target: error clipped to .2, 100 of 1000 trajectories: x 1.02; at .9 of it: x (1 - .1 x .1); fixed:
    unchanged.
    """
    params = KLParams(place="loss", estimator="k3", coefficient=0.5, target=0.01, horizon=1000)
    coefficient = KLCoefficient(params)
    coefficient.adapt(0.02, 100)
    assert coefficient.value == pytest.approx(0.51)
    coefficient.adapt(0.009, 100)
    assert coefficient.value == pytest.approx(0.51 * 0.99)
    fixed = KLCoefficient(params.model_copy(update={"target": math.inf}))
    fixed.adapt(5.0, 100)
    assert fixed.value == 0.5
    with pytest.raises(ValueError, match="place: none"):
        KLParams(place="loss", estimator="k3", coefficient=0.0, target=1.0, horizon=1.0)


def test_sampler_weights():
    """Trainer finds .2 and .4 nats more: e^.2, e^.4; in all e^.6."""
    old, sampler = np.array([-1.0, -1.0]), np.array([-1.2, -1.4])

    def weights(level, mode, lower, upper):
        return sampler_weights(old, sampler, CorrectionParams(level=level, mode=mode, lower=lower, upper=upper))

    assert weights("none", "clip", 1.0, 1.0) == pytest.approx([1, 1])
    assert weights("token", "clip", 1.0, 1.3) == pytest.approx([math.exp(0.2), 1.3])
    assert weights("token", "mask", 0.0, 1.3) == pytest.approx([math.exp(0.2), 0])
    assert weights("sequence", "clip", 0.5, 2.0) == pytest.approx([math.exp(0.6)] * 2)
    assert weights("sequence", "mask", 0.5, 1.5) == pytest.approx([0, 0])
    found = mismatch(old, sampler)
    assert (found["sampler_mismatch_mean"], found["sampler_mismatch_max"]) == pytest.approx((0.3, 0.4))
    assert found["sampler_mismatch_k3"] == pytest.approx((math.exp(0.2) - 1.2 + math.exp(0.4) - 1.4) / 2)
    assert mismatch(np.zeros(0), np.zeros(0)) == {}


def test_masking_has_two_bounds_and_clipping_one():
    """Weights of .4, .5 and 2: what the trainer finds far less likely drops out too, or keeps its small weight."""
    sampler = np.zeros(3)
    old = np.log([0.4, 0.5, 2.0])
    mask = CorrectionParams(level="token", mode="mask", lower=0.5 - 1e-9, upper=2.0 + 1e-9)
    assert sampler_weights(old, sampler, mask) == pytest.approx([0, 0.5, 2])
    clip = mask.model_copy(update={"mode": "clip"})
    assert sampler_weights(old, sampler, clip) == pytest.approx([0.4, 0.5, 2])


def test_dual_clip():
    """A = -2, ratio 5, bound 3: the loss stops at 6 and its gradient at 0; a positive advantage is untouched."""
    log_ratio = torch.tensor([math.log(5.0), math.log(2.0), math.log(0.9)], requires_grad=True)
    loss, clipped = clipped_ratio_loss(log_ratio, torch.tensor([-2.0, -2.0, 2.0]), 0.2, 0.2, dual_clip=3.0)
    loss.sum().backward()
    assert loss.tolist() == pytest.approx([6.0, 4.0, -1.8])
    assert log_ratio.grad.tolist() == pytest.approx([0.0, 4.0, -1.8])
    assert clipped.tolist() == [True, False, False]


def test_clipped_weight():
    """CISPO: ratio 2 bounded to 1.3, ratio .5 left alone (lower side open); the gradient is -weight x A, never 0."""
    logprob = torch.tensor([-1.0, -1.0], requires_grad=True)
    loss, clipped = clipped_weight_loss(
        logprob, torch.log(torch.tensor([2.0, 0.5])), torch.tensor([1.0, 1.0]), 1.0, 0.3
    )
    loss.sum().backward()
    assert loss.tolist() == pytest.approx([1.3, 0.5])
    assert logprob.grad.tolist() == pytest.approx([-1.3, -0.5])
    assert clipped.tolist() == [True, False]


def test_sequence_ratio():
    """Log-ratios .1, .3 and -.2: means .2 and -.2; each token's gradient is its own."""
    logprob = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    found = sequence_log_ratio(logprob - torch.tensor([-1.1, -2.3, -2.8]), logprob, torch.tensor([0, 0, 1]))
    found[0].backward()
    assert found.tolist() == pytest.approx([0.2, 0.2, -0.2], abs=1e-6)
    assert logprob.grad.tolist() == [1.0, 0.0, 0.0]


def test_token_shares():
    """Sequences of 2 and 1 tokens; the mini-batch has 10 tokens in 4 sequences."""
    sequence, totals = torch.tensor([0, 0, 1]), Totals(10, 4, 4)
    assert token_shares(sequence, "token", totals, 5).tolist() == pytest.approx([0.1] * 3)
    assert token_shares(sequence, "sequence", totals, 5).tolist() == pytest.approx([1 / 8, 1 / 8, 1 / 4])
    assert token_shares(sequence, "constant", totals, 5).tolist() == pytest.approx([1 / 20] * 3)


def test_clipped_value():
    """Old 1, bound .2. V 1.5, target 2: 1.2 is worse, (.8)^2 / 2. V 1.5, target 0: the plain one is worse."""
    value = torch.tensor([1.5, 1.5, 1.1], requires_grad=True)
    loss, clipped = clipped_value_loss(value, torch.ones(3), torch.tensor([2.0, 0.0, 2.0]), 0.2)
    loss.sum().backward()
    assert loss.tolist() == pytest.approx([0.32, 1.125, 0.405])
    assert value.grad.tolist() == pytest.approx([0.0, 1.5, -0.9])
    assert clipped.tolist() == [True, False, False]


def test_preference_losses():
    """Margin 2, beta .5: -log sigma(1) = .3133; smoothed by .1: + .1 x 1; ipo: (2 - 1)^2."""
    margin = torch.tensor([2.0])
    assert preference_loss(margin, "sigmoid", 0.5, 0.0).item() == pytest.approx(math.log(1 + math.exp(-1)))
    assert preference_loss(margin, "sigmoid", 0.5, 0.1).item() == pytest.approx(
        0.9 * math.log(1 + math.exp(-1)) + 0.1 * math.log(1 + math.exp(1))
    )
    assert preference_loss(margin, "ipo", 0.5, 0.0).item() == pytest.approx(1.0)
    with pytest.raises(ValueError, match="label_smoothing"):
        make_algorithm(recipe("dpo", variant="ipo", label_smoothing=0.1))


def test_overlong_penalty():
    """Free up to 6 of 10 tokens, then linear to 2."""
    params = OverlongParams(max_tokens=10, buffer_tokens=4, penalty=2.0, filter=True)
    assert [overlong_penalty(n, params) for n in (3, 6, 7, 10, 50)] == pytest.approx([0, 0, 0.5, 2, 2])
    with pytest.raises(ValueError, match="buffer_tokens 11 is more than max_tokens 10"):
        OverlongParams(max_tokens=10, buffer_tokens=11, penalty=2.0, filter=True)


def test_groups_without_signal_are_dropped_and_counted():
    """Group a differs in the component, b in another one only, c failed but for one, d differs."""
    rewards = {"a": [1.0, 0.0], "b": [1.0, 1.0], "c": [1.0, 0.0], "d": [0.0, 1.0]}
    trajectories, scores = [], []
    for group, values in rewards.items():
        for sample, value in enumerate(values):
            mask = (0, 0 if group == "c" and sample else 1)
            trajectories.append(
                Trajectory(
                    episode_id=f"{group}/{sample}",
                    case_id="",
                    group_id=group,
                    sample=sample,
                    policy_version=0,
                    turn_budget=1,
                    token_ids=(5, 6),
                    logprobs=(0.0, -1.0),
                    loss_mask=mask,
                    turns=((1, 2),),
                    texts=(),
                    events=({},),
                    stop_reason="ended",
                    privileged={},
                    started_s=0.0,
                    ended_s=0.0,
                )
            )
            scores.append(Scores(f"{group}/{sample}", ({"diagnosis": value, "turn": -0.1 * sample},)))
    by_component, by_reward = (
        DynamicSamplingParams(max_num_gen_batches=2, by=by, tolerance=1e-6) for by in ("diagnosis", "reward")
    )
    assert informative_groups(trajectories, scores, by_component) == ["a", "d"]
    assert informative_groups(trajectories, scores, by_reward) == ["a", "b", "d"]
    kept, kept_scores, metrics = keep_informative(trajectories, scores, by_reward, groups=2)
    assert [t.episode_id for t in kept] == [s.episode_id for s in kept_scores] == ["a/0", "a/1", "b/0", "b/1"]
    assert metrics == {"groups_drawn": 4.0, "groups_dropped": 1.0, "groups_spare": 1.0}
