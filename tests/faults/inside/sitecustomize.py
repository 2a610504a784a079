"""Kills a run inside a write: on the path of every Python that a run starts, it counts what is put into its place
(`os.replace`, `os.rename`) and, at the one chosen, kills all of its session before or after.

FAULT_COUNT: a file that holds a byte for each so far. FAULT_AT: which one to die at, from 1; FAULT_AFTER: 1 for after it.
"""

import os
import signal
import sys
from pathlib import Path


def _dies(call):
    def put_into_place(*args, **kwargs):
        after = _is_chosen()
        if after == "0":
            _kill_session()
        done = call(*args, **kwargs)
        if after == "1":
            _kill_session()
        return done

    return put_into_place


def _is_chosen():
    """At the one to die at whether after it, "0" or "1"; None elsewhere."""
    with Path(os.environ["FAULT_COUNT"]).open("ab") as file:
        file.write(b".")
        reached = file.tell() == int(os.environ.get("FAULT_AT", "0"))
    return os.environ["FAULT_AFTER"] if reached else None


def _kill_session():
    for name in (entry.name for entry in Path("/proc").iterdir()):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if os.getsid(int(name)) == os.getsid(0):
                    os.kill(int(name), signal.SIGKILL)
            except OSError:
                pass
    os.kill(os.getpid(), signal.SIGKILL)


if "FAULT_COUNT" in os.environ and any("flows." in word or "commands." in word for word in sys.orig_argv):
    os.replace, os.rename = _dies(os.replace), _dies(os.rename)
