"""What people type beside the flows: each is `python -m commands.<name>` and has a --help."""

from tasks.interrupts import tell_of_interrupts

tell_of_interrupts()  # also before a command has begun
