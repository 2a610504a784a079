"""The one error type of the clinic: something a user gave it cannot be used."""

LONGEST = 1000  # characters of a message: a value in it may be as long as its file


class ClinicError(ValueError):
    """A clinic file, case set or setting is unusable; the message names file, value and fix."""

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message))


def shortened(message: str) -> str:
    """A message whose middle is left out if it is long: where it happened stands first, the fix last."""
    return message if len(message) <= LONGEST else f"{message[: LONGEST // 2]} ... {message[-LONGEST // 2 :]}"
