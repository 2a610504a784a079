"""Checkpoints: complete or absent, and the same bits go on."""

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rl.adapters import has_adapter
from rl.algorithms import make_algorithm
from rl.checkpoint import SEAL, _whole_weights, load_learner_state, prune, save_checkpoint, steps_saved
from rl.config import LoraParams, RolloutParams
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory
from rl.files import folder_hash
from rl.machine import Place
from rl.models import average_folders, load_model, save_model
from rl.workers.local import LocalSession
from tests.recipes import recipe

OPTIMIZER = {
    "num_epochs": 2,
    "mini_batch_size": 2,
    "learning_rate": 1e-2,
    "warmup_rollout_steps": 1,
    "weight_decay": 0.1,
    "micro_batch_tokens": 64,
    "gradient_checkpointing": False,
    "compile": False,
}
RECIPES = {
    "grpo": recipe("grpo", group_size=2, credit="episode", divide_by_std="group", optimizer=OPTIMIZER),
    "ppo": recipe(
        "ppo",
        group_size=2,
        critic={"warmup_rollout_steps": 1},
        kl={"place": "loss", "coefficient": 0.1, "target": 0.01, "horizon": 10},
        optimizer=OPTIMIZER,
    ),
    "online_dpo": recipe("online_dpo", group_size=2, pairs_per_group=1, optimizer=OPTIMIZER),
}
LORA = LoraParams(rank=2, alpha=4.0, target_modules=("q_proj", "down_proj"))
SESSIONS = [*((name, None) for name in RECIPES), ("online_dpo", LORA)]
ROLLOUT = RolloutParams(
    prompts=1,
    response_length=4,
    max_episode_tokens=32,
    slots=2,
    max_failed_share=0.5,
    ahead=0,
    engine={"kind": "transformers", "compile": False},
)


@pytest.fixture(autouse=True)
def same_torch_after():
    """A session asks torch for deterministic algorithms, for good."""
    before = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(before)


def experience(version: int) -> tuple[list[Trajectory], list[Scores]]:
    """A group of two that differ in tokens and score."""
    trajectories = [
        Trajectory(
            episode_id=f"c/{i}",
            case_id="c",
            group_id="g",
            sample=i,
            policy_version=version,
            turn_budget=1,
            token_ids=(2, 9, 3, 40 + i, 4),
            logprobs=(0.0, 0.0, 0.0, -2.0, -1.0),
            loss_mask=(0, 0, 0, 1, 1),
            turns=((3, 5),),
            texts=(),
            events=({},),
            stop_reason="ended",
            privileged={},
            started_s=0.0,
            ended_s=1.0,
        )
        for i in range(2)
    ]
    return trajectories, [Scores(t.episode_id, ({"outcome": float(t.sample)},)) for t in trajectories]


@pytest.fixture(params=SESSIONS, ids=lambda choice: choice[0] + (", lora" if choice[1] else ""))
def session(tmp_path, model, tokenizer, request) -> LocalSession:
    save_model(model, tokenizer, tmp_path / "base")
    return open_session(tmp_path, *request.param)


def open_session(tmp_path, name: str, lora: LoraParams | None) -> LocalSession:
    return LocalSession(
        str(tmp_path / "base"), Place(), ROLLOUT, make_algorithm(RECIPES[name]), seed=5, lora=lora, temperature=1.0
    )


def again(tmp_path, session: LocalSession) -> LocalSession:
    """Another session of the same run, at its beginning."""
    return open_session(tmp_path, session.learner.algorithm.recipe.name, LORA if has_adapter(session.model) else None)


def assert_same_bits(one: LocalSession, other: LocalSession) -> None:
    for (name, a), (_, b) in zip(one.model.state_dict().items(), other.model.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    a, b = one.learner.state(), other.learner.state()
    large = {"optimizer", "critic_optimizer", "critic"}
    assert a.keys() == b.keys()
    assert {k: v for k, v in a.items() if k not in large} == {k: v for k, v in b.items() if k not in large}
    for which in a.keys() & {"optimizer", "critic_optimizer"}:
        assert a[which]["param_groups"] == b[which]["param_groups"]
        assert a[which]["state"].keys() == b[which]["state"].keys()
        for i, values in a[which]["state"].items():
            for name, value in values.items():
                assert torch.equal(value, b[which]["state"][i][name]), (which, i, name)
    for name, value in a.get("critic", {}).items():
        assert torch.equal(value, b["critic"][name]), name


def test_a_learner_goes_on_from_a_state_that_counted_the_policys_updates_alone(tmp_path, session):
    """As checkpoints held it before there were parts: the critic's updates were the gradient steps."""
    session.learn(*experience(0), step=1)
    state = session.learner.state()
    counted = state.pop("updates")
    restored = again(tmp_path, session).learner
    restored.load_state(state | {"policy_updates": counted["policy"]})
    assert restored.optimizers.updates == counted


def test_a_restored_session_has_and_keeps_the_same_bits(tmp_path, session):
    before = {name: value.clone() for name, value in session.model.state_dict().items()}
    session.learn(*experience(0), step=1)
    moved = any(not torch.equal(value, before[name]) for name, value in session.model.state_dict().items())
    assert moved != session.learner.optimizers.waits("policy", 0)
    directory = session.save(tmp_path / "run", 1)
    assert directory == tmp_path / "run" / "global_step_1"
    restored = again(tmp_path, session)
    restored.restore(directory)
    assert_same_bits(session, restored)
    for version in (1, 2):
        assert session.learn(*experience(version), step=version + 1) == restored.learn(
            *experience(version), step=version + 1
        )
        assert_same_bits(session, restored)


def test_restoring_over_a_later_state_goes_back(tmp_path, session):
    session.learn(*experience(0), step=1)
    directory = session.save(tmp_path / "run", 1)
    session.learn(*experience(1), step=2)
    session.restore(directory)
    restored = again(tmp_path, session)
    restored.restore(directory)
    assert_same_bits(session, restored)


def test_a_checkpoint_is_a_hugging_face_folder(tmp_path, session):
    session.learn(*experience(0), step=1)
    directory = session.save(tmp_path / "run", 1)
    plain, loaded = (
        AutoModelForCausalLM.from_pretrained(directory).eval(),
        load_model(str(directory), "float32")[0].eval(),
    )
    assert all(
        torch.equal(a, b) for a, b in zip(plain.state_dict().values(), loaded.state_dict().values(), strict=True)
    )
    ids = torch.tensor([[2, 9, 3, 41, 4]])
    with torch.no_grad():
        theirs, ours, anyones = (model(input_ids=ids).logits for model in (loaded, session.model, plain))
    assert torch.allclose(theirs, ours, atol=1e-5) if has_adapter(session.model) else torch.equal(theirs, ours)
    assert torch.allclose(theirs, anyones, atol=1e-5)  # perhaps by another library's matrix products
    tokenizer = AutoTokenizer.from_pretrained(directory)
    assert tokenizer.chat_template == session.tokenizer.chat_template
    assert tokenizer.encode("tell me <answer>more") == session.tokenizer.encode("tell me <answer>more")


def test_only_complete_checkpoints_count(tmp_path, model, tokenizer):
    root = tmp_path / "run"
    assert steps_saved(root) == []
    for step in (2, 10):
        save_checkpoint(root, step, model, tokenizer, {"gradient_step": step})
    (root / ".global_step_11.partial").mkdir()
    (root / ".global_step_11.partial" / SEAL).write_text("{}")
    (root / "global_step_12").mkdir()
    (root / "global_step_12" / "model.safetensors").write_bytes(b"half")
    assert steps_saved(root) == [2, 10]
    assert load_learner_state(root / "global_step_10") == {"gradient_step": 10}
    save_checkpoint(root, 11, model, tokenizer, {"gradient_step": 11})  # over what a killed run left
    save_checkpoint(root, 12, model, tokenizer, {"gradient_step": 12})
    save_checkpoint(root, 12, model, tokenizer, {"gradient_step": 120})  # a retry
    assert steps_saved(root) == [2, 10, 11, 12]
    assert load_learner_state(root / "global_step_12") == {"gradient_step": 120}
    assert sorted(p.name for p in root.iterdir()) == [f"global_step_{n}" for n in (10, 11, 12, 2)]


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [flip_a_byte, lambda path: path.unlink(), lambda path: path.write_bytes(b"")],
    ids=["flipped", "missing", "empty"],
)
@pytest.mark.parametrize("name", ["model.safetensors", "learner.pt", "tokenizer.json", SEAL])
def test_damage_is_found_and_told_in_one_line(tmp_path, model, tokenizer, name, damage):
    directory = save_checkpoint(tmp_path, 1, model, tokenizer, {"gradient_step": 1})
    damage(directory / name)
    with pytest.raises(
        TrainingError,
        match=r"missing or damaged; delete .*global_step_1 and later checkpoints to resume from the one before",
    ) as caught:
        load_learner_state(directory)
    assert "\n" not in str(caught.value)


def test_a_damaged_checkpoint_leaves_the_session_as_it_was(tmp_path, session):
    directory = session.save(tmp_path / "run", 1)
    session.learn(*experience(0), step=1)
    twin = again(tmp_path, session)
    twin.learn(*experience(0), step=1)
    flip_a_byte(directory / "model.safetensors")
    with pytest.raises(TrainingError, match=r"model\.safetensors is missing or damaged"):
        session.restore(directory)
    assert_same_bits(session, twin)


def test_pruning_keeps_the_last_two_and_every_nth(tmp_path):
    for step in (1, 2, 3, 4, 6, 7, 8):
        directory = tmp_path / f"global_step_{step}"
        directory.mkdir()
        (directory / SEAL).write_text(json.dumps({"step": step, "files": {}}))
    prune(tmp_path, keep_every=3)
    assert steps_saved(tmp_path) == [3, 6, 7, 8]
    prune(tmp_path, keep_every=3)
    assert steps_saved(tmp_path) == [3, 6, 7, 8]


def test_the_hash_of_a_folder_is_of_names_and_contents(tmp_path):
    def folder(name, **files):
        (tmp_path / name).mkdir()
        for file, content in files.items():
            (tmp_path / name / file).write_text(content)
        return folder_hash(tmp_path / name)

    first = folder("one", a="x", b="y")
    assert first == folder("two", b="y", a="x")
    assert len({first, folder("three", a="y", b="x"), folder("four", a="x"), folder("five", a="x", c="y")}) == 4


@pytest.mark.parametrize("shard", ["5GB", "100KB"])
def test_the_average_is_the_mean_of_all_weights(model, tokenizer, tmp_path, shard):
    shift = (0.0, 0.5, 1.0)
    first = {name: p.detach().clone() for name, p in model.named_parameters()}
    for place, by in enumerate(shift):
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(first[name] + by)
        model.save_pretrained(tmp_path / str(place), max_shard_size=shard)
        tokenizer.save_pretrained(tmp_path / str(place))
    (tmp_path / "2" / "learner.pt").write_text("")
    average_folders([tmp_path / str(place) for place in range(3)], tmp_path / "mean")
    mean = load_model(str(tmp_path / "mean"), "float32")[0]
    assert all(torch.allclose(p, first[name] + 0.5, atol=1e-6) for name, p in mean.named_parameters())
    assert {p.name for p in (tmp_path / "mean").iterdir()} == {p.name for p in (tmp_path / "0").iterdir()}


def test_the_average_of_one_model_and_its_copy_is_the_model(model, tokenizer, tmp_path):
    save_model(model, tokenizer, tmp_path / "a")
    average_folders([tmp_path / "a", tmp_path / "a"], tmp_path / "mean")
    assert folder_hash(tmp_path / "mean") == folder_hash(tmp_path / "a")


def test_another_model_is_not_averaged_with(model, tokenizer, tmp_path):
    save_model(model, tokenizer, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    save_file({"other": torch.zeros(1)}, tmp_path / "b" / "model.safetensors", {"format": "pt"})
    with pytest.raises(TrainingError, match="no checkpoints of one model"):
        average_folders([tmp_path / "a", tmp_path / "b"], tmp_path / "mean")
    (tmp_path / "b" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(TrainingError, match="cannot be averaged"):
        average_folders([tmp_path / "a", tmp_path / "b"], tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_who_serves_a_doctor_stops_where_a_turn_ends(tmp_path, model, tokenizer):
    """A base model's own end is that of a document."""
    end, document = tokenizer.convert_tokens_to_ids(["<|end|>", "<|pad|>"])
    for named, expected in ((document, [document, end]), ([document, end], [document, end]), (end, end), (None, [end])):
        model.generation_config.eos_token_id = named
        save_model(model, tokenizer, tmp_path / "plain")
        save_checkpoint(tmp_path, 1, model, tokenizer, {})
        for folder in ("plain", "global_step_1"):
            saved = json.loads((tmp_path / folder / "generation_config.json").read_text())
            assert saved["eos_token_id"] == expected
        model.generation_config.eos_token_id = named


def test_weights_reach_the_hosts_memory_one_by_one(model, monkeypatch):
    """Those of several ranks are put together on a GPU that may have room for its share alone."""

    class OnAGpu:
        def cpu(self):
            return "here"

    monkeypatch.setattr("rl.checkpoint.named_weights", lambda _: ((name, OnAGpu()) for name in model.state_dict()))
    assert set(_whole_weights(model, keep=True).values()) == {"here"}
