"""The remote engine against vLLM's real server on the CPU."""

import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from rl.engines.remote import RemoteEngine, RemoteParams
from rl.errors import TrainingError
from rl.models import load_model, new_model, new_tokenizer, save_model
from tests.vllm.conftest import LENGTH, disagreement, optimiser_step, prompt, sample

pytestmark = pytest.mark.vllm


def params(url: str, **changes) -> RemoteParams:
    return RemoteParams(url=url, model="doctor", timeout_s=60, retries=1, probe_tolerance=1e-4).model_copy(update=changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    place = tmp_path_factory.mktemp("served") / "model"
    tokenizer = new_tokenizer(["one two three four"], 330)
    model = new_model(tokenizer, width=64, layers=2, heads=2, context=LENGTH, seed=0)
    model.resize_token_embeddings(330)
    save_model(model, tokenizer, place)
    return str(place)


@pytest.fixture(scope="module")
def url(folder, tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", folder, "--served-model-name", "doctor", "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "float32", "--max-model-len", str(LENGTH), "--max-num-seqs", "8", "--enforce-eager", "--block-size", "32", "--kv-cache-memory-bytes", str(2**28),
        "--logprobs-mode", "processed_logprobs", "--generation-config", "vllm",
    ]  # fmt: skip
    environment = {**os.environ, "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}
    environment.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    log = (tmp_path_factory.mktemp("server") / "log").open("w+")
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)


def wait_until_healthy(address: str, process: subprocess.Popen, log) -> None:
    for _ in range(240):
        if process.poll() is not None:
            log.seek(0)
            pytest.fail(f"the server ended: {log.read()[-3000:]}")
        try:
            urllib.request.urlopen(address, timeout=2).close()
        except OSError:
            time.sleep(1)
        else:
            return
    pytest.fail("the server did not come up in 240 s")


def test_turns_over_http_are_the_models_own(folder, url):
    """Sampled tokens, the end token too, and log-probabilities; the next prompt contains them."""
    model = load_model(folder, "float32")[0].eval()
    engine = RemoteEngine(params(url), LENGTH)
    engine.sync(model, 3)
    prompts = [prompt(i) for i in range(6)]
    for made in (sample(engine, prompts), sample(engine, prompts)):
        worst = max(disagreement(model, ids, completion) for ids, completion in zip(prompts, made, strict=True))
        assert worst < 1e-4
        assert {completion.policy_version for completion in made} == {3}
    print(f"remote: probe error {engine.probe_error:.1e}, largest disagreement {worst:.1e}")


def test_a_policy_that_has_learned_since_is_refused(folder, url):
    model = load_model(folder, "float32")[0].eval()
    engine = RemoteEngine(params(url), LENGTH)
    engine.sync(model, 0)
    optimiser_step(model, 1)
    with pytest.raises(TrainingError, match="serves other weights than the policy's"):
        engine.sync(model, 1)


def test_a_server_that_is_not_there_is_told_in_one_line(folder):
    model = load_model(folder, "float32")[0].eval()
    with pytest.raises(TrainingError, match=r"the model 'doctor' at http://127.0.0.1:9/v1 is unusable after 2 tries of 60 s: Connection error"):
        RemoteEngine(params("http://127.0.0.1:9/v1"), LENGTH).sync(model, 0)
