"""How far a student's token distributions are from a teacher's, over the whole vocabulary.

Shapes: N loss positions, D width of a hidden state, V vocabulary.
"""

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from rl.batching import LOGIT_BYTES, MicroBatch, hidden_states
from rl.logits import known_ids, logits_of


def at_loss(model: PreTrainedModel, batch: MicroBatch) -> torch.Tensor:
    """Last hidden states where loss positions are predicted from, (N, D)."""
    return hidden_states(model.get_decoder(), batch, everywhere=False)[batch.row_N, batch.source_N]


def kl_between(
    teacher: PreTrainedModel,
    teacher_ND: torch.Tensor,
    student: PreTrainedModel,
    student_ND: torch.Tensor,
    temperature: float,
    *,
    reverse: bool = False,
) -> torch.Tensor:
    """KL(teacher || student), or in `reverse` KL(student || teacher), at each position, float32 (N,), nats.

    Logits exist in chunks; a chunk's are computed again for its gradient, which reaches the student alone.

    Args:
        teacher: whose head reads the first hidden states.
        teacher_ND: at the positions.
        student: whose head reads the second.
        student_ND: at the same positions.
        temperature: divides both logits.
        reverse: see above. Forward the student comes to say the mean of what teachers of different charts say; in reverse
            what is likely to all of them.
    """

    def chunk(teacher_cD: torch.Tensor, student_cD: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            wanted_cV = torch.log_softmax(logits_of(teacher, teacher_cD) / temperature, dim=-1)
        found_cV = torch.log_softmax(logits_of(student, student_cD) / temperature, dim=-1)
        if reverse:
            return (found_cV.exp() * (found_cV - wanted_cV)).sum(-1)
        return (wanted_cV.exp() * (wanted_cV - found_cV)).sum(-1)

    size = max(1, LOGIT_BYTES[student_ND.device.type] // (8 * known_ids(student)))  # two of them, in float32
    chunks = list(zip(torch.split(teacher_ND, size), torch.split(student_ND, size), strict=True))
    again = len(chunks) > 1 and torch.is_grad_enabled()
    return torch.cat([checkpoint(chunk, *one, use_reentrant=False) if again else chunk(*one) for one in chunks])
