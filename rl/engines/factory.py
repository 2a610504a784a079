"""Which engine plays: the one place that knows them all."""

from transformers import PreTrainedModel

from rl.config import RolloutParams, VllmParams
from rl.engines.base import Engine
from rl.engines.transformers import TransformersEngine
from rl.engines.vllm import VllmEngine


def open_engine(model: PreTrainedModel, rollout: RolloutParams) -> Engine:
    """The engine that `rollout.engine` describes; vLLM is started by its first sync.

    Args:
        model: the live model.
        rollout: which engine, and its limits.
    """
    if isinstance(rollout.engine, VllmParams):
        return VllmEngine(model, rollout.engine, rollout.max_episode_tokens)
    return TransformersEngine(model, rollout.slots, rollout.max_episode_tokens, compiled=rollout.engine.compile)
