"""Training phases with flex attention on a row: the gradients of those with padding."""

import pytest
import torch

from rl.algorithms import make_algorithm
from rl.flex import read_rows, reads_rows
from rl.learner import Learner, Sampler
from rl.machine import Place
from rl.models import new_model, new_tokenizer, save_model
from rl.policies import policy_for
from rl.ranks import whole
from rl.workers.local import LocalSession
from tests.handing import watched
from tests.numerics.test_architectures import ROLLOUT
from tests.numerics.test_invariance import OPTIMIZER, base, experience  # noqa: F401  fixtures
from tests.recipes import recipe


@pytest.fixture(autouse=True)
def gradients_on_a_processor(monkeypatch):
    """torch refuses them since it has no kernel for them; what stands in for one has them."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
    torch.compiler.reset()


VARIANTS = {
    "grpo": recipe("grpo", group_size=4),
    "grpo, checkpointing": recipe("grpo", group_size=4, optimizer={"gradient_checkpointing": True}),
    "ppo, own trunk, checkpointing": recipe(
        "ppo",
        group_size=4,
        critic={"warmup_rollout_steps": 0, "trunk": "own"},
        optimizer={"gradient_checkpointing": True},
    ),
    "ppo, shared trunk": recipe("ppo", group_size=4, critic={"warmup_rollout_steps": 0, "trunk": "shared"}),
}


FAST = [("grpo, checkpointing", "bfloat16"), ("ppo, own trunk, checkpointing", "float32")]
SLOW = [(v, c) for v in VARIANTS for c in ("float32", "bfloat16") if (v, c) not in FAST]


@pytest.mark.parametrize(
    ("variant", "compute"), [*FAST, *(pytest.param(*both, marks=pytest.mark.slow) for both in SLOW)]
)
def test_an_update_is_that_of_the_padded_path(experience, variant, compute):  # noqa: F811
    """Recomputed layers and weights that FSDP2 gathers included."""
    found = []
    for rows in (False, True):
        model = new_model(new_tokenizer(["a"], 280), width=32, layers=2, heads=2, context=64, seed=1)
        if rows:
            read_rows(model)
        checkpointing = VARIANTS[variant]["optimizer"]["gradient_checkpointing"]
        algorithm = make_algorithm(
            VARIANTS[variant] | {"optimizer": OPTIMIZER | {"gradient_checkpointing": checkpointing}}
        )
        policy = policy_for(model, algorithm, compute)
        learner = Learner(policy, algorithm, 4, 0.8, 0, {}, Sampler(exact=False, staleness=0))
        gradients = watched(learner)
        metrics = learner.update(*experience, step=1)
        found.append((metrics["grad_norm"], {name: whole(value) for name, value in gradients.items()}))
    (norm, expected), (row_norm, ours) = found
    tolerance = 1e-4 if compute == "float32" else 0.05
    assert row_norm == pytest.approx(norm, rel=tolerance)
    for name, gradient in expected.items():
        error = float((ours[name] - gradient).norm() / gradient.norm().clamp(min=1e-6 * norm))
        assert error < tolerance, name


def test_a_policy_its_engine_and_its_reference_are_read_the_same_way(monkeypatch, tmp_path):
    """Rounded otherwise, the same weights would seem others."""
    tokenizer = new_tokenizer(["a"], 280)
    save_model(new_model(tokenizer, width=32, layers=2, heads=2, context=64, seed=1), tokenizer, tmp_path / "model")
    monkeypatch.setattr("rl.workers.trainer.prefer_rows", lambda model, compute: read_rows(model))
    algorithm = make_algorithm(
        recipe("grpo", group_size=4, kl={"place": "loss", "coefficient": 0.1}, optimizer=OPTIMIZER)
    )
    place = Place("cpu", "bfloat16")
    session = LocalSession(str(tmp_path / "model"), place, ROLLOUT, algorithm, 0, temperature=1.0)
    (reference,) = session.learner.frozen.values()
    for model in (session.model, session.engine.model, reference.model):
        assert reads_rows(model.get_decoder())
    session.hold()
    assert session.engine.probe_error == 0
