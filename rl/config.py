"""The school's sections of `params.yaml`, parsed once at the edge.

No defaults: every number is in the file. A leaf: nothing of torch is loaded for it.
"""

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator
from pydantic_core import PydanticCustomError

SECRET = "secret"
"""Type of a mistake whose value no message may show."""
DType = Literal["float32", "bfloat16"]
Device = Literal["auto", "cpu", "cuda"]
Sharding = Literal["shard", "replicate"]
Threads = Annotated[int, Field(ge=1)] | Literal["auto"]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TransformersParams(_Section):
    """Section `rollout.engine` of kind `transformers`: it plays with the learner's weights."""

    kind: Literal["transformers"] = Field(description="samples with the learner's own model")
    compile: bool = Field(description="decode in static shapes, as on a GPU anyway, and compiled; minutes at the start")


class VllmParams(_Section):
    """Section `rollout.engine` of kind `vllm`: it has weights of its own."""

    kind: Literal["vllm"] = Field(description="samples with vLLM (docs/how-to/roll-out-with-vllm.md)")
    dtype: DType = Field(description="of its copy of the weights")
    gpu_memory_utilization: float = Field(gt=0, le=1, description="on a GPU: share that it takes, weights and cache")
    kv_cache_gib: float = Field(gt=0, allow_inf_nan=False, description="on a CPU: of the cache")
    block_size: int = Field(
        ge=1,
        description="tokens of a cache block, only whole blocks are found again; 32 or a multiple on a CPU, 16 on a GPU",
    )
    max_sequences: int = Field(ge=1, description="turns sampled at once; more wait")
    enforce_eager: bool = Field(description="no compilation, no CUDA graphs")
    probe_tolerance: float = Field(
        gt=0,
        description="largest difference of a log-probability from the trainer's after a sync; bfloat16 needs about 0.1",
    )
    timeout_s: float = Field(gt=0, allow_inf_nan=False, description="of a start, a sync or a step")


EngineParams = Annotated[TransformersParams | VllmParams, Field(discriminator="kind")]


class RolloutParams(_Section):
    """Section `rollout`."""

    prompts: int = Field(ge=1, description="cases per rollout step; each is played group_size times (recipe)")
    response_length: int = Field(ge=1, description="tokens per doctor turn")
    max_episode_tokens: int = Field(ge=16, description="tokens of a whole dialogue")
    slots: int = Field(ge=1, description="episodes in the engine at once")
    max_failed_share: float = Field(ge=0, le=1, description="of a rollout's episodes; more of them stop the run")
    ahead: Literal[0, 1] = Field(
        description="1: play the next step while the learner is at this one, with the policy before its update; needs engine.kind vllm or machines.backend ray"
    )
    engine: EngineParams = Field(description="what samples the turns")

    @field_validator("engine", mode="before")
    @classmethod
    def _engine_is_a_block(cls, engine: Any) -> Any:
        if isinstance(engine, str):
            raise ValueError(
                "an engine is a block, {kind: transformers, compile: false}, or the one that `python -m commands.profile vllm` shows"
            )
        return engine

    @model_validator(mode="after")
    def _a_turn_fits(self) -> "RolloutParams":
        if self.response_length >= self.max_episode_tokens:
            raise ValueError(
                f"response_length {self.response_length} leaves no room in max_episode_tokens {self.max_episode_tokens}; raise the latter"
            )
        return self


class SamplingParams(_Section):
    """How a doctor's turns are sampled."""

    temperature: float = Field(ge=0, allow_inf_nan=False, description="divides the logits; 0: greedy")


class TrainSamplingParams(_Section):
    """How the turns are sampled that are learned from."""

    temperature: float = Field(
        gt=0,
        allow_inf_nan=False,
        description="of the doctor's sampling in rollouts; the learner divides logits by it too",
    )


class DecodingParams(_Section):
    """Section `decoding`."""

    train: TrainSamplingParams = Field(description="in the rollouts that are learned from")
    evaluate: SamplingParams = Field(description="of every policy, in validation and in the evaluation")


class SFTParams(_Section):
    """Numbers of one supervised training."""

    epochs: int = Field(ge=1, description="passes over the texts")
    batch_size: int = Field(ge=1, description="sequences per gradient step")
    optimizer: Literal["adamw", "muon"] = Field(
        description="muon: on the weight matrices, AdamW on embeddings and norms; for training from nothing"
    )
    learning_rate: float = Field(gt=0, allow_inf_nan=False, description="after the warm-up")
    warmup_share: float = Field(ge=0, lt=1, description="of the gradient steps, linear")
    weight_decay: float = Field(ge=0, allow_inf_nan=False, description="decoupled, per gradient step")
    max_grad_norm: float = Field(gt=0, description="longer gradients are shortened to it")
    micro_batch_tokens: int = Field(ge=1, description="tokens in memory at once; more take less time and more memory")
    seed: int = Field(ge=0, description="of the order of the texts")


class LoraParams(_Section):
    """Numbers of an adapter. No dropout: the learner's log-probabilities would differ from the sampler's."""

    rank: int = Field(ge=1, description="of the two matrices beside a layer's")
    alpha: float = Field(gt=0, allow_inf_nan=False, description="the product is multiplied by alpha / rank")
    target_modules: tuple[str, ...] = Field(min_length=1, description="names of linear layers, as the model calls them")


class LocalModelParams(_Section):
    """A model folder or Hugging Face id, and how it answers."""

    model: str = Field(description="folder or Hugging Face id")
    device: Device = Field(description="where it lies; auto: on a GPU if there is one")
    dtype: DType = Field(description="of its weights")
    slots: int = Field(ge=1, description="replies under way at once")
    context: int = Field(ge=16, description="tokens, prompt and reply together")
    temperature: float = Field(ge=0, allow_inf_nan=False, description="of its sampling; 0: greedy")
    max_tokens: int = Field(ge=1, description="of a reply")


def _address(url: str) -> str:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise PydanticCustomError(
            SECRET,
            "it holds a user and a password, which every log would show; export the key and name its variable in key_env",
        )
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError("it must begin with http:// or https:// and a host")
    if "?" in url or "#" in url:
        raise PydanticCustomError(
            SECRET,
            "write it without what begins at ? or #, which leads nowhere; a key belongs into the variable that key_env names",
        )
    if not url.isprintable() or " " in url:
        raise ValueError("it holds a blank or a character that no address has")
    try:
        parts.port  # noqa: B018  reading it checks it
    except ValueError:
        raise ValueError("its port is none; write host:8000") from None
    return url


def _variable(name: str) -> str:
    if name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
        raise PydanticCustomError(
            SECRET, "it is no name of an environment variable; put the key into one, and its name here"
        )
    return name


class EndpointParams(_Section):
    """A language model behind an OpenAI-compatible HTTP endpoint."""

    url: Annotated[str, AfterValidator(_address)] = Field(description="up to and including /v1")
    model: str = Field(description="as the endpoint calls it")
    key_env: Annotated[str, AfterValidator(_variable)] = Field(
        description='name of the environment variable that holds the key; "" sends none'
    )
    timeout_s: float = Field(gt=0, allow_inf_nan=False, description="of one try")
    retries: int = Field(ge=0, description="after a first try that failed, with growing pauses")
    concurrency: int = Field(ge=1, description="requests under way at once")
    temperature: float = Field(ge=0, allow_inf_nan=False, description="of its sampling; 0: greedy")
    max_tokens: int = Field(ge=1, description="of a reply")


def _kind(given: Any) -> str:
    return "endpoint" if isinstance(given, EndpointParams) or (isinstance(given, dict) and "url" in given) else "local"


LanguageModelParams = Annotated[
    Annotated[EndpointParams, Tag("endpoint")] | Annotated[LocalModelParams, Tag("local")], Discriminator(_kind)
]


class RayParams(_Section):
    """Section `machines.ray`: who works where. Every worker is a process, with `machines.threads` processors."""

    address: str | None = Field(
        description="host:port of a running cluster, or auto: the one on this machine; null: one is started for the run"
    )
    trainers: int = Field(ge=1, description="that hold the doctor together and learn, each its share of a mini-batch")
    rollout_workers: int = Field(ge=1, description="that play, each with an engine and rollout.slots of its own")
    model_workers: int = Field(
        ge=0,
        description="that play patients with a language model of this machine, language_models.patient; 0: every rollout worker has a copy of it",
    )
    gpus_per_worker: Literal[0, 1] = Field(description="1: every worker has a GPU; 0: none has")
    sharding: Sharding = Field(
        description="shard: a trainer holds a part of every weight and moment; replicate: all of them, as an adapter may"
    )
    timeout_s: float = Field(
        gt=0,
        allow_inf_nan=False,
        description="of anything that a worker is asked for: a start, a rollout, a training phase, a checkpoint",
    )


class MachinesParams(_Section):
    """Section `machines`. Results depend on `device` and `compute` of it, and on how many workers there are."""

    backend: Literal["local", "ray"] = Field(
        description="what trains the doctor: this process, or workers on one machine or many (docs/how-to/many-machines.md)"
    )
    ray: RayParams = Field(description="the workers; nothing is read of it where backend is local")
    device: Device = Field(description="where the doctor lies; auto: on a GPU if there is one")
    compute: DType = Field(
        description="precision of the doctor's forward and backward passes; what is trained, its gradients and moments stay float32"
    )
    offload: bool = Field(
        description="keep the optimizer's moments in the host's memory while the engine plays; for a GPU that they do not fit beside it"
    )
    threads: Threads = Field(
        description="that compute; auto: one a core. OMP_NUM_THREADS goes before (docs/how-to/run-beside-other-work.md)"
    )
    spare_memory: bool = Field(
        description="give large blocks back as soon as they are free: a third less memory, half more processor time (glibc; docs/how-to/run-beside-other-work.md)"
    )

    @model_validator(mode="after")
    def _workers_have_processors(self) -> "MachinesParams":
        if self.backend == "ray" and self.threads == "auto":
            raise ValueError(
                "backend ray gives every worker so many processors as threads says; set threads to a number"
            )
        return self
