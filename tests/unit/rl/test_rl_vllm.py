"""What needs no vLLM: how its absence is told, how the engine is chosen, how the lane behaves."""

import sys
import threading

import pytest

from rl.config import RolloutParams, VllmParams
from rl.engines.factory import open_engine
from rl.engines.transformers import TransformersEngine
from rl.engines.vllm import VllmEngine
from rl.engines.worker_thread import Lane
from rl.errors import TrainingError
from tests.handing import handed

VLLM = VllmParams(
    kind="vllm",
    dtype="float32",
    gpu_memory_utilization=0.3,
    kv_cache_gib=0.1,
    block_size=32,
    max_sequences=4,
    enforce_eager=True,
    probe_tolerance=1e-4,
    timeout_s=60,
)
ROLLOUT = RolloutParams(
    prompts=1,
    response_length=4,
    max_episode_tokens=32,
    slots=2,
    max_failed_share=0.5,
    ahead=0,
    engine={"kind": "transformers", "compile": False},
)


def test_a_missing_vllm_is_one_line_that_says_how_to_install_it(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(
        TrainingError,
        match=r"rollout.engine.kind is vllm, but vLLM cannot be imported .*`make vllm` .* `pip install -e '\.\[gpu\]'`",
    ):
        VllmEngine(VLLM, 32).take(handed(model, 0))


def test_the_parameters_name_the_engine(model):
    assert isinstance(open_engine(ROLLOUT, model, copy=False), TransformersEngine)
    assert isinstance(open_engine(ROLLOUT.model_copy(update={"engine": VLLM}), model, copy=False), VllmEngine)
    with pytest.raises(ValueError, match="an engine is a block"):
        RolloutParams.model_validate(ROLLOUT.model_dump() | {"engine": "vllm"})
    with pytest.raises(ValueError, match="does not match any of the expected tags: 'transformers', 'vllm'"):
        RolloutParams.model_validate(ROLLOUT.model_dump() | {"engine": {"kind": "vlm"}})


def test_a_lane_keeps_order_hands_errors_back_and_can_be_left():
    lane, done, gate = Lane(), [], threading.Event()
    futures = [lane.submit(done.append, i) for i in range(3)]
    assert [future.result(5) for future in futures] == [None] * 3
    assert done == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        lane.wait(5, lambda: 1 / 0)
    with pytest.raises(TimeoutError):
        lane.wait(0.01, gate.wait)
    gate.set()
    assert lane.wait(5, lambda: threading.current_thread().daemon)
