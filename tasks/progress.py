"""How long work says where it is: rate and time left, in the log."""

import logging
from collections.abc import Callable

from rl.sft import SFTPoint

log = logging.getLogger(__name__)


def supervised_progress(what: str) -> Callable[[SFTPoint], None]:
    """A reporter for supervised training."""

    def report(point: SFTPoint) -> None:
        log.info("%s: gradient step %d, loss %.3f, %.0f tokens/s, %s left", what, point.step, point.loss, point.tokens_per_second, duration(point.seconds_left))

    return report


def duration(seconds: float) -> str:
    """Seconds for people."""
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"
