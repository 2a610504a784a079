"""What a stage's result depends on, as dvc.yaml says it: DVC reads it to see what is stale, and here it identifies a
run that was killed. One list, so that the two agree.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from doctor.mistakes import read_yaml
from doctor.parameters import ROOT, ParameterError, Params
from rl.files import file_hash

ENDPOINT = ("url", "key_env", "timeout_s", "retries", "concurrency")
WITHOUT_EFFECT = frozenset(
    {
        "rollout.max_failed_share",
        "train_doctor.max_stalled_steps",
        "reward.max_missing_share",
        *(
            f"language_models.{role}.{key}"
            for role in ("patient", "reward_judge", "evaluation_judge")
            for key in ENDPOINT
        ),
    }
)
"""Parameters that a stage watches as part of a section, but that change no result: when a run gives up, and where an
endpoint is.
"""


def input_hash(stage: str, params: Params, given: Mapping[str, Path]) -> str:
    """sha256 over the parameters and files that a stage depends on.

    Args:
        stage: its name in dvc.yaml.
        params: what it runs with, from whatever file.
        given: where the data lies that the flow was told to use, by its name in dvc.yaml; other dependencies are the
            checkout's.
    """
    declared = read_yaml(ROOT / "dvc.yaml")["stages"][stage]
    content = params.model_dump(mode="json")
    digest = hashlib.sha256(json.dumps(watched(content, declared["params"]), sort_keys=True).encode())
    for name in declared["deps"]:
        name = re.sub(r"\$\{([\w.]+)\}", lambda found: str(_at(content, found[1])), name)
        digest.update(name.encode() + files_hash(given.get(name, ROOT / name)).encode())
    return digest.hexdigest()


def watched(content: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """The values of parameters by dotted name, sections flattened, without those that change no result."""
    flat: dict[str, Any] = {}
    for name in names:
        flat |= _flat(name, _at(content, name))
    return {name: value for name, value in flat.items() if name not in WITHOUT_EFFECT}


def files_hash(place: Path) -> str:
    """sha256 over the names and contents of a file, or of a folder's files but for compiled code.

    Raises:
        ParameterError: there is nothing.
    """
    if not place.exists():
        raise ParameterError(f"{place} is missing, and this stage reads it; dvc repro runs the stages that make it")
    digest = hashlib.sha256()
    found = (
        sorted(path for path in place.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        if place.is_dir()
        else [place]
    )
    for path in found:
        digest.update(path.relative_to(place).as_posix().encode() + b"\0" + bytes.fromhex(file_hash(path)))
    return digest.hexdigest()


def _at(content: Mapping[str, Any], name: str) -> Any:
    value: Any = content
    for part in name.split("."):
        value = value[part]
    return value


def _flat(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {name: value}
    return {key: leaf for part, inner in value.items() for key, leaf in _flat(f"{name}.{part}", inner).items()}
