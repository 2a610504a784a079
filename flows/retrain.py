"""The scheduled one: reproduce what is stale, register the result as challenger, let it meet the champion, report."""

import argparse
import logging
import os
import sys

from prefect import flow
from prefect.flow_runs import pause_flow_run, suspend_flow_run
from prefect.input import RunInput
from prefect.runtime import deployment, flow_run
from pydantic import Field

from doctor.gate import Decision, markdown
from doctor.parameters import ROOT, load_params
from doctor.recipe import load_algorithm
from doctor.reward_recipe import load_reward
from tasks.command_line import USER_ERRORS, process
from tasks.gate import compare_with_champion, settle
from tasks.registry import register_challenger
from tasks.report import summary
from tasks.server import AWAITED, wait_until_healthy
from tasks.versioning import VersioningError, reproduce
from tracking.console import follow, named

log = logging.getLogger(__name__)
APPROVAL_TIMEOUT_S = 7 * 24 * 3600  # then the flow run fails and the champion stays


class Approval(RunInput):
    """What a person says to a better challenger, in the form on the flow run's page."""

    promote: bool = Field(description="whether it takes the champion's place")
    why: str = Field(default="", description="kept with the decision")


@flow(name="retrain", flow_run_name=named, on_running=[follow])
def retrain(targets: tuple[str, ...] = ()) -> str:
    """Run the whole pipeline through DVC, register the doctor, once per hash, and promote it if it is better than the
    champion; returns the report.

    Args:
        targets: stages to bring up to date; without any, all.
    """
    params = load_params()  # a mistake is told before DVC clears what a stage is to make
    load_algorithm(params)
    load_reward(params.reward.preset)
    reproduce(targets)
    challenger, registered = register_challenger(params, ROOT / "models/doctor")
    decision = compare_with_champion(params, challenger)
    promote, why = decision is not None and decision.promoted, ""
    if decision is not None and promote and params.retrain.approval:
        said = _ask(decision, challenger.sha256)
        promote, why = said.promote, said.why or ("approved" if said.promote else "not approved")
    return summary(f"{registered}\n{settle(challenger, decision, promote, why)}")


def _ask(decision: Decision, sha256: str) -> Approval:
    """What a person says of this very challenger: a deployed run is suspended meanwhile and holds no worker, another one
    waits.
    """
    log.info("better than the champion; waiting for a person's word, resume this run at %s", flow_run.ui_url)
    form = Approval.with_initial_data(description=markdown(decision, True, {"waiting for": "your word"}), promote=True)
    wait = suspend_flow_run if deployment.id else pause_flow_run
    return wait(wait_for_input=form, timeout=APPROVAL_TIMEOUT_S, key=f"approval-{sha256[:12]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m flows.retrain", description=__doc__)
    parser.add_argument("targets", nargs="*", help="stages to bring up to date; without any, all")
    given = parser.parse_args()
    with process("retrain", VersioningError, *USER_ERRORS):
        if address := os.environ.pop(AWAITED, None):
            wait_until_healthy(address)
        sys.stdout.write(retrain(tuple(given.targets)) + "\n")
