"""Every algorithm's gradient against a token-by-token float64 derivation, and what must not change it."""

import copy
import dataclasses
import math
import random

import pytest
import torch

from rl.algorithms import ALGORITHMS, make_algorithm
from rl.algorithms.base import REFERENCE
from rl.experience import Scores, Trajectory
from rl.learner import Learner
from rl.models import new_model, new_tokenizer
from rl.policy import Policy
from rl.records import logprobs_of
from tests.handing import learner_for, watched
from tests.numerics import naive
from tests.recipes import recipe

CORRECTED = {"level": "token", "mode": "clip", "upper": 1.1}
REFERENCED = {"coefficient": 0.3}
VARIANTS = {
    "grpo": {"own_turn": ["b"], "own_turn_weight": 0.5, "discount": 0.9},
    "grpo, turns of two kinds": {"own_turn": ["b"], "own_turn_kinds": ["c"], "own_turn_weight": 3.0},
    "grpo, as in the paper": {
        "credit": "episode",
        "own_turn": [],
        "divide_by_std": "group",
        "aggregation": "sequence",
        "kl": {"place": "loss", "estimator": "k3", "coefficient": 0.04},
    },
    "grpo, entropy and token correction": {
        "own_turn": [],
        "entropy_coefficient": 0.01,
        "sampler_correction": CORRECTED,
    },
    "grpo, token correction, masked": {
        "own_turn": [],
        "sampler_correction": {"level": "token", "mode": "mask", "lower": 0.97, "upper": 1.03},
    },
    "grpo, sequence correction, masked": {
        "own_turn": [],
        "sampler_correction": {"level": "sequence", "mode": "mask", "lower": 0.9, "upper": 1.05},
    },
    "dr_grpo": {"own_turn": [], "constant_length": 9},
    "dr_grpo, kl mse": {
        "own_turn": [],
        "constant_length": 9,
        "credit": "episode",
        "kl": {"place": "loss", "estimator": "mse", **REFERENCED},
    },
    "rloo": {"own_turn": [], "credit": "episode", "kl": {"place": "reward", "estimator": "k1", **REFERENCED}},
    "rloo, turn credit": {
        "own_turn": ["b"],
        "own_turn_kinds": ["c"],
        "kl": {"place": "reward", "estimator": "abs", **REFERENCED},
    },
    "reinforce_pp": {
        "baseline": "none",
        "credit": "episode",
        "kl": {"place": "reward", "estimator": "k1", **REFERENCED},
    },
    "reinforce_pp, group baseline": {
        "baseline": "group",
        "discount": 0.95,
        "kl": {"place": "reward", "estimator": "k3", **REFERENCED},
    },
    "reinforce_pp, turn credit": {
        "baseline": "none",
        "credit": "turn",
        "discount": 0.95,
        "kl": {"place": "reward", "estimator": "k1", **REFERENCED},
    },
    "reinforce_pp, group baseline, turn credit": {
        "baseline": "group",
        "credit": "turn",
        "kl": {"place": "reward", "estimator": "k1", **REFERENCED},
    },
    "dapo": {
        "own_turn": [],
        "credit": "episode",
        "divide_by_std": "group",
        "overlong": {"max_tokens": 8, "buffer_tokens": 5, "penalty": 0.7},
    },
    "dapo, without filter": {
        "own_turn": ["b"],
        "overlong": {"max_tokens": 8, "buffer_tokens": 5, "penalty": 0.7, "filter": False},
    },
    "gspo": {"own_turn": [], "credit": "episode", "divide_by_std": "group", "clip_low": 0.02, "clip_high": 0.03},
    "gspo, turn credit": {"own_turn": [], "clip_low": 0.02, "clip_high": 0.03},
    "cispo": {"own_turn": [], "credit": "episode", "divide_by_std": "group", "clip_high": 0.1},
    "ppo": {"discount": 0.98, "gae_lambda": 0.9},
    "ppo, dual clip, bounded value": {
        "credit": "episode",
        "dual_clip": 1.2,
        "whiten": False,
        "critic": {"value_clip": 0.05},
        "kl": {"place": "reward", "estimator": "k1", **REFERENCED},
    },
    "ppo, shared trunk": {"critic": {"trunk": "shared"}},
    "dpo": {"beta": 0.3, "pairs_per_group": 1},
    "dpo, smoothed": {"pairs_per_group": 1, "beta": 0.3, "label_smoothing": 0.1, "margin": 0.5, "chosen_weight": 0.2},
    "online_dpo, ipo": {"pairs_per_group": 1, "variant": "ipo", "beta": 0.4},
}


def named(variant: str, **optimizer) -> dict:
    numbers = recipe(variant.split(",")[0], group_size=3, **VARIANTS[variant])
    whole = {"mini_batch_size": 64, "max_grad_norm": 1e9, "micro_batch_tokens": 60}
    return numbers | {"optimizer": numbers["optimizer"] | whole | optimizer}


@pytest.fixture(scope="module")
def models():
    """A policy and another model as its reference, with weights that matter."""
    tokenizer = new_tokenizer(["a"], 280)
    pair = [new_model(tokenizer, width=32, layers=2, heads=2, context=64, seed=seed).eval() for seed in (3, 4)]
    with torch.no_grad():
        for model in pair:
            for parameter in model.parameters():
                if parameter.ndim == 2:
                    parameter *= 3
    return pair


@pytest.fixture(scope="module")
def experience(models) -> tuple[list[Trajectory], list[Scores]]:
    """Three groups of three, one to three turns each; one failed, two were cut by the token limit."""
    rng = random.Random(5)
    trajectories, scores = [], []
    for i in range(9):
        ids, mask, turns = [rng.randrange(5, 260) for _ in range(3)], [0, 0, 0], []
        for _ in range(rng.randint(1, 3)):
            size = rng.randint(1, 4)
            turns.append((len(ids), len(ids) + size))
            for count, one in ((size, 1), (rng.randint(1, 3), 0)):
                ids += [rng.randrange(5, 260) for _ in range(count)]
                mask += [one] * count
        if i == 7:
            mask = [0] * len(mask)
        reason = "failed" if i == 7 else "out_of_tokens" if i in (2, 4) else "diagnosed"
        trajectories.append(
            Trajectory(
                episode_id=f"g{i // 3}/{i % 3}",
                case_id="c",
                group_id=f"g{i // 3}",
                sample=i % 3,
                policy_version=0,
                turn_budget=3,
                token_ids=tuple(ids),
                logprobs=(0.0,) * len(ids),
                loss_mask=tuple(mask),
                turns=tuple(turns),
                texts=(),
                events=({},),
                stop_reason=reason,
                privileged={},
                started_s=0.0,
                ended_s=1.0,
            )
        )
        earned = [{"a": rng.uniform(-1, 1), "b": rng.uniform(0, 0.5)} for _ in turns]
        apart = [{"c": 0.0} if (i + k) % 3 == 0 else {} for k in range(len(turns))]
        scores.append(Scores(f"g{i // 3}/{i % 3}", tuple(a | b for a, b in zip(earned, apart, strict=True))))
    recorded = logprobs_of(Policy(models[0]), trajectories, 10**6, naive.T)
    for i, (t, found) in enumerate(zip(trajectories, recorded, strict=True)):
        values = iter(found)
        trajectories[i] = dataclasses.replace(
            t, logprobs=tuple(float(next(values)) + rng.gauss(0, 0.15) if one else 0.0 for one in t.loss_mask)
        )
    return trajectories, scores


def learner_of(models, numbers) -> Learner:
    learner = learner_for(
        copy.deepcopy(models[0]),
        make_algorithm(numbers),
        prompts=3,
        temperature=naive.T,
        seed=0,
        frozen={REFERENCE: models[1]},
    )
    if learner.critic is not None:
        torch.manual_seed(0)
        torch.nn.init.normal_(learner.critic.head.weight, std=0.3)
    if numbers["name"] == "ppo":
        learner.algorithm.critic = learner.algorithm.critic.model_copy(update={"warmup_rollout_steps": 0})
    return learner


def updated(learner: Learner, trajectories, scores) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Gradients (float64) and metrics of one update."""
    found = watched(learner)
    metrics = learner.update(trajectories, scores, step=1)
    return {name: grad.double() for name, grad in found.items()}, metrics


def assert_same_gradients(one: dict, other: dict) -> None:
    largest = max(float(grad.abs().max()) for grad in one.values())
    assert largest > 1e-4
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(
            one[name],
            other[name],
            atol=1e-5 * max(largest, 1.0),
            rtol=1e-4,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def test_every_algorithm_has_a_variant_here():
    elsewhere = {"ppo_roa", "privileged_distillation"}  # test_privileged.py, test_self_distillation.py
    assert {variant.split(",")[0] for variant in VARIANTS} | elsewhere == set(ALGORITHMS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_learners_gradient_is_that_of_the_formula(models, experience, variant):
    numbers = named(variant)
    learner = learner_of(models, numbers)
    policy, reference = copy.deepcopy(models[0]).double(), copy.deepcopy(models[1]).double()
    critic64 = copy.deepcopy(learner.critic).double() if learner.critic is not None else None
    trajectories, scores = experience
    gradients, metrics = updated(learner, trajectories, scores)
    assert metrics["gradient_steps"] == 1

    if numbers["name"] in ("dpo", "online_dpo"):
        loss = naive.preference_loss(numbers, trajectories, scores, policy, reference)
    else:

        def values(t: Trajectory) -> torch.Tensor:
            trunk = critic64.trunk if critic64.trunk is not None else policy.model
            return critic64.head(trunk(input_ids=torch.tensor([t.token_ids])).last_hidden_state[0])[:, 0]

        loss = naive.policy_gradient_loss(numbers, trajectories, scores, policy, reference, values)
    loss.backward()
    expected = {name: p.grad for name, p in policy.named_parameters()}
    if critic64 is not None:
        expected |= {f"critic.{name}": p.grad for name, p in critic64.named_parameters()}
    assert_same_gradients(gradients, {name: grad for name, grad in expected.items() if grad is not None})


@pytest.mark.parametrize("variant", VARIANTS)
def test_cutting_padding_and_order_change_nothing(models, experience, variant):
    """Micro-batches of one unit or of all, trajectories and groups in another order."""
    trajectories, scores = experience
    found = []
    for micro_batch_tokens, order in ((1, range(9)), (100_000, range(9)), (70, [8, 6, 7, 2, 1, 0, 5, 3, 4])):
        learner = learner_of(models, named(variant, micro_batch_tokens=micro_batch_tokens))
        found.append(updated(learner, [trajectories[i] for i in order], [scores[i] for i in order]))
    for grads, metrics in found[1:]:
        assert_same_gradients(found[0][0], grads)
        assert metrics == pytest.approx(found[0][1], rel=1e-4, abs=1e-5, nan_ok=True)


def test_grpo_is_dapo_when_clips_aggregation_and_sampling_match(models, experience):
    """No penalty, no filter, nothing redrawn."""
    trajectories, scores = experience
    same = {"own_turn": [], "credit": "episode", "divide_by_std": "group"}
    grpo = recipe("grpo", group_size=3, aggregation="token", **same)
    dapo = recipe(
        "dapo",
        group_size=3,
        overlong={"penalty": 0.0, "filter": False},
        dynamic_sampling={"max_num_gen_batches": 1},
        **same,
    )
    one, other = (learner_of(models, numbers) for numbers in (grpo, dapo))
    assert_same_gradients(*(updated(learner, trajectories, scores)[0] for learner in (one, other)))


def test_ppo_without_a_critic_is_reinforce_with_the_mean_as_baseline(models, experience):
    """lambda = 1, V = 0, no KL: the advantage is the return; whitening makes it REINFORCE++ without its KL."""
    trajectories, scores = [list(x) for x in experience]
    scores = [
        s if t.stop_reason != "out_of_tokens" else Scores(s.episode_id, s.turns)
        for t, s in zip(trajectories, scores, strict=True)
    ]
    quiet = {"place": "none", "coefficient": 0.0}
    ppo = recipe("ppo", group_size=3, gae_lambda=1.0, discount=0.9, whiten=True, kl=quiet)
    ppo, reinforce = (
        numbers | {"credit": "episode"}
        for numbers in (ppo, recipe("reinforce_pp", group_size=3, baseline="none", discount=0.9, kl=quiet))
    )
    learners = [
        learner_for(copy.deepcopy(models[0]), make_algorithm(numbers), 3, naive.T, 0) for numbers in (ppo, reinforce)
    ]
    # its head is all zeros
    learners[0].algorithm.critic = learners[0].algorithm.critic.model_copy(update={"warmup_rollout_steps": 0})
    found = [updated(learner, trajectories, scores)[0] for learner in learners]
    assert_same_gradients(*({n: g for n, g in one.items() if not n.startswith("critic.")} for one in found))


def test_only_the_critic_learns_while_it_warms_up(models, experience):
    trajectories, scores = experience
    numbers = recipe("ppo", group_size=3, critic={"warmup_rollout_steps": 1})
    learner = learner_for(copy.deepcopy(models[0]), make_algorithm(numbers), 3, naive.T, 0)
    learner.update(trajectories, scores, step=1)
    assert all(
        torch.equal(a, b)
        for a, b in zip(learner.model.state_dict().values(), models[0].state_dict().values(), strict=True)
    )
    assert float(learner.critic.head.weight.abs().max()) > 0
    learner.update([dataclasses.replace(t, policy_version=1) for t in trajectories], scores, step=2)
    assert not all(
        torch.equal(a, b)
        for a, b in zip(learner.model.state_dict().values(), models[0].state_dict().values(), strict=True)
    )


def test_the_policys_rate_warms_up_over_its_own_updates(models, experience):
    """Two rollout steps of warm-up, two gradient steps each; the critic is alone in the first rollout step.

    The critic's rate has risen since its own first update; a run that goes on from a checkpoint agrees.
    """
    trajectories, scores = experience
    optimizer = {"num_epochs": 2, "mini_batch_size": 64, "warmup_rollout_steps": 2, "learning_rate": 1e-3}
    numbers = recipe(
        "ppo", group_size=3, critic={"warmup_rollout_steps": 1, "learning_rate": 1e-2}, optimizer=optimizer
    )
    learner = learner_for(copy.deepcopy(models[0]), make_algorithm(numbers), 3, naive.T, 0)
    rates: dict[str, list[float]] = {"policy": [], "critic": []}

    def watch(learner):
        for name, one in learner.optimizers.of.items():
            one.register_step_pre_hook(lambda o, *_, name=name: rates[name].append(o.param_groups[0]["lr"]))

    watch(learner)
    told = []
    for version in range(4):
        if version == 2:  # killed and gone on from a checkpoint
            state = learner.state()
            learner = learner_for(copy.deepcopy(learner.model), make_algorithm(numbers), 3, naive.T, 0)
            learner.load_state(state)
            watch(learner)
        batch = [dataclasses.replace(t, policy_version=version) for t in trajectories]
        told.append(learner.update(batch, scores, step=version + 1)["learning_rate"])
    assert rates["policy"] == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3, 1e-3])
    assert rates["critic"] == pytest.approx([0.25e-2, 0.5e-2, 0.75e-2, 1e-2, 1e-2, 1e-2, 1e-2, 1e-2])
    assert told == pytest.approx([0, 0.5e-3, 1e-3, 1e-3])


def test_mismatch_of_sampler_and_trainer_is_reported(models, experience):
    """The recorded log-probabilities have noise of .15; with or without a pass of its own the learner sees it."""
    trajectories, scores = experience
    for correction in ("none", "token"):
        learner = learner_of(models, recipe("grpo", group_size=3, sampler_correction={"level": correction}))
        metrics = learner.update(trajectories, scores, step=1)
        assert metrics["sampler_mismatch_mean"] == pytest.approx(0.15 * math.sqrt(2 / math.pi), rel=0.35)
        assert metrics["sampler_mismatch_max"] < 0.15 * 4
        assert 0 < metrics["sampler_mismatch_k3"] < 0.05


def test_a_learner_without_its_reference_is_refused(models):
    from rl.errors import TrainingError

    with pytest.raises(TrainingError, match=r"frozen models \(reference\)"):
        learner_for(models[0], make_algorithm(recipe("online_dpo")), 3, 1.0, 0)
