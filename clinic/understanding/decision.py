"""Which fact answers a question, or none: the evidence weighed as `decision.yaml` says, learned from labelled questions.

The probability of each fact is the softmax of the weighted sums of its numbers, beside that of none (a conditional
logit with an outside option). The likeliest fact is told where it is likely enough that any answers, and it is not much
less likely than the others: where two facts answer, they share what is likely, and neither has it alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from clinic.understanding.evidence import Evidence, Numbers
from clinic.yaml_files import load_yaml

FILE = Path(__file__).with_name("decision.yaml")
CROSS_ENCODER = Path(__file__).with_name("decision_cross_encoder.yaml")  # where a cross-encoder speaks, too


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Weights by the names of the evidence."""

    answered: float  # probability that any fact answers, from which on one is told
    likeliest: float  # probability that this one must have itself
    facts: Mapping[str, float]
    none: Mapping[str, float]

    def probabilities(self, found: Evidence) -> Numbers:
        """Of each fact, that it answers; float64 (F,), what is left is that none does."""
        sums_F = np.sum([weight * found.facts[name] for name, weight in self.facts.items()], axis=0)
        none = sum(weight * found.none[name] for name, weight in self.none.items())
        highest = max(sums_F.max(), none)
        odds_F = np.exp(sums_F - highest)
        return np.asarray(odds_F / (odds_F.sum() + np.exp(none - highest)))

    def answer(self, found: Evidence) -> int | None:
        """Which fact is told, or None."""
        probabilities_F = self.probabilities(found)
        best = int(probabilities_F.argmax())
        told = probabilities_F.sum() >= self.answered and probabilities_F[best] >= self.likeliest
        return best if told else None


@lru_cache
def decision(file: Path = FILE) -> Decision:
    """The weights of `decision.yaml`, or of another file of its form."""
    source = load_yaml(file)
    return Decision(**source)
