"""Kills a run inside a write: on the path of every Python that a run starts, it counts what is put into its place
(`os.replace`, `os.rename`), told to git, MLflow's registry and Prefect, and, at the one chosen, kills the whole run before
or after.

FAULT_COUNT: a file that holds a line for each so far, with its name; whoever has it in its environment belongs to the run.
FAULT_AT: which one to die at, from 1; FAULT_AFTER: 1 for after it.
"""

import importlib.abc
import importlib.util
import os
import signal
import sys
from functools import wraps
from pathlib import Path


def _dies(call, named):
    """The call, and maybe death before or after; `named` gives it a name, or none if it is no write."""

    @wraps(call)
    def write(*args, **kwargs):
        name = named(*args, **kwargs)
        after = _is_chosen(name) if name else None
        if after == "0":
            kill_run(os.environ["FAULT_COUNT"])
        done = call(*args, **kwargs)
        if after == "1":
            kill_run(os.environ["FAULT_COUNT"])
        return done

    return write


def _is_chosen(name):
    """At the one to die at whether after it, "0" or "1"; None elsewhere."""
    with Path(os.environ["FAULT_COUNT"]).open("ab+") as file:
        file.write(f"{name}\n".encode())
        end = file.tell()
        file.seek(0)
        reached = file.read(end).count(b"\n") == int(os.environ.get("FAULT_AT", "0"))
    return os.environ["FAULT_AFTER"] if reached else None


def kill_run(count):
    """Every process of the run, whatever session it is in, at last this one if it is one of them."""
    mark = f"FAULT_COUNT={count}".encode()
    for name in (entry.name for entry in Path("/proc").iterdir()):
        if name.isdigit() and int(name) != os.getpid():
            try:
                if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    os.kill(int(name), signal.SIGKILL)
            except OSError:
                pass
    if os.environ.get("FAULT_COUNT") == count:
        os.kill(os.getpid(), signal.SIGKILL)


def _moved(_source, place, **_):
    return f"into {Path(place).parent.name}" if not str(place).startswith(("/tmp/.prefect", "/proc")) else None


def _of_git(command, *_):
    return next((f"git {word}" for word in command if word in ("worktree", "commit-tree", "update-ref")), None)


def _of_registry(call, *_, **__):
    name = getattr(call, "__name__", "")
    return name if name.startswith(("create_", "set_", "delete_", "log_model")) else None


def _of_prefect(*_, **__):
    return "create artifact"


IN_MODULES = {
    "os": [("replace", _moved), ("rename", _moved)],
    "tasks.repository": [("_told", _of_git)],
    "tracking.registry": [("patiently", _of_registry)],
    "tasks.gate": [("create_markdown_artifact", _of_prefect)],
}


def arm(module):
    """Put deaths into a module, or into os."""
    for attribute, named in IN_MODULES[module.__name__]:
        setattr(module, attribute, _dies(getattr(module, attribute), named))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Puts deaths into modules as they are imported."""

    def find_spec(self, name, path=None, target=None):
        if name not in IN_MODULES:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        sys.meta_path.insert(0, self)
        work = spec.loader.exec_module

        def execute(module):
            work(module)
            arm(module)

        spec.loader.exec_module = execute
        return spec


if "FAULT_COUNT" in os.environ and any("flows." in word or "commands." in word for word in sys.orig_argv):
    arm(os)
    sys.meta_path.insert(0, _AfterImport())
