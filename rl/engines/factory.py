"""Which engine plays: the one place that knows them all."""

from transformers import PreTrainedModel

from rl.config import RolloutParams, VllmParams
from rl.engines.base import Engine
from rl.engines.transformers import TransformersEngine
from rl.engines.vllm import VllmEngine
from rl.errors import TrainingError


def open_engine(rollout: RolloutParams, model: PreTrainedModel | None, *, copy: bool) -> Engine:
    """The engine that `rollout.engine` describes; vLLM is started by its first handover.

    Args:
        rollout: which engine, and its limits.
        model: that an engine of kind transformers samples from; another kind needs none.
        copy: whether this model is the engine's own.
    """
    if isinstance(rollout.engine, VllmParams):
        return VllmEngine(rollout.engine, rollout.max_episode_tokens)
    if model is None:
        raise TrainingError("an engine of kind transformers needs a model to sample from")
    slots, length = rollout.slots, rollout.max_episode_tokens
    return TransformersEngine(model, slots, length, compiled=rollout.engine.compile, copy=copy)
