"""What surrounds a decision: whose copies are played and promoted, and what its page says, on a real MLflow store."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import mlflow
import pytest

import flows.retrain as flow
from doctor import evaluation
from doctor.gate import Decision
from doctor.parameters import Params, load_params
from rl.experience import StopReason, Trajectory, write_trajectories
from rl.files import folder_hash
from tasks import gate
from tasks.inbox import Arrival
from tasks.registry import MODEL_NAME, immutable_copy
from tests.stores import store_in
from tests.unit.doctor.test_patient_calibration import CASE
from tests.unit.tasks.test_warm_start import SPECS, trajectory
from tracking import registry
from tracking.errors import TrackingError
from tracking.registry import Version

EPISODE = trajectory(SPECS[0], StopReason.ENDED)
BETTER = Decision(promoted=True, reason="better", cases=9, excluded=0, key="k")
VARIABLES = ("MLFLOW_TRACKING_URI", "ANAMNESIS_HOME", "DVC_ROOT")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with store_in(tmp_path_factory.mktemp("project")) as root:
        yield root


@pytest.fixture
def project(store, tmp_path, monkeypatch):
    """A folder with a registry of its own name, whose pages are kept."""
    pages: list[str] = []
    monkeypatch.setattr(gate, "MODEL_NAME", f"{MODEL_NAME}-{tmp_path.name}")
    monkeypatch.setattr(gate, "HOME", tmp_path)
    monkeypatch.setattr(gate, "ROOT", store)
    monkeypatch.setattr(gate, "_show", pages.append)
    monkeypatch.setattr(flow, "settle", gate.settle.fn)  # without Prefect's server
    for name in ("data/cases", "data/kb_index"):
        (store / name).mkdir(parents=True, exist_ok=True)
    return tmp_path, pages


def registered(folder: Path, name: str, alias: str, **tags: str) -> Version:
    """A doctor of a word, in the registry of the gate."""
    model = folder / name
    model.mkdir()
    (model / "model.safetensors").write_text(name)
    copy, sha256 = immutable_copy(model, folder / "registry")
    number, _ = registry.register(gate.MODEL_NAME, copy, sha256, None, alias, tags)
    version = registry.numbered(gate.MODEL_NAME, number)
    assert version is not None
    return version


def asked() -> Params:
    """The bounds of params.yaml, for as few cases as a test has."""
    params = load_params()
    return params.model_copy(update={"retrain": params.retrain.model_copy(update={"min_cases": 1})})


def damage(version: Version) -> None:
    weights = version.path / "model.safetensors"
    weights.chmod(0o644)
    weights.write_text("other")
    assert folder_hash(version.path) != version.sha256


@pytest.mark.parametrize("hurt", ["challenger", "champion"])
def test_a_damaged_copy_is_not_played(project, hurt, monkeypatch):
    folder, _ = project
    versions = {alias: registered(folder, alias, alias) for alias in ("champion", "challenger")}
    monkeypatch.setattr(gate, "_meet", lambda *_: pytest.fail("it was played"))
    damage(versions[hurt])
    with pytest.raises(
        TrackingError, match=rf"version {versions[hurt].number} should be {versions[hurt].path} .* make it again: git "
    ):
        gate.compare_with_champion.fn(load_params(), versions["challenger"])


def test_a_damaged_copy_is_not_promoted(project):
    folder, pages = project
    challenger = registered(folder, "challenger", "challenger")
    damage(challenger)
    with pytest.raises(TrackingError, match="which is missing or changed"):
        gate.settle.fn(challenger, BETTER, promote=True)
    assert registry.version_at(gate.MODEL_NAME, "champion") is None
    assert "gate" not in registry.tags_of(gate.MODEL_NAME, challenger.number)
    immutable_copy(folder / "challenger", folder / "registry")
    assert gate.settle.fn(challenger, BETTER, promote=True).startswith("promoted: version 1 is the champion")
    assert len(pages) == 1


@pytest.mark.parametrize("recorded", [("challenger", "champion"), ("champion",), ()])
def test_a_doctor_of_unknown_cases_is_named_and_nothing_left_out_for_it(project, recorded, monkeypatch, caplog):
    folder, _ = project
    cases = [replace(CASE, case_id=name) for name in ("met", "of challenger", "of champion")]
    versions = {alias: registered(folder, alias, alias) for alias in ("champion", "challenger")}
    for alias in recorded:
        (versions[alias].path / "learned_from.txt").write_text(f"of {alias}\nanother\n")
    seen = []

    def open_sets(*_, left_out):
        seen.append(left_out)
        return [SimpleNamespace(cases=cases[:1], consultations=True, source="starter")]

    monkeypatch.setattr(gate, "read_cases", lambda *_: cases)
    monkeypatch.setattr(evaluation, "open_evaluation_sets", open_sets)
    monkeypatch.setattr(gate, "_played", lambda *_: [{"accuracy": 1.0}])
    decision = gate._meet(asked(), versions["challenger"], versions["champion"])
    assert seen == [{f"of {alias}" for alias in recorded} | ({"another"} if recorded else set())]
    assert decision.excluded == len(recorded)
    unknown = [versions[alias].number for alias in ("challenger", "champion") if alias not in recorded]
    told = [
        f"which cases version {number} learned from is not recorded; none were left out for it" for number in unknown
    ]
    assert list(decision.notes) == caplog.messages == told


@pytest.mark.parametrize(
    ("evaluated", "had", "again"), [(True, 2, False), (True, 1, True), (False, 2, True)], ids=["all", "fewer", "stale"]
)
def test_what_the_evaluation_played_with_these_cases_is_not_played_again(
    project, store, evaluated, had, again, monkeypatch
):
    folder, _ = project
    cases = [replace(CASE, case_id=name) for name in ("b", "a")]
    path = store / gate.CONSULTATIONS / "rollout.parquet"
    write_trajectories([replace(EPISODE, case_id=case.case_id) for case in cases[::-1][:had]], path)
    played: list[str] = []

    def play(_: object, name: str, *__: object) -> list[dict[str, float]]:
        played.append(name)
        return [{"accuracy": 1.0}, {"accuracy": 0.0}]

    def rows_of(_: object, trajectories: list[Trajectory]) -> list[dict[str, float]]:
        assert [one.case_id for one in trajectories] == ["b", "a"]
        return [{"accuracy": 1.0}, {"accuracy": 0.0}]

    opened = [SimpleNamespace(cases=cases, consultations=True, source="starter", first=True)]
    monkeypatch.setattr(gate, "read_cases", lambda *_: cases)
    monkeypatch.setattr(evaluation, "open_evaluation_sets", lambda *_, **__: opened)
    monkeypatch.setattr(evaluation, "rows_of", rows_of)
    monkeypatch.setattr(gate, "_played", play)
    champion, challenger = (registered(folder, alias, alias) for alias in ("champion", "challenger"))
    decision = gate._meet(asked(), challenger, champion, evaluated)
    assert played == (["challenger", "champion"] if again else ["champion"])
    assert decision.cases == 2
    path.unlink()


def test_a_page_names_the_evidence_and_links_it_where_a_server_shows_it(project, monkeypatch):
    folder, pages = project
    champion = registered(folder, "champion", "champion")
    tags = {"dvc.md5 data/cases": "1e365fe0b7cb89570e6d37c7994a3138.dir", "dvc.md5 data/kb_index": ""}
    challenger = replace(registered(folder, "challenger", "challenger", **tags), run_id="0123abcd")
    gate.settle.fn(challenger, replace(BETTER, promoted=False), promote=False, commit="c0ffee")
    told = [
        f"- challenger: version 2, sha256 {challenger.sha256[:12]}",
        f"- against: version 1, sha256 {champion.sha256[:12]}",
        "- commit: `c0ffee`",
        "- training: MLflow run 0123abcd",
        "- report: `metrics/report.html` of this commit",
        "- data, md5: cases `1e365fe0b7cb`",
        "- cases: 9 held out",
    ]
    assert pages == ["\n".join(["# Not promoted", "", "better", "", *told]) + "\n"]
    monkeypatch.setenv("ANAMNESIS_MLFLOW_PAGES", "http://localhost:5000")  # of a database, say, shown by `make ui`
    assert gate.about(challenger, None)["challenger"].startswith("[version 2](http://localhost:5000/#/models/")
    monkeypatch.delenv("ANAMNESIS_MLFLOW_PAGES")
    for which in ("tracking", "registry"):
        monkeypatch.setattr(mlflow, f"get_{which}_uri", lambda: "https://me:secret@mlflow.lab:5000/")
    linked = gate.about(challenger, None)
    page = f"https://mlflow.lab:5000/#/models/{gate.MODEL_NAME}/versions"
    assert linked["challenger"].startswith(f"[version 2]({page}/2), sha256 ")
    assert linked["against"].startswith(f"[version 1]({page}/1), sha256 ")
    run = "https://mlflow.lab:5000/#/experiments/1/runs/0123abcd"
    assert linked["training"] == f"[MLflow run 0123abcd]({run})"
    assert linked["report"] == f"`metrics/report.html` of this commit, [in MLflow]({run}/artifacts/report.html)"
    assert linked["commit"] == "`c0ffee`"  # as it is on the version now
    monkeypatch.setenv("ANAMNESIS_MLFLOW_PAGES", "http://localhost:5000")
    assert gate.about(challenger, None)["training"].endswith("(http://localhost:5000/#/experiments/1/runs/0123abcd)")


def test_what_came_in_fits_onto_a_version(project):
    folder, _ = project
    challenger = registered(folder, "challenger", "challenger")
    arrivals = [Arrival(name=f"{number}.csv", reason="no column " * 100) for number in range(300)]
    gate.received.fn(challenger, arrivals)
    lines = registry.tags_of(gate.MODEL_NAME, challenger.number)["inbox"].splitlines()
    assert [line.split(":")[0] for line in lines] == [f"rejected {number}.csv" for number in range(100, 300)]


def test_a_way_back_that_is_killed_goes_back_no_further_when_it_is_repeated(project, monkeypatch):
    folder, _ = project
    first = registered(folder, "first", "champion")
    second = registered(folder, "second", "champion", replaced=first.number)
    third = registered(folder, "third", "champion", replaced=second.number)
    monkeypatch.setattr(gate, "create_markdown_artifact", lambda *_, **__: None)

    def dies(*_):
        raise KeyboardInterrupt

    for name in ("describe", "point"):
        with monkeypatch.context() as patch:
            patch.setattr(registry, name, dies)
            with pytest.raises(KeyboardInterrupt):
                gate.roll_back.fn(None, "")
    assert gate.roll_back.fn(None, "").startswith("rolled back: version 2 is the champion again, version 3 is not")
    assert registry.tags_of(gate.MODEL_NAME, third.number)["rolled_back"].startswith("to version 2 on ")
    assert not registry.tags_of(gate.MODEL_NAME, second.number)["rolled_back"]


def test_a_champion_whose_copy_is_gone_is_no_end_of_the_way_back(project, monkeypatch):
    folder, _ = project
    first = registered(folder, "first", "champion")
    second = registered(folder, "second", "champion", replaced=first.number)
    shutil.rmtree(second.path)
    monkeypatch.setattr(gate, "create_markdown_artifact", lambda *_, **__: None)
    assert gate.roll_back.fn(None, "").startswith("rolled back: version 1 is the champion again")
    with pytest.raises(TrackingError, match=r"version 2 should be .*, which is missing or changed"):
        gate.roll_back.fn("2", "")


def met(challenger: Version, monkeypatch) -> Decision:
    """What `compare_with_champion` says where the challenger is better than whoever is there."""
    monkeypatch.setattr(gate, "_meet", lambda *_: BETTER)
    decision = gate.compare_with_champion.fn(load_params(), challenger)
    assert decision is not None
    return decision


def test_a_person_promotes_nobody_over_a_champion_that_was_not_met(project, monkeypatch):
    folder, _ = project
    registered(folder, "first", "champion")
    challenger, other = (registered(folder, name, "challenger") for name in ("challenger", "other"))
    decision = met(challenger, monkeypatch)
    made = flow.Challenge(challenger=challenger, decision=decision, approval=True, report="")

    def ask(*_):
        registry.point(gate.MODEL_NAME, "champion", other.number)
        return flow.Approval(promote=True)

    monkeypatch.setattr(flow, "_ask", ask)
    with pytest.raises(TrackingError, match=r"since version 2 met the champion, that is version 3, which it has not"):
        flow._settled(made, None)


@pytest.mark.parametrize("again", [False, True])
def test_nobody_takes_the_place_of_a_champion_who_came_in_after_the_comparison(project, again, monkeypatch):
    """A way back, say, while data and branch were sent; a decision that is read again names whom it met, too."""
    folder, _ = project
    first = registered(folder, "first", "champion")
    second = registered(folder, "second", "champion", replaced=first.number)
    challenger = registered(folder, "challenger", "challenger")
    decision = met(challenger, monkeypatch)
    if again:
        assert met(challenger, monkeypatch) == decision
    monkeypatch.setattr(gate, "create_markdown_artifact", lambda *_, **__: None)
    gate.roll_back.fn(None, "")
    made = flow.Challenge(challenger=challenger, decision=decision, approval=False, report="")
    with pytest.raises(TrackingError, match=r"that is version 1, which it has not met; run this again"):
        flow._settled(made, None)
    assert "gate" not in registry.tags_of(gate.MODEL_NAME, challenger.number)
    registry.point(gate.MODEL_NAME, "champion", second.number)
    assert "promoted: version 3 is the champion" in flow._settled(made, None)


def test_without_a_commit_or_a_run_the_page_names_neither(project):
    folder, _ = project
    told = gate.about(registered(folder, "first", "challenger"), None)
    assert told == {
        "challenger": told["challenger"],
        "against": gate.NOBODY,
        "report": "`metrics/report.html`",
    }
