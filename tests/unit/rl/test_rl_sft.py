import copy

import pytest
import torch

from rl.config import SFTParams
from rl.policy import Policy
from rl.sft import Example, train_supervised

PARAMS = SFTParams(
    epochs=60,
    batch_size=4,
    optimizer="adamw",
    learning_rate=5e-3,
    warmup_share=0.1,
    weight_decay=0.0,
    max_grad_norm=1.0,
    micro_batch_tokens=64,
    seed=0,
)
EXAMPLES = [Example([5 + i, 20 + i, 40 + i, 60 + i], [0, 0, 1, 1]) for i in range(8)]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_either_optimizer_learns_and_moves_every_weight(model, optimizer):
    before = copy.deepcopy(model.state_dict())
    points = []
    loss = train_supervised(Policy(model), EXAMPLES, PARAMS.model_copy(update={"optimizer": optimizer}), points.append)
    assert points[0].loss > 3
    assert [(point.step, point.steps) for point in points] == [(i + 1, len(points)) for i in range(len(points))]
    assert loss < 0.2
    assert all(not torch.equal(before[name], after) for name, after in model.named_parameters())


def test_the_optimizers_are_not_the_same(model):
    models = [copy.deepcopy(model) for _ in range(2)]
    for one, optimizer in zip(models, ("adamw", "muon"), strict=True):
        train_supervised(Policy(one), EXAMPLES, PARAMS.model_copy(update={"optimizer": optimizer, "epochs": 1}))
    a, b = (dict(one.named_parameters()) for one in models)
    assert not torch.equal(a["model.layers.0.mlp.up_proj.weight"], b["model.layers.0.mlp.up_proj.weight"])
