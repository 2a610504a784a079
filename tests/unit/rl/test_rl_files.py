"""Files and folders that one process writes whole."""

import json
import subprocess
import sys
import time

import pytest

from doctor.parameters import ROOT
from rl.errors import TrainingError
from rl.files import held, replace_folder, write_json

HOLDER = "import sys, time; from pathlib import Path; from rl.files import held\nwith held(Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"


def test_a_folder_is_one_process_s_until_it_dies(tmp_path):
    folder = tmp_path / "runs" / "a"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(TrainingError, match=r"runs/a is being written by another run") as caught, held(folder):
            pass
        assert "\n" not in str(caught.value)
        with held(tmp_path / "runs" / "b"):  # another run's folder
            pass
        other.kill()
    began = time.monotonic()
    with held(folder):
        assert time.monotonic() - began < 20


def test_an_error_in_the_block_passes_and_lets_go(tmp_path):
    with pytest.raises(ValueError, match="within"), held(tmp_path / "a"):
        raise ValueError("within")
    with held(tmp_path / "a"):
        pass


def test_a_folder_is_replaced_whole(tmp_path):
    for name, content in (("new", "2"), ("there", "1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(content)
    replace_folder(tmp_path / "new", tmp_path / "there")
    assert [p.name for p in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there" / "file").read_text() == "2"


def test_json_is_whole_or_absent(tmp_path):
    path = tmp_path / "deep" / "a.json"
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert not path.exists()
    write_json(path, {"b": 1, "a": "é"})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": "é", "b": 1}
