"""A second derivation of every algorithm's loss: token by token, float64, plain Python, straight from the papers'
formulas.

Shares nothing with `rl.algorithms` but the recipe's numbers.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from rl.experience import Scores, Trajectory

T = 0.7  # sampling temperature of these tests


class Told:
    """A model that reads vectors in place of some tokens."""

    def __init__(self, model: Any, vectors: Callable[[Trajectory], dict[int, torch.Tensor]]) -> None:
        self.model, self.vectors = model, vectors

    def embedded(self, trajectory: Trajectory, table: torch.Tensor) -> torch.Tensor:
        instead = self.vectors(trajectory)
        return torch.stack([instead.get(place, table[token]) for place, token in enumerate(trajectory.token_ids)])[None]


def logits(model: Any, trajectory: Trajectory) -> torch.Tensor:
    """At every place, (T, V)."""
    if isinstance(model, Told):
        table = model.model.get_input_embeddings().weight
        return model.model(inputs_embeds=model.embedded(trajectory, table)).logits[0] / T
    return model(input_ids=torch.tensor([trajectory.token_ids])).logits[0] / T


def token_logprobs(model: Any, trajectory: Trajectory) -> dict[int, torch.Tensor]:
    """By place."""
    logits_TV = logits(model, trajectory)
    return {
        k: torch.log_softmax(logits_TV[k - 1], -1)[trajectory.token_ids[k]]
        for k, one in enumerate(trajectory.loss_mask)
        if one
    }


def token_entropies(model: Any, trajectory: Trajectory) -> dict[int, torch.Tensor]:
    logits_TV = logits(model, trajectory)
    return {
        k: torch.distributions.Categorical(logits=logits_TV[k - 1]).entropy()
        for k, one in enumerate(trajectory.loss_mask)
        if one
    }


def turn_of(trajectory: Trajectory, place: int) -> int:
    return next(k for k, (start, end) in enumerate(trajectory.turns) if start <= place < end)


def kl_value(kind: str, d: Any) -> Any:
    exp = torch.exp if isinstance(d, torch.Tensor) else math.exp
    return {"k1": d, "abs": abs(d), "mse": d * d / 2, "k3": exp(-d) - 1 + d}[kind]


def group_members(trajectories: list[Trajectory]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for i, t in enumerate(trajectories):
        if sum(t.loss_mask):
            found.setdefault(t.group_id, []).append(i)
    return found


def reward_of_token(
    numbers: dict,
    trajectory: Trajectory,
    turn_rewards: list[float],
    old: dict[int, float],
    reference: dict[int, float] | None,
) -> dict[int, float]:
    places = sorted(old)
    reward = dict.fromkeys(places, 0.0)
    for k, value in enumerate(turn_rewards):
        mine = [p for p in places if turn_of(trajectory, p) == k]
        reward[mine[-1] if numbers["credit"] == "turn" else places[-1]] += value
    if numbers["name"] == "dapo":
        long = numbers["overlong"]
        free = long["max_tokens"] - long["buffer_tokens"]
        n = len(places)
        reward[places[-1]] -= (
            0.0
            if n <= free
            else long["penalty"]
            if n >= long["max_tokens"]
            else long["penalty"] * (n - free) / long["buffer_tokens"]
        )
    if numbers["kl"]["place"] == "reward":
        for p in places:
            reward[p] -= numbers["kl"]["coefficient"] * kl_value(numbers["kl"]["estimator"], old[p] - reference[p])
    return reward


def group_relative(  # noqa: C901  as long as the formula
    numbers: dict,
    trajectories: list[Trajectory],
    rewards: list[dict[int, float]],
    own: list[list[float]],
    kinds: list[list[set[str]]],
) -> list[dict[int, float]]:
    """GRPO and its relatives."""

    def relative(values: list[list[float]], kinds: list[list[set[str]]] | None = None) -> list[list[float]]:
        out: list[list[float]] = [[] for _ in values]
        for members in groups.values():
            for i in members:
                for k, x in enumerate(values[i]):
                    others = [
                        values[j][k]
                        for j in members
                        if len(values[j]) > k and (numbers["name"] != "rloo" or j != i)
                        if kinds is None or kinds[j][k] == kinds[i][k]
                    ]
                    out[i].append(x - (statistics.fmean(others) if others else x))
        for members in groups.values():
            among = members if numbers["divide_by_std"] == "group" else [i for m in groups.values() for i in m]
            squares = [x * x for i in among for x in out[i]]
            by = (
                1.0
                if numbers["divide_by_std"] == "none" or not squares
                else math.sqrt(statistics.fmean(squares)) + numbers["eps"]
            )
            if numbers["divide_by_std"] == "group":
                for i in members:
                    out[i] = [x / by for x in out[i]]
        if numbers["divide_by_std"] == "step":
            squares = [x * x for row in out for x in row]
            by = (math.sqrt(statistics.fmean(squares)) if squares else 0.0) + numbers["eps"]
            out = [[x / by for x in row] for row in out]
        return out

    groups = {g: m for g, m in group_members(trajectories).items() if len(m) > 1}
    inside = {i for m in groups.values() for i in m}
    returns: list[list[float]] = []
    for i, (t, reward) in enumerate(zip(trajectories, rewards, strict=True)):
        per_turn = [sum(r for p, r in reward.items() if turn_of(t, p) == k) for k in range(len(t.turns))]
        if i not in inside:
            returns.append([])
        elif numbers["credit"] == "episode":
            returns.append([sum(per_turn)])
        else:
            returns.append(
                [
                    sum(numbers["discount"] ** (m - k) * per_turn[m] for m in range(k, len(per_turn)))
                    for k in range(len(per_turn))
                ]
            )
    a, b = relative(returns), relative([o if i in inside else [] for i, o in enumerate(own)], kinds)
    advantages = []
    for i, (t, reward) in enumerate(zip(trajectories, rewards, strict=True)):
        if i not in inside:
            advantages.append(dict.fromkeys(reward, 0.0))
        elif numbers["credit"] == "episode":
            advantages.append(dict.fromkeys(reward, a[i][0]))
        else:
            advantages.append(
                {
                    p: a[i][turn_of(t, p)] + (numbers["own_turn_weight"] * b[i][turn_of(t, p)] if b[i] else 0.0)
                    for p in reward
                }
            )
    return advantages


def whiten(values: list[dict[int, float]], eps: float) -> list[dict[int, float]]:
    flat = [x for row in values for x in row.values()]
    mean, std = statistics.fmean(flat), statistics.pstdev(flat)
    return [{p: (x - mean) / (std + eps) for p, x in row.items()} for row in values]


def reinforce_pp(
    numbers: dict, trajectories: list[Trajectory], rewards: list[dict[int, float]]
) -> list[dict[int, float]]:
    """By parts: the whole episode with episode credit, else each turn."""
    out, part, first = [], [], {}
    for t, reward in zip(trajectories, rewards, strict=True):
        places = sorted(reward)
        out.append(
            {
                p: sum(numbers["discount"] ** (m - k) * reward[places[m]] for m in range(k, len(places)))
                for k, p in enumerate(places)
            }
        )
        part.append({p: turn_of(t, p) if numbers["credit"] == "turn" else 0 for p in places})
        for k in set(part[-1].values()):
            first.setdefault((t.group_id, k), []).append(out[-1][min(p for p in places if part[-1][p] == k)])
    if numbers["baseline"] == "group":
        out = [
            {p: x - statistics.fmean(first[t.group_id, part[i][p]]) for p, x in out[i].items()}
            for i, t in enumerate(trajectories)
        ]
    pooled = [
        [x for row, of in zip(out, part, strict=True) for p, x in row.items() if of[p] == k]
        for k in range(1 + max(max(of.values(), default=0) for of in part))
    ]
    centred = [
        {p: x - statistics.fmean(pooled[of[p]]) for p, x in row.items()} for row, of in zip(out, part, strict=True)
    ]
    return whiten(centred, numbers["eps"])


def gae(
    numbers: dict,
    trajectories: list[Trajectory],
    rewards: list[dict[int, float]],
    values: list[dict[int, float]],
    after: list[float],
) -> tuple[list, list]:
    advantages, targets = [], []
    for t, reward, value, last in zip(trajectories, rewards, values, after, strict=True):
        places = sorted(reward)
        following = [value[p] for p in places[1:]] + [last if t.stop_reason == "out_of_tokens" else 0.0]
        delta = [reward[p] + numbers["discount"] * following[k] - value[p] for k, p in enumerate(places)]
        row = {
            p: sum((numbers["discount"] * numbers["gae_lambda"]) ** (m - k) * delta[m] for m in range(k, len(places)))
            for k, p in enumerate(places)
        }
        advantages.append(row)
        targets.append({p: row[p] + value[p] for p in places})
    return (whiten(advantages, numbers["eps"]) if numbers["whiten"] else advantages), targets


def share(numbers: dict, tokens_of_sequence: int, tokens: int, sequences: int) -> float:
    return {
        "token": 1 / tokens,
        "sequence": 1 / (tokens_of_sequence * sequences),
        "constant": 1 / (numbers["constant_length"] * sequences),
    }[numbers["aggregation"]]


def policy_term(numbers: dict, ratio: torch.Tensor, logprob: torch.Tensor, advantage: float) -> torch.Tensor:
    low, high = 1 - numbers["clip_low"], 1 + numbers["clip_high"]
    if numbers["name"] == "cispo":
        return -min(max(float(ratio), low), high) * advantage * logprob
    clipped = ratio if low <= ratio <= high else torch.full_like(ratio, low if ratio < low else high)
    objective = min(ratio * advantage, clipped * advantage, key=lambda x: x.detach())
    if (
        numbers.get("dual_clip", math.inf) < math.inf
        and advantage < 0
        and float(objective) < numbers["dual_clip"] * advantage
    ):
        objective = torch.full_like(ratio, numbers["dual_clip"] * advantage)
    return -objective


def policy_gradient_loss(
    numbers: dict, trajectories: list[Trajectory], scores: list[Scores], policy: Any, reference: Any, critic: Any
) -> torch.Tensor:
    """The whole step as one mini-batch; policy and critic float64 with gradient, reference float64."""
    now = [token_logprobs(policy, t) if sum(t.loss_mask) else {} for t in trajectories]
    sampler = [{p: t.logprobs[p] for p in row} for t, row in zip(trajectories, now, strict=True)]
    correction = numbers["sampler_correction"]
    old = [{p: float(x) for p, x in row.items()} for row in now] if correction["level"] != "none" else sampler
    ref = [
        {p: float(x) for p, x in token_logprobs(reference, t).items()} if sum(t.loss_mask) else {} for t in trajectories
    ]
    own_names = numbers.get("own_turn", []) if numbers["credit"] == "turn" else []
    turn_rewards = [[sum(v for name, v in turn.items() if name not in own_names) for turn in s.turns] for s in scores]
    rewards = [
        reward_of_token(numbers, t, r, o, f) if o else {}
        for t, r, o, f in zip(trajectories, turn_rewards, old, ref, strict=True)
    ]
    targets = values = None
    if numbers["name"] == "ppo":
        live = [critic(t) for t in trajectories]
        values = [{p: float(v[p - 1]) for p in row} for v, row in zip(live, rewards, strict=True)]
        advantages, targets = gae(numbers, trajectories, rewards, values, [float(v[-1]) for v in live])
    elif numbers["name"] == "reinforce_pp":
        advantages = reinforce_pp(numbers, trajectories, rewards)
    else:
        advantages = group_relative(
            numbers,
            trajectories,
            rewards,
            [[sum(turn.get(n, 0.0) for n in own_names) for turn in s.turns] if own_names else [] for s in scores],
            [[turn.keys() & set(numbers.get("own_turn_kinds", [])) for turn in s.turns] for s in scores],
        )
    learn = [
        i
        for i, t in enumerate(trajectories)
        if now[i]
        and not (numbers["name"] == "dapo" and numbers["overlong"]["filter"] and t.stop_reason == "out_of_tokens")
    ]
    tokens, sequences = sum(len(now[i]) for i in learn), len(learn)
    loss = torch.zeros((), dtype=torch.float64)
    for i in learn:
        w = share(numbers, len(now[i]), tokens, sequences)
        entropies = token_entropies(policy, trajectories[i])
        whole = sum(old[i][p] - sampler[i][p] for p in now[i])
        sequence_ratio = torch.exp(sum(now[i][p] - old[i][p] for p in now[i]) / len(now[i]))
        for p, logprob in now[i].items():
            ratio = torch.exp(logprob - old[i][p])
            if numbers["name"] == "gspo":  # GSPO-token: the sequence's value, the token's gradient
                ratio = sequence_ratio.detach() * torch.exp(logprob - logprob.detach())
            weight = 1.0
            if correction["level"] != "none":
                weight = math.exp(whole if correction["level"] == "sequence" else old[i][p] - sampler[i][p])
                weight = (
                    min(weight, correction["upper"])
                    if correction["mode"] == "clip"
                    else weight * (correction["lower"] <= weight <= correction["upper"])
                )
            loss = loss + w * weight * policy_term(numbers, ratio, logprob, advantages[i][p])
            if numbers["kl"]["place"] == "loss":
                loss = loss + w * numbers["kl"]["coefficient"] * kl_value(
                    numbers["kl"]["estimator"], logprob - ref[i][p]
                )
            loss = loss - w * numbers["entropy_coefficient"] * entropies[p]
            if targets is not None:
                v, clip = live[i][p - 1], numbers["critic"]["value_clip"]
                near = values[i][p] + torch.clamp(v - values[i][p], -clip, clip)
                loss = loss + w * numbers["critic"]["loss_weight"] * 0.5 * max(
                    (v - targets[i][p]) ** 2, (near - targets[i][p]) ** 2, key=lambda x: x.detach()
                )
    return loss


def preference_loss(
    numbers: dict, trajectories: list[Trajectory], scores: list[Scores], policy: Any, reference: Any
) -> torch.Tensor:
    """DPO on best against worst of each group."""
    terms = []
    for members in group_members(trajectories).values():
        ranked = sorted(members, key=lambda i: scores[i].reward, reverse=True)
        best, worst = ranked[0], ranked[-1]
        if numbers["pairs_per_group"] != 1:
            raise NotImplementedError
        if scores[best].reward - scores[worst].reward <= numbers["margin"]:
            continue
        sides = []
        row = token_logprobs(policy, trajectories[best])
        likelihood = numbers["chosen_weight"] * sum(row.values()) / len(row)
        for i in (best, worst):
            now, ref = token_logprobs(policy, trajectories[i]), token_logprobs(reference, trajectories[i])
            sides.append(sum(now[p] - ref[p].detach() for p in now) / (len(now) if numbers["variant"] == "ipo" else 1))
        m, beta, e = sides[0] - sides[1], numbers["beta"], numbers["label_smoothing"]
        if numbers["variant"] == "ipo":
            terms.append((m - 1 / (2 * beta)) ** 2 - likelihood)
        else:
            terms.append(
                -(1 - e) * torch.log(1 / (1 + torch.exp(-beta * m)))
                - e * torch.log(1 / (1 + torch.exp(beta * m)))
                - likelihood
            )
    return sum(terms) / len(terms)


def vectors_of(head: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Soft tokens (M, W) of a head: each as long as an embedding."""
    rows = head.start_W + (head.linear.weight @ hidden + head.linear.bias).reshape(-1, len(head.start_W))
    return torch.stack(
        [head.scale * row / torch.sqrt((row * row).mean() + torch.finfo(torch.float32).eps) for row in rows]
    )


def encoded(encoder: Any, chart: Sequence[int]) -> torch.Tensor:
    """The feature of a chart."""
    mean = sum(encoder.table.weight[token] for token in chart) / len(chart)
    apart = mean - encoder.centre_W
    centred = apart - apart.mean()
    return vectors_of(encoder.head, torch.tanh(encoder.first(centred / torch.sqrt((centred**2).mean() + 1e-5))))


def without_placeholders(trajectory: Trajectory, tokens: int) -> tuple[list[int], list[list[int]], list[int]]:
    """The dialogue, the places of each turn's placeholders, and how many tokens of the dialogue precede each turn."""
    dialogue, places, before = list(trajectory.token_ids[:0]), [], []
    begin = 0
    for start, end in trajectory.turns:
        places.append(list(range(begin, begin + tokens)))
        dialogue += trajectory.token_ids[begin + tokens : start]
        before.append(len(dialogue))
        dialogue += trajectory.token_ids[start:end]
        begin = end
    return dialogue, places, before


def predicted(adapt: Any, trajectory: Trajectory) -> list[torch.Tensor]:
    """The features that a student predicts, of each turn from what came before it."""
    dialogue, _, before = without_placeholders(trajectory, adapt.tokens)
    return [
        vectors_of(adapt.head, adapt.trunk(input_ids=torch.tensor([dialogue[:size]])).last_hidden_state[0, -1])
        for size in before
    ]


def placed(trajectory: Trajectory, features: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
    _, places, _ = without_placeholders(trajectory, len(features[0]))
    return {p: v for at, feature in zip(places, features, strict=True) for p, v in zip(at, feature, strict=True)}


def feature_error(head: Any, trajectories: list[Trajectory], one: Any, other: Any) -> torch.Tensor:
    """Mean over episodes of the mean over turns of the mean square, in squared lengths."""
    per_episode = [
        sum(((a - b) ** 2).mean() for a, b in zip(one(t), other(t), strict=True)) / len(t.turns) for t in trajectories
    ]
    return sum(per_episode) / len(per_episode) / head.scale**2


def distillation(teacher: Any, student: Any, trajectories: list[Trajectory]) -> torch.Tensor:
    """Mean over action tokens of KL(teacher || student)."""
    terms = []
    for t in trajectories:
        wanted, found = (torch.log_softmax(logits(model, t), -1) for model in (teacher, student))
        for k, one in enumerate(t.loss_mask):
            if one:
                p = wanted[k - 1].detach()
                terms.append(sum(p.exp() * (p - found[k - 1])))
    return sum(terms) / len(terms)
