"""A file that a person wrote, `params.yaml` or a recipe, and what is wrong with it in one line: file, key, value and fix."""

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml.error import YAMLError

from clinic.config import PresetName
from clinic.errors import shortened
from clinic.yaml_files import load_yaml
from doctor.places import ROOT
from rl.config import SECRET

T = TypeVar("T")

MOVED = {
    "base_model": "recipes/base_model.yaml",
    "warm_start.dtype": "machines.compute",
    "rollout.temperature": "decoding.train.temperature",
    "evaluate_doctor.temperature": "decoding.evaluate.temperature",
    "rollout.compile": "rollout.engine.compile",
    "rollout.vllm": "rollout.engine, {kind: vllm, ...}",
    "consultation.patient": "consultation.matching, and language_models.patient says who plays the patient (null: rules)",
    "warm_start.focus": "warm_start.typicality",
    "warm_start.wandering": "warm_start.unrelated_share",
    "train_doctor.choose": "train_doctor.export",
    "trace": "gae_lambda",
    "dynamic_sampling.max_draws": "dynamic_sampling.max_num_gen_batches",
    "sampler_correction.bound": "sampler_correction.upper",
    "minds": "posterior_draws",
    "minds_weight": "posterior_weight",
    "reading_focus": "first_phase_typicality",
    "rounds.focus": "rounds.typicality",
    "rounds.checklist_focus": "rounds.checklist_typicality",
    "rounds.minds_weight": "rounds.posterior_weight",
    **{f"reward.{preset}": f"recipes/rewards/{preset}.yaml" for preset in get_args(PresetName)},
}
"""Keys of `params.yaml` and of recipes that have another place: a file written for the old one is told where."""

_WANTED = {  # type of a mistake -> what is wanted, where pydantic speaks of Python
    "tuple_type": "write a list, in brackets",
    "list_type": "write a list, in brackets",
    "too_short": "the list is empty; name at least one",
    "dict_type": "write a mapping, {key: value, ...}",
    "model_type": "write a mapping, {key: value, ...}",
    "model_attributes_type": "write a mapping, {key: value, ...}",
    "int_parsing": "write a whole number",
    "int_type": "write a whole number",
    "int_from_float": "write a whole number",
    "float_parsing": "write a number",
    "float_type": "write a number",
    "finite_number": "write a finite number",
    "bool_parsing": "write true or false",
    "bool_type": "write true or false",
    "string_type": "write a text, in quotes where it looks like a number",
    "string_too_short": "it is empty",
}

_SHORT = reprlib.Repr()  # of a value in a message, which may be as long as its file
_SHORT.maxstring = _SHORT.maxother = 200
_SHORT.maxlevel = 2


class ParameterError(ValueError):
    """`params.yaml` or a recipe is unusable; one line that names file, key, value and fix."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message))


def read_yaml(path: Path) -> Any:
    """What a YAML file says.

    Raises:
        ParameterError: it is not there, or not YAML.
    """
    try:
        return load_yaml(path)
    except FileNotFoundError:
        mended = f"restore it with `git checkout {_shown(path)}`" if path.is_relative_to(ROOT) else "name another file"
        raise ParameterError(f"{path} does not exist; {mended}") from None
    except (YAMLError, ValueError, OSError) as error:
        raise ParameterError(f"{path.name} is not valid YAML: {' '.join(str(error).split())}") from error


def validated(content: Any, path: Path, build: Callable[[Any], T]) -> T:
    """Build from what was read from `path`.

    Raises:
        ParameterError: the first mistake that pydantic finds, in one line.
    """
    if not isinstance(content, dict):
        found = "empty" if content is None else f"not {_SHORT.repr(content)}"
        raise ParameterError(f"{path.name} must be a mapping of sections, `key: value` on each line; it is {found}")
    try:
        built = build(content)
    except ValidationError as error:
        raise ParameterError(_one_line(path, content, error)) from error
    for key, value in _truths_for_numbers(content, built):
        raise ParameterError(f"{_shown(path)}: {key} = {str(value).lower()}: write a number")
    return built


def _truths_for_numbers(content: Mapping[Any, Any], built: Any, place: str = "") -> Iterator[tuple[str, bool]]:
    """Keys where somebody wrote true or false, which pydantic takes for the numbers 1 and 0."""
    for key, value in content.items():
        made = built.get(key) if isinstance(built, Mapping) else getattr(built, str(key), None)
        if isinstance(value, bool) and isinstance(made, int | float) and not isinstance(made, bool):
            yield f"{place}{key}", value
        elif isinstance(value, Mapping):
            yield from _truths_for_numbers(value, made, f"{place}{key}.")


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """The end of a message about a misspelt word; empty if nothing known is near."""
    near = get_close_matches(given, list(known), 1) if isinstance(given, str) else []
    return f"; did you mean {near[0]}?" if near else ""


def _one_line(path: Path, content: Any, error: ValidationError) -> str:
    mistakes = error.errors()
    first = min(mistakes, key=lambda mistake: mistake["type"] != "extra_forbidden")  # a misspelt key is missing as well
    key = _key(first, content)
    here = [mistake for mistake in mistakes if mistake["type"] != "missing" and _key(mistake, content) == key]
    others = len(mistakes) - max(1, len(here))
    more = f" (and {others} more)" if others else ""
    name = _shown(path)
    if first["type"] == "extra_forbidden":
        return f"{name}: {_unknown(first, mistakes, content)}"
    if first["type"] == "missing":
        return f"{name}: {key} is missing; add it{more}"
    message = ", or ".join(
        dict.fromkeys(_WANTED.get(one["type"]) or one["msg"].removeprefix("Value error, ") for one in here)
    )
    choices = re.findall(r"'([^']+)'", str(first.get("ctx", {}).get("expected", "")))
    given = first["input"]
    said = {None: "null", True: "true", False: "false"}[given] if given is None or isinstance(given, bool) else ""
    shown = "" if isinstance(given, dict) or first["type"] == SECRET else f" = {said or _SHORT.repr(given)}"
    return f"{name}: {key or '(whole file)'}{shown}: {message}{did_you_mean(first['input'], choices)}{more}"


def _key(mistake: ErrorDetails, content: Any) -> str:
    """The key as the file has it: the kind of a block, and which of several kinds of value was tried, are parts of
    pydantic's place too.
    """
    names: list[str] = []
    here = content
    for part in mistake["loc"]:
        known = isinstance(part, int) if isinstance(here, list) else isinstance(here, Mapping) and part in here
        if known:
            names.append(str(part))
            here = here[part]
    if mistake["type"] == "missing":
        names.append(str(mistake["loc"][-1]))
    return ".".join(names)


def _unknown(mistake: ErrorDetails, mistakes: Sequence[ErrorDetails], content: Any) -> str:
    """What is wrong with a key that does not exist, and what does: as there are no defaults, its neighbours that are
    known, and those that are missing.
    """
    *place, last = mistake["loc"]
    here: Any = content
    names: list[object] = []  # without the kind of a block, which is part of a location too
    for part in place:
        names += [part] * (isinstance(here, list) or (isinstance(here, dict) and part in here))
        here = here[int(part)] if isinstance(here, list) else here.get(part, here)
    key = ".".join(map(str, [*names, last]))
    if (moved := MOVED.get(".".join(str(name) for name in [*names, last] if not isinstance(name, int)))) is not None:
        return f"{key} is not read any more; it is {moved} now"
    near = {
        kind: {
            str(other["loc"][-1]) for other in mistakes if other["type"] == kind and list(other["loc"][:-1]) == place
        }
        for kind in ("missing", "extra_forbidden")
    }
    known = [str(name) for name in here if str(name) not in near["extra_forbidden"]] + sorted(near["missing"])
    return f"unknown key {key} = {_SHORT.repr(mistake['input'])}{did_you_mean(last, sorted(near['missing']) or known) or '; known here: ' + ', '.join(known)}"
