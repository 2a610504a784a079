"""What stops a run is passed on as an interrupt, so whatever it starts must be able to take one."""

import signal
import threading


def let_children_be_interrupted() -> None:
    """Undo for later children that this process ignores interrupts, as what a script puts into the background does; it
    goes on ignoring them itself.

    A handler is not inherited, unlike being ignored. Nothing is done outside the main thread.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)
