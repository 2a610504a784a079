from dataclasses import replace

import pytest
from pydantic import ValidationError

from clinic.config import SplitParams
from clinic.splits import group_of_facts, sampled, split_of
from clinic.starter import draw_cases


def test_a_split_is_known_from_id_and_salt_alone(split):
    # sha256("anamnesis:g2") / 2**256 = .107, of g11 .225, of g0 .293 ...
    folds = [split_of(f"g{i}", split) for i in range(12)]
    assert [i for i, fold in enumerate(folds) if fold == "test"] == [2, 6, 9]
    assert [i for i, fold in enumerate(folds) if fold == "validation"] == [11]
    assert {split_of(f"g{i}", split) for i in range(200)} == {"train", "validation", "test"}
    other = split.model_copy(update={"salt": "other"})
    assert [split_of(f"g{i}", split) for i in range(200)] != [split_of(f"g{i}", other) for i in range(200)]


def test_shares_are_as_asked(split):
    folds = [split_of(f"group {i}", split) for i in range(20000)]
    assert folds.count("test") / 20000 == pytest.approx(0.15, abs=0.01)
    assert folds.count("validation") / 20000 == pytest.approx(0.10, abs=0.01)


def test_splits_stay_when_cases_are_added(starter, split):
    few = {c.group_id: c.split for c in draw_cases(starter, 150, 11, split)}
    many = {c.group_id: c.split for c in draw_cases(starter, 450, 11, split)}
    strangers = {c.group_id: c.split for c in draw_cases(starter, 150, 99, split)}
    assert few.items() <= many.items()
    assert all(many[group] == strangers[group] for group in many.keys() & strangers.keys())


def test_a_larger_test_share_takes_no_case_back_to_training(split):
    larger = split.model_copy(update={"test": 0.3})
    for i in range(500):
        if split_of(f"g{i}", split) == "test":
            assert split_of(f"g{i}", larger) == "test"


def test_same_condition_and_findings_are_one_group():
    assert group_of_facts("flu", ["cough", "fever"]) == group_of_facts("flu", ["fever", "cough"])
    assert group_of_facts("flu", ["cough"]) != group_of_facts("flu", ["cough", "fever"])
    assert group_of_facts("flu", ["cough"]) != group_of_facts("cold", ["cough"])


def test_training_cases_must_be_left():
    with pytest.raises(ValidationError, match="leaves no training cases"):
        SplitParams(salt="x", validation=0.5, test=0.5)


def test_wordings_of_the_test_split_are_heard_nowhere_else(starter, split):
    findings = {f.finding_id: f for f in starter.findings}
    texts: dict[str, set[str]] = {"train": set(), "validation": set(), "test": set()}
    for case in draw_cases(starter, 400, 11, split):
        for fact in case.facts:
            wordings = findings[fact.topic].patient if fact.present else findings[fact.topic].denial
            assert fact.text in (wordings.test if case.split == "test" else wordings.train)
        texts[case.split] |= {fact.text.lower() for fact in case.facts} | {case.self_report.lower()}
    training = "\n".join(texts["train"] | texts["validation"])
    assert texts["test"]
    assert not [text for text in texts["test"] if f"\n{text}\n" in f"\n{training}\n"]


def test_no_training_wording_contains_a_test_wording(starter):
    for kind in ("patient", "denial", "doctor"):
        training = "\n".join(text for f in starter.findings for text in getattr(f, kind).train).lower()
        heard = [text for f in starter.findings for text in getattr(f, kind).test if text.lower() in training]
        assert heard == []


def test_only_the_kept_splits_are_drawn(starter, split):
    cases = list(draw_cases(starter, 60, 5, split, keep=("validation", "test")))
    assert len(cases) == 60
    assert {c.split for c in cases} == {"validation", "test"}
    assert all(split_of(c.group_id, split) == c.split for c in cases)


def test_a_sample_is_not_the_first_ones_and_stays_when_cases_are_added(starter, split):
    cases = list(draw_cases(starter, 300, 11, split))
    few, many = sampled(cases[:200], 50, "salt"), sampled(cases, 50, "salt")
    assert len(few) == len(many) == 50
    assert few == [case for case in cases if case in few]  # in their order
    assert few != cases[:50]
    assert set(few) - set(many) <= set(few)
    assert [case for case in many if case in cases[:200]] == [case for case in few if case in many]
    assert sampled(list(reversed(cases)), 50, "salt") == list(reversed(many))
    assert sampled(cases, 50, "other") != many
    assert sampled(cases, 1000, "salt") == cases


def test_a_sample_of_two_sources_has_its_share_of_each(starter, split):
    cases = list(draw_cases(starter, 1000, 11, split))
    own = [replace(case, case_id=f"own-{i}") for i, case in enumerate(cases[:250])]
    kept = sampled([*cases, *own], 250, "salt")
    assert sum(case.case_id.startswith("own-") for case in kept) == pytest.approx(50, abs=20)
