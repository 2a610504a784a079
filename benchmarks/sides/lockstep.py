"""The usual multi-turn rollout: generate one turn for the whole batch, let every environment answer, again.

The loop is the same for every generator; a generator turns prompts (token ids) and lengths into completions (token
ids).
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from benchmarks.patient import Patient
from benchmarks.setting import Scale, Task, Variant, context_of, device
from benchmarks.sides.ours import squares
from benchmarks.worker import Figures, serve
from rl.chat import ChatFormat

Ids = list[int]
Generator = Callable[[Sequence[Ids], Sequence[int]], list[Ids]]


@dataclass(kw_only=True)
class Dialogue:
    """One episode under way."""

    prompt: int
    sample: int
    patient: Patient
    opening: Ids
    ids: Ids = field(default_factory=list)  # after the opening
    mask: Ids = field(default_factory=list)  # 1: sampled
    rewards: list[float] = field(default_factory=list)

    def add(self, ids: Sequence[int], sampled: int) -> None:
        """Append tokens."""
        self.ids += ids
        self.mask += [sampled] * len(ids)


def play(
    dialogues: Sequence[Dialogue], chat: ChatFormat, played: Scale, variant: Variant, step: int, generate: Generator
) -> None:
    """Play all dialogues to their end, turn by turn, in place.

    A cut turn is closed before the patient's words, as in `rl.rollout`.
    """
    for turn in range(played.turns):
        lengths = [played.length(variant, step, d.prompt, d.sample, turn) for d in dialogues]
        turns = generate([d.opening + d.ids for d in dialogues], lengths)
        for dialogue, ids in zip(dialogues, turns, strict=True):
            dialogue.add(ids, 1)
            reply = asyncio.run(dialogue.patient.step(chat.text(ids)))
            dialogue.rewards.append(reply.event.outcome)
            if reply.text is not None:
                dialogue.add([*([chat.end_id] if ids[-1] != chat.end_id else []), *chat.reply_ids(reply.text)], 0)


def seated(chat: ChatFormat, played: Scale, prompts: Sequence[int], samples: Sequence[int]) -> list[Dialogue]:
    """Fresh dialogues."""
    made = []
    for prompt, sample in zip(prompts, samples, strict=True):
        patient = Patient(prompt, played.turns)
        made.append(
            Dialogue(prompt=prompt, sample=sample, patient=patient, opening=chat.opening_ids(patient.opening()))
        )
    return made


def counts(dialogues: Sequence[Dialogue]) -> Figures:
    """What was played."""
    lengths = [len(d.opening) + len(d.ids) for d in dialogues]
    return {
        "episodes": float(len(dialogues)),
        "sampled_tokens": float(sum(sum(d.mask) for d in dialogues)),
        "tokens": float(sum(lengths)),
    } | squares(lengths)


def plain_model(task: Task) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer as transformers loads them, without what this project does to its own."""
    model = AutoModelForCausalLM.from_pretrained(
        task.model, dtype=getattr(torch, task.shape.dtype), attn_implementation="sdpa", trust_remote_code=False
    )
    return model, AutoTokenizer.from_pretrained(task.model, trust_remote_code=False)


class LockStep:
    """Rollouts with a generator by name: `generate` of transformers, or vLLM's own `LLM.generate`."""

    def __init__(self, generator: str, task: Task) -> None:
        """Args: generator by name, what to play with what."""
        self.played, self.variant, self.number = task.played, task.variant, 0
        language_model, words = plain_model(task)
        self.chat = ChatFormat(words)
        if generator == "generate":
            self.generate = transformers_generator(language_model.to(device()).eval(), task.shape.vocabulary)
        else:
            del language_model
            self.generate = vllm_generator(task)

    def run(self, channel: Connection) -> None:
        """Step whenever asked to."""
        serve(channel, self.step)

    def step(self) -> Figures:
        """One rollout."""
        self.number += 1
        prompts = [prompt for prompt in range(self.played.prompts) for _ in range(self.played.samples)]
        dialogues = seated(self.chat, self.played, prompts, list(range(self.played.samples)) * self.played.prompts)
        began = time.perf_counter()
        play(dialogues, self.chat, self.played, self.variant, self.number, self.generate)
        return counts(dialogues) | {"rollout_s": time.perf_counter() - began}


def transformers_generator(model: "torch.nn.Module", vocabulary: int) -> Generator:
    """`generate` on the left-padded batch, to the longest turn that is due; shorter ones are cut, as padding would be."""

    @torch.inference_mode()
    def generate(prompts: Sequence[Ids], lengths: Sequence[int]) -> list[Ids]:
        width = max(map(len, prompts))
        ids_BT = torch.tensor([[0] * (width - len(ids)) + ids for ids in prompts], device=device())
        mask_BT = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts], device=device())
        out_BT = model.generate(  # type: ignore[operator]  # torch's stubs
            input_ids=ids_BT,
            attention_mask=mask_BT,
            do_sample=True,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            max_new_tokens=max(lengths),
            eos_token_id=vocabulary + 1,
            pad_token_id=0,
        )
        return [row[:length] for row, length in zip(out_BT[:, width:].tolist(), lengths, strict=True)]

    return generate


def vllm_generator(task: Task) -> Generator:
    """Raw vLLM, prefix caching on, every ready episode in one call: what an engine around it can hope for."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    from vllm import LLM, SamplingParams

    here = {"gpu_memory_utilization": 0.4} if device() == "cuda" else {"enforce_eager": True, "block_size": 32}
    engine = LLM(
        model=str(task.model),
        dtype=task.shape.dtype,
        max_model_len=context_of(task.played),
        max_num_seqs=task.played.episodes,
        enable_prefix_caching=True,
        logprobs_mode="processed_logprobs",
        **here,
    )

    def generate(prompts: Sequence[Ids], lengths: Sequence[int]) -> list[Ids]:
        sampling = [
            SamplingParams(temperature=1.0, max_tokens=length, ignore_eos=True, detokenize=False, logprobs=0)
            for length in lengths
        ]
        outputs = engine.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    return generate
