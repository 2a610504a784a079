"""The scheduled one: reproduce what is stale, register the result as challenger, report."""

import argparse
import os
import sys

from prefect import flow

from doctor.parameters import ROOT, load_params
from doctor.recipe import load_algorithm
from doctor.reward_recipe import load_reward
from tasks.command_line import USER_ERRORS, told
from tasks.registry import register_challenger
from tasks.report import summary
from tasks.server import AWAITED, wait_until_healthy
from tasks.versioning import VersioningError, reproduce
from tracking.console import follow


@flow(name="retrain", on_running=[follow])
def retrain(targets: tuple[str, ...] = ()) -> str:
    """Run the whole pipeline through DVC and register the doctor, once per hash; returns the report."""
    params = load_params()  # a mistake is told before DVC clears what a stage is to make
    load_algorithm(params)
    load_reward(params.reward.preset)
    reproduce(targets)
    registered = register_challenger(ROOT / "models/doctor")
    return summary(registered)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m flows.retrain", description=retrain.__doc__)
    parser.add_argument("targets", nargs="*", help="stages to bring up to date; without any, all")
    given = parser.parse_args()
    with told("retrain", VersioningError, *USER_ERRORS):
        if address := os.environ.pop(AWAITED, None):
            wait_until_healthy(address)
        sys.stdout.write(retrain(tuple(given.targets)) + "\n")
