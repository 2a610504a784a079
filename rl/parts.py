"""Names of the parts of a policy that algorithms speak of, and what adapting parts tell of a forward pass.

Shapes: S sequences of a micro-batch, N loss positions.
"""

from dataclasses import dataclass

import torch

POLICY, CRITIC = "policy", "critic"
TEACHER = "teacher"  # of a policy that is taught by what it was, with a chart in its prompt
ACTOR, ENCODER, ADAPT, EMA = "actor", "encoder_priv", "adapt_module", "adapt_ema"  # beside a privileged teacher


@dataclass(frozen=True)
class Adaptation:
    """What beside log-probabilities a forward pass gives; None for what it did not look at."""

    error_S: torch.Tensor | None  # float32, squared, mean over a sequence's turns: feature against its prediction
    kl_N: torch.Tensor | None  # float32, nats, of the teacher's distribution to the student's
