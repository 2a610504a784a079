"""What the page of an evaluation says of the doctor."""

import pytest

from doctor.model_card import FILE
from doctor.parameters import load_params
from tasks import report


@pytest.mark.parametrize(
    ("card", "told"),
    [
        ("| learned by | `ppo`, 3 rollout steps, seed 1 |", {"algorithm": "ppo", "seed": "1"}),
        ("# A checkpoint, or another model", {}),
    ],
)
def test_how_a_doctor_learned_is_what_its_card_says_whatever_the_parameters_are_now(tmp_path, monkeypatch, card, told):
    monkeypatch.setattr(report, "input_hash", lambda *_: "f" * 64)
    (tmp_path / FILE).write_text(card)
    facts = report._facts(load_params(), {"models/doctor": tmp_path})
    assert {name: facts[name] for name in ("algorithm", "seed") if name in facts} == told
    assert (facts["reward"], facts["all inputs"]) == ("outcome", "sha256 ffffffffffff")
    assert facts["doctor"].startswith(f"{tmp_path.name}, sha256 ")
