"""Libraries of the extra `documents`, imported when the first file needs one."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

from kb.errors import KnowledgeBaseError


def library_for(path: Path, name: str) -> ModuleType:
    """Import the library that reads `path`.

    Raises:
        KnowledgeBaseError: if it is not installed; a file left out for that would not be missed in time.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise KnowledgeBaseError(
            f"{path} needs the package {error.name}: pip install -e '.[documents]', or take the file out of 'sources'"
        ) from error
