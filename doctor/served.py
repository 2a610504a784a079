"""A doctor behind OpenAI-compatible HTTP: which one, and how its turns are sampled."""

import asyncio
import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

from doctor.mistakes import validated
from doctor.parameters import ParameterError, Params
from rl.config import EndpointParams

TIMEOUT_S = 120.0  # of a try
RETRIES = 2


def is_address(doctor: str) -> bool:
    """Whether a doctor is named by an address, not by a folder or an alias."""
    return doctor.startswith(("http://", "https://"))


def served_doctor(url: str, model: str | None, key_env: str, params: Params) -> EndpointParams:
    """The doctor at an address; it is asked whether it is there.

    Args:
        url: up to and including /v1.
        model: as the server calls it; None: the only one that it serves.
        key_env: name of the environment variable with the key; "" sends none.
        params: how turns are sampled, and how long they may be.

    Raises:
        ParameterError: the address or the variable's name is none, or the server has several models.
        EndpointError: nothing usable answers there, or it does not serve the model.
    """
    from rl.language_models.endpoint import Endpoint

    told = {
        "url": url,
        "model": model or "",
        "key_env": key_env,
        "timeout_s": TIMEOUT_S,
        "retries": RETRIES,
        "concurrency": 1,
        "temperature": params.decoding.evaluate.temperature,
        "max_tokens": params.rollout.response_length,
    }
    doctor = validated(told, Path("--doctor"), EndpointParams.model_validate)
    if model is None:
        names = asyncio.run(Endpoint(doctor).models())
        if len(names) != 1:
            raise ParameterError(f"{url} serves {', '.join(names) or 'no models by name'}; name one with --model")
        return doctor.model_copy(update={"model": names[0]})
    asyncio.run(Endpoint(doctor).check())
    return doctor


def served_folder(doctor: EndpointParams) -> Path | None:
    """The folder that a server on this machine serves, which `vllm serve` calls the model by; None if it has another
    name, or lies elsewhere.
    """
    host = urlsplit(doctor.url).hostname or ""
    try:
        here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    folder = Path(doctor.model)
    return folder if here and folder.is_absolute() and (folder / "config.json").is_file() else None
