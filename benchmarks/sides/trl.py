"""TRL's GRPOTrainer at its best on this task: batched turns through its own generation, defaults that hurt it on a
processor switched off.

It generates with `generate` of transformers, or on a GPU with vLLM in the same process, where every turn stops at its
own length.

The only door for trl. Its trainer owns the loop, so a callback waits for the parent's word between two optimizer steps.
"""

import re
import time
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from tempfile import mkdtemp
from typing import Any, Literal

from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOConfig, GRPOTrainer

from benchmarks.patient import opening
from benchmarks.setting import SEED, Scale, Task, context_of, device
from benchmarks.sides.lockstep import Ids, counts, plain_model, play, seated
from benchmarks.worker import STEP, Figures, Stopwatch
from rl.chat import ChatFormat

Generator = Literal["generate", "vllm"]
ROUNDS = 64  # of the prompts in one epoch, so that no epoch ends within a measurement


class Turnstile(TrainerCallback):  # type: ignore[misc]  # untyped
    """Lets one optimizer step through at a time and times it, from one step's end to the next."""

    def __init__(self, channel: Connection, side: "TRL") -> None:
        """Args: where the word comes from, whose figures go back."""
        self.channel, self.side = channel, side
        self.watch = Stopwatch()

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Wait for the first word."""
        self._wait(control)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:  # noqa: ARG002
        """Tell the figures of the step, wait for the next word."""
        figures = self.watch.read()
        figures |= self.side.figures
        self.channel.send(figures | {"update_s": figures["wall_s"] - figures["rollout_s"], "sync_s": 0.0})
        self._wait(control)

    def _wait(self, control: TrainerControl) -> None:
        if self.channel.recv() == STEP:
            self.watch = Stopwatch()
        else:
            control.should_training_stop = True


class TRL:
    """Steps of rollout, scoring and one gradient step."""

    def __init__(self, task: Task, generator: Generator = "generate") -> None:
        """Args: what to play with what, who generates."""
        self.played, self.variant, self.number, self.generator = task.played, task.variant, 0, generator
        self.figures: Figures = {}
        language_model, words = plain_model(task)
        self.chat = ChatFormat(words)
        self.stop_id = task.shape.vocabulary + 1  # nobody can sample it
        rows = [{"prompt": opening(prompt)} for _ in range(ROUNDS) for prompt in range(task.played.prompts)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.trainer = GRPOTrainer(
                model=language_model,
                reward_funcs=given_reward,
                args=config(task.played, self.stop_id, generator),
                train_dataset=Dataset.from_list(rows),
                processing_class=words,
                rollout_func=self.rollout,
            )
        self.trainer.remove_callback(PrinterCallback)
        self.trainer.eos_token_ids = [self.stop_id]

    def run(self, channel: Connection) -> None:
        """Train, a step at a time."""
        self.trainer.add_callback(Turnstile(channel, self))
        self.trainer.train()

    def rollout(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """What TRL calls for a batch of prompts: turn by turn, all dialogues at once."""
        self.number += 1
        began = time.perf_counter()
        numbers = [int(re.findall(r"Case (\d+)", prompt[0]["content"])[0]) for prompt in prompts]
        samples = [numbers[:place].count(number) for place, number in enumerate(numbers)]
        dialogues = seated(self.chat, self.played, numbers, samples)

        sampled: list[list[float]] = [[] for _ in dialogues]  # log-probabilities, where the generator gives them

        def generate(so_far: Sequence[Ids], lengths: Sequence[int]) -> list[Ids]:
            if self.generator == "vllm":
                turns, logprobs = vllm_turn(trainer.vllm_generation.llm, so_far, lengths)
                for known, new in zip(sampled, logprobs, strict=True):
                    known += new
                return turns
            trainer.generation_config.max_new_tokens = trainer.generation_kwargs["max_new_tokens"] = max(lengths)
            turns, _ = trainer._generate_single_turn(list(so_far), None, {}, 1)
            return [ids[:length] for ids, length in zip(turns, lengths, strict=True)]

        play(dialogues, self.chat, self.played, self.variant, self.number, generate)
        self.figures = counts(dialogues) | {"rollout_s": time.perf_counter() - began}
        logprobs = (
            [by_token(d.mask, known) for d, known in zip(dialogues, sampled, strict=True)]
            if self.generator == "vllm"
            else None
        )
        return {
            "prompt_ids": [d.opening for d in dialogues],
            "completion_ids": [d.ids for d in dialogues],
            "logprobs": logprobs,
            "env_mask": [d.mask for d in dialogues],
            "patient_reward": [sum(d.rewards) for d in dialogues],
        }


def vllm_turn(engine: Any, prompts: Sequence[Ids], lengths: Sequence[int]) -> tuple[list[Ids], list[list[float]]]:
    """One turn of every dialogue by the `LLM` that TRL started and keeps in step with the weights; tokens and their
    log-probabilities.

    Args:
        engine: vLLM's.
        prompts: the dialogues so far.
        lengths: of the turns; TRL's own call would have one for all.
    """
    from vllm import SamplingParams

    sampling = [
        SamplingParams(temperature=1.0, max_tokens=length, ignore_eos=True, detokenize=False, logprobs=0)
        for length in lengths
    ]
    outputs = engine.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
    turns = [output.outputs[0] for output in outputs]
    return [list(turn.token_ids) for turn in turns], [
        [at[token].logprob for token, at in zip(turn.token_ids, turn.logprobs, strict=True)] for turn in turns
    ]


def by_token(mask: Sequence[int], sampled: Sequence[float]) -> list[float]:
    """Log-probabilities of a completion: those of the sampled tokens in their places, 0 for what the patient said."""
    known = iter(sampled)
    return [next(known) if one else 0.0 for one in mask]


def given_reward(completions: Sequence[Any], patient_reward: Sequence[float], **_: Any) -> list[float]:
    """The reward that the rollout brought along."""
    assert len(completions) == len(patient_reward)  # noqa: S101  one each
    return list(patient_reward)


def config(played: Scale, stop_id: int, generator: Generator = "generate") -> GRPOConfig:
    """One gradient step on all episodes, in `micro_batches` pieces; each line that is not the task itself spares TRL
    something.

    With vLLM TRL looks at the log-probabilities again before the update, as this project does with an engine whose
    arithmetic is not the learner's.
    """
    gpu = device() == "cuda"
    engine: dict[str, Any] = {"generation_kwargs": {"eos_token_id": stop_id}}
    if generator == "vllm":
        engine = {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "vllm_max_model_length": context_of(played),
            "vllm_importance_sampling_correction": True,
        }
    return GRPOConfig(
        output_dir=mkdtemp(prefix="trl-"),
        use_cpu=not gpu,
        bf16=False,  # the weights have the dtype already, on both sides
        gradient_checkpointing=False,
        num_generations=played.samples,
        per_device_train_batch_size=played.episodes // played.micro_batches,
        gradient_accumulation_steps=played.micro_batches,
        steps_per_generation=played.micro_batches,
        num_iterations=1,
        beta=0.0,
        loss_type="dapo",
        epsilon=0.2,
        epsilon_high=0.28,
        scale_rewards="group",
        temperature=1.0,
        top_p=1.0,
        max_completion_length=played.longest,
        shuffle_dataset=False,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=gpu,
        max_steps=100_000,
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        adam_beta2=0.98,
        max_grad_norm=1.0,
        seed=SEED,
        full_determinism=False,
        torch_empty_cache_steps=None if not gpu else 1000,
        **engine,
    )
