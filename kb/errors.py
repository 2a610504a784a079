"""The one error this package raises on purpose."""


class KnowledgeBaseError(ValueError):
    """A corpus, an index or a setting that cannot be used as it is.

    The message is one line: where the trouble is, what was found, and what to do about it.
    """
