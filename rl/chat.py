"""Messages <-> token ids: token in, token out.

A sampled turn is never decoded and encoded again. What the environment says is encoded once and appended: the suffix
that the model's chat template puts around a user message after an assistant turn is derived from the template itself.
Text from the
environment can not smuggle in control tokens: only the template's own pieces are read with special tokens on.
"""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from rl.environment import Message
from rl.errors import TrainingError

_MARK = "\u0007{}\u0007"


class ChatFormat:
    """The chat template of one tokenizer, as token ids."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Derive the pieces of the template.

        Raises:
            TrainingError: the tokenizer has no chat template, or one that rewrites earlier turns or does not end them.
        """
        self.tokenizer = tokenizer
        if not tokenizer.chat_template:
            raise TrainingError(
                f"{tokenizer.name_or_path}: the tokenizer has no chat template; use an instruction-tuned model or set one"
            )
        first, turn, reply = (_MARK.format(i) for i in range(3))
        opening = [{"role": "user", "content": first}]
        dialogue = [*opening, {"role": "assistant", "content": turn}, {"role": "user", "content": reply}]
        start = self._render(opening)
        whole = self._render(dialogue)
        if not whole.startswith(start) or any(whole.count(mark) != 1 for mark in (first, turn, reply)):
            raise TrainingError(
                f"{tokenizer.name_or_path}: the chat template rewrites earlier turns, so appending tokens would not match it"
            )
        closing, self._after_reply = whole.split(turn)[1].split(reply)
        ids = self.template_ids(closing)
        if not ids:
            raise TrainingError(
                f"{tokenizer.name_or_path}: the chat template does not mark the end of a turn; use an instruction-tuned model or set another template"
            )
        self.end_id = ids[0]
        self._before_reply_ids = ids[1:]
        self.after_reply_ids = self.template_ids(self._after_reply)
        self._cache: dict[str, list[int]] = {}

    def _render(self, messages: Sequence[Message]) -> str:
        return str(self.tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))

    def template_ids(self, text: str) -> list[int]:
        """Token ids of a piece of the template: control tokens are read as such."""
        return list(self.tokenizer.encode(text, add_special_tokens=False)) if text else []

    def content_ids(self, text: str) -> list[int]:
        """Token ids of somebody's words: no control token can come out of them."""
        if text not in self._cache:
            self._cache[text] = (
                list(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)) if text else []
            )
        return self._cache[text]

    def opening_ids(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the messages before the first turn, generation prompt included."""
        marked = [{**message, "content": _MARK.format(i)} for i, message in enumerate(messages)]
        text = self._render(marked)
        ids: list[int] = []
        for i, message in enumerate(messages):
            before, text = text.split(_MARK.format(i), 1)
            ids += self.template_ids(before) + self.content_ids(message["content"])
        return ids + self.template_ids(text)

    def reply_ids(self, text: str) -> list[int]:
        """Token ids that follow a finished turn: the environment's words and the prompt for the next turn."""
        return self._before_reply_ids + self.content_ids(text) + self.after_reply_ids

    def turn_ids(self, text: str) -> list[int]:
        """Token ids of a turn written by somebody else (for supervised training), end of turn included."""
        return [*self.content_ids(text), self.end_id]

    def dialogue_ids(self, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
        """A whole recorded dialogue as ids and loss mask (1 on assistant turns only), exactly as a rollout would have
        built it.

        Args:
            messages: opening messages, then assistant and user in turn, ending with the assistant.
        """
        first = next(i for i, message in enumerate(messages) if message["role"] == "assistant")
        ids = self.opening_ids(messages[:first])
        mask = [0] * len(ids)
        for message in messages[first:]:
            assistant = message["role"] == "assistant"
            new = self.turn_ids(message["content"]) if assistant else self.reply_ids(message["content"])
            ids += new
            mask += [int(assistant)] * len(new)
        return ids, mask

    def text(self, ids: Sequence[int]) -> str:
        """The words of a sampled turn, without its end."""
        kept = list(ids[:-1]) if ids and ids[-1] == self.end_id else list(ids)
        return str(self.tokenizer.decode(kept, skip_special_tokens=False))
