"""Trainer, engine and the model's own forward pass agree in every family, windows and caps included; what cannot agree
is refused before anything is trained.
"""

import json

import pytest
import torch
from transformers import (
    BloomConfig,
    DeepseekV2Config,
    DeepseekV3Config,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    Llama4TextConfig,
    MambaConfig,
    OPTConfig,
)

import rl.batching
import rl.engines.transformers
from doctor.parameters import ROOT
from rl import self_check
from rl.architectures import is_here
from rl.batching import micro_batches, sibling_batches, token_logprobs
from rl.config import RolloutParams
from rl.engines.slots import SlotCache
from rl.errors import TrainingError
from rl.logits import known_ids
from rl.machine import Place
from rl.memory import model_shape
from rl.models import load_model, load_tokenizer, save_model
from rl.policy import Policy
from rl.ranking import continuation_logprobs
from rl.self_check import disagreements, refuse_disagreement
from rl.workers.local import LocalSession
from tests.numerics.families import FAMILIES, SHAPE, WINDOW, WINDOWED, write_family

ROLLOUT = RolloutParams(
    prompts=1,
    response_length=8,
    max_episode_tokens=96,
    slots=4,
    max_failed_share=1.0,
    ahead=0,
    engine={"kind": "transformers", "compile": False},
)
every = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    made = {}

    def of(family):
        if family not in made:
            made[family] = str(write_family(family, tmp_path_factory.mktemp(family)))
        return made[family]

    return of


@pytest.fixture
def load(folder):
    return lambda family, dtype="float32": load_model(folder(family), dtype)[0].eval()


def own_logprobs(model, ids, start):
    """Of the tokens from `start` on, by the model's own forward pass."""
    logits_TV = model(input_ids=torch.tensor([ids])).logits[0, start - 1 : -1, : known_ids(model)]
    return torch.log_softmax(logits_TV.float(), -1).gather(1, torch.tensor(ids[start:])[:, None])[:, 0]


def random_ids(model, length, seed=0):
    return torch.randint(known_ids(model), (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@every
def test_trainer_engine_and_model_agree(family, load):
    found = disagreements(load(family), ROLLOUT)
    assert set(found) >= {"engine", "padded", "siblings"}
    assert ("packed" in found) == (family not in WINDOWED)
    assert max(found.values()) < 1e-4


@every
def test_what_is_special_about_a_family_shows(family, load):
    """Without its window, cap or scale the model says something else: the test above can fail."""
    ids = random_ids(load(family), 48)
    with torch.no_grad():
        whole = own_logprobs(load(family), ids, 24)
        assert whole.std() > 0.05
        for number, nothing in (
            ("sliding_window", 500),
            ("attn_logit_softcapping", None),
            ("final_logit_softcapping", None),
            ("logits_scaling", 1.0),
            ("logit_scale", 1.0),
        ):
            if number not in FAMILIES[family][1] or FAMILIES[family][1][number] is None:
                continue
            model = load(family)
            setattr(model.config, number, nothing)
            if number == "logit_scale":
                model.logit_scale = 1.0
            for layer in model.model.layers:
                if number == "attn_logit_softcapping":
                    layer.self_attn.attn_logit_softcapping = None
            assert (own_logprobs(model, ids, 24) - whole).abs().max() > 0.02, number


@pytest.mark.parametrize("family", ["gemma2", "mistral-window", "cohere"])
def test_siblings_have_the_gradients_of_dialogues_alone(family, load):
    model = load(family)
    opening = random_ids(model, 40)
    tokens = [opening + random_ids(model, 9, 1), opening + random_ids(model, 12, 2)]
    masks = [[0] * 40 + [1] * (len(ids) - 40) for ids in tokens]
    (together,) = sibling_batches(tokens, masks, 4096)
    assert together.branches is not None
    alone = [batch for ids, mask in zip(tokens, masks, strict=True) for batch in micro_batches([ids], [mask], 4096)]
    weights = list(model.parameters())
    sides = [
        torch.autograd.grad(sum(token_logprobs(model, batch, 0.7)[0].sum() for batch in batches), weights)
        for batches in ([together], alone)
    ]
    for ours, theirs in zip(*sides, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", ["gemma2", "gemma3", "phi3", "granite", "cohere"])
def test_ranking_reads_the_models_own_logits(family, load):
    model = load(family)
    prefixes = [random_ids(model, 30), random_ids(model, 17, 1)]
    candidates = [random_ids(model, 5, 2), random_ids(model, 7, 3)]
    with torch.no_grad():
        expected = [
            [own_logprobs(model, prefix + rest, len(prefix)).sum() for rest in candidates] for prefix in prefixes
        ]
    torch.testing.assert_close(
        continuation_logprobs(Policy(model), prefixes, candidates), torch.tensor(expected), atol=1e-4, rtol=0
    )


def test_rows_that_pad_the_vocabulary_are_never_said(folder):
    model, tokenizer = load_model(folder("qwen2"), "float32")
    rows = model.get_output_embeddings().weight
    assert known_ids(model) == 1 + max(tokenizer.get_vocab().values()) < len(rows)
    with torch.no_grad():
        rows[known_ids(model) :] = 100 * rows[5]  # the likeliest by far, where they may be said
    assert max(disagreements(model.eval(), ROLLOUT).values()) < 1e-4


def forget_windows(monkeypatch):
    monkeypatch.setattr(rl.batching, "layer_masks", lambda _config, mask, *_: mask)


def forget_the_cap(monkeypatch):
    def raw(model, hidden):
        return model.get_output_embeddings()(hidden)[..., : known_ids(model)].float()

    monkeypatch.setattr(rl.engines.transformers, "logits_of", raw)


def forget_what_was_said(monkeypatch):
    select = SlotCache.select
    monkeypatch.setattr(SlotCache, "select", lambda self, rows, place, span: select(self, rows, place * 0, span))


@pytest.mark.parametrize(
    ("family", "fault", "pair"),
    [
        ("mistral-window", forget_windows, r"trainer \(siblings\)"),
        ("gemma3", forget_windows, r"trainer \(siblings\)"),
        ("gemma2", forget_the_cap, "engine"),
        ("qwen3", forget_what_was_said, "engine"),
    ],
)
def test_a_difference_is_refused_with_the_pair_that_differs(family, fault, pair, load, monkeypatch):
    model = load(family)
    refuse_disagreement(family, model, ROLLOUT)
    fault(monkeypatch)
    with pytest.raises(
        TrainingError, match=rf"{family}: .* of the {pair} and of the model's own forward pass differ by"
    ):
        refuse_disagreement(family, model, ROLLOUT)


def test_a_transform_that_nobody_knows_is_refused(load, monkeypatch):
    model = load("llama")
    forward = type(model).forward

    def doubled(self, **inputs):
        out = forward(self, **inputs)
        out.logits = 2 * out.logits
        return out

    monkeypatch.setattr(type(model), "forward", doubled)
    with pytest.raises(TrainingError, match="engine and of the model's own"):
        refuse_disagreement("llama", model, ROLLOUT)


def test_numbers_that_are_none_in_the_second_dialogue_are_refused_too(load, monkeypatch):
    model = load("llama")
    own = self_check._own

    def nan_in_the_second(model, dialogue):
        found = own(model, dialogue)
        return found if len(found) == 2 * self_check.TURNS[0] else torch.full_like(found, torch.nan)

    monkeypatch.setattr(self_check, "_own", nan_in_the_second)
    with pytest.raises(TrainingError, match="differ by nan"):
        refuse_disagreement("llama", model, ROLLOUT)


def test_a_model_that_the_engine_cannot_run_is_refused_in_one_line(load, monkeypatch):
    model = load("llama")
    monkeypatch.setattr(SlotCache, "update", property(lambda _: None))
    with pytest.raises(
        TrainingError, match=r"llama: this kind of model \(llama\) cannot be played or trained here"
    ) as told:
        refuse_disagreement("llama", model, ROLLOUT)
    assert "\n" not in str(told.value)


def test_memory_that_does_not_do_is_not_the_models_kind(load, monkeypatch):
    model = load("llama")

    def full(*_args, **_named):
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(SlotCache, "update", full)
    with pytest.raises(torch.OutOfMemoryError, match="none left"):
        refuse_disagreement("llama", model, ROLLOUT)


@pytest.mark.parametrize("family", ["qwen3", "mistral-window"])
def test_sixteen_bits_are_rounding_and_no_exact_sampler(family, load):
    found = disagreements(load(family, "bfloat16"), ROLLOUT)
    assert 1e-4 < max(found.values()) < 0.1


def test_short_episodes_are_looked_at_too(load):
    for length in (16, 24):
        found = disagreements(
            load("gemma2"), ROLLOUT.model_copy(update={"max_episode_tokens": length, "slots": 1, "response_length": 4})
        )
        assert max(found.values()) < 1e-4


def test_a_window_too_long_to_fill_is_said(load, caplog):
    model = load("mistral-window")
    model.config.sliding_window = 5000
    disagreements(model, ROLLOUT.model_copy(update={"max_episode_tokens": 6000, "slots": 1}))
    assert "a window of 5000 tokens is too long" in caplog.text


def test_dialogues_beyond_what_a_model_was_made_for_are_told_of(load, caplog):
    """Rotary positions go on, and what is read there is noise; vLLM refuses it."""
    model = load("qwen3")
    places = model.config.max_position_embeddings
    for length in (places, places + 1):
        assert not caplog.messages
        refuse_disagreement("qwen3", model, ROLLOUT.model_copy(update={"max_episode_tokens": length}))
    assert f"qwen3 was made for {places} tokens" in caplog.text


def test_exactness_is_measured(folder, monkeypatch):
    session = LocalSession(folder("qwen3"), Place(), ROLLOUT, None, 0)
    assert session._exact
    assert not LocalSession(folder("qwen3"), Place(compute="bfloat16"), ROLLOUT, None, 0)._exact
    monkeypatch.setattr("rl.workers.trainer.refuse_disagreement", lambda *_: 2e-4)
    assert not LocalSession(folder("qwen3"), Place(), ROLLOUT, None, 0)._exact


SMALL = {name: SHAPE[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")} | {
    "vocab_size": 300
}
REFUSED = {
    "learned or added": [GPT2Config(vocab_size=300, n_embd=64, n_layer=2, n_head=4), OPTConfig(**SMALL), BloomConfig(vocab_size=300, hidden_size=64, n_layer=2, n_head=4)],
    "num_key_value_heads": [GPTNeoXConfig(**SMALL)],
    "multi-head latent attention": [kind(**SHAPE | {"num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}, vocab_size=300) for kind in (DeepseekV2Config, DeepseekV3Config)],
    "learned sinks": [GptOssConfig(**SHAPE, vocab_size=300, num_local_experts=4)],
    "chunked_attention": [Llama4TextConfig(**SHAPE, vocab_size=300, num_local_experts=2)],
    "keeps a state": [MambaConfig(vocab_size=300, hidden_size=64, num_hidden_layers=2)],
}  # fmt: skip
PAIRS = [(reason, config) for reason, configs in REFUSED.items() for config in configs]


@pytest.mark.parametrize(("reason", "config"), PAIRS, ids=[config.model_type for _, config in PAIRS])
def test_what_cannot_be_trained_says_so_before_a_weight_is_read(reason, config, tmp_path):
    config.save_pretrained(tmp_path)
    for look in (lambda: model_shape(str(tmp_path), "float32"), lambda: load_model(str(tmp_path), "float32")):
        with pytest.raises(
            TrainingError, match=rf"\({config.model_type}\) cannot be trained here: .*{reason}.*; choose a decoder"
        ) as told:
            look()
        assert "\n" not in str(told.value)


def test_code_of_a_model_folder_is_neither_run_nor_asked_about(tmp_path, monkeypatch):
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'it ran')!r}, 'w')\n")
    names = {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "homemade", "auto_map": names}))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked"))
    for look in (lambda: model_shape(str(tmp_path), "float32"), lambda: load_model(str(tmp_path), "float32")):
        with pytest.raises(TrainingError, match=r"code of its own .*auto_map.* never run") as told:
            look()
        assert "\n" not in str(told.value)
    assert not (tmp_path / "it ran").exists()


def test_a_known_kind_is_read_by_our_own_code_though_the_folder_brings_some(tmp_path):
    write_family("llama", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "code.py").write_text("raise SystemExit('it ran')\n")
    (tmp_path / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModelForCausalLM": "code.Model"}}))
    assert type(load_model(str(tmp_path), "float32")[0]).__name__ == "LlamaForCausalLM"


def test_a_saved_model_keeps_its_padded_rows(folder, tmp_path):
    model, tokenizer = load_model(folder("gemma2"), "float32")
    save_model(model, tokenizer, tmp_path / "out")
    again, _ = load_model(str(tmp_path / "out"), "float32")
    assert again.config.vocab_size == model.config.vocab_size > known_ids(again) == known_ids(model)
    assert again.config._attn_implementation == "eager"
    assert again.config.sliding_window == WINDOW


@pytest.mark.parametrize(
    ("name", "told"),
    [
        *((name, "no such folder") for name in ("./nowhere", "/nowhere", "~/nowhere", "a/b/c")),
        ("tests/nowhere", "the folder tests has no nowhere .* fetch it first: hf download tests/nowhere"),
    ],
)
def test_a_folder_that_is_not_there_is_told_before_a_hub_is_asked(name, told, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", lambda *_, **__: pytest.fail("asked"))
    for load in (load_tokenizer, lambda name: load_model(name, "float32")):
        with pytest.raises(TrainingError, match=rf"cannot read the model '{name}': {told}"):
            load(name)


def test_a_model_of_the_hubs_cache_is_no_missing_folder(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("rl.architectures.try_to_load_from_cache", lambda *_: "somewhere/config.json")
    assert not is_here("tests/nowhere")
