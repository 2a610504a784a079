"""What a disk that is full or must not be written makes of a run, in a line."""

import errno
import os
import shutil
from pathlib import Path

from doctor.places import HOME

FULL_BYTES = 2**20  # free on a disk that is called full
REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)


def of_the_disk(error: BaseException) -> str | None:
    """What a disk that is full or must not be written has to do with an exception, in a line; None: nothing.

    Libraries that write in other languages raise what they like when a disk is full, so that is looked up.
    """
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.filename is not None and found.errno in REFUSED:
            return (
                f"{found.filename}: {os.strerror(found.errno)}; let this user read and write there, and run this again"
            )
        if isinstance(found, OSError) and found.errno in (errno.ENOSPC, errno.EDQUOT):
            return _full(Path(str(found.filename or HOME)))
        found = found.__cause__ or found.__context__
    return _full(HOME) if shutil.disk_usage(HOME).free < FULL_BYTES else None


def _full(place: Path) -> str:
    disk = place if place.is_dir() else next((one for one in place.absolute().parents if one.is_dir()), HOME)
    free = shutil.disk_usage(disk).free / 2**20
    return (
        f"{place}: {os.strerror(errno.ENOSPC)}, {free:.1f} MiB are free there; free as much as the folder "
        f"checkpoints/ of a training holds (python -m commands.prune lists them), and run this again"
    )
