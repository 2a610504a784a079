"""What each session was fed and sampled, for engines that are given the whole history at every turn."""

from rl.engines.base import NOTHING_FED, Request
from rl.errors import TrainingError


class Histories:
    """Token ids by session; a session is busy from `prompt` to `took`."""

    def __init__(self, engine: str, max_length: int, coldest: float = 0.0) -> None:
        """Args: the engine's name for messages, tokens per session, the lowest temperature beside 0 that it samples at."""
        self._engine, self._max_length, self._coldest = engine, max_length, coldest
        self._tokens: dict[str, tuple[int, ...]] = {}
        self._busy: set[str] = set()

    def prompt(self, request: Request, vocabulary: int) -> tuple[int, ...]:
        """The session's history with what is new.

        Raises:
            TrainingError: the session is busy, empty or too long, or the request has embeddings, unknown tokens or too low a
                temperature.
        """
        session, before = request.session, self._tokens.get(request.session, ())
        if request.input_embeddings is not None:
            raise TrainingError(
                f"the engine {self._engine} takes tokens only; use an engine of kind transformers where embeddings are fed"
            )
        if session in self._busy:
            raise TrainingError(
                f"session {session!r} is in the middle of a turn; give every episode a session name of its own"
            )
        if not (before or request.token_ids):
            raise TrainingError(NOTHING_FED.format(session))
        need = len(before) + len(request.token_ids) + request.sampling.max_tokens
        if need > self._max_length:
            raise TrainingError(
                f"a session needs {need} tokens but rollout.max_episode_tokens is {self._max_length}; raise it or lower the turn budget"
            )
        if 0 < request.sampling.temperature < self._coldest:
            given = f"{request.sampling.temperature:g}; change section decoding"
            raise TrainingError(
                f"the engine {self._engine} samples at temperatures from {self._coldest:g} on, or at 0, not at {given}"
            )
        if wrong := [token for token in request.token_ids if not 0 <= token < vocabulary]:
            raise TrainingError(
                f"session {session!r} was fed token {wrong[0]}, which is outside the model's vocabulary of {vocabulary}"
            )
        self._busy.add(session)
        return before + request.token_ids

    def took(self, session: str, tokens: tuple[int, ...]) -> None:
        """A turn has ended: all tokens of the session, the sampled ones as they were sampled."""
        self._tokens[session] = tokens
        self._busy.discard(session)

    def forget(self, session: str) -> None:
        """The session is over."""
        self._tokens.pop(session, None)
        self._busy.discard(session)

    def sessions(self) -> set[str]:
        """Those not forgotten."""
        return self._busy | self._tokens.keys()
