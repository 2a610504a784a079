"""Checkpoints: `global_step_<n>/` folders, complete or absent.

Each is a Hugging Face model folder plus `learner.pt` (optimizer, counters and, with LoRA, the adapter) and
`complete.json` with the sha256 of every file. The last complete one is where a run goes on from.
"""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rl.adapters import named_weights
from rl.errors import TrainingError
from rl.features import ADAPTATION, AdaptModule, save_adaptation
from rl.files import file_hash, replace_folder
from rl.models import stop_where_turns_end

_NAME = re.compile(r"global_step_(\d+)")
SEAL = "complete.json"


def save_checkpoint(
    root: Path,
    step: int,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    learner: dict[str, Any],
    adaptation: AdaptModule | None = None,
    *,
    writes: bool = True,
) -> Path:
    """Write `root/global_step_<step>` atomically, an adapter merged into the weights.

    Args:
        root: folder of the run.
        step: the rollout step.
        model: the live model; what ranks hold of it is put together.
        tokenizer: its own.
        learner: `Learner.state()` and the adapter.
        adaptation: what predicts the features of a student; a folder beside its weights.
        writes: whether this process does; else it only takes part, as every rank has to.
    """
    directory = root / f"global_step_{step}"
    weights = _whole_weights(model, keep=writes)
    if not writes:
        return directory
    temporary = root / f".global_step_{step}.partial"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    stop_where_turns_end(model, tokenizer)
    model.save_pretrained(temporary, state_dict=weights)
    tokenizer.save_pretrained(temporary)
    torch.save(learner, temporary / "learner.pt")
    if adaptation is not None:
        save_adaptation(adaptation, temporary / ADAPTATION)
    paths = sorted(path for path in temporary.rglob("*") if path.is_file())
    with ThreadPoolExecutor() as pool:  # hashing lets other threads run
        files = dict(
            zip((path.relative_to(temporary).as_posix() for path in paths), pool.map(file_hash, paths), strict=True)
        )
    (temporary / SEAL).write_text(json.dumps({"step": step, "files": files}, indent=1))
    replace_folder(temporary, directory)
    return directory


def _whole_weights(model: PreTrainedModel, *, keep: bool) -> dict[str, torch.Tensor]:
    """All weights, in the host's memory one after the other, where a whole model may be more than a GPU has room for; what
    is one parameter under two names (a tied head) is one tensor, which is written once.
    """
    first: dict[int, str] = {}
    same = {name: first.setdefault(id(held), name) for name, held in model.state_dict(keep_vars=True).items()}
    found: dict[str, torch.Tensor] = {}
    for name, value in named_weights(model):
        if keep:
            found[name] = found.get(same.get(name, name), value.cpu())
    return found


def steps_saved(root: Path) -> list[int]:
    """Steps with a complete checkpoint, rising."""
    found = (_NAME.fullmatch(p.parent.name) for p in root.glob(f"global_step_*/{SEAL}"))
    return sorted(int(match[1]) for match in found if match)


def check_checkpoint(directory: Path) -> None:
    """Compare every file of a checkpoint with its seal; whoever reads one checks it first.

    Raises:
        TrainingError: a file is missing or damaged.
    """
    try:
        files: dict[str, str] = json.loads((directory / SEAL).read_text())["files"]
    except (OSError, ValueError, KeyError):
        files = {SEAL: ""}  # no seal, no checkpoint
    for name, expected in files.items():
        path = directory / name
        if not path.exists() or file_hash(path) != expected:
            raise TrainingError(
                f"{path} is missing or damaged; delete {directory} and later checkpoints to resume from the one before"
            )


def load_learner_state(directory: Path) -> dict[str, Any]:
    """Check a checkpoint's hashes and read its learner state.

    Raises:
        TrainingError: a file is missing or damaged.
    """
    check_checkpoint(directory)
    state: dict[str, Any] = torch.load(directory / "learner.pt", map_location="cpu", weights_only=True)
    return state


def prune(root: Path, keep_every: int) -> None:
    """Delete checkpoints that are neither the last two nor a multiple of `keep_every`."""
    for step in steps_saved(root)[:-2]:
        if step % keep_every:
            shutil.rmtree(root / f"global_step_{step}")
