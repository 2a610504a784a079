"""What people type beside the flows: each is `python -m commands.<name>` and has a --help."""

import atexit
import gc

from tasks.interrupts import tell_of_interrupts
from tasks.startup import is_program

tell_of_interrupts()  # also before a command has begun
if is_program():
    # what libraries make while they are imported lasts: going through it again and again, and once more at the end, takes a
    # third of a command that has little to do
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
