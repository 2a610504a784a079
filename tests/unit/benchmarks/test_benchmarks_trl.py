"""What TRL is told, and where it is left out."""

import importlib.util

import pytest

from benchmarks import engines
from benchmarks.machine import command, kind, machine
from benchmarks.parts.base import merged
from benchmarks.setting import SMOKE, context_of, onednn


def test_trl_with_vllm_is_skipped_without_a_gpu(monkeypatch):
    found = {"trl", "vllm"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name in found else None)
    monkeypatch.setattr(engines, "device", lambda: "cpu")
    assert engines.trl_missing("generate") is None
    assert "on a GPU, and there is none" in engines.trl_missing("vllm")
    monkeypatch.setattr(engines, "device", lambda: "cuda")
    assert engines.trl_missing("vllm") is None
    found.remove("vllm")
    assert "vllm is not installed" in engines.trl_missing("vllm")
    found.remove("trl")
    assert "trl is not installed" in engines.trl_missing("generate")


def test_products_of_another_processor_can_be_asked_for_and_are_recorded(monkeypatch):
    monkeypatch.setenv("BENCH_ONEDNN", "0")
    assert not onednn()
    assert machine()["products"] == "torch's own"
    assert "BENCH_ONEDNN=0" in command()
    assert kind().endswith("-stand-in")
    loading = pytest.importorskip("rl.models")
    monkeypatch.setattr(loading, "worthwhile", lambda: True)
    engines.choose_products()
    assert not loading.worthwhile()


def test_trl_takes_what_it_is_told():
    """Accepted by TRL's own configuration class; with vLLM in the same process, and log-probabilities looked at again."""
    pytest.importorskip("trl")
    from benchmarks.sides.trl import by_token, config

    plain, fast = config(SMOKE, 360), config(SMOKE, 360, "vllm")
    assert not plain.use_vllm
    assert plain.generation_kwargs == {"eos_token_id": 360}
    assert (fast.use_vllm, fast.vllm_mode, fast.vllm_max_model_length) == (True, "colocate", context_of(SMOKE))
    assert fast.vllm_importance_sampling_correction
    assert plain.per_device_train_batch_size * plain.gradient_accumulation_steps == SMOKE.episodes
    assert by_token([0, 1, 1, 0, 1], [-1.0, -2.0, -3.0]) == [0.0, -1.0, -2.0, 0.0, -3.0]


def test_a_turn_of_vllm_has_a_length_of_its_own(monkeypatch):
    """The call TRL's user makes on its `LLM`: a length for every dialogue, tokens and log-probabilities back."""
    pytest.importorskip("trl")
    vllm = pytest.importorskip("vllm")
    from types import SimpleNamespace

    from benchmarks.sides.trl import vllm_turn

    class Engine:
        def generate(self, prompts, sampling, use_tqdm):
            assert isinstance(sampling[0], vllm.SamplingParams)
            assert all(one.ignore_eos for one in sampling)
            made = [[7] * one.max_tokens for one in sampling]
            return [
                SimpleNamespace(
                    outputs=[SimpleNamespace(token_ids=ids, logprobs=[{7: SimpleNamespace(logprob=-0.5)}] * len(ids))]
                )
                for ids in made
            ]

    assert vllm_turn(Engine(), [[1], [2, 3]], [1, 2]) == ([[7], [7, 7]], [[-0.5], [-0.5, -0.5]])


def test_a_part_measured_in_pieces_is_put_together():
    fixed, variable, again = (
        {"variant": name, "side": "TRL", "median": value}
        for name, value in (("fixed", 1), ("variable", 2), ("fixed", 3))
    )
    before = {"run": 0, "rows": [fixed, variable], "goals": [{"what": "a", "value": 1}], "notes": []}
    found = merged(before, {"run": 1, "rows": [again], "goals": [{"what": "b", "value": 2}], "notes": ["new"]})
    assert found["rows"] == [variable, again]
    assert [goal["what"] for goal in found["goals"]] == ["a", "b"]
    assert (found["run"], found["notes"]) == (1, ["new"])
