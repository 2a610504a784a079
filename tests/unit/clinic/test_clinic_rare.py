"""Rare conditions on top of the starter clinic, and conditions that exist nowhere."""

from pathlib import Path

import numpy as np
import pytest

from clinic.config import RareParams, SplitParams, StarterParams
from clinic.consultation import at_once
from clinic.errors import ClinicError
from clinic.generative import GenerativeClinic
from clinic.invented import invented_clinic, invented_name, passage
from clinic.lookups import PracticeLibrary, query_of, reading_exercise
from clinic.starter import check_articles, check_worth_learning, draw_cases, load_clinic, load_starter
from doctor.parameters import ROOT, load_params

RARE = RareParams(directory="data/rare", share=0.3)
SPLIT = SplitParams(salt="anamnesis", validation=0.1, test=0.15)


def starter(**changes: object) -> StarterParams:
    return load_params().patient_cases.starter.model_copy(update=changes)


@pytest.fixture(scope="module")
def clinic() -> GenerativeClinic:
    return load_clinic(ROOT, starter(rare=RARE))


def test_rare_conditions_take_their_share_and_change_nothing_else(clinic):
    plain = load_starter(ROOT / "data/starter", 0.8)
    assert [c.condition_id for c in clinic.common.conditions] == [c.condition_id for c in plain.conditions]
    assert clinic.common.conditions == plain.conditions
    assert len(clinic.rare.conditions) == 20
    assert sum(c.held_out for c in clinic.rare.conditions) == 10
    assert clinic.prior_C[len(plain.conditions) :].sum() == pytest.approx(0.3)
    assert clinic.prior_C[: len(plain.conditions)] / 0.7 == pytest.approx(plain.prior_C)
    check_articles(ROOT / "data/rare", clinic.rare)
    assert check_worth_learning(clinic, 300, 11)["no_questions"] < 0.4


def test_a_clinic_without_rare_conditions_is_the_starter_clinic():
    clinic, plain = load_clinic(ROOT, starter()), load_starter(ROOT / "data/starter", 0.8)
    assert clinic.common is clinic
    assert list(draw_cases(clinic, 40, 11, SPLIT)) == list(draw_cases(plain, 40, 11, SPLIT))


def test_a_condition_that_is_held_out_has_test_cases_alone(clinic):
    held_out = {c.condition_id for c in clinic.rare.conditions if c.held_out}
    met = {c.condition_id for c in clinic.rare.conditions if not c.held_out}
    cases = list(draw_cases(clinic, 600, 11, SPLIT))
    assert len(cases) == 600
    assert {case.split for case in cases if case.diagnosis_id in held_out} == {"test"}
    assert {case.split for case in cases if case.diagnosis_id in met} == {"train", "validation", "test"}


def test_rare_conditions_have_findings_and_a_language_of_the_clinic(tmp_path: Path):
    (tmp_path / "rare/conditions").mkdir(parents=True)
    text = (ROOT / "data/rare/conditions/met.yaml").read_text()
    (tmp_path / "rare/conditions/met.yaml").write_text(text.replace("shaky_hands: 0.85", "blue_hands: 0.85"))
    (tmp_path / "data").symlink_to(ROOT / "data")
    with pytest.raises(ClinicError, match="wilsons_disease: finding 'blue_hands' is defined in no file"):
        load_clinic(tmp_path, starter(rare=RareParams(directory="rare", share=0.3)))
    with pytest.raises(ClinicError, match=r"its texts are English, and the clinic is in 'zh'"):
        load_clinic(ROOT, starter(rare=RARE, language="zh"))


def test_invented_names_are_many_and_none_is_taken():
    rng = np.random.default_rng(0)
    names = [invented_name(rng, ["swelling", "headache"]) for _ in range(2000)]
    assert len(set(names)) > 1900
    assert any("swel" in name.lower() or "dach" in name.lower() for name in names)
    assert not {name.lower() for name in names[:50]} & {
        invented_name(np.random.default_rng(0), ["swelling", "headache"], {name.lower() for name in names}).lower()
    }


def test_invented_conditions_follow_from_the_seed(clinic):
    first, again, other = (invented_clinic(clinic.common, 50, (), np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.conditions == again.conditions
    assert not {c.name for c in first.conditions} & {c.name for c in other.conditions}
    said = [passage(first, first.conditions[3], np.random.default_rng(5)).shown for _ in range(2)]
    assert said[0] == said[1]
    assert first.conditions[3].name in said[0]


def test_an_exercise_names_the_line_that_its_chart_fits(clinic):
    invented = invented_clinic(clinic.common, 50, (), np.random.default_rng(1))
    rules = load_params().consultation
    messages = reading_exercise(invented, rules, 3, 2, np.random.default_rng(2))
    assert messages == reading_exercise(invented, rules, 3, 2, np.random.default_rng(2))
    shown = [line for line in messages[1]["content"].splitlines() if line.startswith("[")]
    assert len(shown) == 3
    for message in messages[2::2]:
        named = message["content"].split("Diagnosis: ")[1].splitlines()[0]
        assert sum(named in line for line in shown) == 1


def test_the_practice_library_finds_the_condition_whatever_fits(clinic):
    invented = invented_clinic(clinic.common, 40, (), np.random.default_rng(1))
    found, tells_nothing = invented.conditions[7], "salted pretzels"
    query = query_of(invented, list(found.findings))
    assert len(query.split(", ")) == 6
    for most in (3, 2, 1):
        library = PracticeLibrary(invented, invented.conditions, found, len, np.random.default_rng(3))
        lines = at_once(library.search(tells_nothing, 3, lambda shown, most=most: len(shown) <= most))
        assert len(lines) == most
        assert found.name in [line.title for line in lines]
    without = PracticeLibrary(invented, invented.conditions, None, len, np.random.default_rng(3))
    assert [line.title for line in at_once(without.search(query, 1, lambda _: True))] == [found.name]
