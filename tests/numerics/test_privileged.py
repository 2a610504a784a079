"""A teacher that has read the chart, and its student: every pass against a plain loop, who gets a gradient, and what
changes nothing.
"""

import copy
import dataclasses
import random
from typing import Any

import pytest
import torch
from peft.tuners.lora import LoraLayer

from rl.adapters import NAME, add_adapter
from rl.algorithms import make_algorithm
from rl.chat import ChatFormat
from rl.config import LoraParams
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from rl.features import soft_places
from rl.learner import Learner
from rl.models import new_model, new_tokenizer
from rl.parts import ACTOR, ADAPT, CRITIC, EMA, ENCODER, POLICY
from rl.policy import Policy
from rl.records import logprobs_of
from tests.handing import learner_for
from tests.numerics import naive
from tests.recipes import recipe

M = 2
CHARTS = ("ab", "b and c", "cab")
PARTS = {POLICY, ACTOR, ENCODER, ADAPT, EMA, CRITIC}
TEACHER = {"acting": {ACTOR, ENCODER, CRITIC}, "adapting": {ADAPT, POLICY}}
STUDENT = {"acting": {POLICY, CRITIC}, "adapting": {ADAPT}}


@pytest.fixture(scope="module")
def chat() -> ChatFormat:
    return ChatFormat(new_tokenizer(["ab and c"] * 4, 280))


@pytest.fixture(scope="module")
def base(chat):
    """Weights that matter."""
    model = new_model(chat.tokenizer, width=32, layers=2, heads=2, context=64, seed=3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter *= 3
    return model


def played(chat: ChatFormat, tokens: int) -> list[Trajectory]:
    """Three groups of three; the last failed, two were cut by the token limit.

    The placeholder's own id is sampled inside of a turn, and read before one.
    """
    placeholder = chat.opening_ids([{"role": "user", "content": ""}])[0]
    rng = random.Random(5)
    openings = [[rng.randrange(5, 260) for _ in range(6)] for _ in range(2)]
    trajectories = []
    for i in range(9):
        ids, mask, turns = [], [], []
        new = openings[min(i // 3, 1)]  # two groups begin alike
        for turn in range(rng.randint(1, 3)):
            ids += [placeholder] * tokens + new
            mask += [0] * (tokens + len(new))
            said = [rng.randrange(5, 260) for _ in range(rng.randint(1, 3))] + [chat.end_id]
            if turn == 1:
                said.insert(1, placeholder)
            turns.append((len(ids), len(ids) + len(said)))
            ids, mask = ids + said, mask + [1] * len(said)
            new = [placeholder] * (i % 2) + [rng.randrange(5, 260) for _ in range(rng.randint(1, 3))]
        trajectories.append(
            Trajectory(
                episode_id=f"g{i // 3}/{i % 3}", case_id="c", group_id=f"g{i // 3}", sample=i % 3, policy_version=0,
                turn_budget=3, token_ids=tuple(ids), logprobs=(0.0,) * len(ids),
                loss_mask=tuple(mask) if i != 8 else (0,) * len(mask), turns=tuple(turns), texts=(), events=({},),
                stop_reason={2: "out_of_tokens", 4: "out_of_tokens", 8: "failed"}.get(i, "diagnosed"),
                privileged={"chart": {"facts": CHARTS[i // 3]}}, started_s=0.0, ended_s=1.0,
            )
        )  # fmt: skip
    return trajectories


def recorded(trajectories: list[Trajectory], policy: Policy, noise: float = 0.15) -> list[Trajectory]:
    """With the player's log-probabilities, a little off."""
    rng = random.Random(6)
    policy.prepare(trajectories, 10**6)
    found = logprobs_of(policy, trajectories, 10**6, naive.T)
    rows = [iter(row) for row in found]  # in order of the sampled tokens
    return [
        dataclasses.replace(
            t, logprobs=tuple(float(next(row)) + rng.gauss(0, noise) if one else 0.0 for one in t.loss_mask)
        )
        for t, row in zip(trajectories, rows, strict=True)
    ]


def scored(trajectories: list[Trajectory]) -> list[Scores]:
    rng = random.Random(7)
    return [Scores(t.episode_id, tuple({"a": rng.uniform(-1, 1)} for _ in t.turns)) for t in trajectories]


def numbers(train_steps: int, tokens: int = M, **changes: Any) -> dict[str, Any]:
    content = recipe(
        "ppo_roa", group_size=3, train_steps=train_steps, discount=0.98, gae_lambda=0.9, entropy_coefficient=0.01,
        student_entropy_coefficient=0.02, critic={"warmup_rollout_steps": 0},
        feature={"tokens": tokens, "chart": "facts"}, adaptation={"layers": 1, "mini_batch_size": 64, "num_epochs": 1},
        regularisation={"coefficient": 0.7, "ramp_steps": 0},
    )  # fmt: skip
    whole = {"mini_batch_size": 64, "max_grad_norm": 1e9, "micro_batch_tokens": 60}
    return content | {"optimizer": content["optimizer"] | whole} | changes


def learner_of(base, chat, content: dict[str, Any]) -> Learner:
    """With heads that say something."""
    learner = learner_for(copy.deepcopy(base), make_algorithm(content), 3, naive.T, 0, chat=chat)
    torch.manual_seed(0)
    torch.nn.init.normal_(learner.critic.head.weight, std=0.3)
    if content["feature"]["tokens"]:
        for part in (learner.policy.encoder_priv, learner.policy.adapt_module, learner.policy.critic.encoder):
            torch.nn.init.normal_(part.head.linear.weight, std=0.2)
            torch.nn.init.normal_(part.head.linear.bias, std=0.2)
        learner.policy.adapt_ema.load_state_dict(learner.policy.adapt_module.state_dict())
        torch.nn.init.normal_(learner.policy.adapt_ema.head.linear.bias, std=0.2)
        learner.policy.actor.load_state_dict({k: v * 1.01 for k, v in learner.model.state_dict().items()})
    learner.policy.play(learner.algorithm.player(0))
    return learner


@dataclasses.dataclass
class Seen:
    """A policy as it stood when an optimizer of a pass stepped: weights and gradients by part, and by name in it."""

    policy: Policy
    gradients: dict[str, dict[str, torch.Tensor]]


def watched(learner: Learner) -> dict[str, Seen]:
    """By pass; filled while it learns."""
    found: dict[str, Seen] = {}

    def look(name: str) -> None:
        gradients = {
            part: {n: p.grad.double() for n, p in module.named_parameters() if p.grad is not None}
            for part, module in learner.policy.parts.items()
        }
        found.setdefault(name, Seen(copy.deepcopy(learner.policy).double(), gradients))

    plays = learner.algorithm.player(0)
    learner.optimizers.of[plays].register_step_pre_hook(lambda *_: look("acting"))
    learner.optimizers.of[ADAPT].register_step_pre_hook(lambda *_: look("adapting"))
    return found


def update(base, chat, content, order=range(9)) -> tuple[Learner, dict[str, Seen], dict[str, float], list, list]:
    learner = learner_of(base, chat, content)
    trajectories = recorded(played(chat, content["feature"]["tokens"]), learner.policy)
    scores = scored(trajectories)
    seen = watched(learner)
    trajectories, scores = [trajectories[i] for i in order], [scores[i] for i in order]
    return learner, seen, learner.update(trajectories, scores, step=1), trajectories, scores


def assert_gradients(found: dict[str, torch.Tensor], expected: torch.nn.Module) -> None:
    wanted = {name: p.grad for name, p in expected.named_parameters() if p.grad is not None}
    largest = max(float(grad.abs().max()) for grad in wanted.values())
    assert largest > 1e-5
    assert found.keys() == wanted.keys()
    for name, grad in wanted.items():
        torch.testing.assert_close(
            found[name], grad, atol=1e-5 * max(largest, 1.0), rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )


def modules(policy: Policy) -> dict[str, torch.nn.Module]:
    policy.zero_grad()
    return policy.parts


def chart_feature(encoder, chat):
    """Of every turn the same."""
    return lambda t: [naive.encoded(encoder, chat.content_ids(t.privileged["chart"]["facts"]))] * len(t.turns)


def stopped(features):
    return lambda t: [feature.detach() for feature in features(t)]


def told(model, features) -> naive.Told:
    return naive.Told(model, lambda t: naive.placed(t, features(t)))


def values(critic, chat):
    """V after every token."""
    reader = told(critic.trunk, chart_feature(critic.encoder, chat))

    def of(t: Trajectory) -> torch.Tensor:
        embedded = reader.embedded(t, critic.trunk.get_input_embeddings().weight)
        return critic.head(critic.trunk(inputs_embeds=embedded).last_hidden_state[0])[:, 0]

    return of


def test_the_teachers_gradients_are_those_of_the_formula(base, chat):
    content = numbers(train_steps=1)
    _, seen, metrics, trajectories, scores = update(base, chat, content)
    assert metrics["gradient_steps"] == 2
    parts = modules(seen["acting"].policy)
    feature = chart_feature(parts[ENCODER], chat)
    teacher = told(parts[ACTOR], feature)
    loss = naive.policy_gradient_loss(
        content | {"name": "ppo"}, trajectories, scores, teacher, teacher, values(parts[CRITIC], chat)
    )
    some = [t for t in trajectories if sum(t.loss_mask)]
    guessed = stopped(lambda t: naive.predicted(parts[ADAPT], t))
    error = naive.feature_error(parts[ADAPT].head, some, feature, guessed)
    (loss + 0.7 * error).backward()
    for part in TEACHER["acting"]:
        assert_gradients(seen["acting"].gradients[part], parts[part])
    assert metrics["adaptation/regularisation"] == pytest.approx(0.7 * float(error), rel=1e-4)


def test_the_students_lessons_are_those_of_the_formula(base, chat):
    _, seen, metrics, trajectories, _ = update(base, chat, numbers(train_steps=1))
    parts = modules(seen["adapting"].policy)
    some = [t for t in trajectories if sum(t.loss_mask)]
    feature, guess = stopped(chart_feature(parts[ENCODER], chat)), lambda t: naive.predicted(parts[ADAPT], t)
    error = naive.feature_error(parts[ADAPT].head, some, guess, feature)
    kl = naive.distillation(told(parts[ACTOR], feature), told(parts[POLICY], stopped(guess)), some)
    (error + kl).backward()
    for part in TEACHER["adapting"]:
        assert_gradients(seen["adapting"].gradients[part], parts[part])
    assert metrics["adaptation/mse"] == pytest.approx(float(error), rel=1e-4)
    assert metrics["adaptation/kl"] == pytest.approx(float(kl), rel=1e-4)


def test_the_finetuned_students_gradients_are_those_of_the_formula(base, chat):
    content = numbers(train_steps=0)
    _, seen, metrics, trajectories, scores = update(base, chat, content)
    parts = modules(seen["acting"].policy)
    student = told(parts[POLICY], stopped(lambda t: naive.predicted(parts[EMA], t)))
    as_ppo = content | {"name": "ppo", "entropy_coefficient": content["student_entropy_coefficient"]}
    naive.policy_gradient_loss(as_ppo, trajectories, scores, student, student, values(parts[CRITIC], chat)).backward()
    for part in STUDENT["acting"]:
        assert_gradients(seen["acting"].gradients[part], parts[part])
    parts = modules(seen["adapting"].policy)
    some = [t for t in trajectories if sum(t.loss_mask)]
    feature, guess = stopped(chart_feature(parts[ENCODER], chat)), lambda t: naive.predicted(parts[ADAPT], t)
    error = naive.feature_error(parts[ADAPT].head, some, guess, feature)
    error.backward()
    assert_gradients(seen["adapting"].gradients[ADAPT], parts[ADAPT])
    assert "adaptation/kl" not in metrics


@pytest.mark.parametrize(("train_steps", "learns"), [(1, TEACHER), (0, STUDENT)])
def test_nobody_else_gets_a_gradient(base, chat, train_steps, learns):
    """Not even one of zeros; and who is not of a pass keeps its weights."""
    _, seen, *_ = update(base, chat, numbers(train_steps))
    for name, parts in learns.items():
        assert {part for part, found in seen[name].gradients.items() if found} == parts
    before, after = seen["acting"].policy.parts, seen["adapting"].policy.parts
    for part in PARTS - learns["acting"]:
        for one, other in zip(before[part].parameters(), after[part].parameters(), strict=True):
            assert torch.equal(one, other)


def test_the_moving_average_moves_by_tau(base, chat):
    content = numbers(train_steps=1)
    content["adaptation"] |= {"tau": 0.04}
    learner, seen, *_ = update(base, chat, content)
    before = dict(seen["acting"].policy.adapt_ema.named_parameters())
    now = dict(learner.policy.adapt_module.named_parameters())
    for name, value in learner.policy.adapt_ema.named_parameters():
        expected = 0.96 * before[name] + 0.04 * now[name].double()
        torch.testing.assert_close(value.double(), expected, atol=1e-7, rtol=0)


def test_without_a_feature_the_teacher_is_ppo_bit_for_bit(base, chat):
    """Two training phases of two epochs of three mini-batches each."""
    changes = {
        "optimizer": {"num_epochs": 2, "mini_batch_size": 3},
        "regularisation": {"coefficient": 0.0, "ramp_steps": 0},
    }
    roa = numbers(train_steps=9, tokens=0)
    roa["optimizer"] |= changes["optimizer"]
    roa["regularisation"] = changes["regularisation"]
    privileged = learner_of(base, chat, roa)
    ppo = {k: v for k, v in roa.items() if k in recipe("ppo")}
    plain = learner_for(copy.deepcopy(base), make_algorithm(ppo | {"name": "ppo"}), 3, naive.T, 0)
    plain.critic.load_state_dict(
        {k: v for k, v in privileged.critic.state_dict().items() if k in plain.critic.state_dict()}
    )
    trajectories = recorded(played(chat, 0), plain.policy)
    for version in range(2):
        batch = [dataclasses.replace(t, policy_version=version) for t in trajectories]
        one, other = (learner.update(batch, scored(batch), version + 1) for learner in (plain, privileged))
        assert {k: v for k, v in one.items() if k != "gradient_steps"} == {
            k: other[k] for k in one if k != "gradient_steps"
        }
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, privileged.policy.actor.state_dict()[name]), name
    for name, value in plain.critic.state_dict().items():
        assert torch.equal(value, privileged.critic.state_dict()[name]), name


@pytest.mark.parametrize("train_steps", [1, 0])
def test_what_stands_in_the_place_of_a_soft_token_changes_nothing(base, chat, train_steps):
    """Neither loss nor reward nor value: other ids there, the same bits."""
    weights, told_of = [], []
    for other in (False, True):
        learner = learner_of(base, chat, numbers(train_steps))
        trajectories = recorded(played(chat, M), learner.policy)
        places = [set(soft_places(t, M)) for t in trajectories]
        assert all(not t.loss_mask[place] for t, found in zip(trajectories, places, strict=True) for place in found)
        if other:
            trajectories = [
                dataclasses.replace(
                    t, token_ids=tuple(17 if place in found else token for place, token in enumerate(t.token_ids))
                )
                for t, found in zip(trajectories, places, strict=True)
            ]
        told_of.append(learner.update(trajectories, scored(trajectories), step=1))
        weights.append(learner.policy.state_dict())
    assert told_of[0] == told_of[1]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


LORA = LoraParams(rank=2, alpha=6.0, target_modules=("q_proj", "v_proj", "o_proj", "down_proj"))
STILL = 1e-12  # a learning rate at which the second pass finds what the first one found
ADAPTERS = {POLICY: NAME, ACTOR: ACTOR, CRITIC: CRITIC}


def gradients_of(learner: Learner, chat: ChatFormat) -> dict[str, dict[str, torch.Tensor]]:
    """Of both passes of an update, by the names of the policy."""
    found: dict[str, dict[str, torch.Tensor]] = {}

    def look(name: str) -> None:
        grads = {n: p.grad.clone() for n, p in learner.policy.named_parameters() if p.grad is not None}
        found.setdefault(name, grads)

    learner.optimizers.of[learner.algorithm.player(0)].register_step_pre_hook(lambda *_: look("acting"))
    learner.optimizers.of[ADAPT].register_step_pre_hook(lambda *_: look("adapting"))
    trajectories = recorded(played(chat, M), learner.policy)
    learner.update(trajectories, scored(trajectories), step=1)
    return found


def alike(base, chat, content: dict[str, Any]) -> tuple[Learner, Learner]:
    """One beside adapters that say something, and one with the same weights added in."""
    model = copy.deepcopy(base)
    add_adapter(model, LORA, 4)
    beside, whole = (
        learner_for(one, make_algorithm(content), 3, naive.T, 0, chat=chat) for one in (model, copy.deepcopy(base))
    )
    torch.manual_seed(1)
    with torch.no_grad():
        for part, name, layer in lora_layers(beside):
            layer.lora_B[ADAPTERS[part]].weight.normal_(std=0.1)
            owner(whole, part).get_submodule(name).weight += layer.get_delta_weight(ADAPTERS[part])
        one, other = beside.policy, whole.policy
        for mine, its in (
            (one.encoder_priv, other.encoder_priv),
            (one.critic.encoder, other.critic.encoder),
            (one.adapt_module, other.adapt_module),
            (one.adapt_ema, other.adapt_ema),
        ):
            for parameter in mine.head.linear.parameters():
                parameter.normal_(std=0.2)
            its.load_state_dict(its.state_dict() | mine.state_dict())
        one.critic.head.weight.normal_(std=0.3)
        other.critic.head.load_state_dict(one.critic.head.state_dict())
    return beside, whole


def owner(learner: Learner, part: str) -> torch.nn.Module:
    """The decoder of a part of its own."""
    policy = learner.policy
    return policy.critic.trunk if part == CRITIC else {POLICY: policy.model, ACTOR: policy.actor}[part].get_decoder()


def lora_layers(learner: Learner) -> list[tuple[str, str, LoraLayer]]:
    """Part, name in the decoder, and the layer that has its adapter."""
    found = [(n, m) for n, m in learner.model.get_decoder().named_modules() if isinstance(m, LoraLayer)]
    return [(part, name, layer) for part in ADAPTERS for name, layer in found]


@pytest.mark.parametrize(("train_steps", "learns"), [(1, TEACHER), (0, STUDENT)])
def test_beside_adapters_gradients_are_those_of_all_weights(base, chat, train_steps, learns):
    """Of W + s B A by the chain rule: s G A^T for B and s B^T G for A, G being that of a model with these weights."""
    content = numbers(train_steps)
    for section in ("optimizer", "feature", "adaptation", "critic"):
        content[section] = content[section] | {"learning_rate": STILL}
    beside, whole = alike(base, chat, content)
    passes, wanted = gradients_of(beside, chat), gradients_of(whole, chat)
    name_of = {id(parameter): name for name, parameter in beside.policy.named_parameters()}
    grad_of = {id(parameter): name for name, parameter in whole.policy.named_parameters()}
    for one, parts in learns.items():
        compared = set()
        for part, name, layer in lora_layers(beside):
            if part not in parts:
                continue
            grad_OI = wanted[one][grad_of[id(owner(whole, part).get_submodule(name).weight)]]
            a, b = (half[ADAPTERS[part]].weight for half in (layer.lora_A, layer.lora_B))
            for weight, factors in ((b, (grad_OI, a.T)), (a, (b.T, grad_OI))):
                expected = layer.scaling[ADAPTERS[part]] * factors[0] @ factors[1]
                compared.add(name_of[id(weight)])
                torch.testing.assert_close(passes[one][name_of[id(weight)]], expected, atol=1e-6, rtol=2e-4)
        heads = {name for name in passes[one] if ".lora_" not in name}
        assert compared | heads == passes[one].keys()
        assert heads
        for name in heads:
            torch.testing.assert_close(passes[one][name], wanted[one][name], atol=1e-6, rtol=2e-4)


@pytest.mark.parametrize("train_steps", [1, 0])
def test_cutting_padding_and_order_change_nothing(base, chat, train_steps):
    """Two groups begin with the same tokens and other charts: only siblings share what they read first."""
    found = []
    for budget, order in ((1, range(9)), (100_000, range(9)), (70, [8, 6, 7, 2, 1, 0, 5, 3, 4])):
        content = numbers(train_steps)
        content["optimizer"] |= {"micro_batch_tokens": budget}
        _, seen, metrics, *_ = update(base, chat, content, order)
        found.append((seen["acting"].gradients, metrics))
    for gradients, metrics in found[1:]:
        for part, grads in gradients.items():
            largest = max((float(g.abs().max()) for g in grads.values()), default=1.0)
            for name, grad in grads.items():
                torch.testing.assert_close(found[0][0][part][name], grad, atol=1e-5 * max(largest, 1.0), rtol=1e-4)
        assert metrics == pytest.approx(found[0][1], rel=1e-4, abs=1e-5)


def test_charts_change_no_gradient_of_the_finetuned_student(base, chat):
    """They reach the critic alone, and through it the advantages; with the critic's feature silent, nothing of it."""
    found = []
    for charts in (CHARTS, CHARTS[::-1]):
        learner = learner_of(base, chat, numbers(train_steps=0))
        with torch.no_grad():
            learner.critic.encoder.head.linear.weight.zero_()
        trajectories = [
            dataclasses.replace(t, privileged={"chart": {"facts": charts[int(t.group_id[1])]}})
            for t in recorded(played(chat, M), learner.policy)
        ]
        seen = watched(learner)
        learner.update(trajectories, scored(trajectories), step=1)
        found.append(seen["acting"].gradients[POLICY])
    assert all(torch.equal(grad, found[1][name]) for name, grad in found[0].items())


def test_a_chart_that_is_not_told_is_named(base, chat):
    learner = learner_of(base, chat, numbers(1, feature=numbers(1)["feature"] | {"chart": "everything"}))
    with pytest.raises(TrainingError, match=r"feature.chart is 'everything' .* they tell: facts"):
        learner.update(played(chat, M), scored(played(chat, M)), step=1)
