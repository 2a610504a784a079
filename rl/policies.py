"""Which policy an algorithm learns with."""

from functools import partial

from transformers import PreTrainedModel

from rl.adapters import has_adapter
from rl.algorithms.base import Algorithm
from rl.chat import ChatFormat
from rl.critic import Critic
from rl.errors import TrainingError
from rl.flex import same_attention_again
from rl.policy import Policy, compute_in
from rl.privileged import PrivilegedPolicy
from rl.ranks import ALONE, Ranks
from rl.self_distillation import SelfTaughtPolicy

NOT_PRIVILEGED = (
    "a privileged teacher learns in float32 or as an adapter, with whole weights on every rank; set machines.compute: float32 "
    "(or train_doctor.lora) and machines.ray.sharding: replicate, or take another algorithm"
)


def policy_for(
    model: PreTrainedModel,
    algorithm: Algorithm,
    compute: str = "float32",
    ranks: Ranks = ALONE,
    chat: ChatFormat | None = None,
    seed: int | None = None,
) -> Policy:
    """A policy with all that an algorithm asks of it, ready for an optimizer.

    Args:
        model: the live model; with an adapter, it computes in the precision that it was loaded in.
        algorithm: says whether there is a critic, and how memory and time are traded.
        compute: see `compute_in`.
        ranks: that learn together.
        chat: the model's chat format, where a privileged teacher reads charts.
        seed: of what such a policy has that is no copy of the model.

    Raises:
        TrainingError: a teacher with soft tokens in lower precision without an adapter, or in shards; an adapter of the
            head beside any teacher.
    """
    taught = algorithm.feature is not None or algorithm.distillation is not None
    if taught and has_adapter(model.get_output_embeddings()):
        raise TrainingError(
            "a privileged teacher and its student share one head; leave it out of train_doctor.lora.target_modules"
        )
    if algorithm.feature is not None and algorithm.adaptation is not None:
        sharded = ranks.size > 1 and ranks.sharding == "shard"
        if sharded or (compute != "float32" and not has_adapter(model)):
            raise TrainingError(NOT_PRIVILEGED)
        assert chat is not None and seed is not None  # noqa: S101, PT018  whoever may get one gives them
        return PrivilegedPolicy(model, algorithm.feature, algorithm.adaptation, chat, seed)
    if algorithm.optimizer.gradient_checkpointing:
        again = partial(same_attention_again, model.get_decoder().config)
        # in train mode only, never at play
        model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": again})
    compiled = algorithm.optimizer.compile
    if algorithm.distillation is not None:
        assert chat is not None  # noqa: S101  whoever may get one gives it
        policy: Policy = SelfTaughtPolicy(model, algorithm.distillation, chat, compiled=compiled)
    else:
        critic = Critic(model, shared=algorithm.critic.trunk == "shared") if algorithm.critic is not None else None
        policy = Policy(model, critic, compiled=compiled)
    compute_in(policy, compute, ranks)
    return policy
