"""What a training run will need in memory, phase by phase, said before it begins.

An estimate from the model's shape and the numbers of the run, not a measurement: weights, optimizer and cache are
exact, activations are what a decoder layer keeps for its backward pass under fused attention, logits what one chunk
keeps, and the heap has holes. tests/numerics checks it against a run.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from rl.adapters import add_adapter
from rl.algorithms.base import Algorithm
from rl.architectures import skeleton
from rl.batching import LOGIT_BYTES
from rl.config import LoraParams, RolloutParams, VllmParams
from rl.engines.transformers import FEED_TOKENS
from rl.errors import TrainingError
from rl.machine import Place

GIB = 2**30
SAMPLING_BYTES = 24  # logits and log-probabilities in float32, probabilities and their sums in float64
HOLES = 0.5  # of what comes and goes: memory of the C library's heap that is free and not the system's
PLAYING = ("weights", "optimizer", "critic", "teacher", "adaptation", "frozen", "engine", "kv_cache", "step", "heap")
LEARNING = (
    "weights",
    "optimizer",
    "critic",
    "teacher",
    "adaptation",
    "frozen",
    "gradients",
    "activations",
    "gathered",
    "logits",
    "heap",
)
KNOBS = {
    "weights": "a smaller model, or train_doctor.lora with machines.compute: bfloat16",
    "gradients": "train_doctor.lora",
    "optimizer": "train_doctor.lora, or, on a GPU and while it plays, machines.offload",
    "critic": "critic.trunk: shared in the recipe",
    "teacher": "a smaller model, or an algorithm without a teacher",
    "adaptation": "adaptation.layers in the recipe",
    "frozen": "train_doctor.lora, or kl.place: none in the recipe",
    "kv_cache": "rollout.slots or rollout.max_episode_tokens, or rollout.engine.kv_cache_gib with vLLM",
    "step": "rollout.slots",
    "engine": "rollout.engine.dtype: bfloat16, or an engine of kind transformers",
    "gathered": "a smaller model",
    "heap": "machines.spare_memory: true",
    "activations": "optimizer.micro_batch_tokens or optimizer.gradient_checkpointing in the recipe",
    "logits": "a smaller vocabulary",
}


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """What of a decoder decides its memory; counts, and bytes of one number."""

    parameters: int
    trainable: int  # of these; fewer with an adapter
    trunk_parameters: int  # without an output head of its own
    trainable_trunk: int
    trainable_feed_forward: bool  # whether anything that reads or gives a layer's widest activations is trained
    layers: int
    width: int
    intermediate: int
    heads: int
    key_value_heads: int
    head_width: int
    vocabulary: int
    bytes: int  # of a number in forward and backward
    weight_bytes: int  # of a weight: of float32 where all are trained


@dataclass(frozen=True)
class Estimate:
    """Bytes by what they are for, and what of it is there at once."""

    parts: dict[str, int]
    playing: tuple[str, ...]
    learning: tuple[str, ...]

    def peak(self) -> tuple[str, dict[str, int]]:
        """The phase that needs more, and its parts."""
        phases = {
            name: {part: value for part, value in self.parts.items() if part in there}
            for name, there in (("learning", self.learning), ("playing", self.playing))
        }
        return max(phases.items(), key=lambda phase: sum(phase[1].values()))

    @property
    def total(self) -> int:
        """Bytes of the phase that needs more."""
        return sum(self.peak()[1].values())


def model_shape(name: str, compute: str, lora: LoraParams | None = None) -> ModelShape:
    """Read a model's shape from its configuration; no weight is loaded.

    Args:
        name: id or path.
        compute: torch's name of the precision of forward and backward.
        lora: the adapter, if only one is trained.

    Raises:
        TrainingError: nothing readable there, a kind of model that cannot be trained, or the adapter does not fit it.
    """
    model = skeleton(name)
    config = model.config.get_text_config()
    if lora is not None:
        with torch.device("meta"):
            add_adapter(model, lora, seed=0)
    heads, trunk = config.num_attention_heads, model.get_decoder()
    return ModelShape(
        parameters=_count(model),
        trainable=_count(model, trained=True),
        trunk_parameters=_count(trunk),
        trainable_trunk=_count(trunk, trained=True),
        trainable_feed_forward=any(p.requires_grad and config.intermediate_size in p.shape for p in model.parameters()),
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=heads,
        key_value_heads=getattr(config, "num_key_value_heads", heads),
        head_width=getattr(config, "head_dim", None) or config.hidden_size // heads,
        vocabulary=config.vocab_size,
        bytes=torch.finfo(getattr(torch, compute)).bits // 8,
        weight_bytes=4 if lora is None else torch.finfo(getattr(torch, compute)).bits // 8,
    )


def _count(module: torch.nn.Module, *, trained: bool = False) -> int:
    return sum(p.numel() for p in module.parameters() if p.requires_grad or not trained)


def estimate(
    shape: ModelShape, rollout: RolloutParams, algorithm: Algorithm, place: Place, *, holes: bool = True
) -> Estimate:
    """Bytes by what they are for, and what of it is there at once.

    weights      parameters x bytes of a weight: float32 where all are trained
    gradients    trained parameters x 4 (all, or an adapter's); freed when learning ends
    optimizer    2 moments x trained parameters x 4
    critic       its trunk, with gradients and moments of what is trained of it, if it has its own
    teacher      weights of a second policy, or beside an adapter of a second one; where it plays, too, moments of them
                 (one of the two has gradients at a time), and the critic is a third adapter
    adaptation   what predicts a feature: embeddings and the layers of it, with gradients and moments, and their moving
                 average; two encoders of charts, embeddings above all. Beside an adapter: the heads
    frozen       parameters x bytes for each frozen role (the reference), unless there is an adapter to switch off
    kv_cache     slots x tokens x layers x 2 x key-value heads x head width x bytes; with vLLM, what it is given
    step         on a GPU, with an engine of kind transformers: what sampling a token for every slot works on (24 bytes
                 for each of its logits), which a recorded step holds on to, and what feeding a chunk does
    engine       its copy of the weights: parameters x its bytes; none where it plays with the learner's
    activations  what a backward pass will ask for. Tokens of a micro-batch x layers x (6 width + 4 intermediate + 4
    heads x head width
                 + 6 key-value heads x head width) x bytes; 2 width less where the norms are frozen and 1 intermediate
                 less where the feed-forward part is; with gradient checkpointing every layer's input, and what one
                 layer keeps
    gathered     where weights are float32 and lower precision computes: embeddings, head and two layers in that
    logits       4 x one chunk, float32; 8 x one of half the size where a teacher's are beside a student's
    heap         with `holes`, on a CPU: HOLES x all but the cache. Fitted, not derived: four recipes on one model of 25 million weights (glibc 2.36) took 1.4 to 1.8 times
                 what was in use; where large blocks go back at once (machines.spare_memory) what was in use

    Playing needs weights, moments (unless offloaded), engine and cache; learning all but engine and cache, which a
    GPU's engine gives back when it sleeps. On a CPU, and where the engine plays one step ahead, both are there at once.
    """
    s = shape
    parts = _of_weights(s, algorithm) | _of_work(s, algorithm, rollout, place)
    if isinstance(rollout.engine, VllmParams):
        parts.pop("step", None)
        parts |= {
            "kv_cache": int(rollout.engine.kv_cache_gib * GIB),
            "engine": s.parameters * torch.finfo(getattr(torch, rollout.engine.dtype)).bits // 8,
        }
    if holes and place.device == "cpu":
        parts["heap"] = int(HOLES * (sum(parts.values()) - parts["kv_cache"]))
    kept = ("engine", "kv_cache", "step") if place.device == "cpu" or rollout.ahead else ()
    playing = tuple(part for part in PLAYING if not (place.offload and place.device != "cpu" and part == "optimizer"))
    return Estimate({name: value for name, value in parts.items() if value}, playing, LEARNING + kept)


def _of_weights(s: ModelShape, algorithm: Algorithm) -> dict[str, int]:
    """Bytes of all models, and of what an optimizer keeps of them."""
    copied = s.weight_bytes != s.bytes
    adapter = 0 if s.trainable == s.parameters else s.trainable * (4 - s.weight_bytes)
    parts = {
        "weights": s.parameters * s.weight_bytes + adapter,
        "gradients": s.trainable * 4,
        "optimizer": 2 * s.trainable * 4,
        "critic": (s.trunk_parameters * s.weight_bytes + 3 * s.trainable_trunk * 4) * _own_trunk(algorithm),
        "frozen": s.parameters * s.bytes * len(algorithm.frozen_roles) * (s.trainable == s.parameters),
        "engine": s.parameters * s.bytes * copied,
    }
    if algorithm.distillation is not None:
        parts["teacher"] = s.trainable * 4  # all of them, or an adapter's
    if algorithm.feature is None or algorithm.adaptation is None:
        return parts
    wide, hidden = algorithm.feature.tokens * s.width, algorithm.feature.hidden
    encoders = 2 * 4 * hidden * (s.width + wide)
    if s.trainable < s.parameters:
        parts["critic"] = 4 * s.trainable_trunk * 4
        parts["teacher"] = 3 * s.trainable * 4
        parts["adaptation"] = (5 * s.width * wide + encoders) * 4
    else:
        table = s.vocabulary * s.width
        layers = min(algorithm.adaptation.layers, s.layers)
        predicting = table + layers * (s.trunk_parameters - table) // s.layers
        parts["teacher"] = 3 * s.parameters * 4
        parts["adaptation"] = (5 * predicting + 2 * table + encoders) * 4
    return parts


def _of_work(s: ModelShape, algorithm: Algorithm, rollout: RolloutParams, place: Place) -> dict[str, int]:
    """Bytes of what playing and learning keep while they compute."""
    tokens = max(algorithm.optimizer.micro_batch_tokens, rollout.max_episode_tokens)
    cached = 2 * s.layers * s.key_value_heads * s.head_width * s.bytes  # a token
    activations = _activations(s, tokens, checkpointing=algorithm.optimizer.gradient_checkpointing)
    outside = s.parameters - s.trunk_parameters + s.vocabulary * s.width
    copied = s.weight_bytes != s.bytes
    beside = 4 if algorithm.feature is None and algorithm.distillation is None else 8
    parts = {
        "kv_cache": rollout.slots * rollout.max_episode_tokens * cached,
        "activations": activations * (1 + _own_trunk(algorithm)),
        "gathered": (outside + 2 * s.trunk_parameters // s.layers) * s.bytes * copied,
        "logits": beside * min(LOGIT_BYTES[place.device] * 4 // beside, 4 * tokens * s.vocabulary),
    }
    if place.device != "cpu":
        fed = FEED_TOKENS * (6 * s.width + 3 * s.intermediate) * s.bytes
        parts["step"] = rollout.slots * s.vocabulary * SAMPLING_BYTES + fed
    return parts


def _own_trunk(algorithm: Algorithm) -> bool:
    return algorithm.critic is not None and algorithm.critic.trunk == "own"


def _activations(s: ModelShape, tokens: int, *, checkpointing: bool) -> int:
    """Bytes that one pass through a trunk keeps for its backward pass."""
    kept = 6 * s.width + 4 * s.intermediate + 4 * s.heads * s.head_width + 6 * s.key_value_heads * s.head_width
    if s.trainable < s.parameters:
        kept -= 2 * s.width + (0 if s.trainable_feed_forward else s.intermediate)
    if checkpointing:
        return tokens * (s.layers * s.width + kept) * s.bytes
    return tokens * s.layers * kept * s.bytes


def available_bytes(device: str) -> int:
    """Memory that a run can have: what a GPU has free, or else the machine, or the control group's limit."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").exists() else ():
        if line.startswith("MemAvailable:"):
            found = int(line.split()[1]) * 1024
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and limit.read_text().strip().isdigit():
        found = min(found, int(limit.read_text()))
    return found


def memory_text(memory: Estimate) -> str:
    """The estimate in one line."""
    phase, parts = memory.peak()
    return f"memory: about {memory.total / GIB:.2f} GiB, in {phase} = " + " + ".join(
        f"{name} {value / GIB:.2f}" for name, value in parts.items()
    )


def refuse_what_cannot_fit(memory: Estimate, available: int) -> None:
    """Stop before anything is loaded.

    Raises:
        TrainingError: the estimate is above what is available; the message names the largest part and the knob that
            lowers it.
    """
    if memory.total > available:
        _, parts = memory.peak()
        largest = max(parts, key=lambda name: parts[name])
        raise TrainingError(
            f"{memory_text(memory)}, but {available / GIB:.2f} GiB are free; the largest part is {largest}: lower it with {KNOBS[largest]}"
        )
