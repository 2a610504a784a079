"""Which engine plays: the one place that knows them all."""

from transformers import PreTrainedModel

from rl.config import RolloutParams, VllmParams
from rl.engines.base import Engine
from rl.engines.transformers import TransformersEngine
from rl.engines.vllm import VllmEngine


def open_engine(rollout: RolloutParams, model: PreTrainedModel, *, copy: bool) -> Engine:
    """The engine that `rollout.engine` describes; vLLM is started by its first handover.

    Args:
        rollout: which engine, and its limits.
        model: that an engine of kind transformers samples from.
        copy: whether this model is the engine's own.
    """
    if isinstance(rollout.engine, VllmParams):
        return VllmEngine(rollout.engine, rollout.max_episode_tokens)
    slots, length = rollout.slots, rollout.max_episode_tokens
    return TransformersEngine(model, slots, length, compiled=rollout.engine.compile, copy=copy)
