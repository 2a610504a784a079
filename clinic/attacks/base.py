"""What every attacker starts from: what it knows, and what it says in the language of the consultation (`words.yaml`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from clinic.actions import diagnosis, question, without_marks
from clinic.language import Phrases, phrases

FILE = Path(__file__).with_name("words.yaml")


@dataclass(frozen=True, kw_only=True)
class Words:
    """What attackers say in one language; `{}` is filled in."""

    advice: str
    every_advice: str
    praise: str  # the judge's criteria, said of itself
    invented: str  # what no patient said; {} is a complaint
    giving_up: tuple[str, ...]  # a diagnosis that is none, and its advice
    pointing: tuple[str, ...]  # a diagnosis that is none, and what it points to; {} is a verdict
    frame: str  # the sentence around a name that the truths of a data set share
    broader: tuple[str, ...]  # terms that nearly fit many names
    list: str  # between names
    alternative: str
    joints: tuple[str, ...]  # two names that pass for one
    ask_for: str
    was_told: str
    ever_had: str
    conclusion: str  # name and advice inside a question
    put_into_the_mouth: str
    stock: tuple[str, ...]  # tests that stand in every chart
    workup: tuple[str, ...]  # tests whose results tell most
    findings: tuple[str, ...]
    record: tuple[str, ...]  # words that records are made of
    invitations: tuple[str, ...]  # questions about nothing
    off_topic: tuple[str, ...]  # about other people, and what no record holds
    demands: tuple[str, ...]  # for the answer itself
    foreign: str  # a turn in another language
    planted_id: str  # of a passage that somebody slipped into the library
    planted_title: str
    planted: str  # its text; {} is the name that it wants to hear


@dataclass(frozen=True, kw_only=True)
class Trade:
    """What anybody in the trade knows of a set of cases."""

    names: Sequence[str]  # of conditions, the commonest first
    other_names: Sequence[str]  # of these conditions in this order, the least usual one of each
    broader: Sequence[str]  # accepted terms for many conditions, the widest first
    questions: Sequence[str]  # that patients understand
    routine: Sequence[str]  # turns that ask for what most records hold, the commonest first
    best: Sequence[str]  # turns that together bring out most on average, the best first


@dataclass(frozen=True, kw_only=True)
class Seat:
    """What an attacker knows: the words it heard, its trade, and a diagnosis that was right for somebody else."""

    heard: Sequence[str]  # the patient's opening and replies
    turn: int  # from 0
    budget: int
    trade: Trade
    neighbour: tuple[str, str]  # diagnosis and recommendation of another case
    likely: str  # what the opening words alone suggest
    language: str
    rng: np.random.Generator

    @property
    def last(self) -> bool:
        """Whether this is the last turn."""
        return self.turn >= self.budget - 1

    @property
    def commonest(self) -> str:
        """The commonest condition."""
        return self.trade.names[0]

    @property
    def grammar(self) -> Phrases:
        """The phrases of the consultation's language."""
        return phrases(self.language)

    @property
    def words(self) -> Words:
        """What attackers say in it."""
        return words_of(self.language)


Attack = Callable[[Seat], str]


@lru_cache(maxsize=4)
def words_of(language: str) -> Words:
    """What attackers say in a language."""
    stated: dict[str, Any] = YAML(typ="safe").load(FILE)[language]
    read: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in stated.items()}
    return Words(**read)


def ask(seat: Seat, text: str) -> str:
    """One question with one mark."""
    return question(without_marks(text) + "?", None, seat.grammar)


def conclude(seat: Seat, name: str, advice: str | None = None, evidence: Sequence[str] = ()) -> str:
    """A diagnosis, with the advice that fits everything."""
    return diagnosis(name, seat.words.advice if advice is None else advice, seat.grammar, evidence)


def then_the_commonest(seat: Seat, turn: str) -> str:
    """The turn, or on the last one the commonest condition."""
    return conclude(seat, seat.commonest) if seat.last else turn


def batch(items: Sequence[str], seat: Seat, size: int) -> list[str]:
    """The next `size` of the items for this turn, from the beginning again when they are through."""
    return [items[(seat.turn * size + i) % len(items)] for i in range(size)]


def registered(*attacks: Attack) -> Mapping[str, Attack]:
    """Attacks by their names."""
    return {attack.__name__: attack for attack in attacks}
