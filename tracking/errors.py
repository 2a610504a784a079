"""What can be wrong with the record of what happened."""


class TrackingError(RuntimeError):
    """The record cannot be written or read as it must; the message names the thing, the value and the fix."""


class AwayError(TrackingError):
    """The server that keeps the record does not answer now; it may later."""
