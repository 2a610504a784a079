"""What `test_retrain_killed.py` runs in processes of their own: the second half of `retrain`, on a challenger that lies
ready.
"""

import os
import shutil
from pathlib import Path

import flows.retrain as flow
import tasks.gate
import tasks.repository
import tasks.workspace
from doctor.gate import Decision
from flows.challenge import Challenge
from tasks.inbox import Arrival, _sha256
from tasks.registry import MODEL_NAME, immutable_copy
from tasks.workspace import record
from tests.faults.inside import sitecustomize as faults
from tracking import registry, runs


def retrain(project: Path, at: int, *, after: bool) -> None:
    """Once; it dies before or after the write number `at`, 0: of none."""
    os.environ |= {"FAULT_COUNT": str(project / "runs" / "writes"), "FAULT_AT": str(at), "FAULT_AFTER": str(int(after))}
    (project / "runs" / "writes").write_bytes(b"")
    for module in (os, tasks.repository, registry, tasks.gate):
        faults.arm(module)
    registry.COPIES = project / "models" / "registry"
    flow.ROOT = project
    tasks.workspace._bring_data = lambda *_: None
    flow.challenge_in = lambda place, _targets, inbox, _max_hours: _challenge(project, place, inbox)
    flow.retrain.fn((), "retrained", push=False, inbox="inbox")
    os._exit(0)


def _challenge(project: Path, place: Path, inbox: Path) -> Challenge:
    """As `challenge_in`, with a decision that is known beforehand."""
    arrivals = []
    for path in sorted(inbox.glob("*.*")):
        reason = "unknown file type" if path.suffix == ".pdf" else ""
        arrivals.append(Arrival(name=path.name, sha256=_sha256(path), reason=reason))
        if not reason:
            shutil.copyfile(path, place / path.name)
    record(place, [one.name for one in arrivals], "[data] what came in")
    runs.setup(project)
    copy, sha256 = immutable_copy(project / "ready", registry.COPIES)
    number, _ = registry.register(MODEL_NAME, copy, sha256, None, "challenger", {"algorithm": "grpo"})
    challenger, champion = registry.numbered(MODEL_NAME, number), registry.version_at(MODEL_NAME, "champion")
    assert challenger is not None
    is_champion = champion is not None and champion.number == number
    better = None if is_champion else Decision(promoted=True, reason="better", cases=9, excluded=0, key="k")
    return Challenge(challenger=challenger, decision=better, approval=False, report="", arrivals=tuple(arrivals))
