import copy
from pathlib import Path

import pytest
import torch

from rl import halfway
from rl.config import SFTParams
from rl.halfway import SEAL, STATE, Halfway
from rl.policy import Policy, compute_in
from rl.ranks import whole_tree
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


@pytest.fixture(autouse=True)
def kept_at_every_step(monkeypatch):
    monkeypatch.setattr(halfway, "SHARE", float("inf"))
    monkeypatch.setattr(halfway, "EVERY_S", 0.0)


class StoppedError(Exception):
    """A process ends here."""


def learned(model, folder: Path | None, optimizer="adamw", stop=None, compute="float32"):
    """Two trainings in a row, as a warm start has them; steps by training, loss and weights.

    Args:
        stop: training and step at which it ends.
    """
    policy, steps = Policy(copy.deepcopy(model)), ([], [])
    compute_in(policy, compute)
    params = PARAMS.model_copy(update={"optimizer": optimizer, "epochs": 4})
    kept = None if folder is None else Halfway(folder)
    for number in range(2):

        def report(point, number=number):
            steps[number].append(point.step)
            if stop == (number, point.step):
                raise StoppedError

        loss = train_supervised(policy, EXAMPLES[number * 4 :], params, report, kept)
    return steps, loss, whole_tree(policy.model.state_dict())


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("stop", [(0, 1), (0, 5), (0, 8), (1, 3), (1, 4)])
def test_a_stopped_training_goes_on_to_the_same_weights(model, tmp_path, optimizer, stop):
    whole = learned(model, None, optimizer)
    with pytest.raises(StoppedError):
        learned(model, tmp_path / "kept", optimizer, stop)
    steps, loss, weights = learned(model, tmp_path / "kept", optimizer)
    number, last = stop
    assert steps[number] == whole[0][number][last:]
    assert steps[1 - number] == ([] if number else whole[0][1])
    assert loss == whole[1]
    assert all(torch.equal(weights[name], value) for name, value in whole[2].items())


def test_one_that_computes_in_bfloat16_goes_on_to_the_same_weights(model, tmp_path):
    whole = learned(model, None, compute="bfloat16")
    with pytest.raises(StoppedError):
        learned(model, tmp_path / "kept", stop=(1, 3), compute="bfloat16")
    steps, _, weights = learned(model, tmp_path / "kept", compute="bfloat16")
    assert steps == ([], [4])
    assert all(torch.equal(weights[name], value) for name, value in whole[2].items())


@pytest.mark.parametrize("damage", [STATE, SEAL])
def test_what_is_damaged_is_not_gone_on_from(model, tmp_path, damage, caplog):
    whole = learned(model, None)
    with pytest.raises(StoppedError):
        learned(model, tmp_path / "kept", stop=(1, 3))
    content = bytearray((tmp_path / "kept" / damage).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "kept" / damage).write_bytes(content)
    steps, _, weights = learned(model, tmp_path / "kept")
    assert steps == whole[0]
    assert "begins anew" in caplog.text
    assert all(torch.equal(weights[name], value) for name, value in whole[2].items())


def test_it_is_kept_now_and_then_only(model, tmp_path, monkeypatch):
    monkeypatch.setattr(halfway, "EVERY_S", 60.0)
    with pytest.raises(StoppedError):
        learned(model, tmp_path / "kept", stop=(1, 3))
    assert not (tmp_path / "kept").exists()
    monkeypatch.setattr(halfway, "EVERY_S", 0.0)
    monkeypatch.setattr(halfway, "SHARE", 1e-9)  # as if writing took very long
    with pytest.raises(StoppedError):
        learned(model, tmp_path / "kept", stop=(1, 3))
    steps, *_ = learned(model, tmp_path / "kept")
    assert steps == ([2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4])
