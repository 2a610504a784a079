"""The one error this package raises on purpose."""

LONGEST = 1000  # characters of a message: a value in it may be as long as its file


class KnowledgeBaseError(ValueError):
    """A corpus, an index or a setting that cannot be used as it is.

    The message is one line: where the trouble is, what was found, and what to do about it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(shortened(message))


def shortened(message: str) -> str:
    """A message whose middle is left out if it is long: where it happened stands first, the fix last."""
    return message if len(message) <= LONGEST else f"{message[: LONGEST // 2]} ... {message[-LONGEST // 2 :]}"
