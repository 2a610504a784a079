"""Kills `retrain` at random moments and inside its writes, again and again, and lets it end: `python -m
tests.faults.retrains --kills 30 --seed 0`. What is then in the registry, on the branch, in the inbox and on Prefect's
pages must be what an undisturbed run leaves there.

A tiny project whose stage `train_doctor` takes a doctor that lies ready, so that a run is about registering and deciding: a
better challenger, one file of the inbox that is admitted and one that is not. Half of the kills come after so many seconds,
half before or after a write, each kind of write as often as another.
"""

import argparse
import hashlib
import json
import multiprocessing
import random
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlflow
import torch
from ruamel.yaml import YAML
from safetensors.torch import load_file, save_file

from tests.faults.kills import Kill, Run, copy, run, served
from tests.flows.conftest import ROOT

NAME = "anamnesis-doctor"
RETRAIN = [sys.executable, "-m", "flows.retrain", "--branch", "retrained", "--inbox", "inbox"]
PAGE = "# Gout\n\nGout is a sudden, painful swelling of a joint, often of the big toe.\n"
SEEN = ("algorithm", "gate", "gate.reason", "gate.against", "gate.cases", "gate.decided", "replaced", "inbox", "sha256")


def change(project: Path, *changes: tuple[str, str]) -> None:
    """Rewrite params.yaml; each must be there."""
    path = project / "params.yaml"
    text = path.read_text()
    for before, after in changes:
        changed = text.replace(before, after, 1)
        assert changed != text, before
        text = changed
    path.write_text(text)


def prepare(folder: Path, environment: Mapping[str, str]) -> Path:
    """A project with a weak champion, a strong challenger that no run has seen, and two files in its inbox."""
    project = copy(folder, environment)

    def call(*command: str) -> None:
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"error: {' '.join(command)}:\n{done.stdout}{done.stderr}")

    (project / "data/library").mkdir()
    (project / "data/library/gout.md").write_text(PAGE)
    change(project, ("[data/starter/articles]", "[data/library]"), ("min_cases: 200", "min_cases: 50"))
    head, retrain = (project / "params.yaml").read_text().split("\nretrain:")
    retrain = re.sub(r"\n  cases: \d+", "\n  cases: 80", retrain).replace("turns_margin: 1.0", "turns_margin: 8")
    (project / "params.yaml").write_text(f"{head}\nretrain:{retrain}")
    yaml = YAML(typ="safe")
    stages = yaml.load(project / "dvc.yaml")["stages"]
    stages["knowledge_base"]["deps"] = ["data/library"]
    yaml.dump(
        {"stages": {name: stages[name] for name in ("knowledge_base", "patient_cases", "warm_start")}},
        project / "dvc.yaml",
    )
    call("dvc", "repro")
    strong = project / "ready/strong"
    shutil.copytree(project / "models/warm_start", strong)
    shutil.copytree(strong, project / "ready/weak")
    weights = load_file(strong / "model.safetensors")
    save_file(
        {name: torch.zeros_like(value) for name, value in weights.items()}, project / "ready/weak/model.safetensors"
    )
    (project / "ready/which").write_text("weak")
    taken = {
        "cmd": "rm -rf models/doctor && mkdir -p models && cp -rL ready/$(cat ready/which) models/doctor",
        "deps": ["ready", "data/kb_index", "data/cases"],
        "outs": ["models/doctor"],
    }
    kept = {
        name: stages[name] | {"deps": deps}
        for name, deps in (("knowledge_base", ["data/library"]), ("patient_cases", ["data/starter"]))
    }
    yaml.dump({"stages": kept | {"train_doctor": taken}}, project / "dvc.yaml")
    (project / "metrics").mkdir(exist_ok=True)
    shutil.copy2(ROOT / "metrics/evaluate_doctor.json", project / "metrics")
    call(sys.executable, "-m", "flows.retrain")
    apart(promote_the_weak, project)
    (project / "ready/which").write_text("strong")
    for name, content in {
        "data/library/foot.md": PAGE.replace("Gout", "Foot"),
        "data/library/scan.pdf": "%PDF",
    }.items():
        (project / "inbox" / name).parent.mkdir(parents=True, exist_ok=True)
        (project / "inbox" / name).write_text(content)
    call("git", "add", "-A")
    call("git", "commit", "-qm", "the weak one, and another ready")
    return project


def registry(project: Path) -> Any:
    """The registry, past the project's code; in a process of its own, since SQLite does not bear that another one copies
    its files meanwhile.
    """
    return mlflow.MlflowClient(f"sqlite:///{project / 'mlruns/mlflow.db'}")


def promote_the_weak(project: Path) -> None:
    """No rule would."""
    registry(project).set_registered_model_alias(NAME, "champion", "1")


def apart(work: Callable[..., Any], *given: Any) -> Any:
    """Call in a process of its own."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(work, given)


def state(project: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """What a run leaves, without what differs from run to run: times, and the hashes of commits."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=project, capture_output=True, text=True, check=True).stdout.strip()

    client = registry(project)
    versions = sorted(client.search_model_versions(f"name = '{NAME}'"), key=lambda one: int(one.version))
    tip = git("rev-parse", "retrained")
    inbox = {
        re.sub(r"rejected/[^/]*", "rejected/<time>", path.relative_to(project / "inbox").as_posix()).replace(
            tip[:12], "<tip>"
        ): path.read_text()
        for path in (project / "inbox").rglob("*")
        if path.is_file()
    }
    return {
        "versions": [{key: one.tags.get(key) for key in SEEN} for one in versions],
        "aliases": dict(client.get_registered_model(NAME).aliases),
        "copies": sorted(path.name for path in (project / "models/registry").iterdir() if path.is_dir()),
        "commit": versions[-1].tags.get("retrain.commit") == tip,
        "tree": git("rev-parse", "retrained^{tree}"),
        "clean": git("status", "--porcelain"),
        "decisions": len(list((project / "runs/gates").glob("*.json"))),
        "inbox": inbox,
        "pages": [re.sub(r"\b[0-9a-f]{40}\b", "<commit>", page) for page in pages(environment)],
    }


def pages(environment: Mapping[str, str]) -> list[str]:
    """The artifacts `gate`, the first one first."""
    wanted = {"artifacts": {"key": {"any_": ["gate"]}}, "sort": "CREATED_DESC", "limit": 200}
    request = urllib.request.Request(
        environment["PREFECT_API_URL"] + "/artifacts/filter",
        json.dumps(wanted).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return [one["data"] for one in reversed(json.load(answer))]


def chosen(rng: random.Random, whole: Run) -> Kill:
    """When to kill next; of the writes those of `retrain` itself, each kind as often as another."""
    if rng.random() < 0.5:
        return Kill(seconds=rng.uniform(1, whole.seconds))
    kinds = sorted(
        {name for name in whole.writes if not name.startswith("into ")}
        | {"into registry", "into gates", "into library", "into retrain"}
    )
    kind = rng.choice([name for name in kinds if name in whole.writes])
    places = [number for number, name in enumerate(whole.writes, start=1) if name == kind]
    return Kill(write=rng.choice(places), after=rng.random() < 0.5)


def main() -> int:
    """Kill, run, compare; the status is 1 if anything came out differently."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with served() as (folder, environment):
        return _kills(options.kills, random.Random(options.seed), folder, environment)


def _kills(wanted: int, rng: random.Random, folder: Path, environment: Mapping[str, str]) -> int:
    project, start = prepare(folder, environment), folder / "start"
    shutil.copytree(project, start, symlinks=True)
    seen = len(pages(environment))
    whole = run(project, environment, None, RETRAIN)
    if whole.status:
        sys.exit(f"error: the run that nobody disturbs failed:\n{whole.log}")
    expected = apart(state, project, environment)
    expected["pages"], seen = expected["pages"][seen:], len(expected["pages"])
    digest = hashlib.sha256(json.dumps(expected, sort_keys=True).encode()).hexdigest()[:12]
    print(f"undisturbed: {whole.seconds:.0f} s, {len(whole.writes)} writes, state {digest}", flush=True)
    print(json.dumps(expected, indent=1), flush=True)
    done = failed = rows = 0
    while done < wanted:
        shutil.rmtree(project)
        shutil.copytree(start, project, symlinks=True)
        ended, rows = False, rows + 1
        while not ended:
            kill = chosen(rng, whole) if done < wanted else None
            found = run(project, environment, kill, RETRAIN)
            ended = found.status == 0
            done += not ended and kill is not None
            name = f" ({whole.writes[kill.write - 1]})" if kill and kill.write else ""
            print(
                f"row {rows}: {kill or 'undisturbed'}{name}: {'ended' if ended else 'killed'} after {found.seconds:.0f} s",
                flush=True,
            )
            if not ended and found.status not in (-9, 137):
                failed, ended = failed + 1, True
                print(f"row {rows}: ended with {found.status}:\n{found.log[-3000:]}", flush=True)
        after = apart(state, project, environment)
        after["pages"], seen = after["pages"][seen:], len(after["pages"])
        if found.status == 0 and (different := {key for key in expected if after[key] != expected[key]}):
            failed += 1
            told = json.dumps({key: [after[key], expected[key]] for key in different}, indent=1)
            print(f"row {rows}: came out differently, and as expected:\n{told}", flush=True)
    print(f"{done} kills in {rows} rows, {failed} came out differently")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
