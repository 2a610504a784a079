"""What is held equal: the model, the episodes and how long every turn is."""

import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from benchmarks.patient import SENTENCES, answer, opening
from rl.chat import ChatFormat
from rl.linear_onednn import worthwhile
from rl.models import new_tokenizer, save_model

SEED = 20240521
Variant = Literal["fixed", "variable"]
VARIANTS: tuple[Variant, ...] = ("fixed", "variable")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A language model with random weights."""

    family: Literal["qwen2", "qwen3"]
    layers: int
    width: int
    inner: int
    heads: int
    shared_heads: int  # key-value heads
    head_width: int
    vocabulary: int
    dtype: Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is played on one kind of machine."""

    shapes: Mapping[str, Shape]
    prompts: int
    samples: int  # episodes per prompt
    turns: int
    fixed: int  # tokens of a doctor turn
    variable: tuple[int, int]  # least and most tokens of a doctor turn, uniform
    micro_batches: int  # of the other side's update; this side's token budget is as large

    @property
    def episodes(self) -> int:
        """In one step."""
        return self.prompts * self.samples

    @property
    def longest(self) -> int:
        """Tokens of the longest doctor turn there can be."""
        return max(self.fixed, self.variable[1])

    def length(self, variant: Variant, step: int, prompt: int, sample: int, turn: int) -> int:
        """How many tokens a doctor turn has: a pure function, so every side plays the same lengths."""
        if variant == "fixed":
            return self.fixed
        return random.Random(f"{SEED}/{step}/{prompt}/{sample}/{turn}").randint(*self.variable)


TINY = Shape(
    family="qwen3",
    layers=6,
    width=256,
    inner=768,
    heads=8,
    shared_heads=4,
    head_width=32,
    vocabulary=359,
    dtype="float32",
)
CPU = Scale(shapes={"tiny": TINY}, prompts=8, samples=8, turns=5, fixed=24, variable=(8, 48), micro_batches=4)
GPU = Scale(
    shapes={
        "qwen2.5-0.5b": Shape(
            family="qwen2",
            layers=24,
            width=896,
            inner=4864,
            heads=14,
            shared_heads=2,
            head_width=64,
            vocabulary=151_936,
            dtype="bfloat16",
        ),
        "qwen2.5-1.5b": Shape(
            family="qwen2",
            layers=28,
            width=1536,
            inner=8960,
            heads=12,
            shared_heads=2,
            head_width=128,
            vocabulary=151_936,
            dtype="bfloat16",
        ),
    },
    prompts=32,
    samples=8,
    turns=5,
    fixed=128,
    variable=(32, 256),
    micro_batches=16,
)
SMOKE = Scale(shapes={"tiny": TINY}, prompts=2, samples=4, turns=3, fixed=6, variable=(2, 10), micro_batches=2)


def device() -> str:
    """Where models are put: the first GPU, or the processor."""
    return "cuda" if torch.cuda.is_available() and not os.environ.get("BENCH_CPU") else "cpu"


def onednn() -> bool:
    """Whether this project's models get oneDNN's products; BENCH_ONEDNN=0 leaves them off, as on an Intel processor."""
    return worthwhile() and os.environ.get("BENCH_ONEDNN") != "0"


def scale(*, quick: bool) -> Scale:
    """What is played here."""
    if quick:
        return SMOKE
    return GPU if device() == "cuda" else CPU


def tokenizer() -> PreTrainedTokenizerFast:
    """Trained on the patient's sentences; the same everywhere.

    A model's vocabulary may be larger: the ids beyond have no text.
    """
    return new_tokenizer(list(SENTENCES) * 8, TINY.vocabulary)


def build(shape: Shape, context: int) -> PreTrainedModel:
    """The model of a shape, with the weights of a fixed seed."""
    words = tokenizer()
    torch.manual_seed(SEED)
    kind = Qwen3Config if shape.family == "qwen3" else Qwen2Config
    config = kind(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.shared_heads,
        head_dim=shape.head_width,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        pad_token_id=words.pad_token_id,
        eos_token_id=words.eos_token_id,
        bos_token_id=None,
    )
    config._attn_implementation = "sdpa"
    model = (Qwen3ForCausalLM if shape.family == "qwen3" else Qwen2ForCausalLM)(config)
    return model.to(getattr(torch, shape.dtype))


def write_model(shape: Shape, context: int, folder: Path) -> Path:
    """Build and save, for everyone to load; returns the folder.

    Its tokenizer has a name for every id, as a real model's, so that all of the head's rows can be sampled.
    """
    with torch.device(device()):  # a processor draws seven billion numbers in minutes
        model = build(shape, context)
    save_model(model, tokenizer(), folder)
    written = folder / "tokenizer.json"
    described = json.loads(written.read_text())
    described["model"]["vocab"] |= {f"<unused {n}>": n for n in range(TINY.vocabulary, shape.vocabulary)}
    written.write_text(json.dumps(described))
    return folder


def longest_episode(played: Scale, variant: Variant, step: int) -> int:
    """Tokens of the longest episode of a step: the opening, every doctor turn, the ends of all but the last, the
    patient's words between them.
    """
    chat = ChatFormat(tokenizer())
    longest = 0
    for prompt in range(played.prompts):
        patient = len(chat.opening_ids(opening(prompt))) + sum(
            1 + len(chat.reply_ids(answer(prompt, turn))) for turn in range(played.turns - 1)
        )
        doctor = max(
            sum(played.length(variant, step, prompt, sample, turn) for turn in range(played.turns))
            for sample in range(played.samples)
        )
        longest = max(longest, patient + doctor)
    return longest


@dataclass(frozen=True)
class Task:
    """What every side of a comparison is given."""

    model: Path  # folder with weights and tokenizer
    shape: Shape
    played: Scale
    variant: Variant

    @property
    def micro_batch_tokens(self) -> int:
        """Padded tokens of one of the other side's micro-batches, at the first step."""
        return self.played.episodes // self.played.micro_batches * longest_episode(self.played, self.variant, 1)


def context_of(played: Scale) -> int:
    """Tokens that no episode exceeds, a multiple of 64."""
    turns = replace(played, fixed=played.longest)
    return -(-(longest_episode(turns, "fixed", 1) + played.longest + 1) // 64) * 64
