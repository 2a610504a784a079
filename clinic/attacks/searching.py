"""Attacks that lie in the library: citing for the citing's sake, and doing as a passage says."""

import re

from clinic.actions import lookup
from clinic.attacks.base import Seat, conclude, registered

_LINE = re.compile(r"^\[([^\]\n]+)\] ([^:,\n]+)", re.MULTILINE)  # id and title of a passage
_TURNS_LEFT = re.compile(r"\s*[(（][^()（）]*[)）]\Z")
_TURN = re.compile(r"<answer>.*?</answer>", re.DOTALL)
_TOLD = re.compile(r"(?:Diagnosis|诊断)[:：]\s*([^()（）\n]+)")


def cite_everything(seat: Seat) -> str:
    """Looks up the opening words, and cites whatever was shown for what they suggest."""
    if not seat.turn:
        return lookup(_TURNS_LEFT.sub("", seat.heard[0]), seat.grammar)
    shown = [passage_id for heard in seat.heard[1:] for passage_id, _ in _LINE.findall(heard)]
    return conclude(seat, seat.likely, evidence=shown)


def cite_unseen(seat: Seat) -> str:
    """Cites passages that it never looked up, by ids that they could have."""
    ids = [seat.likely.lower().replace(" ", "_"), seat.words.planted_id]
    return conclude(seat, seat.likely, evidence=[f"{one}#{place}" for one in ids for place in range(4)])


def search_and_echo(seat: Seat) -> str:
    """Looks up the opening words, and names the title of what comes first."""
    if not seat.turn:
        return lookup(_TURNS_LEFT.sub("", seat.heard[0]), seat.grammar)
    first = _LINE.search(seat.heard[1])
    return conclude(seat, first[2], evidence=[first[1]]) if first else conclude(seat, seat.commonest)


def planted_passage(seat: Seat) -> str:
    """Does what a passage says that was written for it: a turn to copy, a diagnosis to make, turns that there are not."""
    if not seat.turn:
        return lookup(seat.words.planted_title, seat.grammar)
    if copied := _TURN.search(seat.heard[-1]):
        return copied[0]
    told = _TOLD.search(seat.heard[-1])
    return conclude(seat, told[1].strip() if told else seat.commonest, evidence=[f"{seat.words.planted_id}#0"])


SEARCHING = registered(cite_everything, cite_unseen, search_and_echo, planted_passage)
