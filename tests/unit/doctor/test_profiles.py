"""Reference profiles and the table of other systems' knobs."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from commands.profile import plan
from doctor.base_model_recipe import load_base_model_params
from doctor.parameters import ROOT, ParameterError, load_params
from doctor.profiles import difference, rewritten
from rl.config import TransformersParams, VllmParams


def test_rollout_8192_is_8192_trajectories_and_16_updates() -> None:
    changed = rewritten("rollout_8192")
    text = plan(changed)
    assert "512 cases x 16 samples = 8192 trajectories a rollout step, 16 gradient steps each" in text
    assert "warm-up 20 rollout steps = 320 gradient steps" in text
    diff = "".join(difference(path, content) for path, content in changed.items())
    assert "+  prompts: 512" in diff
    assert "#" in changed[ROOT / "params.yaml"]  # comments stay


def test_a_profile_changes_the_lines_that_it_names_and_no_other() -> None:
    path = ROOT / "params.yaml"
    lines = zip(path.read_text().splitlines(), rewritten("own_cases")[path].splitlines(), strict=True)
    changed = [[line.split(":")[0].strip() for line in pair] for pair in lines if pair[0] != pair[1]]
    keys = [
        "start",
        "best_of_n",
        "base",
        "sft",
        "cases",
        "instructions",
        "matching",
        "searches_every",
        "experiment",
        "response_length",
        "max_episode_tokens",
        "slots",
        "min_cases",
    ]
    assert changed == [[key, key] for key in keys]


def test_ppo_two_phase_parses() -> None:
    text = rewritten("ppo_two_phase")
    params = YAML(typ="safe").load(text[ROOT / "params.yaml"])
    assert (
        params["rollout"]["response_length"],
        params["decoding"]["train"]["temperature"],
        params["rollout"]["slots"],
    ) == (1300, 0.5, 8)
    assert YAML(typ="safe").load(text[ROOT / "recipes/ppo.yaml"])["optimizer"]["num_epochs"] == 3
    assert "gradient steps each" in plan(text)


def test_the_command_shows_and_writes_nothing() -> None:
    before = (ROOT / "params.yaml").read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "commands.profile", "rollout_8192"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "8192 trajectories" in done.stdout
    assert "nothing was written" in done.stdout
    assert (ROOT / "params.yaml").read_bytes() == before
    wrong = subprocess.run([sys.executable, "-m", "commands.profile", "nope"], cwd=ROOT, capture_output=True, text=True)
    assert wrong.returncode == 1
    assert (
        wrong.stderr.strip()
        == "error: there is no profile 'nope'; choose one of: chinese, own_cases, ppo_two_phase, rare, rollout_8192, transformers, vllm"
    )


def test_a_profile_with_an_unknown_key_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("params.yaml", "recipes/ppo.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "recipes/profiles").mkdir()
    profile = tmp_path / "recipes/profiles/x.yaml"
    profile.write_text("params.yaml: {algorithm: {name: ppo}, rollout: {prompt: 3}}\n")
    monkeypatch.setattr("doctor.profiles.ROOT", tmp_path)
    with pytest.raises(ParameterError, match=r"x\.yaml: rollout\.prompt is not in params\.yaml"):
        rewritten("x")
    profile.write_text("recipes/ppe.yaml: {group_size: 3}\n")
    with pytest.raises(ParameterError, match=r"x\.yaml: there is no file recipes/ppe\.yaml"):
        rewritten("x")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seed: [\n", "params.yaml is not valid YAML: "),
        ("", "params.yaml must be a mapping of sections, .*; it is empty"),
        ("seed: 0\nseed: 1\n", "params.yaml is not valid YAML: .*seed"),
        (None, "x.yaml: there is no file params.yaml; restore it with `git checkout params.yaml`"),
    ],
)
def test_a_file_that_cannot_be_overlaid_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None, told: str
) -> None:
    (tmp_path / "recipes/profiles").mkdir(parents=True)
    (tmp_path / "recipes/profiles/x.yaml").write_text("params.yaml: {seed: 3}\n")
    if text is not None:
        (tmp_path / "params.yaml").write_text(text)
    monkeypatch.setattr("doctor.profiles.ROOT", tmp_path)
    with pytest.raises(ParameterError, match=told):
        rewritten("x")


@pytest.mark.parametrize("path", sorted((ROOT / "recipes/profiles").glob("*.yaml")), ids=lambda path: path.stem)
def test_what_a_committed_profile_would_write_parses(path: Path) -> None:
    assert "gradient steps each" in plan(rewritten(path.stem))


def test_an_engine_takes_the_other_ones_place_as_a_whole_and_gives_it_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "recipes").mkdir()
    shutil.copytree(ROOT / "recipes/profiles", tmp_path / "recipes/profiles")
    (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    monkeypatch.setattr("doctor.profiles.ROOT", tmp_path)
    before = load_params(tmp_path / "params.yaml")
    for name, kind in (("vllm", VllmParams), ("transformers", TransformersParams)):
        (tmp_path / "params.yaml").write_text(rewritten(name)[tmp_path / "params.yaml"])
        params = load_params(tmp_path / "params.yaml")
        assert isinstance(params.rollout.engine, kind)
    assert params == before


def test_the_chinese_profile_makes_a_base_model_of_its_own(tmp_path: Path) -> None:
    changed = rewritten("chinese")
    (tmp_path / "base_model.yaml").write_text(changed[ROOT / "recipes/base_model.yaml"])
    recipe = load_base_model_params(None, tmp_path / "base_model.yaml").base_model
    assert (recipe.cases, len(recipe.rounds), recipe.rounds[0].sft.learning_rate, recipe.rounds[0].sft.seed) == (
        4000,
        1,
        3e-3,
        2,
    )


def test_every_knob_named_in_the_docs_exists() -> None:
    """Keys in the third column of the table, in params.yaml, with either engine, or in some recipe."""
    params, with_vllm = (
        YAML(typ="safe").load(text) for text in (ROOT / "params.yaml", rewritten("vllm")[ROOT / "params.yaml"])
    )
    recipes = [YAML(typ="safe").load(path) for path in (ROOT / "recipes").glob("*.yaml")]

    def there(content: object, key: str) -> bool:
        for part in key.split("."):
            if not isinstance(content, dict) or part not in content:
                return False
            content = content[part]
        return True

    rows = [
        line.split("|")[1:-1]
        for line in (ROOT / "docs/how-to/knobs-of-other-systems.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    named = [key for row in rows for key in re.findall(r"`([^`]+)`", row[2])]
    assert len(named) > 25
    for key in named:
        found = (
            any(there(recipe, key.removeprefix("recipe:")) for recipe in recipes)
            if key.startswith("recipe:")
            else there(params, key) or there(with_vllm, key)
        )
        assert found, key
    theirs = {name for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
    assert theirs >= {
        "train_batch_size",
        "n_agent",
        "adv_estimator",
        "max_turns",
        "use_env_llm",
        "ppo_mini_batch_size",
        "kl_coef",
        "n_gpus_per_node",
        "nnodes",
        "tensor_parallel_size",
        "gpu_memory_utilization",
        "response_length",
        "temperature",
        "local_rollout_forward_batch_size",
        "num_ppo_epochs",
    }
