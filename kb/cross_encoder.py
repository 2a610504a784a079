"""Question and text read together by one model (a cross-encoder), where the embedder reads each apart.

The embedder's own transformer, with a thin product of two matrices added to each linear layer (LoRA, arXiv:2106.09685),
and a small network on what it makes of the pair: how likely the text answers the question, against a constant for "no
text does". It knows nothing of where its weights come from.

Shape suffixes: N texts, T tokens, H the transformer's width.
"""

import copy
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from kb.embed import SentenceTransformerEmbedder
from kb.errors import KnowledgeBaseError

LONGEST = 96  # tokens of question and text together; the longer one is cut
TOGETHER = 24  # pairs of like length are padded alike
HIDDEN = 64  # width of the small network
Weights = Mapping[str, NDArray[np.float32]]


class CrossEncoder(nn.Module):
    """How likely a text answers a question, for whoever trains it and, `eval()`, for whoever asks it."""

    def __init__(self, embedder: SentenceTransformerEmbedder) -> None:
        """A copy of the embedder's transformer; it tells nothing before it has learned or been given weights."""
        super().__init__()
        self.transformer, self._tokenizer = copy.deepcopy(embedder.transformer).float(), embedder.tokenizer
        self.head = nn.Sequential(nn.Linear(2 * embedder.dimension, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        self.none = nn.Parameter(torch.zeros(()))
        self._device = next(self.transformer.parameters()).device
        self.to(self._device)

    def forward(self, questions: Sequence[str], texts: Sequence[str]) -> torch.Tensor:
        """Logits of pairs, before that of none is taken off; float32 (N,)."""
        by_length = sorted(range(len(texts)), key=lambda i: len(questions[i]) + len(texts[i]))
        groups = [by_length[i : i + TOGETHER] for i in range(0, len(texts), TOGETHER)]
        logits_N = torch.cat([self._padded([questions[i] for i in g], [texts[i] for i in g]) for g in groups])
        return logits_N[torch.tensor(by_length).argsort().to(self._device)]

    def _padded(self, questions: list[str], texts: list[str]) -> torch.Tensor:
        pairs = self._tokenizer(
            questions, texts, truncation="longest_first", max_length=LONGEST, padding=True, return_tensors="pt"
        ).to(self._device)
        states_NTH = self.transformer(**pairs).last_hidden_state.float()
        there_NT1 = pairs["attention_mask"].unsqueeze(-1).float()
        mean_NH = (states_NTH * there_NT1).sum(1) / there_NT1.sum(1)
        logits_N: torch.Tensor = self.head(torch.cat([states_NTH[:, 0], mean_NH], dim=1)).squeeze(-1)
        return logits_N

    @torch.inference_mode()
    def compare(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """By how much each text is likelier to answer than none of them is: logits, float32 (N,)."""
        logits_N = self([question] * len(texts), texts) - self.none
        return np.asarray(logits_N.cpu().numpy())

    def load(self, weights: Weights) -> None:
        """Add learned weights, as `commands.calibration fit_cross_encoder` writes them.

        Raises:
            KnowledgeBaseError: they are those of a transformer of another shape.
        """
        layers = dict(self.transformer.named_modules())
        rest = {name: torch.from_numpy(np.array(values)) for name, values in weights.items()}
        try:
            for name in sorted(name.removesuffix(".up") for name in weights if name.endswith(".up")):
                layers[name].weight.data += (rest.pop(f"{name}.up") @ rest.pop(f"{name}.down")).to(self._device)
            self.head.load_state_dict({name.removeprefix("head."): v for name, v in rest.items() if name != "none"})
            self.none.data.copy_(rest["none"])
        except (KeyError, RuntimeError) as error:
            raise KnowledgeBaseError(f"cross-encoder weights are those of another embedder: {error}") from error


def load_cross_encoder(embedder: SentenceTransformerEmbedder, weights: Weights) -> CrossEncoder:
    """A cross-encoder that can be asked.

    Raises:
        KnowledgeBaseError: the weights are those of another embedder.
    """
    with torch.random.fork_rng(devices=[]):
        model = CrossEncoder(embedder)
    model.load(weights)
    return model.eval()
