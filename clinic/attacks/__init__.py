"""Doctors that try to be paid without working: what a reward must not fall for.

Each attack is a doctor: what it has heard so far in, its next turn out, in the language of the case. None knows the
chart. `doctor.attacks` seats them in consultations with the scripted patient and compares what they earn with honest
doctors' pay, under any preset.
"""

from collections.abc import Mapping
from types import MappingProxyType

from clinic.attacks.answers import ANSWERS
from clinic.attacks.asking import ASKING
from clinic.attacks.base import Attack, Seat, Trade
from clinic.attacks.searching import SEARCHING

ATTACKS: Mapping[str, Attack] = MappingProxyType({**ANSWERS, **ASKING, **SEARCHING})

__all__ = ["ATTACKS", "Attack", "Seat", "Trade"]
