"""An engine that says what a function says: scripted policies in tests, and the slow oracle that the fast engines are
compared with.
"""

import asyncio
from collections.abc import Callable, Sequence

import torch
from transformers import PreTrainedModel

from rl.engines.base import Completion, Finish, Request, draw
from rl.engines.histories import Histories
from rl.handover import Handover
from rl.logits import known_ids

NextToken = Callable[[Sequence[int], int, Request], tuple[int, float]]
"""(all tokens of the session so far, how many of them are of this turn, the request) -> the next token and its
log-probability.
"""


class ScriptedEngine:
    """Serves one turn after the other, token by token."""

    shares_weights = False

    def __init__(self, next_token: NextToken, vocabulary: int, max_length: int) -> None:
        """Args: what to say, tokens there are, tokens per episode."""
        self.policy_version, self.probe_error = 0, 0.0
        self._next_token, self._vocabulary = next_token, vocabulary
        self._histories = Histories("scripted", max_length)

    async def generate(self, request: Request) -> Completion:
        """Append the request's tokens to its session's history and say a turn.

        Raises:
            TrainingError: the session is busy or too long, or was fed what is no token.
        """
        ids = list(self._histories.prompt(request, self._vocabulary))
        start, logprobs = len(ids), list[float]()
        while not logprobs or (ids[-1] != request.sampling.stop_id and len(logprobs) < request.sampling.max_tokens):
            await asyncio.sleep(0)
            token, logprob = self._next_token(ids, len(logprobs), request)
            ids.append(token)
            logprobs.append(logprob)
        self._histories.took(request.session, tuple(ids))
        finish = Finish.STOP if ids[-1] == request.sampling.stop_id else Finish.LENGTH
        return Completion(tuple(ids[start:]), tuple(logprobs), finish, self.policy_version)

    def release(self, session: str) -> None:
        """Forget a session."""
        self._histories.forget(session)

    def take(self, handover: Handover) -> None:
        """Take note of the version."""
        self.policy_version = handover.version

    def sleep(self) -> None:
        """It holds nothing."""

    async def close(self) -> None:
        """Nothing runs in the background."""


def sampled_from(model: PreTrainedModel) -> NextToken:
    """A script that samples from a model, by a forward pass of everything for every token, with the noise of the fast
    engines' oracle.
    """

    @torch.inference_mode()
    def next_token(ids: Sequence[int], place: int, request: Request) -> tuple[int, float]:
        logits_BV = model(input_ids=torch.tensor([ids], device=model.device)).logits[:, -1, : known_ids(model)].float()
        temperature_B = torch.tensor([request.sampling.temperature], device=model.device)
        token_B, logprob_B = draw(
            logits_BV, temperature_B, torch.tensor([request.noise_key - 2**63]), torch.tensor([place])
        )
        return int(token_B), float(logprob_B)

    return next_token
