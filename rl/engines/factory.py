"""Which engine plays: the one place that knows them all."""

from transformers import PreTrainedModel

from rl.config import RolloutParams
from rl.engines.base import Engine
from rl.engines.transformers import TransformersEngine
from rl.engines.vllm import VllmEngine


def open_engine(model: PreTrainedModel, rollout: RolloutParams) -> Engine:
    """The engine that `rollout.engine` names; vLLM is started by its first sync.

    Args:
        model: the live model.
        rollout: which engine, and its limits.
    """
    if rollout.engine == "vllm" and rollout.vllm is not None:
        return VllmEngine(model, rollout.vllm, rollout.max_episode_tokens)
    return TransformersEngine(model, rollout.slots, rollout.max_episode_tokens, compiled=rollout.compile)
