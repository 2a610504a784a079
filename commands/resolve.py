"""The folder of a doctor, for whatever loads or serves one.

Serve the registered one: vllm serve $(python -m commands.resolve champion). Its files are checked
first against the hash that they were registered with.
"""

import argparse
import sys
from pathlib import Path

NAMED = "a folder, or of the registry: champion, challenger or models:/anamnesis-doctor@champion"


def resolved(doctor: str) -> Path:
    """The folder of a doctor.

    Args:
        doctor: a folder, an alias of the registry, or MLflow's address of one.

    Raises:
        TrackingError: there is neither, or the registered folder is missing or changed.
    """
    from tasks.registry import MODEL_NAME, folder_of

    return folder_of(doctor.removeprefix(f"models:/{MODEL_NAME}@"))


def main() -> int:
    """Print the folder."""
    parser = argparse.ArgumentParser(
        prog="python -m commands.resolve", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("doctor", help=NAMED)
    given = parser.parse_args()
    from tracking.errors import TrackingError

    try:
        folder = resolved(given.doctor)
        if not given.doctor or not (folder / "config.json").is_file():
            raise TrackingError(
                f"{given.doctor or 'an empty name'} is no model; name champion, challenger or a folder with config.json"
            )
        sys.stdout.write(f"{folder}\n")
    except TrackingError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
