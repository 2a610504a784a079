"""Language models that play patients and judges: on this machine, or behind an endpoint."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Union

from rl.config import LanguageModelParams, LocalModelParams
from rl.language_models.local import LocalModel

if TYPE_CHECKING:
    from rl.language_models.endpoint import Endpoint

LanguageModel = Union[LocalModel, "Endpoint"]
PATIENCE = 2  # tries after the first, at least, before a run is refused


def open_model(params: LanguageModelParams, root: Path, seed: int) -> LanguageModel:
    """Load a model of this machine (a path is looked for under `root` first), or make the client of an endpoint
    (nothing is sent yet).
    """
    if isinstance(params, LocalModelParams):
        place = root / params.model
        return LocalModel(params.model_copy(update={"model": str(place)}) if place.exists() else params, seed)
    # the library behind it takes a second to load, and most runs ask nobody
    from rl.language_models.endpoint import (
        Endpoint,
    )

    return Endpoint(params)


def check_endpoints(models: Iterable[LanguageModelParams | None]) -> None:
    """Ask those behind an endpoint, so that a wrong address or model ends a run before it begins; one hiccup does not.

    Raises:
        EndpointError: nothing usable answers there, or it does not serve the model.
    """
    asked = [params for params in models if params is not None and not isinstance(params, LocalModelParams)]
    if not asked:
        return
    from rl.language_models.endpoint import Endpoint

    for params in asked:
        insistent = params.model_copy(update={"retries": max(params.retries, PATIENCE)})
        asyncio.run(Endpoint(insistent).check())
