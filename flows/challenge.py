"""What `retrain` does in the checkout that it works in: admit what is new, reproduce what is stale, register the result as
challenger, let it meet the champion. Who becomes champion is for `retrain` to say.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import flow

from doctor.gate import Decision
from doctor.parameters import ROOT, load_params
from doctor.reward_recipe import load_reward
from rl.files import write_json
from tasks.command_line import USER_ERRORS, process
from tasks.gate import compare_with_champion
from tasks.inbox import Arrival, admit
from tasks.registry import MODEL_NAME, register_challenger
from tasks.repository import WorkspaceError
from tasks.server import await_server
from tasks.summary import summary
from tasks.versioning import VersioningError, in_workspace, reproduce, undisturbed
from tasks.workspace import record
from tracking import registry, runs
from tracking.console import WATCHED
from tracking.errors import TrackingError
from tracking.registry import Version


@dataclass(frozen=True, kw_only=True)
class Challenge:
    """A challenger, and what came of its meeting the champion."""

    challenger: Version
    decision: Decision | None  # None: it is the champion
    approval: bool  # a better one waits for a person's word
    report: str
    keep_promoted: int | None = None  # copies of models that stay; None: all
    arrivals: tuple[Arrival, ...] = ()  # files that lay in the inbox


@flow(name="challenge", **WATCHED)
def challenge(targets: tuple[str, ...] = (), inbox: Path | None = None, max_hours: float | None = None) -> Challenge:
    """Bring the pipeline up to date, register its doctor and compare it with the champion; nobody is promoted.

    Args:
        targets: stages to bring up to date; without any, all.
        inbox: a folder; what is valid in it is copied into this checkout and committed first.
        max_hours: after which the stages are stopped.
    """
    # takes seconds to load, and a retraining on a branch needs it in another process
    from doctor.recipe import load_algorithm

    with undisturbed(max_hours) as (_, left):  # another run would replace what is registered and played here
        params = load_params()  # a mistake is told before DVC clears what a stage is to make
        load_algorithm(params)
        load_reward(params.reward.preset)
        arrivals = admit(params, inbox) if inbox is not None else []
        if admitted := [arrival for arrival in arrivals if not arrival.reason]:
            told = "\n".join(map(str, admitted))
            record(ROOT, [arrival.name for arrival in admitted], f"[data] {len(admitted)} files of the inbox\n\n{told}")
        reproduce(targets, left)
        challenger, registered = register_challenger(params, ROOT / "models/doctor")
        decision = compare_with_champion(params, challenger, not targets or "evaluate_doctor" in targets)
        report = summary(registered)
    return Challenge(
        challenger=challenger,
        decision=decision,
        approval=params.retrain.approval,
        report=report,
        keep_promoted=params.retrain.keep_promoted,
        arrivals=tuple(arrivals),
    )


def challenge_in(
    place: Path, targets: tuple[str, ...], inbox: Path | None, max_hours: float | None = None
) -> Challenge:
    """The same in another checkout, by the code and the parameters that stand there.

    Raises:
        VersioningError: it ended with an error, or was stopped after `max_hours`.
        TrackingError: what it registered is not in the registry.
    """
    result = place.with_name("challenge.json")
    result.unlink(missing_ok=True)
    given = ["--inbox", str(inbox)] if inbox is not None else []
    in_workspace(["flows.challenge", "--result", str(result), *given, *targets], place, max_hours)
    told = json.loads(result.read_text(encoding="utf-8"))
    runs.setup(ROOT)
    challenger = registry.numbered(MODEL_NAME, told["challenger"])
    if challenger is None:
        raise TrackingError(f"{MODEL_NAME} version {told['challenger']} was registered and is not there")
    decision = Decision.from_json(told["decision"]) if told["decision"] is not None else None
    return Challenge(
        challenger=challenger,
        decision=decision,
        approval=told["approval"],
        report=told["report"],
        keep_promoted=told["keep_promoted"],
        arrivals=tuple(Arrival(**arrival) for arrival in told["arrivals"]),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m flows.challenge", description=__doc__)
    parser.add_argument("targets", nargs="*", help="stages to bring up to date; without any, all")
    parser.add_argument("--result", type=Path, required=True, help="a JSON file to write: the version, the decision")
    parser.add_argument("--inbox", type=Path, help="a folder of new files; what is valid is committed to this checkout")
    given = parser.parse_args()
    with process("challenge", VersioningError, WorkspaceError, *USER_ERRORS):
        await_server()
        made = challenge(tuple(given.targets), given.inbox)
        decided = made.decision.to_json() if made.decision is not None else None
        found: dict[str, Any] = {"challenger": made.challenger.number, "decision": decided, "approval": made.approval}
        found |= {"report": made.report, "keep_promoted": made.keep_promoted}
        write_json(given.result, found | {"arrivals": [vars(one) for one in made.arrivals]})
