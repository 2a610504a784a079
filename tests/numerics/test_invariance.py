"""How a mini-batch is cut, padded and ordered changes no gradient; what is not finite changes no weight; the accounting
rule.
"""

import copy
import dataclasses
import math

import pytest
import torch

import rl.learner
import rl.records
from rl.algorithms import make_algorithm
from rl.algorithms.base import REFERENCE
from rl.batching import computed_tokens, micro_batches, sibling_batches, token_logprobs
from rl.branches import Branch
from rl.config import SFTParams
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from rl.learner import Learner, Sampler
from rl.models import new_model, new_tokenizer
from rl.optimizers import gradient_steps_per_rollout
from rl.policy import Policy
from rl.ranking import continuation_logprobs
from rl.records import logprobs_of
from rl.sft import Example, train_supervised
from tests.handing import learner_for, watched
from tests.recipes import recipe

OPTIMIZER = {
    "num_epochs": 1, "mini_batch_size": 64, "learning_rate": 1e-3, "warmup_rollout_steps": 0, "weight_decay": 0.01, "max_grad_norm": 1.0, "micro_batch_tokens": 256, "gradient_checkpointing": False, "compile": False,
}  # fmt: skip
TEMPERATURE = 0.8


@pytest.fixture(scope="module")
def base():
    return new_model(new_tokenizer(["a"], 280), width=32, layers=2, heads=2, context=64, seed=1)


@pytest.fixture(scope="module")
def experience(base) -> tuple[list[Trajectory], list[Scores]]:
    """Four groups of four, three to forty tokens each, sampled by a policy that differs a little from the one that
    learns.
    """
    generator = torch.Generator().manual_seed(0)

    def draw(low: int, high: int, size: int) -> list[int]:
        return torch.randint(low, high, (size,), generator=generator).tolist()

    tokens = [draw(5, 260, size) for size in draw(3, 40, 16)]
    masks = [[0, *draw(0, 2, len(ids) - 2), 1] for ids in tokens]
    logprobs = [[0.0] * len(ids) for ids in tokens]
    for batch in micro_batches(tokens, masks, 10**6):
        with torch.no_grad():
            logprob_N, _ = token_logprobs(base, batch, TEMPERATURE)
        noise_N = 0.2 * torch.randn(logprob_N.shape, generator=generator)
        for row, place, logprob in zip(
            batch.row_N.tolist(), (batch.source_N + 1).tolist(), (logprob_N + noise_N).tolist(), strict=True
        ):
            logprobs[batch.index[row]][place] = logprob
    trajectories = [
        Trajectory(
            episode_id=f"g{i // 4}/{i % 4}",
            case_id=f"g{i // 4}",
            group_id=f"g{i // 4}",
            sample=i % 4,
            policy_version=0,
            turn_budget=1,
            token_ids=tuple(t),
            logprobs=tuple(p),
            loss_mask=tuple(m),
            turns=((1, len(t)),),
            texts=({"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}),
            events=({},),
            stop_reason="ended",
            privileged={"chart": {"facts": "abcd"[i // 4]}},
            started_s=0.0,
            ended_s=1.0,
        )
        for i, (t, p, m) in enumerate(zip(tokens, logprobs, masks, strict=True))
    ]
    return trajectories, [
        Scores(t.episode_id, ({"outcome": reward / 7},)) for t, reward in zip(trajectories, draw(0, 8, 16), strict=True)
    ]


def new_learner(base, prompts: int = 4, **optimizer) -> Learner:
    numbers = recipe(
        "grpo",
        group_size=4,
        credit="episode",
        own_turn=[],
        own_turn_weight=1.0,
        divide_by_std="group",
        eps=1e-6,
        clip_low=0.2,
        clip_high=0.2,
        optimizer=OPTIMIZER | optimizer,
    )
    return learner_for(copy.deepcopy(base), make_algorithm(numbers), prompts, TEMPERATURE, seed=0)


def one_update(base, trajectories, scores, **optimizer) -> tuple[dict, dict, dict]:
    """Gradient (before clipping), weights after one update, metrics."""
    unclipped = new_learner(base, **optimizer | {"max_grad_norm": 1e9})
    gradient = watched(unclipped)
    unclipped.update(trajectories, scores, step=1)
    learner = new_learner(base, **optimizer)
    metrics = learner.update(trajectories, scores, step=1)
    return gradient, learner.model.state_dict(), metrics


def assert_same(one, other) -> None:
    (gradient, weights, metrics), (gradient_2, weights_2, metrics_2) = one, other
    largest = max(float(g.abs().max()) for g in gradient.values())
    for name in gradient:
        torch.testing.assert_close(
            gradient[name],
            gradient_2[name],
            atol=1e-5 * largest,
            rtol=1e-4,
            msg=lambda text, name=name: f"{name}: {text}",
        )
    for name in weights:
        torch.testing.assert_close(
            weights[name], weights_2[name], atol=1e-5, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert metrics == pytest.approx(metrics_2, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("micro_batch_tokens", [1, 64, 100_000])
def test_micro_batches_change_nothing(base, experience, micro_batch_tokens):
    """One sequence at a time (no padding at all), a few, all at once (much padding)."""
    assert_same(one_update(base, *experience), one_update(base, *experience, micro_batch_tokens=micro_batch_tokens))


def test_order_within_the_mini_batch_changes_nothing(base, experience):
    trajectories, scores = experience
    order = torch.randperm(len(trajectories), generator=torch.Generator().manual_seed(1)).tolist()
    assert_same(
        one_update(base, trajectories, scores),
        one_update(base, [trajectories[i] for i in order], [scores[i] for i in order]),
    )


def test_padding_changes_nothing(base, experience):
    """Tokens after the last loss position are like padding: whatever they are, nobody sees them."""
    trajectories, scores = experience
    padded = [
        dataclasses.replace(
            t, token_ids=t.token_ids + (i % 3,) * i, logprobs=t.logprobs + (0.0,) * i, loss_mask=t.loss_mask + (0,) * i
        )
        for i, t in enumerate(trajectories)
    ]
    assert_same(one_update(base, trajectories, scores), one_update(base, padded, scores))


def test_an_episode_without_sampled_tokens_changes_nothing(base, experience):
    trajectories, scores = experience
    failed = dataclasses.replace(trajectories[0], episode_id="g0/9", loss_mask=(0,) * len(trajectories[0].loss_mask))
    assert_same(
        one_update(base, trajectories, scores),
        one_update(base, [failed, *trajectories], [Scores("g0/9", ({"outcome": 50.0},)), *scores]),
    )


def test_experience_of_the_policy_before_the_last_update_is_taken_where_it_is_allowed(base, experience):
    trajectories, scores = experience
    params = OPTIMIZER | {"mini_batch_size": 64}
    algorithm = make_algorithm(recipe("grpo", group_size=4, sampler_correction={"level": "token"}, optimizer=params))
    learner = learner_for(
        copy.deepcopy(base), algorithm, 4, TEMPERATURE, seed=0, sampler=Sampler(exact=False, staleness=1)
    )
    assert learner.update(trajectories, scores, step=1)["staleness"] == 0
    again = learner.update(trajectories, scores, step=2)
    assert again["staleness"] == 1
    assert again["sampler_mismatch_mean"] > 0
    with pytest.raises(TrainingError, match="training off-policy is refused"):
        learner.update(trajectories, scores, step=3)


@pytest.mark.parametrize("name", ["grpo", "gspo", "cispo", "ppo"])
def test_a_phase_of_one_gradient_step_takes_its_own_log_probabilities_for_the_old_ones(
    base, experience, monkeypatch, name
):
    """They are those of a pass before it, which is left out; of two steps the second needs that pass."""
    looked = []
    monkeypatch.setattr(rl.learner, "logprobs_of", lambda *given: looked.append(name) or logprobs_of(*given))

    def update(**changes) -> tuple[dict, dict, dict]:
        params = OPTIMIZER | {"max_grad_norm": 1e9, "mini_batch_size": 64, "num_epochs": 1} | changes
        critic = {"critic": {"warmup_rollout_steps": 0}} if name == "ppo" else {}
        algorithm = make_algorithm(recipe(name, group_size=4, optimizer=params, **critic))
        sampler = Sampler(exact=False, staleness=0)
        learner = learner_for(copy.deepcopy(base), algorithm, 4, TEMPERATURE, seed=0, sampler=sampler)
        gradient = watched(learner)
        metrics = learner.update(*experience, step=1)
        return gradient, learner.model.state_dict(), metrics

    once = update()
    assert not looked
    update(num_epochs=2)
    update(mini_batch_size=8)
    assert len(looked) == 2
    monkeypatch.setattr(Learner, "_is_one_step", lambda *_: False)
    assert_same(once, update())
    assert len(looked) == 3


def test_gradient_checkpointing_changes_nothing(base, experience):
    plain, checkpointed = one_update(base, *experience), one_update(base, *experience, gradient_checkpointing=True)
    assert_same(plain, checkpointed)
    assert new_learner(base, gradient_checkpointing=True).model.is_gradient_checkpointing


@pytest.mark.slow
@pytest.mark.course
@pytest.mark.timeout(600)
def test_compiling_changes_rounding_alone(base, experience):
    assert_same(one_update(base, *experience), one_update(base, *experience, compile=True))


@pytest.fixture(scope="module")
def siblings(experience) -> tuple[list[Trajectory], list[Scores]]:
    """The same, each group behind an opening of its own that is longer than what follows; one group has openings that
    differ.
    """
    trajectories, scores = experience
    made = []
    for i, t in enumerate(trajectories):
        group = int(t.group_id[1])
        opening = tuple((7 * group + 3 * k + (i if group == 3 else 0)) % 250 + 5 for k in range(24))
        tail, first = slice(None, 20), t.loss_mask.index(1)
        mask = (0,) * len(opening) + ((0,) * first + t.loss_mask[first:])[tail]
        ids = (
            (opening[: len(opening) - first] + t.token_ids[:first] + t.token_ids[first:])[: len(mask)]
            if group == 3
            else (opening + (9,) * first + t.token_ids[first:])[: len(mask)]
        )
        mask = mask[: len(ids)]
        made.append(
            dataclasses.replace(
                t, token_ids=ids, loss_mask=mask, logprobs=(-1.5,) * len(ids), turns=((mask.index(1), len(ids)),)
            )
        )
    return made, scores


@pytest.mark.parametrize("name", ["grpo", "gspo", "dr_grpo", "dpo"])
def test_an_opening_computed_once_for_siblings_changes_nothing(base, siblings, monkeypatch, name):
    shared = [
        b.sibling_N is not None
        for b in sibling_batches([t.token_ids for t in siblings[0]], [t.loss_mask for t in siblings[0]], 256)
    ]
    assert 0 < sum(shared) < len(shared)

    def update() -> tuple[dict, dict, dict]:
        params = OPTIMIZER | {"max_grad_norm": 1e9, "mini_batch_size": 4 if name == "dpo" else 64}
        learner = learner_for(
            copy.deepcopy(base),
            make_algorithm(
                recipe(name, group_size=4, optimizer=params, **({"pairs_per_group": 2} if name == "dpo" else {}))
            ),
            4,
            TEMPERATURE,
            seed=0,
            frozen={REFERENCE: base},
            sampler=Sampler(exact=False, staleness=0),
        )
        gradient = watched(learner)
        metrics = learner.update(*siblings, step=1)
        return gradient, learner.model.state_dict(), metrics

    together = update()
    for module in (rl.learner, rl.records):
        monkeypatch.setattr(module, "sibling_batches", micro_batches)
    monkeypatch.setattr(
        rl.learner,
        "sibling_batches",
        lambda tokens, masks, budget, units: micro_batches(tokens, masks, budget, None, units),
    )
    assert_same(together, update())


def test_siblings_share_a_row_where_the_opening_is_long(base):
    tokens = [[1] * 30 + [k] * 10 for k in range(6)] + [[2] * 5 + [k] * 10 for k in range(3)] + [[3] * 9]
    masks = [[0] * 30 + [1] * 10] * 6 + [[0] * 5 + [1] * 10] * 3 + [[0] * 9]
    batches = list(sibling_batches(tokens, masks, 200))
    assert [b.index for b in batches if b.sibling_N is not None] == [(4, 5, 0, 1, 2, 3)]  # rows by length
    (row,) = [b for b in batches if b.sibling_N is not None]
    assert row.token_BT.shape == (2, 30 + 4 * 9)
    assert row.sequence_N.tolist() == [i for i in range(6) for _ in range(10)]
    assert sorted(i for b in batches for i in b.index) == list(range(10))
    pairs = list(sibling_batches(tokens[:6], masks[:6], 200, [(0, 5), (1, 4), (2, 3)]))
    assert [b.index for b in pairs] == [(2, 3, 0, 5, 1, 4)]


def test_micro_batches_keep_every_sequence_and_the_budget():
    tokens = [[i] * (1 + 7 * i % 12) for i in range(30)]
    masks = [[0] + [1] * (len(t) - 1) for t in tokens]
    for budget in (1, 20, 10**6):
        batches = list(micro_batches(tokens, masks, budget))
        assert sorted(i for b in batches for i in b.index) == list(range(30))
        assert all(b.token_BT.numel() <= budget or len(b.index) == 1 for b in batches)
        assert sum(len(b.row_N) for b in batches) == sum(map(sum, masks))


def test_branches_are_as_if_each_continued_the_sequence_alone(base):
    """Five branches on one trunk (two of them go on from a third), none on another: the same log-probabilities as plain
    sequences, however they are padded.
    """
    trunk, short = list(range(20, 32)), [40, 41, 42]
    first, last = Branch(4, (50, 51, 52), (1.0, 0.5, 0.0)), Branch(9, (60,), (2.0,))
    branches = [
        first,
        last,
        Branch(9, (61, 62), (0.0, 1.0)),
        Branch(4, (53, 54), (0.25, 1.0), after=0),
        Branch(4, (55,), (1.0,), after=0),
    ]
    masks = [[0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1], [0, 1, 1]]
    plain = [(trunk, masks[0]), (short, masks[1])]
    for b in branches:
        before = trunk[: b.cut] + (list(branches[b.after].token_ids) if b.after is not None else [])
        plain.append((before + list(b.token_ids), [0] * len(before) + [int(w > 0) for w in b.loss_weight]))
    expected = {}
    for i, (ids, mask) in enumerate(plain):
        (batch,) = micro_batches([ids], [mask], 100)
        expected[i] = token_logprobs(base, batch, TEMPERATURE)[0].tolist()
    assert computed_tokens(trunk, branches) == 12 + 3 + 0 + 1 + 1 + 0
    (batch,) = micro_batches([trunk, short], masks, 100, [branches, []])
    assert batch.token_BT.shape == (2, computed_tokens(trunk, branches))
    logprobs = token_logprobs(base, batch, TEMPERATURE)[0].tolist()
    order = [1, 0, *range(2, 7)]  # shorter rows first, branches after their trunk
    assert logprobs == pytest.approx([value for i in order for value in expected[i]], abs=1e-5)
    weights = [
        1.0 if i < 2 else w for i in order for w in ([1] * sum(masks[i]) if i < 2 else branches[i - 2].loss_weight) if w
    ]
    assert batch.weight_N.tolist() == weights


def test_branches_weigh_in_the_loss_as_said(base):
    """One branch of weight 3 is three of weight 1; the mean is over weights."""
    thrice, once = ((Branch(2, (30, 31), (w, w)),) * n for w, n in ((1.0, 3), (3.0, 1)))
    trained = []
    for branches in (thrice, once):
        model = copy.deepcopy(base)
        params = SFTParams(
            epochs=1,
            batch_size=1,
            optimizer="adamw",
            learning_rate=1e-3,
            warmup_share=0.0,
            weight_decay=0.0,
            max_grad_norm=1.0,
            micro_batch_tokens=100,
            seed=0,
        )
        trained.append(
            (
                train_supervised(Policy(model), [Example([5, 6, 7, 8], [0, 1, 1, 0], branches)], params),
                model.state_dict(),
            )
        )
    assert trained[0][0] == pytest.approx(trained[1][0], abs=1e-5)
    for name in trained[0][1]:
        torch.testing.assert_close(trained[0][1][name], trained[1][1][name], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "candidates",
    [[[20], [21, 22, 23], [21, 24]], [[30, 31, 20], [30, 31, 22, 23], [30, 31, 24]], [[20, 21], [20, 21, 22]], [[7]]],
)
def test_ranking_is_the_sum_of_the_continuations_logprobs(base, candidates):
    prefixes = [[10, 11, 12, 13], [14], [15, 16, 17, 18, 19, 20, 21]]
    scores_PC = continuation_logprobs(Policy(base.eval()), prefixes, candidates)
    for prefix, scores_C in zip(prefixes, scores_PC, strict=True):
        expected = []
        for candidate in candidates:
            (batch,) = micro_batches([prefix + candidate], [[0] * len(prefix) + [1] * len(candidate)], 100)
            expected.append(token_logprobs(base, batch, 1.0)[0].sum().item())
        assert scores_C.tolist() == pytest.approx(expected, abs=1e-4)


def test_supervised_training_does_not_see_micro_batches(base, experience):
    examples = [
        Example(t.token_ids, t.loss_mask, (Branch(2, (30, 31), (1.0, 1.0)),) * (i % 3 == 0))
        for i, t in enumerate(experience[0])
    ]
    weights, losses = [], []
    for micro_batch_tokens in (1, 100_000):
        model = copy.deepcopy(base)
        params = SFTParams(
            epochs=1,
            batch_size=8,
            optimizer="adamw",
            learning_rate=1e-3,
            warmup_share=0.5,
            weight_decay=0.0,
            max_grad_norm=1.0,
            micro_batch_tokens=micro_batch_tokens,
            seed=0,
        )
        losses.append(train_supervised(Policy(model), examples, params))
        weights.append(model.state_dict())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for name in weights[0]:
        torch.testing.assert_close(weights[0][name], weights[1][name], atol=1e-5, rtol=0)


def test_a_batch_of_another_policy_version_is_refused(base, experience):
    trajectories, scores = experience
    learner = new_learner(base)
    for stale in (-1, 1):
        batch = [*trajectories[:-1], dataclasses.replace(trajectories[-1], policy_version=stale)]
        with pytest.raises(
            TrainingError, match=rf"g3/3 was sampled by policy version {stale}, the learner is at 0.*roll out again"
        ):
            learner.update(batch, scores, step=1)
    assert all(
        torch.equal(a, b) for a, b in zip(learner.model.state_dict().values(), base.state_dict().values(), strict=True)
    )
    learner.update(trajectories, scores, step=1)
    assert learner.policy_version == 1
    with pytest.raises(TrainingError, match="policy version 0, the learner is at 1"):
        learner.update(trajectories, scores, step=2)


def test_the_accounting_rule(base):
    """512 prompts x 16 samples, mini-batch 512, one epoch: 16 gradient steps; 20 rollout steps of warm-up are 320."""
    assert gradient_steps_per_rollout(8192, 512, 1) == 16
    assert gradient_steps_per_rollout(8193, 512, 3) == 51
    learner = new_learner(base, prompts=2048, mini_batch_size=512, warmup_rollout_steps=20)
    assert learner.optimizers.warmup_gradient_steps(*learner.algorithm.passes(0)) == 320


def learning_rates(learner: Learner) -> list[float]:
    seen: list[float] = []
    learner.optimizers.of["policy"].register_step_pre_hook(
        lambda optimizer, *_: seen.append(optimizer.param_groups[0]["lr"])
    )
    return seen


def test_the_learning_rate_warms_up_over_the_planned_gradient_steps(base, experience):
    """Two rollout steps of 2 epochs x 2 mini-batches: eight gradient steps, then constant.

    The metric is the last rate used.
    """
    learner = new_learner(base, mini_batch_size=8, num_epochs=2, warmup_rollout_steps=2, learning_rate=1e-3)
    seen = learning_rates(learner)
    for step in (1, 2, 3):
        metrics = learner.update(
            [dataclasses.replace(t, policy_version=step - 1) for t in experience[0]], experience[1], step
        )
        assert metrics["gradient_steps"] == 4
        assert metrics["learning_rate"] == seen[-1]
    assert seen == pytest.approx([k / 8 * 1e-3 for k in range(1, 9)] + [1e-3] * 4)


def test_a_step_that_rewards_move_nothing_by_is_told(base, experience):
    """Equal rewards, nothing to learn from, or no finite update; and a step like any other."""
    trajectories, scores = experience

    def stalled(played, scored) -> float:
        return new_learner(base).update(played, scored, step=1)["stalled"]

    assert stalled(trajectories, scores) == 0
    assert stalled(trajectories, [Scores(s.episode_id, ({"outcome": 0.3},)) for s in scores]) == 1
    assert stalled([], []) == 1
    assert stalled([dataclasses.replace(t, loss_mask=(0,) * len(t.loss_mask)) for t in trajectories], scores) == 1
    assert stalled(poisoned(trajectories), scores) == 1


def poisoned(trajectories: list[Trajectory]) -> list[Trajectory]:
    """One recorded log-probability is not a number, so one mini-batch's gradient is not either."""
    t = trajectories[0]
    place = t.loss_mask.index(1)
    return [
        dataclasses.replace(t, logprobs=(*t.logprobs[:place], math.nan, *t.logprobs[place + 1 :])),
        *trajectories[1:],
    ]


def test_an_update_that_is_not_finite_is_skipped_and_counted(base, experience, caplog):
    """One bad mini-batch of two: the other one is applied, and neither moments nor warm-up move for the bad one."""
    trajectories, scores = experience
    learner = new_learner(base, mini_batch_size=8, warmup_rollout_steps=2)
    seen = learning_rates(learner)
    metrics = learner.update(poisoned(trajectories), scores, step=1)
    assert (metrics["skipped_updates"], metrics["gradient_steps"]) == (1, 2)
    assert all(map(math.isfinite, metrics.values()))  # means over what was applied
    assert learner.optimizers.gradient_step == len(seen) == 1
    assert "gradient norm is nan" in caplog.text
    assert all(bool(p.isfinite().all()) for p in learner.model.parameters())
    assert learner.optimizers.skipped_in_a_row in (0, 1)
    learner.update([dataclasses.replace(t, policy_version=1) for t in trajectories], scores, step=2)
    assert learner.optimizers.skipped_in_a_row == 0
    assert learner.optimizers.gradient_step == 3


def test_the_third_skip_in_a_row_ends_the_training(base, experience):
    trajectories, scores = experience
    learner = new_learner(base)
    for version in (0, 1):
        batch = [dataclasses.replace(t, policy_version=version) for t in poisoned(trajectories)]
        assert learner.update(batch, scores, step=version + 1)["skipped_updates"] == 1
    assert all(
        torch.equal(a, b) for a, b in zip(learner.model.state_dict().values(), base.state_dict().values(), strict=True)
    )
    with pytest.raises(TrainingError, match=r"3 gradient steps in a row .* lower optimizer.learning_rate"):
        learner.update([dataclasses.replace(t, policy_version=2) for t in poisoned(trajectories)], scores, step=3)


def test_a_poisoned_weight_ends_the_training(base, experience):
    trajectories, scores = experience
    learner = new_learner(base, mini_batch_size=4)
    with torch.no_grad():
        learner.model.get_input_embeddings().weight[7, 3] = (
            torch.nan
        )  # the head is tied to it: every logit row has a nan
    with pytest.raises(TrainingError, match=r"3 gradient steps in a row"):
        learner.update(trajectories, scores, step=1)
