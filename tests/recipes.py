"""The committed recipes, with changes, for tests."""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

FOLDER = Path(__file__).resolve().parent.parent / "recipes"
OPTIMIZER = {
    "num_epochs": 1, "mini_batch_size": 64, "learning_rate": 1e-3, "warmup_rollout_steps": 0, "weight_decay": 0.0, "max_grad_norm": 1.0, "micro_batch_tokens": 4096, "gradient_checkpointing": False, "compile": False,
}  # fmt: skip


def recipe(name: str, **changes: Any) -> dict[str, Any]:
    """`recipes/<name>.yaml` with the test's own optimizer and further changes; a mapping changes the keys that it
    names.
    """
    content: dict[str, Any] = YAML(typ="safe").load(FOLDER / f"{name}.yaml") | {"optimizer": OPTIMIZER}
    for key, value in changes.items():
        content[key] = content[key] | value if isinstance(value, dict) else value
    return content
