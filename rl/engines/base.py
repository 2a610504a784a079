"""What every engine is: a place where a session's tokens are continued by the current policy."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import torch

from rl.handover import Handover

NOTHING_FED = "session {!r} was fed no token, so that there is nothing to continue; give its first turn a prompt"


class Finish(StrEnum):
    """Why a completion ended."""

    STOP = "stop"  # the policy sampled the end of its turn
    LENGTH = "length"  # the token limit cut it


@dataclass(frozen=True)
class Sampling:
    """How to sample one turn."""

    temperature: float  # 0 = greedy
    max_tokens: int
    stop_id: int | None  # the token that ends a turn; None: the limit alone does


@dataclass(frozen=True)
class Request:
    """Tokens to append to a session, to be continued by one sampled turn."""

    session: str  # one per episode; the engine may keep its KV cache between turns
    token_ids: tuple[int, ...]  # only what is new since the session's last completion
    noise_key: int  # 64 bits; with the token's place in the turn it fixes the sampling noise
    sampling: Sampling
    input_embeddings: torch.Tensor | None = None  # float (n, D), fed before token_ids


@dataclass(frozen=True)
class Completion:
    """A sampled turn. `logprobs` are under the distribution it was sampled from (temperature applied)."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Finish
    policy_version: int


class Engine(Protocol):
    """Generates turns for many sessions at once."""

    policy_version: int
    probe_error: float  # largest difference of a log-probability from the trainer's at the last take, nats
    shares_weights: bool  # the learner's own weights and arithmetic: in float32 its log-probabilities are the learner's

    async def generate(self, request: Request) -> Completion:
        """Append the request's tokens to its session and sample a turn."""
        ...

    def release(self, session: str) -> None:
        """Forget a session."""
        ...

    def take(self, handover: Handover) -> None:
        """Wake up if asleep, and sample from this policy as it is now; completions carry its version from now on.

        Called between rollouts, by `rl.phases` alone.
        """
        ...

    def sleep(self) -> None:
        """Give back the memory that only playing needs; nothing on a processor. Called between rollouts, by `rl.phases`
        alone.
        """
        ...

    async def close(self) -> None:
        """Wait for background work to end."""
        ...


def noise_key(*parts: object) -> int:
    """A 64-bit key from (run, step, case, sample, turn): the same parts give the same sampling noise, whatever else is
    running.
    """
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def uniform(key_B: torch.Tensor, place_B: torch.Tensor) -> torch.Tensor:
    """Counter-based uniform noise: splitmix64 of key and token place.

    Args:
        key_B: int64 (B,), noise keys (two's complement).
        place_B: int64 (B,), index of the token within its turn.

    Returns:
        float64 (B,) in [0, 1).

    Source:
        Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    z = key_B + (place_B + 1) * _signed(0x9E3779B97F4A7C15)
    z = (z ^ _shift(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shift(z, 27)) * _signed(0x94D049BB133111EB)
    z = z ^ _shift(z, 31)
    return _shift(z, 11).to(torch.float64) / 2**53


def draw(
    logits_BV: torch.Tensor, temperature_B: torch.Tensor, key_B: torch.Tensor, place_B: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token a row by inverting the cumulative distribution at a keyed uniform.

    Args:
        logits_BV: float32 (B, V).
        temperature_B: float32 (B,); 0 takes the likeliest.
        key_B: int64 (B,), noise keys (two's complement).
        place_B: int64 (B,), index of the token within its turn.

    Returns:
        token_B: int64 (B,).
        logprob_B: float32 (B,), under the distribution it was drawn from (greedily: at temperature 1), nats.
    """
    greedy_B = temperature_B == 0
    logprob_BV = torch.log_softmax(logits_BV / torch.where(greedy_B, 1.0, temperature_B)[:, None], dim=-1)
    cumulative_BV = logprob_BV.double().exp().cumsum(-1)
    target_B1 = uniform(key_B, place_B).to(logits_BV.device)[:, None] * cumulative_BV[:, -1:]
    drawn_B = torch.searchsorted(cumulative_BV, target_B1, right=True)[:, 0].clamp(max=logits_BV.shape[1] - 1)
    token_B = torch.where(greedy_B, logprob_BV.argmax(-1), drawn_B)
    return token_B, logprob_BV.gather(1, token_B[:, None])[:, 0]


def _signed(x: int) -> int:
    return x - 2**64 if x >= 2**63 else x


def _shift(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical right shift of int64."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
