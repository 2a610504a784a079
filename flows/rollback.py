"""The champion of before takes its place again."""

import argparse
import sys

from prefect import flow

from tasks.command_line import USER_ERRORS, process
from tasks.gate import roll_back
from tasks.server import await_server
from tracking.console import WATCHED


@flow(name="rollback", **WATCHED)
def rollback(version: str | None = None, reason: str = "") -> str:
    """Give the champion's place back to the version it replaced, or to another; what loses it is not promoted again.

    Args:
        version: number in the registry; without it, the one that the champion replaced.
        reason: kept with the version that loses its place.
    """
    return roll_back(version, reason)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m flows.rollback", description=__doc__)
    parser.add_argument("--version", help="number in the registry; without it, the one that the champion replaced")
    parser.add_argument("--reason", default="", help="kept with the version that loses its place")
    given = parser.parse_args()
    with process("rollback", *USER_ERRORS):
        await_server()
        sys.stdout.write(rollback(given.version, given.reason) + "\n")
