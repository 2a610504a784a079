"""Where a stage writes."""

from pathlib import Path

import pytest

from tasks import outputs


def test_two_that_begin_in_one_second_write_to_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(outputs, "ROOT", tmp_path)
    monkeypatch.setattr(outputs.time, "strftime", lambda _: "20300101-000000")
    assert [outputs.output(None, "doctor").parent.name for _ in range(3)] == [
        "20300101-000000",
        "20300101-000000-2",
        "20300101-000000-3",
    ]
    assert caplog.messages[1] == "writes to runs/20300101-000000-2"
    assert outputs.output(tmp_path / "given", "doctor") == tmp_path / "given"
    assert not (tmp_path / "given").exists()
