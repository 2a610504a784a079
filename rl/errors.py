"""Errors of the school."""


class TrainingError(RuntimeError):
    """Training cannot go on or a file it needs is unusable; the message names the thing, the value and the fix."""
