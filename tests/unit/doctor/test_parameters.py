"""params.yaml and recipes: what is committed loads, and a mistake is one clear line."""

from pathlib import Path

import pytest

from doctor.parameters import ROOT, ParameterError, load_params
from doctor.recipe import load_algorithm
from doctor.training import plan_text

PARAMS = (ROOT / "params.yaml").read_text()


def written(tmp_path: Path, old: str, new: str) -> Path:
    assert old in PARAMS
    path = tmp_path / "params.yaml"
    path.write_text(PARAMS.replace(old, new, 1))
    return path


def test_committed_parameters_and_every_recipe_load() -> None:
    params = load_params()
    for recipe in (ROOT / "recipes").glob("*.yaml"):
        chosen = params.model_copy(update={"algorithm": params.algorithm.model_copy(update={"name": recipe.stem})})
        assert load_algorithm(chosen).group_size >= 2


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("seed: 0\n", "seed: 0\nsede: 1\n", ["params.yaml", "sede", "unknown"]),
        ("  steps: ", "  steps: many # ", ["params.yaml", "train_doctor.steps", "many"]),
        ("  turn_budget: 8", "  turn_budget: 0", ["params.yaml", "turn_budget", "0"]),
        ("information: 0.", "information: 2.", ["params.yaml", "information", "correct"]),
        ("test: 0.15", "test: 0.95", ["params.yaml", "no training cases"]),
        ("  name: grpo", "  name: gropo", ["params.yaml", "gropo", "grpo"]),
        ("  choose: average", "  choose: median", ["params.yaml", "choose", "median"]),
        ("  max_tokens: 256", "  max_tokens: 512", ["params.yaml", "max_tokens"]),
        ("  dtype: float32", "  dtype: [", ["params.yaml", "YAML"]),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_key(tmp_path: Path, old: str, new: str, told: list[str]) -> None:
    with pytest.raises(ParameterError) as caught:
        load_algorithm(load_params(written(tmp_path, old, new)))
    message = str(caught.value)
    assert "\n" not in message
    for word in told:
        assert word in message


def test_the_best_checkpoint_must_be_one_that_stays(tmp_path: Path) -> None:
    path = written(tmp_path, "  choose: average", "  choose: best")
    assert load_params(path).train_doctor.choose == "best"
    path.write_text(path.read_text().replace("  keep_every: 5", "  keep_every: 4"))
    with pytest.raises(ParameterError, match=r"params.yaml.*test_freq \(5\).*keep_every \(4\)"):
        load_params(path)


def test_a_reward_component_that_no_preset_has_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recipe = tmp_path / "grpo.yaml"
    recipe.write_text((ROOT / "recipes/grpo.yaml").read_text().replace("own_turn: [information", "own_turn: [informaton"))
    monkeypatch.setattr("doctor.recipe.recipe_path", lambda _: recipe)
    with pytest.raises(ParameterError, match=r"grpo\.yaml: informaton is no reward component; known: accuracy, completeness, diagnosis"):
        load_algorithm(load_params())


def test_scientific_notation_without_a_point_is_a_number(tmp_path: Path) -> None:
    path = written(tmp_path, "learning_rate: 5.0e-4", "learning_rate: 3e-05")
    assert load_params(path).warm_start.sft.learning_rate == 3e-05


def test_a_mini_batch_larger_than_the_rollout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(PARAMS.replace("prompts: 16", "prompts: 1"))
    params = load_params(path)
    if load_algorithm(load_params()).optimizer.mini_batch_size > load_algorithm(load_params()).group_size:
        with pytest.raises(ParameterError, match="mini_batch_size"):
            load_algorithm(params)


def test_the_plan_states_the_accounting() -> None:
    params = load_params()
    text = plan_text(params, load_algorithm(params))
    assert f"= {params.rollout.prompts * load_algorithm(params).group_size} trajectories" in text


def test_what_a_run_takes_of_its_machine_counts_for_no_result(tmp_path: Path) -> None:
    params = load_params(written(tmp_path, "  threads: auto", "  threads: 2"))
    assert params.machines.threads == 2
    assert "machines" not in (ROOT / "dvc.yaml").read_text()
    for wrong in ("0", "many"):
        with pytest.raises(ParameterError, match=r"machines\.threads"):
            load_params(written(tmp_path, "  threads: auto", f"  threads: {wrong}"))
