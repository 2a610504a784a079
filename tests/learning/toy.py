"""A consultation of one-word messages whose best policy is known, and a tiny policy to play it.

The patient has a colour. First turn: the first question makes them say it; the others and any other word do not. Second
turn: the policy names the colour, and the episode is over. Reward: 1 for the right colour, a little for learning it,
-0.1 per word that is neither question nor colour in its place. Best: look, then say what was heard. Who does not use
what they hear is right by chance at best.
"""

import asyncio
import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from rl.algorithms.base import Algorithm
from rl.algorithms.sampling import informative_groups, keep_informative
from rl.chat import ChatFormat
from rl.config import RolloutParams, SFTParams
from rl.engines.transformers import TransformersEngine
from rl.environment import EpisodeSpec, Message, Seat
from rl.experience import Scores, Trajectory
from rl.handover import handover_of
from rl.linear_onednn import speed_up, worthwhile
from rl.models import new_model, new_tokenizer
from rl.parts import POLICY
from rl.policy import Policy
from rl.rollout import play
from rl.sft import Example, train_supervised
from tests.handing import learner_for

SAMPLES = 32
TEMPERATURE = 1.0


@dataclass(frozen=True)
class Game:
    """The words, and the reward for learning the colour."""

    colours: tuple[str, ...]
    questions: tuple[str, ...]  # the first one is the good one
    information: float

    @property
    def optimum(self) -> float:
        return 1 + self.information

    @property
    def blind(self) -> float:
        return 1 / len(self.colours) + self.information


EASY = Game(("red", "green", "blue", "black"), ("look", "smell", "taste"), 0.2)
HARD = Game((*EASY.colours, "white", "brown"), (*EASY.questions, "touch", "wait"), 0.2)


class Rewards(dict[str, float]):
    """Satisfies `rl.environment.Event`."""

    def to_json(self) -> dict[str, Any]:
        return dict(self)


@dataclass(frozen=True)
class Reply:
    """Satisfies `rl.environment.EnvironmentReply`."""

    text: str | None
    event: Rewards
    stop_reason: str | None = None


@dataclass
class Toy:
    """One episode."""

    game: Game
    colour: str
    turns: int = 0

    def opening(self) -> list[Message]:
        return [{"role": "user", "content": "hello"}]

    async def step(self, turn: str) -> Reply:
        self.turns += 1
        legal = turn in (self.game.questions, self.game.colours)[self.turns - 1]
        looked = self.turns == 1 and turn == self.game.questions[0]
        event = Rewards(
            outcome=float(self.turns == 2 and turn == self.colour),
            information=self.game.information * looked,
            manners=0.0 if legal else -0.1,
        )
        if self.turns == 2:
            return Reply(None, event, "named")
        return Reply(self.colour if looked else "what", event)


def seat_in(game: Game, _: object = None) -> Seat:
    return lambda spec, _: Toy(game, spec.case)


def episodes(game: Game, samples: int, step: int, seed: int) -> list[EpisodeSpec]:
    """Every colour `samples` times."""
    return [
        EpisodeSpec(
            case_id=colour,
            group_id=f"{step}/{colour}",
            sample=sample,
            turn_budget=2,
            noise=(seed, step),
            case=colour,
            privileged={"colour": colour, "chart": {"facts": colour}},
        )
        for colour in game.colours
        for sample in range(samples)
    ]


def score(trajectories: Sequence[Trajectory]) -> list[Scores]:
    """The events are the rewards."""
    return [Scores(t.episode_id, t.events) for t in trajectories]


def mean_reward(trajectories: Sequence[Trajectory]) -> float:
    return sum(s.reward for s in score(trajectories)) / len(trajectories)


async def babble(game: Game, rng: random.Random) -> list[Message]:
    """A legal dialogue without sense: a random question, then a random colour."""
    patient = Toy(game, rng.choice(game.colours))
    question, name = rng.choice(game.questions), rng.choice(game.colours)
    heard = (await patient.step(question)).text
    return [
        *patient.opening(),
        {"role": "assistant", "content": question},
        {"role": "user", "content": heard},
        {"role": "assistant", "content": name},
    ]


class School:
    """A tiny random policy and the loop."""

    def __init__(self, game: Game, seed: int, device: str = "cpu") -> None:
        self.game, self.seed = game, seed
        words = game.colours + game.questions
        tokenizer = new_tokenizer([*words, "what", "hello"] * 4, 280 + 5 * len(words))
        self.chat = ChatFormat(tokenizer)
        assert all(len(self.chat.turn_ids(word)) == 2 for word in words)
        self.model: PreTrainedModel = new_model(tokenizer, width=32, layers=2, heads=2, context=32, seed=seed).eval()
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.ndim == 2:
                    parameter *= 4  # as large as a narrow model needs
        if device == "cpu" and worthwhile():
            speed_up(self.model)  # as any model that is loaded
        self.model.to(device)
        self.params = RolloutParams(
            prompts=len(game.colours),
            response_length=3,
            max_episode_tokens=32,
            slots=len(game.colours) * SAMPLES,
            max_failed_share=0.5,
            ahead=0,
            engine={"kind": "transformers", "compile": False},
        )
        self.engine = TransformersEngine(self.model, self.params.slots, self.params.max_episode_tokens)
        self.policy = Policy(self.model)

    def rollout(self, samples: int, step: int, temperature: float, part: str = POLICY) -> list[Trajectory]:
        """Who plays is the policy, which is a student where there is a teacher too; or another part of it."""
        specs = episodes(self.game, samples, step, self.seed)
        self.policy.play(part)
        self.policy.meet([spec.privileged for spec in specs])
        self.policy.eval()
        self.engine.take(handover_of(self.policy, self.engine.policy_version))
        maker = self.policy.feature_maker
        return asyncio.run(
            play(
                specs,
                seat_in(self.game),
                self.engine,
                self.chat,
                self.params,
                temperature,
                feature=maker.feature(self.chat) if maker is not None else None,
            )
        )

    def warm_start(self, dialogues: int) -> None:
        """Learn to speak, not to play: supervised on senseless dialogues."""
        rng = random.Random(self.seed)

        async def heard() -> list[Example]:
            return [Example(*self.chat.dialogue_ids(await babble(self.game, rng))) for _ in range(dialogues)]

        examples = asyncio.run(heard())
        params = SFTParams(
            epochs=1,
            batch_size=32,
            optimizer="adamw",
            learning_rate=1e-2,
            warmup_share=0.1,
            weight_decay=0.0,
            max_grad_norm=1.0,
            micro_batch_tokens=4096,
            seed=self.seed,
        )
        train_supervised(Policy(self.model), examples, params)
        self.model.eval()

    def train(self, algorithm: Algorithm, steps: int, enough: float) -> list[float]:
        """At most `steps` rollout steps, fewer once four in a row reach `enough`; returns the mean reward of each."""
        frozen = {role: copy.deepcopy(self.model) for role in algorithm.frozen_roles}
        learner = learner_for(
            self.model, algorithm, self.params.prompts, TEMPERATURE, self.seed, frozen, chat=self.chat
        )
        self.policy = learner.policy
        rewards: list[float] = []
        stored = [] if algorithm.on_policy else [self.play(algorithm, step) for step in range(1, steps + 1)]
        for step in range(1, steps + 1):
            self.engine.policy_version = learner.policy_version
            played_by = algorithm.player(learner.policy_version)
            drawn, kept = self.play(algorithm, step) if algorithm.on_policy else stored[step - 1]
            learner.update(kept, score(kept), step)
            rewards.append(mean_reward(drawn))
            if played_by == POLICY and min(rewards[-4:]) >= enough and step >= 4:
                break
        return rewards

    def play(self, algorithm: Algorithm, step: int) -> tuple[list[Trajectory], list[Trajectory]]:
        """One rollout, or several where the algorithm drops groups without signal: all that was drawn, and what to
        learn from.
        """
        dynamic = algorithm.dynamic_sampling
        if dynamic is None:
            part = algorithm.player(self.engine.policy_version)
            drawn = self.rollout(algorithm.group_size, step, TEMPERATURE, part)
            return drawn, drawn
        drawn = []
        for draw in range(dynamic.max_num_gen_batches):
            drawn += self.rollout(algorithm.group_size, 1000 * draw + step, TEMPERATURE)
            if len(informative_groups(drawn, score(drawn), dynamic)) >= len(self.game.colours):
                break
        return drawn, keep_informative(drawn, score(drawn), dynamic, len(self.game.colours))[0]
