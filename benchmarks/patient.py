"""A scripted patient with nothing to compute: what is measured is the machinery around it.

The opening names the case, the answers depend on case and turn only, the reward of a turn is the share of vowels in
what the doctor said.
"""

from dataclasses import dataclass
from typing import Any

from rl.environment import Message

OPENINGS = (
    "My stomach hurts after meals.",
    "I cough at night.",
    "My knee is swollen.",
    "I feel dizzy when I stand up.",
)
ANSWERS = (
    "Since about two weeks, and it is getting worse.",
    "No, nothing like that.",
    "Yes, in the evening, when I lie down.",
    "I had it once before, as a child.",
    "My mother had the same, I think.",
    "Only when I walk up the stairs.",
    "I do not know what you mean.",
)
SENTENCES = (*OPENINGS, *ANSWERS, "Case 0123456789: ")


@dataclass(frozen=True)
class Outcome:
    """The reward of a turn. Satisfies `rl.environment.Event`."""

    outcome: float

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"outcome": self.outcome}


@dataclass(frozen=True)
class Reply:
    """Satisfies `rl.environment.EnvironmentReply`."""

    text: str | None
    event: Outcome
    stop_reason: str | None = None


def opening(prompt: int) -> list[Message]:
    """The messages before the doctor's first turn."""
    return [{"role": "user", "content": f"Case {prompt}: {OPENINGS[prompt % len(OPENINGS)]}"}]


def answer(prompt: int, turn: int) -> str:
    """What the patient says after the doctor's turn `turn` (from 0)."""
    return ANSWERS[(prompt + turn) % len(ANSWERS)]


def reward(said: str) -> float:
    """Share of vowels; something that differs between the members of a group."""
    return sum(letter in "aeiou" for letter in said) / max(len(said), 1)


@dataclass
class Patient:
    """One consultation of a fixed number of doctor turns. Satisfies `rl.environment.Environment`."""

    prompt: int
    turns: int
    done: int = 0

    def opening(self) -> list[Message]:
        """See `opening`."""
        return opening(self.prompt)

    async def step(self, turn: str) -> Reply:
        """Answer, until the last turn."""
        self.done += 1
        event = Outcome(reward(turn))
        if self.done == self.turns:
            return Reply(None, event)
        return Reply(answer(self.prompt, self.done - 1), event)
