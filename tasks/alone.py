"""One run at a time writes a project's products: another waits and says for whom. Two DVCs would else end with each other's
locks.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

log = logging.getLogger(__name__)
HELD = "ANAMNESIS_HELD_PROJECT"  # in a stage's environment: the project that whoever started it has to itself


@contextmanager
def alone(project: Path, within_s: float | None = None) -> Iterator[dict[str, str]]:
    """Keep a project to this process and what it starts, until it leaves the block or dies in whatever way; gives what has
    to be in the environment of what it starts. In the block, on any thread, it may be entered again.

    Raises:
        Timeout: another one was at work for longer than `within_s`.
    """
    told = {HELD: str(project)}
    if os.environ.get(HELD) == told[HELD]:
        yield told
        return
    folder = project / ".dvc" / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "anamnesis.lock", thread_local=False, is_singleton=True)
    holder = folder / "anamnesis.holder"
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log.info("%s is at work in %s; waiting until it has ended", _who(holder), project)
        lock.acquire(timeout=-1 if within_s is None else within_s)
    try:
        holder.write_text(str(os.getpid()))
        yield told
    finally:
        lock.release()


def _who(holder: Path) -> str:
    with suppress(OSError, ValueError, psutil.Error):
        process = psutil.Process(int(holder.read_text()))
        return f"process {process.pid} ({' '.join(process.cmdline()[1:4])})"
    return "another run"
