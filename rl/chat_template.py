"""Chat templates that keep every word of every turn.

What was learned from must be what is served: a dialogue that grew by appending tokens has to be the dialogue that the
template renders from its messages. Many templates change what was said earlier: they drop thoughts, strip white space,
have no system role, move it to the last message, or write today's date. Such a template is replaced by one put together
from its own pieces, and saved with the model.
"""

import logging
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from rl.environment import Message
from rl.errors import TrainingError

log = logging.getLogger(__name__)
MARK = "\u0007{}\u0007"
# what templates are known to change: thoughts, and white space at the edges
TRICKY = "\n <think>\n\u00070\u0007\n</think>\n\n\u00071\u0007\n "
FOLDED = "\n\n"  # between the instructions and the first user's words, where a template knows no system role
TEMPLATE = (
    "{{%- for m in messages %}}"
    "{{%- if m['role'] == 'system' and loop.first %}}{{{{ {system} + m['content'] }}}}"
    "{{%- elif m['role'] == 'user' and (loop.first or loop.previtem['role'] != 'user') %}}"
    "{{{{ ({first} if loop.first else {after_system} if loop.previtem['role'] == 'system' else {after_turn}) + m['content'] }}}}"
    "{{%- elif m['role'] == 'assistant' and not loop.first and loop.previtem['role'] == 'user' %}}"
    "{{{{ {before_turn} + m['content'] }}}}{{%- if loop.last %}}{{{{ {end} }}}}{{%- endif %}}"
    "{{%- else %}}{{{{ raise_exception('after the system message, user and assistant take turns') }}}}{{%- endif %}}"
    "{{%- endfor %}}{{%- if add_generation_prompt %}}{{{{ {before_turn} }}}}{{%- endif %}}"
)


@dataclass(frozen=True)
class Pieces:
    """What a template writes around words. Made by `pieces_of`, read by `ChatFormat`."""

    first: str  # before a first user message that no system message precedes
    system: str  # before the system message
    after_system: str  # between it and the user's
    before_turn: str  # from the end of a user message to the assistant's words
    after_turn: str  # from there to the next user message

    def render(self, messages: Sequence[Message]) -> str:
        """Messages in turn, beginning with system or user and ending with a user, and the prompt of the next turn."""
        text, before = "", ""
        for message in messages:
            role = message["role"]
            user = {"": self.first, "system": self.after_system, "assistant": self.after_turn}
            piece = {"system": self.system, "assistant": self.before_turn}.get(role) or user[before]
            text, before = text + piece + message["content"], role
        return text + self.before_turn


def render(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> str:
    """The template's text of messages, with the prompt of the next turn.

    Raises:
        TrainingError: the template refuses these messages.
    """
    try:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))
    except TemplateError as error:
        raise TrainingError(
            f"{tokenizer.name_or_path}: the chat template refuses messages of {', '.join(m['role'] for m in messages)}: {error}"
        ) from error


def pieces_of(tokenizer: PreTrainedTokenizerBase) -> Pieces:
    """Derive the pieces from the template itself, by rendering marks.

    Raises:
        TrainingError: there is no template, or it rewrites earlier turns in a way that no pieces describe.
    """
    name = tokenizer.name_or_path
    if not tokenizer.chat_template:
        raise TrainingError(f"{name}: the tokenizer has no chat template; use an instruction-tuned model or set one")
    opening, turn, reply = (MARK.format(i) for i in range(3))
    start = render(tokenizer, [_says("user", opening)])
    whole = render(tokenizer, [_says("user", opening), _says("assistant", turn), _says("user", reply)])
    if not whole.startswith(start) or any(whole.count(mark) != 1 for mark in (opening, turn, reply)):
        raise TrainingError(f"{name}: the chat template rewrites earlier turns, so appending tokens would not match it")
    first, before_turn = start.split(opening)
    after_turn, _ = whole.split(turn)[1].split(reply)
    system, after_system = _around_system(tokenizer, before_turn) or (first, FOLDED)
    return Pieces(first, system, after_system, before_turn, after_turn)


def _around_system(tokenizer: PreTrainedTokenizerBase, before_turn: str) -> tuple[str, str] | None:
    """What comes before a system message and after it; None: the template refuses or forgets it."""
    rules, opening = MARK.format(0), MARK.format(1)
    try:
        text = render(tokenizer, [_says("system", rules), _says("user", opening)])
    except TrainingError:
        return None
    system, found, rest = text.partition(rules)
    after_system, again, end = rest.partition(opening)
    return (system, after_system) if found and again and end == before_turn else None


def keeps_turns(tokenizer: PreTrainedTokenizerBase, pieces: Pieces) -> bool:
    """Whether the template renders dialogues of any words as its pieces say, today and later."""
    if "strftime_now" in str(tokenizer.chat_template):
        return False
    dialogue = [_says("user", TRICKY), _says("assistant", TRICKY), _says("user", TRICKY)]
    try:
        return all(
            render(tokenizer, some) == pieces.render(some) for some in (dialogue, [_says("system", "a"), *dialogue])
        )
    except TrainingError:
        return False


def keep_turns(tokenizer: PreTrainedTokenizerBase) -> Pieces:
    """Replace a tokenizer's template that does not keep turns by one that does; returns its pieces.

    Raises:
        TrainingError: see `pieces_of`. Or a turn has no end.
    """
    pieces = pieces_of(tokenizer)
    ends = tokenizer.encode(pieces.after_turn, add_special_tokens=False) if pieces.after_turn else []
    if not ends:
        raise TrainingError(
            f"{tokenizer.name_or_path}: the chat template does not mark the end of a turn; use an instruction-tuned model or set another template"
        )
    if not keeps_turns(tokenizer, pieces):
        names = ("first", "system", "after_system", "before_turn", "after_turn")
        texts = dict(zip(names, map(_literal, astuple(pieces)), strict=True))
        tokenizer.chat_template = TEMPLATE.format(**texts, end=_literal(str(tokenizer.decode(ends[:1]))))
        log.info(
            "%s: its chat template changes earlier turns (their thoughts, white space, instructions or date); one that keeps them takes its place and is saved with the model",
            tokenizer.name_or_path,
        )
    return pieces


def _says(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _literal(text: str) -> str:
    """As a string of Jinja, whose escapes are Python's."""
    return repr(text)
