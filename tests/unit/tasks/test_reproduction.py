"""The state that made a registered doctor, on a real MLflow store."""

import shutil
from pathlib import Path

import pytest

from tasks import reproduction
from tests.stores import store_in
from tracking import registry
from tracking.errors import TrackingError


@pytest.mark.parametrize("called", ["1", "champion"])
def test_a_doctor_is_made_again_though_its_copy_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str
) -> None:
    monkeypatch.setattr(reproduction, "ROOT", tmp_path)
    copy = tmp_path / ("a" * 64)
    copy.mkdir()
    (copy / "weights").write_text("w")
    with store_in(tmp_path):
        registry.register(reproduction.MODEL_NAME, copy, copy.name, None, "champion", {"git.sha": "c"})
        shutil.rmtree(copy)
        found = reproduction.version_of(called)
        assert (found.number, found.sha256, found.tags["git.sha"]) == ("1", copy.name, "c")
        with pytest.raises(TrackingError, match="has no version 2; name a number, champion or challenger"):
            reproduction.version_of("2")
