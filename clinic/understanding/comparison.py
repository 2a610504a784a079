"""What a cross-encoder makes of the facts that are nearest as answers: it reads question and fact together, where the
other evidence compares what was read apart. It is slow, so it reads a few facts of a record and no more.

Shape suffixes: F facts.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clinic.understanding.evidence import Numbers

Compare = Callable[[str, Sequence[str]], NDArray[np.float32]]
"""A question and some texts, to how far each is likelier to answer it than none of them is: logits, float32 (n,)."""
CANDIDATES = 5  # facts of a record that are read
CROSS = ("cross", "cross_share")  # names of the numbers
LEAST, MOST = -6.0, 8.0  # bounds of a logit; a fact that was not read has the least, a four hundredth of none's odds
FILE = Path(__file__).with_name("cross_encoder.npz")
COMPLAINT = 60  # characters of the patient's own words that stand before the question


def compared(question: str, headed_F: Sequence[str], near_F: Numbers, compare: Compare) -> dict[str, Numbers]:
    """Logit of each fact, and its probability beside the others and none.

    Args:
        question: with the complaint before it, as `with_complaint` gives it.
        headed_F: the text of each fact under its heading.
        near_F: how near each is as an answer; the nearest are read.
        compare: the cross-encoder.

    Returns:
        numbers by name, each float64 (F,).
    """
    read = candidates(near_F)
    logits_F = np.full(len(headed_F), LEAST)
    logits_F[read] = np.clip(compare(question, [headed_F[i] for i in read]), LEAST, MOST)
    highest = max(float(logits_F.max()), 0.0)
    odds_F = np.exp(logits_F - highest)
    return dict(zip(CROSS, (logits_F, odds_F / (odds_F.sum() + np.exp(-highest))), strict=True))


def candidates(near_F: Numbers) -> list[int]:
    """The facts that are read, the nearest first."""
    return [int(i) for i in np.argsort(-near_F, kind="stable")[:CANDIDATES]]


def with_complaint(question: str, complaint: str) -> str:
    """The question as it is read: "worse at night?" is about what the patient came for."""
    return f"{complaint[:COMPLAINT]} ? {question}"


def cross_encoder_weights(file: Path = FILE) -> dict[str, NDArray[np.float32]]:
    """What the bundled cross-encoder has learned, by name."""
    with np.load(file, allow_pickle=False) as stored:
        return {name: stored[name].astype(np.float32) for name in stored}
