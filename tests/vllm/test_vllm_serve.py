"""A doctor's folder behind `vllm serve`: over HTTP it holds the consultations that it holds when loaded."""

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from clinic.starter import draw_cases, load_starter
from doctor.consult import Practice
from doctor.parameters import ROOT, load_params
from doctor.served import served_doctor
from tasks.server import free_port

pytestmark = pytest.mark.vllm
BASE = ROOT / "models/base"


class Deaf:
    """Follows and says nothing."""

    def said(self, turn, thought, action):
        pass

    def heard(self, reply, views):
        pass


@pytest.fixture
def address(tmp_path):
    """A server in front of the bundled base model, in float32 as the engine here."""
    port = free_port()
    words = ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--generation-config", "vllm"]
    quick = ["--enforce-eager", "--max-num-seqs", "1"]
    told = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [Path(sys.executable).with_name("vllm"), "serve", BASE, *words, *quick],
            cwd=tmp_path,
            env={**os.environ, **told},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        end = time.monotonic() + 240
        while not healthy(f"http://127.0.0.1:{port}/health"):
            assert server.poll() is None, (tmp_path / "log").read_text()[-3000:]
            assert time.monotonic() < end, (tmp_path / "log").read_text()[-3000:]
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(30)


def healthy(url) -> bool:
    try:
        return httpx2.get(url, timeout=5).status_code == 200
    except httpx2.TransportError:
        return False


def test_greedy_consultations_are_those_of_the_loaded_folder(address):
    params = load_params()
    greedy = params.decoding.evaluate.model_copy(update={"temperature": 0.0})
    params = params.model_copy(update={"decoding": params.decoding.model_copy(update={"evaluate": greedy})})
    clinic = load_starter(ROOT / "data/starter", 0.8)
    cases = draw_cases(clinic, 5, 3, params.patient_cases.split)
    here = Practice(params, BASE, Path("no cases"), Path("no index"))
    there = Practice(params, served_doctor(address, None, "", params), Path("no cases"), Path("no index"))
    turns = 0
    for case in cases:
        loaded, served = here.with_case(case, Deaf()), there.with_case(case, Deaf())
        assert (served.texts, served.stop_reason) == (loaded.texts, loaded.stop_reason)
        turns += len(served.turns)
    assert turns >= 10
    assert there.folder == BASE  # so that what is held can be kept in the doctor's run
