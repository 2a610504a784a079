"""The critic: an estimate V of the reward still to come, read off a language model's last hidden state.

V of a state is read at the last token before it: the place whose hidden state also predicts the next token.
"""

import copy

import torch
from transformers import PreTrainedModel

from rl.batching import MicroBatch, hidden_states
from rl.ranks import load_weights, whole


class Critic(torch.nn.Module):
    """A value head, on a trunk of its own or on the policy's."""

    def __init__(self, policy: PreTrainedModel, shared: bool) -> None:
        """Begins as the policy with a head of zeros, so that V is 0 at first.

        Args:
            policy: the model whose trunk is copied, or shared.
            shared: use the policy's own hidden states; else the critic has its own copy of the trunk.
        """
        super().__init__()
        self.trunk = None if shared else copy.deepcopy(policy.get_decoder())
        width = policy.get_output_embeddings().weight.shape[1]
        self.head = torch.nn.Linear(width, 1, device=policy.device, dtype=torch.float32)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    @property
    def reads_policy(self) -> bool:
        """Whether it reads the policy's own hidden states."""
        return self.trunk is None

    @torch.no_grad()
    def begin(self, policy: PreTrainedModel) -> None:
        """Be again what it is made as: the policy's trunk and a head of zeros."""
        if self.trunk is not None:
            load_weights(self.trunk, {name: whole(value) for name, value in policy.get_decoder().state_dict().items()})
        for parameter in self.head.parameters():
            parameter.zero_()

    def forward(self, batch: MicroBatch, policy_hidden_BTD: torch.Tensor | None) -> torch.Tensor:
        """V after every token.

        Args:
            batch: the sequences.
            policy_hidden_BTD: the policy's last hidden states for them, used with a shared trunk.

        Returns:
            value_BT: float32 (B, T), reward units; entry t is V of the state after token t.
        """
        hidden_BTD = hidden_states(self.trunk, batch) if self.trunk is not None else policy_hidden_BTD
        assert hidden_BTD is not None  # noqa: S101  a shared trunk's caller gives them
        value_BT: torch.Tensor = self.head(hidden_BTD.float())[..., 0]
        return value_BT
