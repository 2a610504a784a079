"""Errors of the school."""


class TrainingError(RuntimeError):
    """Training cannot go on or a file it needs is unusable; the message names the thing, the value and the fix."""


def first_line(error: BaseException) -> str:
    """Of what an exception says, for a line of ours that quotes it; its name where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
