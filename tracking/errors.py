"""What can be wrong with the record of what happened."""

import re


class TrackingError(RuntimeError):
    """The record cannot be written or read as it must; the message names the thing, the value and the fix."""


class AwayError(TrackingError):
    """The server that keeps the record does not answer now; it may later."""


def without_password(uri: str) -> str:
    """An address, or a text with some, as it may be shown."""
    return re.sub(r"//[^/\s]*@", "//", uri)
