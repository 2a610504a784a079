"""Messages <-> token ids: token in, token out.

A sampled turn is never decoded and encoded again. What the environment says is encoded once and appended: the suffix
that the model's chat template puts around a user message after an assistant turn is derived from the template itself.
Text from the environment can not smuggle in control tokens: only the template's own pieces are read with special tokens on.
"""

import re
import threading
from collections.abc import Sequence
from dataclasses import astuple
from functools import lru_cache

from transformers import PreTrainedTokenizerBase

from rl.chat_template import MARK, Pieces, keep_turns, render
from rl.environment import Message

LEAD = "\u0007"  # merges with nothing
OPENINGS = 64  # orders of roles whose template is remembered
KEPT = 2**14  # texts whose tokens are remembered: replies come again and again, but not those of a model
# whether control tokens are read as such is something that a tokenizer keeps, for whoever reads with it next
_READING = threading.Lock()


class ChatFormat:
    """The chat template of one tokenizer, as token ids."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Derive the pieces of the template, which is replaced where it does not keep earlier turns as they were.

        Raises:
            TrainingError: the tokenizer has no chat template, or one that rewrites earlier turns or does not end them.
        """
        self.tokenizer = tokenizer
        pieces = keep_turns(tokenizer)
        self.end_id, *self._before_reply_ids = self.template_ids(pieces.after_turn)
        self.after_reply_ids = self.template_ids(pieces.before_turn)
        self._known = lru_cache(KEPT)(self._read_content)
        self._around = lru_cache(OPENINGS)(self._read_opening)
        self._harmful = _plain_controls(tokenizer, pieces)
        # some tokenizers put a space before the first word of whatever they are given, but not behind a control token
        after_control = self.template_ids(f"{tokenizer.decode([self.end_id])}a")[1:]
        self._lead = "" if after_control == self._plain_ids("a") else LEAD

    def template_ids(self, text: str) -> list[int]:
        """Token ids of a piece of the template: control tokens are read as such."""
        if not text:
            return []
        with _READING:
            return list(self.tokenizer.encode(text, add_special_tokens=False))

    def content_ids(self, text: str) -> list[int]:
        """Token ids of somebody's words: no control token can come out of them."""
        return list(self._known(self._harmless(text)))

    def _harmless(self, text: str) -> str:
        """With a space in what could be taken for the template's."""
        return self._harmful.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text) if self._harmful else text

    def _read_content(self, text: str) -> tuple[int, ...]:
        lead = self._plain_ids(self._lead)
        return tuple(self._plain_ids(self._lead + text)[len(lead) :])

    def count(self, text: str) -> int:
        """Tokens of somebody's words; nothing is kept of them."""
        return len(self._plain_ids(self._lead + self._harmless(text))) - len(self._plain_ids(self._lead))

    def _plain_ids(self, text: str) -> list[int]:
        if not text:
            return []
        with _READING:
            return list(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))

    def opening_ids(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the messages before the first turn, generation prompt included."""
        *before, after = self._around(tuple(message["role"] for message in messages))
        ids: list[int] = []
        for piece, message in zip(before, messages, strict=True):
            ids += [*piece, *self.content_ids(message["content"])]
        return [*ids, *after]

    def _read_opening(self, roles: tuple[str, ...]) -> list[list[int]]:
        """What the template puts before each of the opening messages, and after the last."""
        text = render(self.tokenizer, [{"role": role, "content": MARK.format(i)} for i, role in enumerate(roles)])
        pieces = []
        for i in range(len(roles)):
            before, text = text.split(MARK.format(i), 1)
            pieces.append(self.template_ids(before))
        return [*pieces, self.template_ids(text)]

    def reply_ids(self, text: str) -> list[int]:
        """Token ids that follow a finished turn: the environment's words and the prompt for the next turn."""
        return self._before_reply_ids + self.content_ids(text) + self.after_reply_ids

    def turn_ids(self, text: str) -> list[int]:
        """Token ids of a turn written by somebody else (for supervised training), end of turn included."""
        return [*self.content_ids(text), self.end_id]

    def dialogue_ids(self, messages: Sequence[Message], given: int = 0) -> tuple[list[int], list[int]]:
        """A whole recorded dialogue as ids and loss mask (1 on assistant turns only), exactly as a rollout would have
        built it.

        Args:
            messages: opening messages, then assistant and user in turn, ending with the assistant.
            given: assistant turns at the beginning that carry no loss.
        """
        first = next(i for i, message in enumerate(messages) if message["role"] == "assistant")
        ids = self.opening_ids(messages[:first])
        mask = [0] * len(ids)
        for place, message in enumerate(messages[first:]):
            assistant = message["role"] == "assistant"
            new = self.turn_ids(message["content"]) if assistant else self.reply_ids(message["content"])
            ids += new
            mask += [int(assistant and place >= 2 * given)] * len(new)
        return ids, mask

    def text(self, ids: Sequence[int]) -> str:
        """The words of a sampled turn, without its end."""
        kept = list(ids[:-1]) if ids and ids[-1] == self.end_id else list(ids)
        return str(self.tokenizer.decode(kept, skip_special_tokens=False))


def _plain_controls(tokenizer: PreTrainedTokenizerBase, pieces: Pieces) -> re.Pattern[str] | None:
    """Tokens of the template that its tokenizer does not call special, and so reads in words, too; runs of white space, as
    Gemma has, are none. None: there are none.
    """
    added = (token.content for token in tokenizer.added_tokens_decoder.values() if not token.special)
    found = [text for text in added if len(text.strip()) > 1 and any(text in piece for piece in astuple(pieces))]
    return re.compile("|".join(map(re.escape, sorted(found, key=len, reverse=True)))) if found else None
