"""The card beside the weights."""

from dataclasses import replace

from doctor.model_card import model_card
from doctor.parameters import load_params
from tests.unit.doctor.test_patient_calibration import CASE


def test_it_says_what_it_was_made_of_how_good_it_was_and_what_it_is_not_for():
    mine = replace(CASE, source="mine", language="zh", licence="CC BY 4.0")
    card = model_card(load_params(), [CASE, CASE, mine], [CASE] * 200, 0.61)
    assert card.startswith("---\nlanguage: [en, zh]\n")
    assert "# grpo-s0-starter\n" in card
    assert "| accuracy on 200 validation cases | 0.610 [0.541, 0.675] (95%) |" in card
    assert f"| {CASE.source} | en | 2 | {CASE.licence} |\n| mine | zh | 1 | CC BY 4.0 |" in card or (
        f"| mine | zh | 1 | CC BY 4.0 |\n| {CASE.source} | en | 2 | {CASE.licence} |" in card
    )
    assert "no medical device" in card
    assert card == model_card(load_params(), [mine, CASE, CASE], [CASE] * 200, 0.61)
