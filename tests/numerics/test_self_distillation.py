"""A policy that what it was teaches: the gradient against the formula, what changes nothing, and how the teacher follows."""

# ruff: noqa: F811  fixtures of other tests are arguments here

import copy
import dataclasses
import random
from typing import Any

import pytest
import torch

from rl.adapters import NAME, add_adapter, on_branch
from rl.algorithms import make_algorithm
from rl.batching import sibling_batches
from rl.chat import ChatFormat
from rl.config import LoraParams
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from rl.learner import Learner
from rl.parts import TEACHER
from rl.policies import policy_for
from tests.handing import learner_for, watched
from tests.numerics import naive
from tests.numerics.test_invariance import assert_same
from tests.numerics.test_privileged import CHARTS, base, chat  # noqa: F401  fixtures
from tests.recipes import recipe

SAID = ("a", "and", "c")


def opening(case: int, told: str = "") -> list[dict[str, str]]:
    """The rules, and what the patient said first, behind what only a teacher is told."""
    return [{"role": "system", "content": "ab"}, {"role": "user", "content": told + SAID[case]}]


@pytest.fixture(scope="module")
def experience(base, chat) -> tuple[list[Trajectory], list[Scores]]:
    """Three groups of three, one to three turns each; the last failed, one was cut by the token limit."""
    rng, trajectories = random.Random(5), []
    for i in range(9):
        ids, turns = chat.opening_ids(opening(i // 3)), []
        mask = [0] * len(ids)
        texts = opening(i // 3)
        for turn in range(rng.randint(1, 3)):
            new = chat.reply_ids("b") if turn else []
            said = [rng.randrange(5, 260) for _ in range(rng.randint(1, 3))] + [chat.end_id]
            turns.append((len(ids) + len(new), len(ids) + len(new) + len(said)))
            ids, mask = ids + new + said, mask + [0] * len(new) + [1] * len(said)
            texts += [{"role": "user", "content": "b"}] * bool(turn) + [{"role": "assistant", "content": "?"}]
        trajectories.append(
            Trajectory(
                episode_id=f"g{i // 3}/{i % 3}", case_id="c", group_id=f"g{i // 3}", sample=i % 3, policy_version=0,
                turn_budget=3, token_ids=tuple(ids), logprobs=(0.0,) * len(ids),
                loss_mask=tuple(mask) if i != 8 else (0,) * len(mask), turns=tuple(turns), texts=tuple(texts),
                events=({},), stop_reason={2: "out_of_tokens", 8: "failed"}.get(i, "diagnosed"),
                privileged={"chart": {"facts": CHARTS[i // 3]}}, started_s=0.0, ended_s=1.0,
            )
        )  # fmt: skip
    noisy = [
        dataclasses.replace(t, logprobs=tuple(value + rng.gauss(0, 0.15) for value in logprobs(base, t)))
        for t in trajectories
    ]
    rewards = random.Random(7)
    scores = [Scores(t.episode_id, tuple({"a": rewards.uniform(-1, 1)} for _ in t.turns)) for t in noisy]
    return noisy, scores


def logprobs(model: Any, t: Trajectory) -> list[float]:
    found = {place: value.item() for place, value in naive.token_logprobs(model, t).items()}
    return [found.get(place, 0.0) for place in range(len(t.token_ids))]


def numbers(**changes: Any) -> dict[str, Any]:
    distillation = {"coefficient": 0.3, "turns": "all", "tau": 0.0} | changes
    content = recipe("privileged_distillation", group_size=3, own_turn=[], distillation=distillation)
    whole = {"mini_batch_size": 64, "max_grad_norm": 1e9, "micro_batch_tokens": 90}
    return content | {"optimizer": content["optimizer"] | whole}


def learner_of(base, chat, content: dict[str, Any]) -> Learner:
    return learner_for(copy.deepcopy(base), make_algorithm(content), 3, naive.T, 0, chat=chat)


def with_chart(t: Trajectory, chat: ChatFormat) -> Trajectory:
    """What the teacher reads."""
    case = int(t.group_id[1:])
    before = chat.opening_ids(opening(case, f"{t.privileged['chart']['facts']} "))
    begins = t.turns[0][0]
    return dataclasses.replace(
        t, token_ids=(*before, *t.token_ids[begins:]), loss_mask=(0,) * len(before) + t.loss_mask[begins:]
    )


def divergence(
    teacher: Any,
    student: Any,
    trajectories: list[Trajectory],
    chat: ChatFormat,
    *,
    reverse: bool = False,
    last: bool = False,
) -> torch.Tensor:
    """Term by term, by the number of action tokens; of the last turns alone, or of all."""
    terms = []
    for t in trajectories:
        told = with_chart(t, chat)
        wanted, found = (
            torch.log_softmax(naive.logits(model, one), -1) for model, one in ((teacher, told), (student, t))
        )
        longer = len(told.token_ids) - len(t.token_ids)
        for k, one in enumerate(t.loss_mask):
            if one:
                p, q = wanted[k - 1 + longer].detach(), found[k - 1]
                term = sum(q.exp() * (q - p)) if reverse else sum(p.exp() * (p - q))
                terms.append(0.0 * term if last and k < t.turns[-1][0] else term)
    return sum(terms) / len(terms)


def noisy(model: Any) -> Any:
    """Changed in place, so that teacher and student differ in more than what they read; returns a copy in float64."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return copy.deepcopy(model).double()


@pytest.mark.parametrize(("direction", "turns"), [("forward", "all"), ("reverse", "all"), ("forward", "last")])
def test_the_gradient_is_that_of_the_formula(base, chat, experience, direction, turns):
    trajectories, scores = experience
    content = numbers(coefficient=0.6, divergence=direction, turns=turns)
    learner = learner_of(base, chat, content)
    teacher = noisy(learner.policy.teacher)
    gradients = watched(learner)
    metrics = learner.update(trajectories, scores, step=1)
    model = copy.deepcopy(base).double()
    frozen = copy.deepcopy(model).requires_grad_(False)
    loss = naive.policy_gradient_loss(content | {"name": "grpo"}, trajectories, scores, model, frozen, None)
    kl = divergence(teacher, model, trajectories, chat, reverse=direction == "reverse", last=turns == "last")
    (loss + 0.6 * kl).backward()
    largest = max(float(p.grad.abs().max()) for p in model.parameters())
    assert largest > 1e-3
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name].double(), parameter.grad, atol=1e-5 * max(largest, 1.0), rtol=1e-4)
    assert metrics["distillation/kl"] == pytest.approx(kl.item(), rel=1e-4)
    assert metrics["distillation/untaught"] == 0


def test_with_coefficient_0_it_is_grpo_bit_for_bit(base, chat, experience):
    trajectories, scores = experience
    content = numbers(coefficient=0.0)
    content["optimizer"] |= {"num_epochs": 2, "mini_batch_size": 3}
    plain = {name: value for name, value in content.items() if name != "distillation"} | {"name": "grpo"}
    one, other = (learner_of(base, chat, recipe) for recipe in (content, plain))
    for version in range(2):
        batch = [dataclasses.replace(t, policy_version=version) for t in trajectories]
        mine, theirs = (learner.update(batch, scores, version + 1) for learner in (one, other))
        assert {k: v for k, v in mine.items() if not k.startswith("distillation/")} == theirs
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name]), name


@pytest.mark.parametrize(
    ("micro_batch_tokens", "order"), [(1, range(9)), (10**6, range(9)), (90, (3, 0, 8, 7, 5, 1, 2, 6, 4))]
)
def test_neither_micro_batches_nor_order_change_anything(base, chat, experience, micro_batch_tokens, order):
    """One at a time; all at once, where those of a group share a row; another order."""

    def updated(tokens, order):
        content = numbers()
        content["optimizer"] |= {"micro_batch_tokens": tokens}
        learner = learner_of(base, chat, content)
        gradients = watched(learner)
        metrics = learner.update([experience[0][i] for i in order], [experience[1][i] for i in order], step=1)
        return gradients, learner.model.state_dict(), metrics

    assert_same(updated(90, range(9)), updated(micro_batch_tokens, order))


def test_siblings_that_share_a_row_are_taught_as_those_that_do_not(base, chat, experience):
    """An opening longer than what follows it is computed once for a group."""
    trajectories, scores = experience
    long = "ab and c " * 3

    def lengthened(t: Trajectory) -> Trajectory:
        texts = ({"role": "system", "content": long}, *t.texts[1:])
        case, begins = int(t.group_id[1:]), t.turns[0][0]
        before = chat.opening_ids([texts[0], *opening(case)[1:]])
        more = len(before) - begins
        return dataclasses.replace(
            t, texts=texts, token_ids=(*before, *t.token_ids[begins:]), logprobs=(0.0,) * more + t.logprobs,
            loss_mask=(0,) * more + t.loss_mask, turns=tuple((a + more, b + more) for a, b in t.turns),
        )  # fmt: skip

    longer = [lengthened(t) for t in trajectories]
    cut = sibling_batches([t.token_ids for t in longer], [t.loss_mask for t in longer], 10**6)
    assert any(batch.sibling_N is not None for batch in cut)
    found = []
    for tokens in (10**6, 1):
        content = numbers()
        content["optimizer"] |= {"micro_batch_tokens": tokens}
        learner = learner_of(base, chat, content)
        gradients = watched(learner)
        metrics = learner.update(longer, scores, step=1)
        assert metrics["distillation/untaught"] == 0
        found.append((gradients, learner.model.state_dict(), metrics))
    assert_same(*found)


@pytest.mark.parametrize("tokens", [10**6, 1])
def test_who_is_too_long_with_a_chart_is_taught_by_reward_alone(base, chat, experience, tokens):
    """Also where a micro-batch has nobody else."""
    trajectories, scores = experience
    content = numbers()
    content["optimizer"] |= {"micro_batch_tokens": tokens}
    charts = {"g0": "ab " * 40, "g1": "b", "g2": "c"}
    some = [dataclasses.replace(t, privileged={"chart": {"facts": charts[t.group_id]}}) for t in trajectories]
    learner, other = (learner_of(base, chat, content) for _ in range(2))
    teacher = noisy(learner.policy.teacher)
    noisy(other.policy.teacher)
    metrics = learner.update(some, scores, step=1)
    assert metrics["distillation/untaught"] == pytest.approx(3 / 8)
    taught = [t for t in trajectories if t.group_id != "g0"]
    taught = [dataclasses.replace(t, privileged={"chart": {"facts": charts[t.group_id]}}) for t in taught]
    few, all_of_them = (sum(sum(t.loss_mask) for t in found) for found in (taught, trajectories))
    kl = divergence(teacher, copy.deepcopy(base).double(), taught, chat).item() * few / all_of_them
    assert metrics["distillation/kl"] == pytest.approx(kl, rel=1e-4)
    elsewhere = [
        dataclasses.replace(t, privileged={"chart": {"facts": charts[t.group_id].replace("ab", "cc")}}) for t in some
    ]
    assert other.update(elsewhere, scores, step=1) == metrics  # no word of theirs is read


def test_a_checkpoint_keeps_a_teacher_that_follows_and_none_that_stays(base, chat, experience):
    trajectories, scores = experience
    for tau, kept in ((0.0, False), (0.3, True)):
        learner = learner_of(base, chat, numbers(tau=tau))
        learner.update(trajectories, scores, step=1)
        assert (TEACHER in learner.state()) == kept
        again = learner_of(base, chat, numbers(tau=tau))
        again.load_state(learner.state())
        for mine, theirs in zip(learner.policy.teacher.parameters(), again.policy.teacher.parameters(), strict=True):
            assert torch.equal(mine, theirs)


def test_beside_an_adapter_the_teacher_is_another_one(base, chat, experience):
    trajectories, scores = experience
    model = copy.deepcopy(base)
    add_adapter(model, LoraParams(rank=2, alpha=4.0, target_modules=("q_proj", "down_proj")), 0)
    learner = learner_for(model, make_algorithm(numbers(tau=0.0)), 3, naive.T, 0, chat=chat)
    student = copy.deepcopy(base).double()
    for parameters in learner.policy.parts[TEACHER].parameters():
        torch.nn.init.normal_(parameters, std=0.3)
    before = [value.clone() for value in learner.policy.parts[TEACHER].parameters()]
    with on_branch(model, TEACHER):
        teacher = copy.deepcopy(model).double()
    metrics = learner.update(trajectories, scores, step=1)
    expected = divergence(teacher, student, trajectories, chat).item()
    assert abs(expected - divergence(student, student, trajectories, chat).item()) > 1e-2
    assert metrics["distillation/kl"] == pytest.approx(expected, rel=1e-4)
    for one, other in zip(before, learner.policy.parts[TEACHER].parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("tau", [0.0, 0.3, 1.0])
def test_the_teacher_follows_by_tau_and_no_gradient_moves_it(base, chat, experience, tau, lora):
    trajectories, scores = experience
    model = copy.deepcopy(base)
    if lora:
        add_adapter(model, LoraParams(rank=2, alpha=4.0, target_modules=("q_proj", "down_proj")), 0)
    learner = learner_for(model, make_algorithm(numbers(tau=tau)), 3, naive.T, 0, chat=chat)
    teacher = [value.clone() for value in learner.policy.parts[TEACHER].parameters()]
    learner.update(trajectories, scores, step=1)
    learned = [p for name, p in model.named_parameters() if (NAME in name if lora else True)]
    assert any(not torch.equal(one, other) for one, other in zip(teacher, learned, strict=True))
    for was, now, student in zip(teacher, learner.policy.parts[TEACHER].parameters(), learned, strict=True):
        torch.testing.assert_close(now, (1 - tau) * was + tau * student.detach(), atol=1e-7, rtol=0)
        assert now.grad is None
    learner.reset()
    for now, student in zip(learner.policy.parts[TEACHER].parameters(), learned, strict=True):
        assert torch.equal(now, student)


def test_what_is_saved_of_the_teacher_is_taken_up_again(base, chat, experience):
    trajectories, scores = experience
    one, other = (learner_of(base, chat, numbers(tau=0.3)) for _ in range(2))
    one.update(trajectories, scores, step=1)
    other.model.load_state_dict(one.model.state_dict())
    other.load_state(copy.deepcopy(one.state()))
    batch = [dataclasses.replace(t, policy_version=1) for t in trajectories]
    assert one.update(batch, scores, step=2) == other.update(batch, scores, step=2)
    for name, value in one.policy.state_dict().items():
        assert torch.equal(value, other.policy.state_dict()[name]), name


def test_in_bfloat16_the_teacher_says_the_same_but_for_rounding(base, chat, experience):
    found = []
    for compute in ("float32", "bfloat16"):
        algorithm = make_algorithm(numbers())
        policy = policy_for(copy.deepcopy(base), algorithm, compute, chat=chat)
        metrics = Learner(policy, algorithm, 3, naive.T, 0).update(*experience, step=1)
        found.append((metrics["distillation/kl"], metrics["grad_norm"]))
    assert found[1] != found[0]
    assert found[1] == pytest.approx(found[0], rel=0.1)


def test_a_chart_that_nobody_tells_is_one_line(base, chat, experience):
    trajectories, scores = experience
    with pytest.raises(TrainingError, match=r"distillation\.chart is 'notes'.*they tell: facts"):
        learner_of(base, chat, numbers(chart="notes")).update(trajectories, scores, step=1)
