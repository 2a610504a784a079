"""The scheduled one: admit what is new, reproduce what is stale, register the result as challenger, let it meet the champion, report."""

import argparse
import logging
import sys
from typing import Annotated
from uuid import UUID

from prefect import flow
from prefect.exceptions import PrefectHTTPStatusError
from prefect.flow_runs import pause_flow_run, suspend_flow_run
from prefect.input import RunInput
from prefect.input.run_input import Keyset, keyset_from_paused_state
from prefect.runtime import deployment, flow_run
from prefect.states import Suspended
from pydantic import Field, TypeAdapter, ValidationError

from doctor.gate import Decision, markdown
from doctor.parameters import ROOT
from flows.challenge import Challenge, challenge, challenge_in
from tasks.command_line import USER_ERRORS, process
from tasks.gate import about, received, settle
from tasks.inbox import file_away, inbox_folder
from tasks.registry import prune_copies
from tasks.repository import WorkspaceError
from tasks.server import await_server
from tasks.versioning import VersioningError
from tasks.workspace import head, keep, workspace
from tasks.workspace import push as sent
from tracking.console import WATCHED
from tracking.registry import Version

log = logging.getLogger(__name__)
Hours = Annotated[float, Field(gt=0, allow_inf_nan=False)]
APPROVAL_TIMEOUT_S = 7 * 24 * 3600  # then the flow run fails and the champion stays


class Approval(RunInput):
    """What a person says to a better challenger, in the form on the flow run's page."""

    promote: bool = Field(description="whether it takes the champion's place")
    why: str = Field(default="", description="kept with the decision")

    @classmethod
    def save(cls, keyset: Keyset, flow_run_id: UUID | None = None) -> None:
        """Keep the form with the flow run; one that is there stays."""
        try:
            super().save(keyset, flow_run_id)
        except PrefectHTTPStatusError as error:
            if error.response.status_code != 409:
                raise


@flow(name="retrain", **WATCHED)
def retrain(
    targets: tuple[str, ...] = (),
    branch: str | None = None,
    push: bool = False,
    inbox: str | None = None,
    max_hours: Hours | None = None,
) -> str:
    """Run the whole pipeline through DVC, register the doctor, once per hash, and promote it if it is better than the
    champion; returns the report.

    Args:
        targets: stages to bring up to date; without any, all.
        branch: work in a checkout of the last commit, runs/retrain/workspace, and commit lock and figures to this branch;
            the user's files stay as they are. Empty: work in the project's own folder and commit nothing.
        push: send the branch to `origin`, and data and models to DVC's remote; it begins where `origin` has it.
        inbox: a folder of new cases and documents, which mirrors the project: what is valid is committed to the branch, the
            rest goes to `rejected` in it. Empty: none.
        max_hours: for the pipeline, and with a branch for the comparison too; then they are stopped, the run fails and the
            champion stays. Empty: no limit.
    """
    if not branch:
        if inbox:
            raise WorkspaceError(
                "an inbox needs a branch that its files are committed to; name one (--branch retrained)"
            )
        if push:
            raise WorkspaceError(
                "without a branch nothing is committed that could be sent; name one (--branch retrained)"
            )
        return _settled(challenge(targets, max_hours=max_hours), None)
    with workspace(ROOT, branch, shared=push) as place:
        folder = inbox_folder(ROOT, inbox) if inbox else None
        made = challenge_in(place, targets, folder, max_hours)
        received(made.challenger, made.arrivals)
        commit = keep(
            place, branch, f"[retrain] {made.challenger.tags.get('algorithm', 'doctor')} {made.challenger.sha256[:12]}"
        )
        if commit is not None:
            log.info("lock, figures and what came in are commit %s of branch %s", commit[:12], branch)
        if folder is not None:
            file_away(folder, made.arrivals, head(place))
        if commit is None and not made.challenger.tags.get("retrain.commit"):
            commit = head(place)  # of a run that was killed before it said so, or of the user's
        if push and (failure := sent(place, branch)) is not None:
            log.error("%s", failure)
        return _settled(made, commit)


def _settled(made: Challenge, commit: str | None) -> str:
    """Give the place, or leave it, after a person was asked where that is wanted; returns the whole report."""
    decision, challenger = made.decision, made.challenger
    promote, why = decision is not None and decision.promoted, ""
    if decision is not None and promote and made.approval:
        said = _ask(decision, challenger, commit)
        promote, why = said.promote, said.why or ("approved" if said.promote else "not approved")
    told = settle(challenger, decision, promote, why, commit, made.arrivals)
    if made.keep_promoted is not None:
        prune_copies(made.keep_promoted)
    return f"{made.report}\n{told}"


def _ask(decision: Decision, challenger: Version, commit: str | None) -> Approval:
    """What a person says of this very challenger: a deployed run is suspended meanwhile and holds no worker, another one
    waits.
    """
    log.info("better than the champion; waiting for a person's word, resume this run at %s", flow_run.ui_url)
    told = markdown(decision, True, {"waiting for": "your word", **about(challenger, commit)})
    form = Approval.with_initial_data(description=told, promote=True)
    key = f"approval-{challenger.sha256[:12]}"
    if not deployment.id:
        return pause_flow_run(wait_for_input=form, timeout=APPROVAL_TIMEOUT_S, key=key)
    # Prefect keeps the form after it has suspended the run, and by then the worker may have ended this process
    form.save(keyset_from_paused_state(Suspended(pause_key=key)))
    return suspend_flow_run(wait_for_input=form, timeout=APPROVAL_TIMEOUT_S, key=key)


def _hours(text: str) -> float:
    try:
        return TypeAdapter(Hours).validate_python(text)
    except ValidationError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hours above 0") from None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m flows.retrain", description=__doc__)
    parser.add_argument("targets", nargs="*", help="stages to bring up to date; without any, all")
    parser.add_argument(
        "--branch",
        help="work in a checkout of its own and commit lock and figures to this branch; without it, work here",
    )
    parser.add_argument(
        "--inbox", help="a folder of new cases and documents; with --branch, which what is valid is committed to"
    )
    parser.add_argument("--push", action="store_true", help="send the branch and DVC's data to their remotes")
    parser.add_argument("--max-hours", type=_hours, help="stop what is not done by then; the next run goes on")
    given = parser.parse_args()
    with process("retrain", VersioningError, WorkspaceError, *USER_ERRORS):
        await_server()
        sys.stdout.write(retrain(tuple(given.targets), given.branch, given.push, given.inbox, given.max_hours) + "\n")
