"""Tasks of `retrain` after the pipeline: challenger against champion on the same held-out cases, and what follows."""

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from prefect import task
from prefect.artifacts import Artifact, create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from clinic.cases import Case, read_cases
from clinic.metrics import Missing, Row
from doctor import learned_from
from doctor.gate import CHALLENGER, CHAMPION, Decision, decide, markdown
from doctor.parameters import HOME, ROOT, Params
from rl.experience import Trajectory, intact, read_trajectories
from rl.files import folder_hash, write_json
from tasks.inbox import Arrival
from tasks.registry import MODEL_NAME
from tracking import registry, runs
from tracking.errors import TrackingError
from tracking.progress import Phase
from tracking.registry import Version

if TYPE_CHECKING:
    from doctor.evaluation import EvaluationSet

log = logging.getLogger(__name__)
PROMOTED, NOT_PROMOTED = "promoted", "not promoted"  # values of the tag `gate`
UNRECORDED = "which cases version {} learned from is not recorded; none were left out for it"
NOBODY = "no champion yet: one who always names the commonest diagnosis"
DATA = {"cases": "dvc.md5 data/cases", "index": "dvc.md5 data/kb_index"}  # by tag of a version
CONSULTATIONS = "metrics/consultations"  # of the evaluation, with the trained doctor
ARRIVALS_TOLD = 200  # the last ones, on a version
ARRIVAL_CHARS = 400  # of each there: MLflow takes 100 000 in all


@task(cache_policy=NO_CACHE)
def compare_with_champion(params: Params, challenger: Version, evaluated: bool = False) -> Decision | None:
    """Play both on the same held-out cases, of which neither has learned, and decide; None if the challenger is the
    champion, or stood back before this one. A first challenger meets one who always names the commonest diagnosis. Decided once: the same two, cases and
    bounds are not played again.

    Args:
        params: of the run.
        challenger: the version.
        evaluated: whether the evaluation is up to date, and so is of this challenger: what it played is not played again.

    Raises:
        TrackingError: the folder of one of them is missing or changed.
    """
    runs.setup(ROOT)
    champion = registry.version_at(MODEL_NAME, CHAMPION, folder_hash)
    if champion is not None and champion.sha256 == challenger.sha256:
        return None
    if challenger.tags.get("rolled_back"):
        return Decision(promoted=False, reason=f"rolled back {challenger.tags['rolled_back']}", cases=0, excluded=0)
    kept, met = _kept(params, challenger, champion), champion.sha256 if champion is not None else ""
    if challenger.tags.get("gate") == NOT_PROMOTED and challenger.tags.get("gate.decided") == kept.stem:
        return None
    if kept.exists():
        log.info("decided before: %s", kept)
        return replace(Decision.from_json(json.loads(kept.read_text(encoding="utf-8"))), against=met)
    registry.numbered(MODEL_NAME, challenger.number, folder_hash)  # refuses a damaged copy
    decision = replace(_meet(params, challenger, champion, evaluated), key=kept.stem, against=met)
    write_json(kept, decision.to_json())
    return decision


def _kept(params: Params, challenger: Version, champion: Version | None) -> Path:
    """Where a decision is kept, by all that it depends on."""
    told = params.model_dump(mode="json")
    sections = (
        "seed",
        "retrain",
        "consultation",
        "language_models",
        "decoding",
        "rollout",
        "evaluate_doctor",
        "machines",
    )
    told["retrain"] = {key: value for key, value in told["retrain"].items() if key not in ("keep_promoted", "inbox")}
    met = [challenger.sha256, champion.sha256 if champion else ""]
    parts = [
        met,
        [folder_hash(ROOT / name) for name in ("data/cases", "data/kb_index")],
        [told[name] for name in sections],
    ]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return HOME / "runs" / "gates" / f"{key[:24]}.json"


def _meet(params: Params, challenger: Version, champion: Version | None, evaluated: bool = False) -> Decision:
    # takes seconds to load, and most runs compare nobody
    from doctor.evaluation import open_evaluation_sets
    from doctor.references import commonest_rows

    met = [challenger, champion] if champion else [challenger]
    known = {version.number: learned_from.read(version.path) for version in met}
    met_before = frozenset[str]().union(*(ids for ids in known.values() if ids is not None))
    notes = [UNRECORDED.format(number) for number, ids in known.items() if ids is None]
    for note in notes:
        log.warning("%s", note)
    held_out = read_cases(ROOT / "data/cases/cases.parquet", "test")
    sets = open_evaluation_sets(
        params, ROOT / "data/cases", ROOT / "data/kb_index", params.retrain.cases, left_out=met_before
    )
    before = _consultations() if evaluated else {}
    cases: list[Case] = []
    ours: list[Row | Missing] = []
    theirs: list[Row | Missing] = []
    for test_set in (one for one in sets if one.consultations and (champion or one.seen)):
        cases += test_set.cases
        ours += _rows_before(test_set, before) or _played(test_set, CHALLENGER, challenger)
        theirs += _played(test_set, CHAMPION, champion) if champion else commonest_rows(test_set)
    left_out = sum(case.case_id in met_before for case in held_out)
    missing = params.evaluate_doctor.max_missing_share
    decision = decide(cases, ours, theirs, params.retrain, missing, left_out, first=champion is None)
    return replace(decision, notes=tuple(notes))


def _consultations() -> dict[str, Trajectory]:
    """What the evaluation played with the trained doctor, by case."""
    return {
        one.case_id: one
        for path in sorted((ROOT / CONSULTATIONS).rglob("rollout.parquet"))
        if intact(path)
        for one in read_trajectories(path)
    }


def _rows_before(test_set: "EvaluationSet", found: Mapping[str, Trajectory]) -> list[Row | Missing] | None:
    """What is known of these cases by the same rules, patients and noise; None if they are not all among what was found."""
    from doctor.evaluation import rows_of

    if any(case.case_id not in found for case in test_set.cases):
        return None
    log.info("%s: what the evaluation played with these %d cases", CHALLENGER, len(test_set.cases))
    return rows_of(test_set, [found[case.case_id] for case in test_set.cases])


def _played(test_set: "EvaluationSet", name: str, version: Version) -> list[Row | Missing]:
    from doctor.evaluation import policy_rows

    return policy_rows(test_set, name, version.path, Phase(f"{name} {test_set.source}", "episodes"))


@task(cache_policy=NO_CACHE)
def received(challenger: Version, arrivals: Sequence[Arrival]) -> None:
    """Write on a version which files came in, or were rejected, on the way to it: before they are moved out of the
    inbox.
    """
    if arrivals:
        known = challenger.tags.get("inbox", "").splitlines()
        told = [str(arrival)[:ARRIVAL_CHARS] for arrival in arrivals]
        lines = list(dict.fromkeys([*known, *told]))[-ARRIVALS_TOLD:]
        registry.describe(MODEL_NAME, challenger.number, {"inbox": "\n".join(lines)})


@task(cache_policy=NO_CACHE)
def settle(
    challenger: Version,
    decision: Decision | None,
    promote: bool,
    why: str = "",
    commit: str | None = None,
    arrivals: Sequence[Arrival] = (),
) -> str:
    """Write the decision on the version and as a Prefect artifact, then move the alias `champion`, or leave it. Whoever
    begins again after a kill writes the same and nothing twice.

    Args:
        challenger: the version.
        decision: of the comparison; None if nothing was compared.
        promote: whether it takes the place: what was decided, or what a person said to it.
        why: what the person said.
        commit: that holds the lock and the figures of this challenger, where one is known.
        arrivals: files of the inbox.

    Returns:
        What was done, in a line.

    Raises:
        TrackingError: the folder of what is to be promoted is missing or changed, or the champion is another than the one
            that it has met.
    """
    before = registry.version_at(MODEL_NAME, CHAMPION)
    if promote:
        registry.numbered(MODEL_NAME, challenger.number, folder_hash)  # refuses a damaged copy
        _refuse_another(challenger, decision, before)
    if commit is not None:
        registry.describe(MODEL_NAME, challenger.number, {"retrain.commit": commit})
    if decision is None:
        return _unchanged(challenger, before, arrivals)
    against = f"version {before.number}" if before else NOBODY
    told = {
        "gate": PROMOTED if promote else NOT_PROMOTED,
        "gate.reason": decision.reason + (f"; {why}" if why else ""),
    }
    told |= {"gate.against": against, "gate.cases": str(decision.cases)}
    if promote and before is not None:
        told["replaced"] = before.number
    registry.describe(MODEL_NAME, challenger.number, told)
    _show(markdown(decision, promote, about(challenger, commit, why)))
    registry.describe(MODEL_NAME, challenger.number, {"gate.decided": decision.key})
    if promote:
        registry.point(MODEL_NAME, CHAMPION, challenger.number)  # last: who finds it does nothing more
        return f"promoted: version {challenger.number} is the champion ({decision.reason})"
    return (
        f"not promoted: {against} stays ({told['gate.reason']})"
        if before
        else f"not promoted: no champion yet ({told['gate.reason']})"
    )


def _refuse_another(challenger: Version, decision: Decision | None, champion: Version | None) -> None:
    """Stop where the champion is not the one that was met: a way back, or another run, came between."""
    met, now = decision.against if decision is not None else None, champion.sha256 if champion is not None else ""
    if met is not None and met != now:
        there = f"version {champion.number}" if champion is not None else "nobody"
        raise TrackingError(
            f"since version {challenger.number} met the champion, that is {there}, which it has not met; run this again"
        )


def _unchanged(challenger: Version, before: Version | None, arrivals: Sequence[Arrival]) -> str:
    """Told on a page only if something came in."""
    is_champion = before is not None and before.number == challenger.number
    told = f"version {challenger.number} " + (
        "is the champion already, nothing was compared"
        if is_champion
        else f"was not promoted before, nothing was compared ({challenger.tags.get('gate.reason', '')})"
    )
    if arrivals:
        _show("\n".join(["# Unchanged", "", told, "", *(f"- {arrival}" for arrival in arrivals)]) + "\n")
    return f"unchanged: {told}"


def about(challenger: Version, commit: str | None, why: str = "") -> dict[str, str]:
    """The head of a decision's page: who met, and where the evidence is.

    Args:
        challenger: the version.
        commit: that holds its lock and figures, where one is known.
        why: what a person said.
    """
    tags, champion = registry.tags_of(MODEL_NAME, challenger.number), registry.version_at(MODEL_NAME, CHAMPION)
    commit = commit or tags.get("retrain.commit")
    data = [f"{name} `{tags[key][:12]}`" for name, key in DATA.items() if tags.get(key)]
    run = registry.run_page(challenger.run_id) if challenger.run_id else ""
    report = "`metrics/report.html`" + (" of this commit" if commit else "")
    told = {
        "challenger": _named(challenger),
        "against": _named(champion) if champion else NOBODY,
        "a person said": why,
        "commit": f"`{commit}`" if commit else "",
        "training": _linked(f"MLflow run {challenger.run_id}", run) if challenger.run_id else "",
        "report": report + (f", [in MLflow]({run}/artifacts/report.html)" if run else ""),
        "data, md5": ", ".join(data),
        "inbox": "".join(f"\n    - {line}" for line in tags.get("inbox", "").splitlines()),
    }
    return {name: text for name, text in told.items() if text}


def _named(version: Version) -> str:
    page = registry.version_page(MODEL_NAME, version.number)
    return f"{_linked(f'version {version.number}', page)}, sha256 {version.sha256[:12]}"


def _linked(text: str, address: str) -> str:
    return f"[{text}]({address})" if address else text


def _show(page: str) -> None:
    """As a Prefect artifact, unless it is the last one already."""
    last = cast("Artifact | None", Artifact.get("gate"))
    if last is None or last.data != page:
        create_markdown_artifact(page, key="gate", description="Challenger against champion on held-out cases")


@task(cache_policy=NO_CACHE)
def roll_back(number: str | None, reason: str) -> str:
    """Give the champion's place to a version, or to the one that the present champion replaced; what loses it is not
    promoted again.

    Raises:
        TrackingError: there is no such version, or its folder is missing or changed.
    """
    runs.setup(ROOT)
    champion = registry.told_of(MODEL_NAME, CHAMPION)  # its files may be why it has to go
    if champion is None:
        raise TrackingError(f"{MODEL_NAME} has no champion; retrain promotes the first one")
    number = number or champion.tags.get("replaced")
    if number is None:
        raise TrackingError(f"version {champion.number} replaced no other; name the version to go back to")
    if number == champion.number:
        return f"unchanged: version {number} is the champion"
    target = registry.numbered(MODEL_NAME, number, folder_hash)
    if target is None:
        raise TrackingError(f"{MODEL_NAME} has no version {number}")
    said = f"to version {number} on {time.strftime('%Y-%m-%d')}" + (f": {reason}" if reason else "")
    registry.describe(MODEL_NAME, champion.number, {"rolled_back": said})
    registry.describe(MODEL_NAME, number, {"rolled_back": ""})  # who is called back may be promoted again
    registry.point(MODEL_NAME, CHAMPION, number)  # last: whoever begins again after a kill goes back no further
    create_markdown_artifact(
        f"# Rolled back\n\nfrom version {champion.number} {said}\n", key="gate", description="The champion of before"
    )
    return f"rolled back: version {number} is the champion again, version {champion.number} is not promoted any more"
