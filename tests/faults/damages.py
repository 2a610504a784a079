"""Damages what a run has on disk, one thing after the other, and runs again: `python -m tests.faults.damages`. Each must be
named in a line, with a way out that works, or be made anew; what comes out is always what comes out of a run that nobody
disturbs.

A tiny copy of the project, half trained or whole, is copied for each row. Full and read-only disks are mounts in a
namespace of their own, for which Linux must allow users to make one.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.inside.sitecustomize import kill_run
from tests.faults.kills import INSIDE, Run, copy, hashes, run, served

PAGE, ROOM_KB = 4096, 6000  # of the disk that is full soon
STEP = 3  # of 4: after its checkpoint the half state is taken
PIPELINE = ("dvc", "repro")
EVALUATION = (sys.executable, "-m", "flows.evaluate_doctor")
Act = Callable[[Path], None]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One damage, and what must come of it."""

    what: str
    half: bool = False  # the training is half done; else all is made
    act: Act
    command: Sequence[str] = PIPELINE
    told: str = ""  # in the line that names it; empty: it is made anew
    remedy: Act | None = None  # as the line says; then the pipeline must come out the same


def one(project: Path, pattern: str) -> Path:
    """The file or folder of a pattern."""
    (found,) = project.glob(pattern)
    return found


def flipped(pattern: str) -> Act:
    """A byte in the middle of a file is another."""

    def act(project: Path) -> None:
        path = one(project, pattern)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0x55
        unlinked(path, bytes(content))

    return act


def cut(pattern: str) -> Act:
    """A file ends in the middle."""

    def act(project: Path) -> None:
        path = one(project, pattern)
        unlinked(path, path.read_bytes()[: path.stat().st_size // 2])

    return act


def written(pattern: str, content: str) -> Act:
    """A file holds something else."""
    return lambda project: unlinked(one(project, pattern), content.encode())


def unlinked(path: Path, content: bytes) -> None:
    """Write a file that shares no bytes with others, as DVC's links do."""
    path.unlink()
    path.write_bytes(content)


def without(*patterns: str) -> Act:
    """Files and folders are deleted."""

    def act(project: Path) -> None:
        for pattern in patterns:
            for path in project.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    return act


STEPS = "checkpoints/*/*/steps"
ROWS = (
    Row(
        what="the last checkpoint: a byte of its weights",
        half=True,
        act=flipped(f"checkpoints/*/*/global_step_{STEP}/model.safetensors"),
        told=f"global_step_{STEP}/model.safetensors is missing or damaged; delete",
        remedy=without(f"checkpoints/*/*/global_step_{STEP}"),
    ),
    Row(
        what="the last checkpoint: a byte of the optimizer's state",
        half=True,
        act=flipped(f"checkpoints/*/*/global_step_{STEP}/learner.pt"),
        told=f"global_step_{STEP}/learner.pt is missing or damaged; delete",
        remedy=without(f"checkpoints/*/*/global_step_{STEP}"),
    ),
    Row(
        what="the last checkpoint: its seal is empty",
        half=True,
        act=written(f"checkpoints/*/*/global_step_{STEP}/complete.json", ""),
        told=f"global_step_{STEP}/complete.json is missing or damaged; delete",
        remedy=without(f"checkpoints/*/*/global_step_{STEP}"),
    ),
    Row(
        what="a kept checkpoint that becomes part of the doctor: a byte of its weights",
        half=True,
        act=flipped("checkpoints/*/*/global_step_2/model.safetensors"),
        told="global_step_2/model.safetensors is missing or damaged; delete",
        remedy=without("checkpoints/*/*/global_step_[2-4]"),
    ),
    Row(
        what="experience of the last complete step: a byte",
        half=True,
        act=flipped(f"{STEPS}/0000{STEP}/rollout.parquet"),
        told=f"0000{STEP}/rollout.parquet is missing or damaged; delete",
        remedy=without(f"{STEPS}/0000{STEP}"),
    ),
    Row(
        what="scores of the last complete step: cut off",
        half=True,
        act=cut(f"{STEPS}/0000{STEP}/scores.parquet"),
        told=f"0000{STEP}/scores.parquet is missing or damaged; delete",
        remedy=without(f"{STEPS}/0000{STEP}"),
    ),
    Row(what="the warm start: a byte of its weights", half=True, act=flipped("models/warm_start/model.safetensors")),
    Row(
        what="the base model: cut off",
        act=cut("models/base/model.safetensors"),
        told="model.safetensors is damaged",
        remedy=lambda project: _git(project, "checkout", "models/base"),
    ),
    Row(
        what="the index: a byte of its passages, when it is searched",
        act=flipped("data/kb_index/passages.arrow"),
        command=(sys.executable, "-m", "kb", "search", "data/kb_index", "fever"),
        told="passages.arrow",
    ),
    Row(what="the index: a byte of its passages, in the pipeline", act=flipped("data/kb_index/passages.arrow")),
    Row(
        what="the case table: cut off, in a flow of its own",
        act=cut("data/cases/cases.parquet"),
        command=EVALUATION,
        told="cases.parquet is damaged",
    ),
    Row(what="the case table: cut off, in the pipeline", act=cut("data/cases/cases.parquet")),
    Row(
        what="the doctor: cut off, in a flow of its own",
        act=cut("models/doctor/model.safetensors"),
        command=EVALUATION,
        told="model.safetensors is damaged",
    ),
    Row(what="the doctor: a byte of its weights, in the pipeline", act=flipped("models/doctor/model.safetensors")),
    Row(
        what="the cache of the knowledge base: a byte",
        act=flipped("cache/kb.sqlite"),
        command=("dvc", "repro", "--force", "--single-item", "knowledge_base"),
    ),
    Row(
        what="dvc.lock: a merge that was not finished",
        act=lambda project: unlinked(
            project / "dvc.lock", b"<<<<<<< HEAD\n" + (project / "dvc.lock").read_bytes() + b"=======\n"
        ),
        told="dvc.lock",
        remedy=lambda project: (project / "dvc.lock").unlink(),
    ),
    Row(
        what="MLflow's database: its first bytes are others",
        act=lambda project: unlinked(project / "mlruns/mlflow.db", b"\0" * 4096),
        command=("dvc", "repro", "--force", "--single-item", "evaluate_doctor"),
        told="mlflow.db",
        remedy=without("mlruns/mlflow.db"),
    ),
)


def _git(project: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=project, check=True, capture_output=True)


def half_done(folder: Path, environment: Mapping[str, str]) -> Path:
    """A project whose training was killed once the checkpoint of `STEP` was complete."""
    project = copy(folder, environment)
    count = folder / "writes"
    count.write_bytes(b"")
    given = {"FAULT_COUNT": str(count), "PYTHONPATH": str(INSIDE)}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            PIPELINE, cwd=project, env={**environment, **given}, stdout=log, stderr=log, start_new_session=True
        )
        while not list(project.glob(f"checkpoints/*/*/global_step_{STEP}/complete.json")):
            if process.poll() is not None:
                sys.exit(f"error: the run ended before step {STEP}:\n{(folder / 'log').read_text()}")
            time.sleep(0.02)
        kill_run(str(count))
        process.wait()
    return project


def outcome(row: Row, project: Path, environment: Mapping[str, str], expected: Sequence[str]) -> str:
    """What came of a row; begins with FAILED if it is not what must come of it."""
    row.act(project)
    found = run(project, environment, None, row.command)
    if not row.told:
        same = found.status == 0 and hashes(project) == expected
        return "made anew, the same" if same else _failed(found, project, expected)
    lines = [line for line in found.log.splitlines() if row.told in line]
    if not found.status or not lines or "Traceback" in found.log:
        return _failed(found, project, expected)
    if row.remedy is not None:
        row.remedy(project)
        again = run(project, environment, None)
        if again.status or hashes(project) != expected:
            return _failed(again, project, expected)
    return f"told: {lines[-1].replace(str(project), '.')}" + (", and then the same" if row.remedy is not None else "")


def _failed(found: Run, project: Path, expected: Sequence[str]) -> str:
    made = hashes(project) if found.status == 0 else []
    return f"FAILED with {found.status}, {made} for {expected}:\n{found.log[-3000:]}"


FULL = """
set -e
mount -t tmpfs -o size={size}k tmpfs {place}
cp -a {project}/. {place}/
cd {place}
if dvc repro > {log} 2>&1; then echo "it had room"; exit 1; fi
mount -o remount,size=4g {place}
dvc repro >> {log} 2>&1
sha256sum models/doctor/model.safetensors models/warm_start/model.safetensors metrics/evaluate_doctor.json | cut -c1-12
"""
READ_ONLY = """
set -e
cd {project}
mkdir -p checkpoints
mount --bind checkpoints checkpoints
mount -o remount,bind,ro checkpoints
if dvc repro > {log} 2>&1; then echo "it could write"; exit 1; fi
umount checkpoints
dvc repro >> {log} 2>&1
sha256sum models/doctor/model.safetensors models/warm_start/model.safetensors metrics/evaluate_doctor.json | cut -c1-12
"""


def of_disks(script: str, told: str, project: Path, environment: Mapping[str, str], expected: Sequence[str]) -> str:
    """What came of a full or read-only disk, and of the same command once it was mended."""
    place, log = project.parent / "mounted", project.parent / "log"
    place.mkdir(exist_ok=True)
    size = sum(-(-path.lstat().st_size // PAGE) * PAGE for path in project.rglob("*")) // 1024 + ROOM_KB
    text = script.format(project=project, place=place, log=log, size=size)
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", text],
        env=dict(environment),
        capture_output=True,
        text=True,
    )
    said = log.read_text() if log.exists() else ""
    lines = [line for line in said.splitlines() if told in line]
    if done.returncode or not lines or done.stdout.split() != list(expected) or "Traceback" in said:
        return f"FAILED with {done.returncode}: {done.stdout}{done.stderr}\n{said[-3000:]}"
    return f"told: {lines[0].replace(str(place), '.').replace(str(project), '.')}, and then the same"


def main() -> int:
    """Damage, run, compare; the status is 1 if anything came out otherwise than it must."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[""], help="rows whose name holds one of these")
    options = parser.parse_args()
    with served() as (folder, environment):
        whole = copy(folder / "whole", environment)
        first = run(whole, environment, None)
        if first.status:
            sys.exit(f"error: the run that nobody disturbs failed:\n{first.log}")
        expected = hashes(whole)
        half = half_done(folder / "half", environment)
        failed = 0
        for row in (row for row in ROWS if any(text in row.what for text in options.only)):
            project = _again(half if row.half else whole)
            failed += _tell(row.what, outcome(row, project, environment, expected))
        for what, script, told, state in (
            ("a disk that is full", FULL, "No space left", half),
            ("checkpoints on a disk that cannot be written", READ_ONLY, "Read-only", half),
        ):
            if any(text in what for text in options.only):
                failed += _tell(what, of_disks(script, told, _again(state), environment, expected))
    print(f"{failed} came out otherwise than they must")
    return int(failed > 0)


def _again(state: Path) -> Path:
    """A copy of a project at the place where the state was made, since stores hold absolute paths."""
    kept = state.with_name("kept")
    if not kept.exists():
        shutil.copytree(state, kept, symlinks=True)
    shutil.rmtree(state)
    shutil.copytree(kept, state, symlinks=True)
    return state


def _tell(what: str, came: str) -> bool:
    print(f"{what}: {came}", flush=True)
    return came.startswith("FAILED")


if __name__ == "__main__":
    sys.exit(main())
