"""No attack on the reward may pay; and the reward that is farmed must be seen to be."""

import pytest

from clinic.attacks import ATTACKS
from clinic.config import CaseSource
from doctor.attacks import NEAREST, STRONG, WEAK, on_imported, on_starter, paid_attacks
from doctor.parameters import ROOT, load_params

CASES = ROOT.parent / "shared/data/cases"
REAL = {"mtmeddialog_cases": ("mtmeddialog_sft_cases.jsonl.gz", 200), "agentclinic": ("agentclinic_medqa.jsonl", 60)}


def test_there_are_attacks_enough():
    assert len(ATTACKS) >= 15


def test_no_attack_earns_what_an_honest_weak_doctor_earns_on_the_starter_clinic():
    table = on_starter(load_params(), 200, ["outcome"])
    assert paid_attacks(table, "outcome") == []
    assert set(ATTACKS) <= set(table)
    assert table[STRONG]["outcome"] > table[WEAK]["outcome"] + 0.2


@pytest.mark.parametrize("name", REAL)
def test_real_cases_pay_honesty_under_outcome_and_attacks_under_token_f1(name: str):
    file, count = REAL[name]
    if not (CASES / file).exists():
        pytest.skip(f"{file} is not beside this checkout")
    source = CaseSource.model_validate({"format": name, "path": str(CASES / file), "cases": 0, "licence": "-"})
    table = on_imported(load_params(), source, count, ["outcome", "doctoragent_f1"])
    assert paid_attacks(table, "outcome") == []
    assert "constant_answer" in paid_attacks(table, "doctoragent_f1")
    assert table["gibberish"]["doctoragent_f1"] > table[NEAREST]["doctoragent_f1"]


def test_a_paid_attack_would_be_seen():
    table = {
        WEAK: {"outcome": 0.4},
        STRONG: {"outcome": 0.9},
        "early_quit": {"outcome": 0.4},
        "noise": {"outcome": 0.39},
    }
    assert paid_attacks(table, "outcome") == ["early_quit"]
