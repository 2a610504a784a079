"""params.yaml and recipes: what is committed loads, and a mistake is one clear line."""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from ruamel.yaml import YAML

from clinic.config import PresetName
from clinic.rewards import PRESETS
from doctor.base_model_recipe import load_base_model_params
from doctor.mistakes import read_yaml
from doctor.parameters import ROOT, ParameterError, chosen, load_params, parse_params
from doctor.recipe import load_algorithm, parse_algorithm
from doctor.reward_recipe import load_reward
from doctor.training import plan_text
from rl.algorithms import ALGORITHMS
from rl.config import VllmParams
from tests.recipes import recipe

PARAMS = (ROOT / "params.yaml").read_text()
TWO_TRAINERS = {
    "address": None,
    "trainers": 2,
    "rollout_workers": 1,
    "model_workers": 0,
    "gpus_per_worker": 0,
    "sharding": "shard",
    "timeout_s": 60,
}


def written(tmp_path: Path, old: str, new: str) -> Path:
    assert old in PARAMS
    path = tmp_path / "params.yaml"
    path.write_text(PARAMS.replace(old, new, 1))
    return path


def test_committed_parameters_and_every_recipe_load() -> None:
    params = load_params()
    assert {path.stem for path in (ROOT / "recipes").glob("*.yaml")} == {*ALGORITHMS, "base_model"}
    for name in ALGORITHMS:
        other = params.model_copy(update={"algorithm": params.algorithm.model_copy(update={"name": name})})
        assert load_algorithm(other).group_size >= 2
    assert (
        {path.stem for path in (ROOT / "recipes/rewards").glob("*.yaml")} == set(PRESETS) == set(get_args(PresetName))
    )
    for name in PRESETS.keys() - {"model", "human"}:  # these ask for a path first
        assert load_reward(name).name == name


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("seed: 0\n", "seed: 0\nsede: 1\n", ["params.yaml", "sede", "unknown", "did you mean seed?"]),
        ("  prompts: 16", "  promts: 16", ["params.yaml: unknown key rollout.promts = 16; did you mean prompts?"]),
        (
            "  prompts: 16",
            "  prompts: 16\n  colour: red",
            ["unknown key rollout.colour = 'red'; known here: prompts, response_length"],
        ),
        (
            "kind: transformers, compile",
            "kind: transformers, compiled",
            ["unknown key rollout.engine.compiled = False; did you mean compile?"],
        ),
        ("kind: transformers", "kind: transformer", ["params.yaml: rollout.engine", "'transformers', 'vllm'"]),
        (
            "preset: outcome",
            "preset: outcom",
            ["params.yaml: reward.preset = 'outcom'", "'weighted', 'model' or 'human'; did you mean outcome?"],
        ),
        ("  steps: ", "  steps: many # ", ["params.yaml", "train_doctor.steps", "many"]),
        ("  turn_budget: 8", "  turn_budget: 0", ["params.yaml", "turn_budget", "0"]),
        ("test: 0.15", "test: 0.95", ["params.yaml", "no training cases"]),
        ("  name: grpo", "  name: gropo", ["params.yaml: algorithm.name is 'gropo'", "did you mean grpo?"]),
        (
            "  export: last",
            "  export: median",
            ["params.yaml: train_doctor.export = 'median'", "'average', 'best' or 'last'"],
        ),
        ("  max_tokens: 256", "  max_tokens: 512", ["params.yaml", "max_tokens"]),
        ("seed: 0", "seed: -1", ["params.yaml: seed = -1", "greater than or equal to 0"]),
        (
            "  project: anamnesis",
            "  project: ../elsewhere",
            ["params.yaml: train_doctor.project = '../elsewhere'", "folder"],
        ),
        ("  experiment: ", "  experiment: /tmp/", ["params.yaml: train_doctor.experiment = '/tmp/", "folder"]),
        ("  compute: float32", "  compute: [", ["params.yaml", "YAML"]),
        ("seed: 0", "seed: true", ["params.yaml: seed = true: write a number"]),
        ("steps: 12", "steps: twelve", ["params.yaml: train_doctor.steps = 'twelve': write a whole number"]),
        ("  imported: []", "  imported: x.csv", ["patient_cases.imported = 'x.csv': write a list, in brackets"]),
        ("  threads: auto", "  threads: lots", ["machines.threads = 'lots': write a whole number, or ", "'auto'"]),
        ("  patient: null", "  patient: gpt", ["language_models.patient = 'gpt': write a mapping"]),
        (
            "  patient: null",
            "  patient: {model: x}",
            ["language_models.patient.device is missing; add it (and 5 more)"],
        ),
        ("learning_rate: 5.0e-4", "learning_rate: .inf", ["warm_start.sft.learning_rate = inf: write a finite number"]),
        ("train: {temperature: 0.5}", "train: {temperature: .inf}", ["decoding.train.temperature = inf: write a"]),
        (
            "temperature: 1.0, instr",
            "temperature: .inf, instr",
            ["warm_start.best_of_n.temperature = inf: write a finite number"],
        ),
        ("timeout_s: 3600", "timeout_s: .inf", ["machines.ray.timeout_s = inf: write a finite number"]),
        ("source_weights: {}", "source_weights: {a: .inf}", ["source_weights.a = inf: write a finite number"]),
        ("  cases: 5000", "  cases: 0", ["params.yaml: (whole file): warm_start.start imitation needs cases"]),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_key(tmp_path: Path, old: str, new: str, told: list[str]) -> None:
    with pytest.raises(ParameterError) as caught:
        load_algorithm(load_params(written(tmp_path, old, new)))
    message = str(caught.value)
    assert "\n" not in message
    for word in told:
        assert word in message


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "params.yaml")
    with pytest.raises(ParameterError, match=r"params\.yaml is not valid YAML: .* name a regular file"):
        load_params(tmp_path / "params.yaml")


def test_a_file_that_is_empty_or_not_there_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("")
    with pytest.raises(ParameterError, match=r"params\.yaml must be a mapping of sections, .*; it is empty"):
        load_params(tmp_path / "params.yaml")
    with pytest.raises(ParameterError, match=r"mine\.yaml does not exist; name another file"):
        load_params(tmp_path / "mine.yaml")


OLD = {
    "base_model: {seed: 1}": "base_model is not read any more; it is recipes/base_model.yaml now",
    "reward: {outcome: {correct: 2.0}}": "reward.outcome is not read any more; it is recipes/rewards/outcome.yaml now",
    "warm_start: {dtype: float32}": "warm_start.dtype is not read any more; it is machines.compute now",
    "rollout: {temperature: 1.0}": "rollout.temperature is not read any more; it is decoding.train.temperature now",
    "evaluate_doctor: {temperature: 1.0}": "evaluate_doctor.temperature is not read any more; it is decoding.evaluate.temperature now",
    "rollout: {vllm: {dtype: float32}}": "rollout.vllm is not read any more; it is rollout.engine, {kind: vllm, ...} now",
    "rollout: {compile: true}": "rollout.compile is not read any more; it is rollout.engine.compile now",
    "warm_start: {focus: .inf}": "warm_start.focus is not read any more; it is warm_start.typicality now",
    "warm_start: {wandering: 0.3}": "warm_start.wandering is not read any more; it is warm_start.unrelated_share now",
    "train_doctor: {choose: last}": "train_doctor.choose is not read any more; it is train_doctor.export now",
    "rollout: {engine: vllm}": "rollout.engine = 'vllm': an engine is a block, .* `python -m commands.profile vllm`",
    "consultation: {patient: {backend: llm, matching: lexical}}": "consultation.patient is not read any more; it is consultation.matching, and language_models.patient",
}


@pytest.mark.parametrize("change", OLD)
def test_a_key_that_has_another_place_is_told_where(change: str, tmp_path: Path) -> None:
    content = read_yaml(ROOT / "params.yaml")
    for section, values in YAML(typ="safe").load(change).items():
        content[section] = content.get(section, {}) | values
    with pytest.raises(ParameterError, match="^params.yaml: " + OLD[change]):
        parse_params(content, ROOT / "params.yaml")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ppo", "trace", "gae_lambda"),
        ("dapo", "dynamic_sampling.max_draws", "dynamic_sampling.max_num_gen_batches"),
        ("grpo", "sampler_correction.bound", "sampler_correction.upper"),
        ("base_model", "minds", "posterior_draws"),
        ("base_model", "minds_weight", "posterior_weight"),
        ("base_model", "reading_focus", "first_phase_typicality"),
        ("base_model", "rounds.0.focus", "rounds.typicality"),
        ("base_model", "rounds.4.checklist_focus", "rounds.checklist_typicality"),
        ("base_model", "rounds.5.minds_weight", "rounds.posterior_weight"),
    ],
)
def test_a_recipe_with_a_key_of_another_name_is_told_which(name: str, old: str, new: str, tmp_path: Path) -> None:
    content = read_yaml(ROOT / "recipes" / f"{name}.yaml")
    *place, last = old.split(".")
    block = content
    for part in place:
        block = block[int(part)] if isinstance(block, list) else block[part]
    block[last] = block.pop(new.split(".")[-1])
    path = tmp_path / f"{name}.yaml"
    YAML(typ="safe").dump(content, path)
    parse = (
        partial(load_base_model_params, None, path)
        if name == "base_model"
        else partial(parse_algorithm, read_yaml(path), load_params(), path)
    )
    with pytest.raises(ParameterError, match=rf"{last} is not read any more; it is {new} now$"):
        parse()


def reward_recipe(monkeypatch: pytest.MonkeyPatch, folder: Path, old: str, new: str) -> None:
    """The outcome recipe with a change, in a project of its own."""
    text = (ROOT / "recipes/rewards/outcome.yaml").read_text()
    assert old in text
    (folder / "recipes/rewards").mkdir(parents=True)
    (folder / "recipes/rewards/outcome.yaml").write_text(text.replace(old, new, 1))
    monkeypatch.setattr("doctor.reward_recipe.ROOT", folder)
    monkeypatch.setattr("doctor.mistakes.ROOT", folder)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "information: 0.9",
            "information: 2.9",
            r"information \(2.9\) must stay below correct \(1\), or asking pays more than diagnosing",
        ),
        ("turn_cost", "turn_costs", r"unknown key turn_costs = 0.0; did you mean turn_cost\?"),
        ("name: outcome", "name: outcomes", "'outcome', 'doctoragent'"),
        (
            "name: outcome",
            "name: human\npath: x #",
            "unknown key information_by = 'expected'; known here: name, path",
        ),
    ],
)
def test_a_mistake_in_a_reward_recipe_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, old: str, new: str, told: str
) -> None:
    reward_recipe(monkeypatch, tmp_path, old, new)
    with pytest.raises(ParameterError, match=f"^recipes/rewards/outcome.yaml: .*{told}") as caught:
        load_reward("outcome")
    assert "\n" not in str(caught.value)


def test_the_constants_of_another_preset_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reward_recipe(monkeypatch, tmp_path, "", "")
    (tmp_path / "recipes/rewards/outcome.yaml").write_bytes((ROOT / "recipes/rewards/weighted.yaml").read_bytes())
    with pytest.raises(
        ParameterError,
        match=r"recipes/rewards/outcome.yaml: name is 'weighted'; it must be that of the file, 'outcome'",
    ):
        load_reward("outcome")


def test_a_cross_encoder_reads_with_the_bundled_embedder_alone(tmp_path: Path) -> None:
    path = written(tmp_path, "  matching: lexical", "  matching: cross_encoder")
    assert load_params(path).consultation.matching == "cross_encoder"
    path.write_text(path.read_text().replace("embedder: all-MiniLM-L6-v2", "embedder: some/other"))
    with pytest.raises(
        ParameterError, match=r"params\.yaml.*cross_encoder reads with all-MiniLM-L6-v2, .* is some/other"
    ):
        load_params(path)


def test_the_best_checkpoint_must_be_one_that_stays(tmp_path: Path) -> None:
    path = written(tmp_path, "  export: last", "  export: best")
    assert load_params(path).train_doctor.export == "best"
    path.write_text(path.read_text().replace("  keep_every: 6", "  keep_every: 4"))
    with pytest.raises(ParameterError, match=r"params.yaml.*test_freq \(6\).*keep_every \(4\)"):
        load_params(path)


def test_a_reward_component_that_no_preset_has_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recipe = tmp_path / "grpo.yaml"
    recipe.write_text(
        (ROOT / "recipes/grpo.yaml").read_text().replace("own_turn: [information", "own_turn: [informaton")
    )
    monkeypatch.setattr("doctor.parameters.recipe_path", lambda _: recipe)
    with pytest.raises(
        ParameterError, match=r"grpo\.yaml: informaton is no reward component; known: accuracy, completeness, diagnosis"
    ):
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


def test_a_kl_horizon_that_could_turn_the_coefficient_negative_is_refused() -> None:
    """A step has 256 trajectories: at most a fifth of the coefficient times 256 / horizon is taken off it."""
    path = ROOT / "recipes/grpo.yaml"
    adapted = {"place": "loss", "coefficient": 0.1, "target": 0.1}
    with pytest.raises(ParameterError, match=r"grpo\.yaml: kl\.horizon is 51 but .* 256 trajectories.*raise it to 256"):
        parse_algorithm(recipe("grpo", kl=adapted | {"horizon": 51}), load_params(), path)
    parse_algorithm(recipe("grpo", kl=adapted | {"horizon": 52}), load_params(), path)
    parse_algorithm(recipe("grpo", kl=adapted | {"horizon": 1, "target": float("inf")}), load_params(), path)


@pytest.mark.parametrize("key", ["kv_cache_gib", "timeout_s"])
def test_vllm_is_given_no_infinite_cache_or_patience(key: str) -> None:
    engine = read_yaml(ROOT / "recipes/profiles/vllm.yaml")["params.yaml"]["rollout"]["engine"]
    assert VllmParams.model_validate(engine)
    with pytest.raises(ValueError, match="finite number"):
        VllmParams.model_validate(engine | {key: float("inf")})


def test_the_plan_states_the_accounting() -> None:
    params = load_params()
    text = plan_text(params, load_algorithm(params))
    assert f"= {params.rollout.prompts * load_algorithm(params).group_size} trajectories" in text


def test_what_a_run_takes_of_its_machine_counts_for_no_result(tmp_path: Path) -> None:
    params = load_params(written(tmp_path, "  threads: auto", "  threads: 2"))
    assert params.machines.threads == 2
    assert {name for name in re.findall(r"machines[.\w]*", (ROOT / "dvc.yaml").read_text()) if name != "machines"} == {
        "machines.compute",
        *(
            f"machines.{name}"
            for name in ("backend", "ray.trainers", "ray.rollout_workers", "ray.model_workers", "ray.sharding")
        ),
    }
    for wrong in ("0", "many"):
        with pytest.raises(ParameterError, match=r"machines\.threads"):
            load_params(written(tmp_path, "  threads: auto", f"  threads: {wrong}"))
    with pytest.raises(
        ParameterError, match=r"backend ray gives every worker so many processors.*set threads to a number"
    ):
        load_params(written(tmp_path, "  backend: local", "  backend: ray"))


def test_what_is_chosen_for_one_run_takes_the_place_of_the_file() -> None:
    params = load_params(changes=chosen("ppo", 3, None))
    assert (params.algorithm.name, params.train_doctor.steps, params.seed) == ("ppo", 3, load_params().seed)
    assert params.run_name == "ppo-s0-starter"
    assert load_params(changes=chosen(None, None, None)) == load_params()
    with pytest.raises(ParameterError, match=r"params.yaml: train_doctor.steps = 0: .*greater than or equal to 1"):
        load_params(changes=chosen(None, 0, None))


@pytest.mark.parametrize(
    ("section", "change", "told"),
    [
        ("rollout", {"engine": {"kind": "transformers", "compile": True}}, "rollout.engine.compile is true"),
        ("rollout", {"ahead": 1}, "rollout.ahead is 1"),
        ("machines", {"compute": "bfloat16"}, "machines.compute is bfloat16 and train_doctor.lora null"),
        ("machines", {"backend": "ray", "threads": 1, "ray": TWO_TRAINERS}, "machines.ray.sharding is shard"),
    ],
)
def test_what_a_privileged_teacher_cannot_do_is_one_line(section: str, change: dict[str, Any], told: str) -> None:
    params = load_params()
    part = getattr(params, section)
    other = params.model_copy(update={section: type(part).model_validate(part.model_dump() | change)})
    path = ROOT / "recipes/ppo_roa.yaml"
    with pytest.raises(ParameterError, match=rf"params.yaml: {told}, which ppo_roa cannot do; set it to \w+, or take"):
        parse_algorithm(recipe("ppo_roa"), other, path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"critic": {"trunk": "shared"}}, "set critic.trunk: own"),
        (
            {"kl": {"place": "loss", "coefficient": 0.1}},
            "kl.place loss: the warm start reads no feature; set kl.place: none",
        ),
        ({"optimizer": {"gradient_checkpointing": True}}, "optimizer.gradient_checkpointing true: several models"),
        ({"optimizer": {"compile": True}}, "optimizer.compile true: copies of compiled layers do not learn"),
    ],
)
def test_what_ppo_roa_is_not_made_for_is_one_line(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        parse_algorithm(recipe("ppo_roa", **change), load_params(), ROOT / "recipes/ppo_roa.yaml")


@pytest.mark.parametrize(("name", "section"), [("ppo_roa", "feature"), ("privileged_distillation", "distillation")])
def test_a_chart_that_no_case_tells_is_one_line(name: str, section: str) -> None:
    told = rf"recipes/{name}.yaml: {section}.chart is 'notes'; known charts: facts, facts_and_diagnosis$"
    with pytest.raises(ParameterError, match=told):
        parse_algorithm(recipe(name, **{section: {"chart": "notes"}}), load_params(), ROOT / f"recipes/{name}.yaml")
