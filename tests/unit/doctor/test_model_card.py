"""The card beside the weights."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from doctor.model_card import FILE, learned_by, licence_of, model_card
from doctor.parameters import load_params
from doctor.reward_recipe import load_reward
from tests.unit.doctor.test_patient_calibration import CASE

PARAMS = load_params()
MINE = replace(CASE, source="mine", language="zh", licence="CC BY 4.0")


def card(preset="outcome", train=(CASE, CASE, MINE), steps=12, chosen=(12,), **changes):
    params = PARAMS.model_copy(
        update={section: getattr(PARAMS, section).model_copy(update=given) for section, given in changes.items()}
    )
    return model_card(params, load_reward(preset), train, [CASE] * 200, 0.61, steps, chosen)


def test_it_says_what_it_was_made_of_how_good_it_was_and_what_it_is_not_for():
    told = card()
    assert told.startswith("---\nlanguage: [en, zh]\n")
    assert "# grpo-s0-starter\n" in told
    assert "| accuracy on 200 validation cases | 0.610 [0.541, 0.675] (95%) |" in told
    assert f"| {CASE.source} | en | 2 | {CASE.licence} |\n| mine | zh | 1 | CC BY 4.0 |" in told or (
        f"| mine | zh | 1 | CC BY 4.0 |\n| {CASE.source} | en | 2 | {CASE.licence} |" in told
    )
    assert "no medical device" in told
    assert told == card(train=[MINE, CASE, CASE])


@pytest.mark.parametrize(
    ("accuracy", "weights", "told"),
    [
        (122 / 200, {}, "0.610 [0.541, 0.675] (95%)"),
        (122 / 199, {}, "0.613"),  # one could not be played
        (0.9 * 0.5 + 0.1 * 0.3, {CASE.source: 0.9, "mine": 0.1}, "0.480"),
    ],
)
def test_what_is_no_share_of_the_cases_has_no_interval_of_one(accuracy, weights, told):
    plan = PARAMS.train_doctor.model_copy(update={"source_weights": weights})
    params = PARAMS.model_copy(update={"train_doctor": plan})
    card = model_card(params, load_reward("outcome"), [CASE], [CASE] * 200, accuracy, 12, (12,))
    assert f"| accuracy on 200 validation cases | {told} |\n" in card


def test_a_card_is_read_for_how_a_doctor_learned(tmp_path):
    assert learned_by(tmp_path) == {}
    (tmp_path / FILE).write_text(card(steps=8))
    assert learned_by(tmp_path) == {"algorithm": "grpo", "seed": "0"}
    (tmp_path / FILE).write_text("# Some model of a hub\n")
    assert learned_by(tmp_path) == {}


def test_it_tells_the_steps_that_were_played_and_whose_weights_it_has():
    assert "| learned by | `grpo`, 12 rollout steps, seed 0 |\n| weights | `last`: step 12 |\n" in card()
    told = card(steps=8, chosen=(0, 4, 8), train_doctor={"export": "average"})
    assert "| learned by | `grpo`, 8 rollout steps of 12 planned, seed 0 |\n" in told
    assert "| weights | `average`: mean of the warm start, step 4, step 8 |\n" in told


def test_it_tells_the_constants_of_its_reward_and_the_judge_where_one_was_asked():
    told = card()
    assert "| constant of `outcome` | value |\n|---|---|\n| diagnosis_by | posterior |\n" in told
    assert "| correct | 1.0 |\n" in told
    judge = {"reward_judge": SimpleNamespace(model="a judge", temperature=0.0)}
    assert "Judged by `a judge`, temperature 0.\n\n| constant of `weighted` | value |" in card(
        "weighted", language_models=judge
    )
    assert "Judged by" not in card(language_models=judge)


@pytest.mark.parametrize(
    ("readme", "config", "licence"),
    [
        ("---\nlicense: apache-2.0\nlanguage: en\n---\n# A model", "{}", "`apache-2.0`"),
        ("---\nlanguage: en\nlicense:\n- mit\n---\n", "{}", "`mit`"),
        ('---\nlicense: other\nlicense_name: "qwen-research"\n---\n', "{}", "`qwen-research`"),
        (None, '{"license": "cc-by-4.0"}', "`cc-by-4.0`"),
        ("# A model\n\nlicense: none of the front matter\n", '{"license": null}', ""),
        (None, "{}", ""),
    ],
)
def test_the_licence_of_a_folder_is_what_its_files_say(tmp_path, readme, config, licence):
    (tmp_path / "config.json").write_text(config)
    if readme is not None:
        (tmp_path / "README.md").write_text(readme)
    assert licence_of(str(tmp_path)) == licence


def test_a_card_has_the_licence_of_the_base_or_where_it_is_said():
    assert "licence of that model" not in card()
    told = card(warm_start={"base": "Qwen/Qwen2.5-0.5B-Instruct"})
    assert "| licence of that model | as on the page of `Qwen/Qwen2.5-0.5B-Instruct` |\n" in told
