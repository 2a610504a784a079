"""The only door to vLLM: a synchronous core that `rl/engines/vllm.py` drives from one thread.

It speaks tokens: vLLM loads no tokenizer, and nothing is turned into text. It starts with random weights and the
trainer's configuration; the weights come through `load`, the first ones too, so that there is one way for them and the
probe watches over it.
"""

import gc
import os
import random
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PretrainedConfig

from rl.adapters import NamedTensors
from rl.config import VllmParams
from rl.engines.base import Request
from rl.errors import TrainingError

NEVER = -100.0  # the lowest bias that vLLM gives a logit: exp(-100) of a chance is none in float32
STUMBLING = "llvmlite.binding.ffi"  # a module that vLLM must not look into
COLDEST = 0.01  # vLLM raises temperatures between 0 and this one to it
INSTALL = "`make vllm` makes an environment with it for a CPU, `pip install -e '.[gpu]'` adds it for a GPU"


@dataclass(frozen=True)
class Order:
    """A turn to sample: the session's whole history is its prompt."""

    name: str
    prompt: tuple[int, ...]
    request: Request


@dataclass(frozen=True)
class Sampled:
    """What vLLM made of a turn."""

    name: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


_TURN = threading.RLock()
_holder: list["Core"] = []  # the one core of this process that is started: vLLM keeps its process groups in globals


class Core:
    """vLLM itself. Every method runs in the engine's lane. Starting one stops another that is started in this process."""

    def __init__(self, params: VllmParams, max_length: int) -> None:
        self.params, self.max_length = params, max_length
        self.llm: Any = None
        self.unknown = range(0)  # ids that are never sampled
        self.on_cpu = True
        self.asleep = False

    def start(self, shape: PretrainedConfig, architecture: str) -> None:
        """Make the engine for models of this shape and class, with random weights."""
        with _TURN, _undisturbed(), tempfile.TemporaryDirectory() as folder:
            for other in _holder[:]:
                other.stop()
            _holder.append(self)
            library = _library()
            from vllm.platforms import current_platform

            self.on_cpu = current_platform.is_cpu()
            config = type(shape).from_dict(shape.to_dict())
            config.architectures = [architecture]
            config.save_pretrained(folder)
            memory = (
                {"kv_cache_memory_bytes": int(self.params.kv_cache_gib * 2**30)}
                if self.on_cpu
                else {"gpu_memory_utilization": self.params.gpu_memory_utilization}
            )
            self.llm = library.LLM(
                model=folder,
                load_format="dummy",
                skip_tokenizer_init=True,
                generation_config="vllm",
                dtype=self.params.dtype,
                max_model_len=self.max_length,
                max_num_seqs=self.params.max_sequences,
                block_size=self.params.block_size,
                enable_prefix_caching=True,
                enforce_eager=self.params.enforce_eager,
                logprobs_mode="processed_logprobs",
                enable_sleep_mode=not self.on_cpu,
                disable_log_stats=True,
                # a prompt cut in two would rewind its generator, which a CPU's cannot do: the engine would die
                enable_chunked_prefill=not self.on_cpu,
                **memory,
            )

    def load(self, weights: NamedTensors) -> None:
        """Take over all weights in place, in one call: each call of `reload_weights` finalises every layer.

        Forgets what was cached under the old ones.
        """
        if self.asleep and not self.on_cpu:
            self.llm.wake_up(["weights"])
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        if self.on_cpu:
            self.llm.apply_model(_repack_head)
        elif self.asleep:
            self.llm.wake_up(["kv_cache"])
        self.asleep = False
        self.llm.reset_prefix_cache(reset_running_requests=True)

    def advance(self, new: Sequence[Order], gone: Sequence[str]) -> list[Sampled]:
        """Drop requests, take new ones, make one step; returns the turns that it ended."""
        if gone:
            self.llm.llm_engine.abort_request(list(gone))
        for turn in new:
            self.llm.llm_engine.add_request(
                turn.name, {"prompt_token_ids": list(turn.prompt)}, _sampling_params(turn.request, self.unknown)
            )
        with self._as_asked():
            return [_sampled(output) for output in self.llm.llm_engine.step() if output.finished]

    def logprobs(self, ids: Sequence[int]) -> torch.Tensor:
        """Log-probability of every token but the first, as the engine computes it, float (T - 1,)."""
        params = _library().SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        with self._as_asked():
            output = self.llm.generate([{"prompt_token_ids": list(ids)}], [params], use_tqdm=False)[0]
        return torch.tensor(
            [found[token].logprob for token, found in zip(ids[1:], output.prompt_logprobs[1:], strict=True)]
        )

    def _as_asked(self) -> Any:
        """With `enforce_eager`, vLLM would still compile a helper of its sampler: half a minute for nothing."""
        return torch.compiler.set_stance("force_eager" if self.params.enforce_eager else "default")

    def sleep(self) -> None:
        """Give a GPU's memory back, weights and cache; `load` wakes it. On a CPU all stays, and it sleeps all the same."""
        if not self.on_cpu and not self.asleep:
            self.llm.sleep(level=2)
        self.asleep = True

    def stop(self) -> None:
        """Free everything; a start makes it anew."""
        with _TURN:
            if self in _holder:
                _holder.remove(self)
            if self.llm is not None:
                with suppress(Exception):  # it may be dead already
                    self.llm.llm_engine.engine_core.shutdown()
                self.llm, self.asleep = None, False
                gc.collect()


def _sampling_params(request: Request, unknown: Sequence[int]) -> Any:
    library, sampling = _library(), request.sampling
    stops = [] if sampling.stop_id is None else [sampling.stop_id]
    return library.SamplingParams(
        temperature=sampling.temperature,
        max_tokens=sampling.max_tokens,
        stop_token_ids=stops,
        logit_bias=dict.fromkeys(unknown, NEVER) or None,
        ignore_eos=True,
        seed=request.noise_key >> 1,
        logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=library.sampling_params.RequestOutputKind.FINAL_ONLY,
    )


def _sampled(output: Any) -> Sampled:
    made = output.outputs[0]
    if made.finish_reason not in ("stop", "length"):
        raise RuntimeError(f"vLLM ended request {output.request_id} with finish reason {made.finish_reason!r}")
    return Sampled(output.request_id, tuple(made.token_ids), tuple(made.logprobs.logprobs))


def _repack_head(model: Any) -> None:
    """On a CPU a tied head keeps a packed copy of its weights, which a reload of the embeddings does not renew."""
    head = getattr(model, "lm_head", None)
    if getattr(model.config, "tie_word_embeddings", False) and head is not None:
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        dispatch_cpu_unquantized_gemm(head, remove_weight=False)


def _library() -> Any:
    """Import vLLM, in this process and on all the cores that the process may use; it reads these variables when
    imported.
    """
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
    }
    # a death would print every prompt; its reason is in our own warning
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
    try:
        import vllm
    except ImportError as error:
        raise TrainingError(f"rollout.engine.kind is vllm, but vLLM cannot be imported ({error}); {INSTALL}") from error
    return vllm


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A start of vLLM seeds every random generator of the process and disables `torch.set_num_threads`; afterwards all
    is as it was.

    On a processor vLLM 0.32 looks for its kernels through all modules, and stumbles over numba's library, which takes any
    attribute for a function of its own, `__dict__` too; whoever searches by words has loaded it. It is out of sight
    meanwhile.
    """
    before = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.set_num_threads  # noqa: NPY002  the global one
    hidden = sys.modules.pop(STUMBLING, None)
    try:
        yield
    finally:
        if hidden is not None:
            sys.modules[STUMBLING] = hidden
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])
        torch.set_num_threads = before[3]
