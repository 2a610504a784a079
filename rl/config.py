"""The school's sections of `params.yaml`, parsed once at the edge. No defaults: every number is in the file. A leaf: nothing of torch is loaded for it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

Threads = Annotated[int, Field(ge=1)] | Literal["auto"]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class VllmParams(_Section):
    """Section `rollout.vllm`."""

    dtype: Literal["float32", "bfloat16"]
    gpu_memory_utilization: float = Field(gt=0, le=1)  # on a GPU: share that it takes, weights and cache
    kv_cache_gib: float = Field(gt=0)  # on a CPU: of the cache
    block_size: int = Field(ge=1)  # tokens of a cache block; only whole blocks are found again
    max_sequences: int = Field(ge=1)  # turns sampled at once; more wait
    enforce_eager: bool  # no compilation, no CUDA graphs
    probe_tolerance: float = Field(gt=0)  # largest |delta log p| after a sync
    timeout_s: float = Field(gt=0)  # of a start, a sync or a step


class RolloutParams(_Section):
    """Section `rollout`."""

    prompts: int = Field(ge=1)  # cases per rollout step
    temperature: float = Field(gt=0)
    response_length: int = Field(ge=1)  # tokens per turn
    max_episode_tokens: int = Field(ge=16)
    slots: int = Field(ge=1)  # episodes in the engine at once
    max_failed_share: float = Field(ge=0, le=1)  # of a rollout's episodes; more of them stop the run
    ahead: Literal[0, 1]  # rollout steps that are played while the learner is still at the one before; 1 with engine: vllm
    engine: Literal["transformers", "vllm"]
    compile: bool  # decode in static shapes, compiled; with engine: transformers
    vllm: VllmParams | None  # read with engine: vllm

    @model_validator(mode="after")
    def _a_turn_fits(self) -> "RolloutParams":
        if self.response_length >= self.max_episode_tokens:
            raise ValueError(f"response_length {self.response_length} leaves no room in max_episode_tokens {self.max_episode_tokens}; raise the latter")
        if self.engine == "vllm" and self.vllm is None:
            raise ValueError("engine is vllm, but section vllm is null; give its numbers")
        if self.ahead and self.engine != "vllm":
            raise ValueError(f"ahead 1 needs an engine with weights of its own, and {self.engine} plays with the learner's; use engine: vllm")
        return self


class SFTParams(_Section):
    """Numbers of one supervised training."""

    epochs: int = Field(ge=1)
    batch_size: int = Field(ge=1)  # sequences per gradient step
    optimizer: Literal["adamw", "muon"]  # muon: on the weight matrices, AdamW on embeddings and norms; for training from nothing
    learning_rate: float = Field(gt=0)
    warmup_share: float = Field(ge=0, lt=1)  # of the gradient steps, linear
    weight_decay: float = Field(ge=0)
    max_grad_norm: float = Field(gt=0)
    micro_batch_tokens: int = Field(ge=1)
    seed: int


class LoraParams(_Section):
    """Numbers of an adapter. No dropout: the learner's log-probabilities would differ from the sampler's."""

    rank: int = Field(ge=1)
    alpha: float = Field(gt=0)  # the product is multiplied by alpha / rank
    target_modules: tuple[str, ...] = Field(min_length=1)  # names of linear layers, as the model calls them


class LocalModelParams(_Section):
    """A model folder or Hugging Face id, and how it answers."""

    model: str
    dtype: Literal["float32", "bfloat16"]
    slots: int = Field(ge=1)  # replies under way at once
    context: int = Field(ge=16)  # tokens, prompt and reply together
    temperature: float = Field(ge=0)
    max_tokens: int = Field(ge=1)  # of a reply


class EndpointParams(_Section):
    """A language model behind an OpenAI-compatible HTTP endpoint."""

    url: str  # up to and including /v1
    model: str
    key_env: str  # name of the environment variable that holds the key; "" sends none
    timeout_s: float = Field(gt=0)  # of one try
    retries: int = Field(ge=0)  # after a first try that failed, with growing pauses
    concurrency: int = Field(ge=1)  # requests under way at once
    temperature: float = Field(ge=0)
    max_tokens: int = Field(ge=1)


def _kind(given: Any) -> str:
    return "endpoint" if isinstance(given, EndpointParams) or (isinstance(given, dict) and "url" in given) else "local"


LanguageModelParams = Annotated[Annotated[EndpointParams, Tag("endpoint")] | Annotated[LocalModelParams, Tag("local")], Discriminator(_kind)]


class MachinesParams(_Section):
    """Section `machines`: no stage depends on it."""

    threads: Threads  # that compute; auto: as many as there are cores
    spare_memory: bool  # give large blocks back as soon as they are free; slower
