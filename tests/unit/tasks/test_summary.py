"""What a person reads when a run has ended."""

import json
from pathlib import Path

import pytest

from clinic.intervals import Interval
from clinic.tables import DoctorTable, Evaluation, Summary
from tasks import registry, summary
from tracking import provenance

EVALUATION = Evaluation({"trained": DoctorTable(Summary(600, {"accuracy": Interval(0.5867, 0.5468, 0.6254)}), {})})
STAGE = "{{deps: [{{path: models/doctor, md5: {}}}], outs: [{{path: {}, md5: new}}]}}"


@pytest.mark.parametrize(("evaluated", "shown"), [("new", True), ("old", False), (None, False)])
def test_figures_of_another_doctor_are_not_shown_as_this_ones(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    evaluated: str | None,
    shown: bool,
) -> None:
    """As after `retrain train_doctor`, or an evaluation that failed."""
    for module in (registry, summary, provenance):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    pages: list[str] = []
    monkeypatch.setattr(summary, "create_markdown_artifact", lambda page, **_: pages.append(page))
    monkeypatch.setattr(summary, "read_cases", lambda *_: [])
    monkeypatch.setattr(summary, "_where_to_look", lambda _: "there")
    stages = f"train_doctor: {STAGE.format('-', 'models/doctor')}, evaluate_doctor: {STAGE.format(evaluated, '-')}"
    (tmp_path / "dvc.lock").write_text(f"stages: {{{stages}}}")
    if evaluated is not None:
        (tmp_path / "metrics").mkdir()
        (tmp_path / "metrics/evaluate_doctor.json").write_text(json.dumps(EVALUATION.to_json()))
    told = summary.summary.fn("registered version 1")
    assert "registered version 1" in told
    assert told in pages[0]
    assert ("0.587" in told) == shown
    assert ("of no evaluation of this doctor" in caplog.text) == (not shown)
