"""Learns from practice questions to read question and fact together: `kb.cross_encoder`.

The nearest facts of the record and none compete for a question: the loss is the negative log-likelihood that one of those
wins that answer it. Where there is one, the same is asked again with the answers away, and none is right. Only adapters
and the small network learn (AdamW, a rate that rises and then falls to nothing). Who has new questions need not begin
again: it can go on from the weights that are there, with the new ones and some of the others (`OTHERS`).

Shape suffixes: N pairs of question and fact.
"""

import logging
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrize

from clinic.cases import Case
from clinic.matching import Embed
from clinic.understanding.comparison import FILE, candidates, cross_encoder_weights, with_complaint
from doctor.environments import refuse_other_embedders
from doctor.parameters import ParameterError, Params
from doctor.patient_calibration import cases_of
from doctor.practice_questions import PUBLIC, Practised, practised_public
from kb.cross_encoder import CrossEncoder, Weights
from kb.embed import SentenceTransformerEmbedder, has_bfloat16, load_embedder

RANK, SCALE = 64, 2.0  # of the adapters
RATE, HEAD_RATE, DECAY, WARM_UP = 5e-4, 2e-3, 0.01, 0.06  # of the adapters, of the rest; share of the steps
SLOWER = 0.6  # of both rates, going on
QUESTIONS = 16  # of a step
EPOCHS, MORE_EPOCHS = 2.5, 1.0  # passes over the questions, from the beginning and going on
OTHERS = 0.1  # of the number of new questions, what is read of the others beside them
MORE = 2  # answers beyond the nearest facts that are read, while it learns
AWAY = 0.5  # weight of the loss with the answers away
MAX_GRADIENT_NORM = 1.0
SEED = 0
logger = logging.getLogger(__name__)
Step = tuple[list[str], list[str], list[NDArray[np.bool_]]]  # questions, texts, answers of each question's candidates


def fit_cross_encoder_lines(params: Params, folder: Path, new: str = "", file: Path = FILE) -> list[str]:
    """Train the cross-encoder on the practice questions and write its weights; those that weigh what it says must be
    fitted after it (`patient_fitting`).

    Args:
        params: with the embedder whose transformer it takes.
        folder: of the public case sets.
        new: how the names of the writers begin whose questions are new to the weights in `file`, to go on from these;
            empty: from the beginning, with all questions.
        file: where the weights go.

    Raises:
        ParameterError: a set is not in the folder, no writer's name begins so, or the embedder is not the bundled one.
    """
    refuse_other_embedders(params.knowledge_base)
    cases = cases_of(folder)
    asked = _new_and_some(cases, new) if new else list(practised_public(cases))
    embedder = load_embedder(params.knowledge_base.embedder, params.knowledge_base.batch_size)
    model = learner(embedder, cross_encoder_weights(file) if new else None)
    steps = int((MORE_EPOCHS if new else EPOCHS) * len(asked) / QUESTIONS)
    read = list(_steps(asked, steps, lambda texts: embedder.encode(list(texts))))
    loss = train(model, read, SLOWER if new else 1.0)
    save(model, file)
    return [f"{len(asked)} questions, {steps} steps, loss at the end {loss:.3f}; weights written to {file}"]


def _new_and_some(cases: Mapping[str, Case], new: str) -> list[Practised]:
    found = list(practised_public(cases, lambda writer: writer.startswith(new)))
    if not found:
        raise ParameterError(f"{PUBLIC}: no writer's name begins with {new!r}")
    others = list(practised_public(cases, lambda writer: not writer.startswith(new)))
    return [*found, *random.Random(SEED).sample(others, min(int(OTHERS * len(found)), len(others)))]


def learner(embedder: SentenceTransformerEmbedder, weights: Weights | None = None) -> CrossEncoder:
    """A cross-encoder before its first step, or with weights that were learned, to learn more."""
    torch.manual_seed(SEED)
    model = CrossEncoder(embedder)
    model.transformer.requires_grad_(requires_grad=False)
    for layer in model.transformer.encoder.layer:
        layer.attention.self.dropout.p = 0.0  # drawing these numbers takes a tenth of a step
        for linear in (module for module in layer.modules() if isinstance(module, nn.Linear)):
            parametrize.register_parametrization(linear, "weight", Adapter(linear))
    if weights is not None:
        _restore(model, weights)
    return model.train()


def _restore(model: CrossEncoder, weights: Weights) -> None:
    """What `save` wrote."""
    content = {name: torch.from_numpy(values) for name, values in weights.items()}
    with torch.no_grad():
        for layer, adapter in _adapters(model):
            adapter.up.copy_(content[f"{layer}.up"] / SCALE)
            adapter.down.copy_(content[f"{layer}.down"])
        for name, parameter in model.head.named_parameters():
            parameter.copy_(content[f"head.{name}"])
        model.none.copy_(content["none"])


def _adapters(model: CrossEncoder) -> Iterator[tuple[str, "Adapter"]]:
    """Each with the name of its layer."""
    for name, module in model.transformer.named_modules():
        if isinstance(module, Adapter):
            yield name.removesuffix(".parametrizations.weight.0"), module


class Adapter(nn.Module):
    """A weight and, beside it, a product of two thin matrices, which alone learn (LoRA, arXiv:2106.09685). The sum is made
    once a step: two more products for every pair would take longer than the gradient of the whole weight does.
    """

    def __init__(self, layer: nn.Linear) -> None:
        """It changes nothing before its first step."""
        super().__init__()
        self.down = nn.Parameter(torch.empty(RANK, layer.in_features))
        self.up = nn.Parameter(torch.zeros(layer.out_features, RANK))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """Both together, of the weight's shape."""
        return weight + SCALE * self.up @ self.down


def train(model: CrossEncoder, steps: Sequence[Step], slower: float = 1.0) -> float:
    """Learn in place; the mean loss of the last twentieth of the steps.

    Args:
        model: as `learner` makes it.
        steps: of questions, in order.
        slower: a factor of the learning rates.
    """
    adapters = [p for p in model.transformer.parameters() if p.requires_grad]
    rest = [*model.head.parameters(), model.none]
    optimizer = torch.optim.AdamW(
        [{"params": adapters, "lr": slower * RATE}, {"params": rest, "lr": slower * HEAD_RATE}],
        betas=(0.9, 0.98),
        weight_decay=DECAY,
    )
    device = model.none.device.type
    halved = has_bfloat16(device)  # where it has not, it would take many times as long
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _rates(len(steps)))
    losses: list[float] = []
    began = time.monotonic()
    for number, step in enumerate(steps, 1):
        # on a processor the fused attention takes twice as long as the plain one
        with sdpa_kernel(SDPBackend.MATH), parametrize.cached(), torch.autocast(device, torch.bfloat16, enabled=halved):
            logits_N = model(*step[:2])
        loss = likelihood_loss(logits_N.float(), model.none, step[2])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_([*adapters, *rest], MAX_GRADIENT_NORM)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if number % 50 == 0:
            mean = np.mean(losses[-50:])
            logger.info("step %d of %d, loss %.3f, %.0f s", number, len(steps), mean, time.monotonic() - began)
    return float(np.mean(losses[-max(1, len(losses) // 20) :]))


def likelihood_loss(logits_N: torch.Tensor, none: torch.Tensor, answers: Sequence[NDArray[np.bool_]]) -> torch.Tensor:
    """Mean over the questions of the loss at the head of this module.

    Args:
        logits_N: of the candidates of all questions, one question after the other.
        none: the logit of none.
        answers: of each question, which of its candidates answer it.
    """
    losses = []
    for logits, right in zip(torch.split(logits_N, [len(one) for one in answers]), answers, strict=True):
        all_ = torch.cat([logits, none.view(1)])
        wins = torch.from_numpy(np.append(right, not right.any())).to(all_.device)
        loss = all_.logsumexp(0) - all_[wins].logsumexp(0)
        if right.any():
            loss = loss + AWAY * (all_[~torch.from_numpy(np.append(right, False)).to(all_.device)].logsumexp(0) - none)
        losses.append(loss)
    return torch.stack(losses).mean()


def save(model: CrossEncoder, file: Path = FILE) -> None:
    """Write what was learned, in half precision, the scale of the adapters taken in: whole or not at all."""
    content = {f"head.{name}": value for name, value in model.head.state_dict().items()} | {"none": model.none.detach()}
    for layer, adapter in _adapters(model):
        content |= {f"{layer}.up": SCALE * adapter.up.detach(), f"{layer}.down": adapter.down.detach()}
    halved = {name: value.cpu().numpy().astype(np.float16) for name, value in content.items()}
    temporary = file.with_suffix(".partial.npz")
    np.savez(temporary, allow_pickle=False, **halved)
    temporary.replace(file)


def _rates(steps: int) -> Callable[[int], float]:
    return lambda done: min(1.0, (done + 1) / max(1.0, WARM_UP * steps)) * (1 - done / steps)


def _steps(asked: Sequence[Practised], steps: int, embed: Embed) -> Iterator[Step]:
    """Batches of questions, each with the facts that lie nearest; none comes again in a pass, and less than a batch of
    them not at all.
    """
    chance = random.Random(SEED)
    read = [_candidates(one, near) for one, near in zip(asked, _nearness(asked, embed), strict=True)]
    order: list[int] = []
    for _ in range(steps):
        if len(order) < QUESTIONS:
            order = chance.sample(range(len(asked)), len(asked))
        batch, order = order[-QUESTIONS:], order[:-QUESTIONS]
        questions = [with_complaint(asked[i].question, asked[i].complaint) for i in batch for _ in read[i]]
        texts = [asked[i].headed[fact] for i in batch for fact in read[i]]
        yield questions, texts, [asked[i].answers[read[i]] for i in batch]


def _candidates(one: Practised, near_F: NDArray[np.float64]) -> list[int]:
    nearest = candidates(near_F)
    return [*nearest, *[int(i) for i in np.flatnonzero(one.answers) if i not in nearest][:MORE]]


def _nearness(asked: Sequence[Practised], embed: Embed) -> list[NDArray[np.float64]]:
    """Of each question, the cosine to each fact under its heading."""
    texts = sorted({text for one in asked for text in (one.question, *one.headed)})
    vectors = dict(zip(texts, embed(texts), strict=True))
    return [
        np.stack([vectors[text] for text in one.headed]).astype(np.float64) @ vectors[one.question] for one in asked
    ]
