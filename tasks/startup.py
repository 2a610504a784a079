"""The seconds between a command and its work, most of them imports.

They make so many objects that last that Python's garbage collector, which goes through all that there is again and again,
takes a sixth of their time and finds nothing.
"""

import gc
import sys


def is_program() -> bool:
    """Whether the package that is being imported is that of `python -m <module>`, which has not begun."""
    return sys.argv[0] == "-m"


def begin() -> None:
    """Import without the collector, in a process of `python -m <module>`, which calls `done` before its work."""
    if is_program():
        gc.disable()


def done() -> None:
    """Collect again, but leave out what was made so far, which lasts."""
    gc.freeze()
    gc.enable()
