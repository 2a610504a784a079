"""Stored experience: scoring is a pure function of what was recorded, under any preset."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clinic.cases import Case, write_cases
from clinic.consultation import at_once
from clinic.doctors import ReferenceDoctor, at_random
from clinic.rewards import Scorer
from clinic.starter import draw_cases
from doctor.environments import ConsultationFactory, open_factory
from doctor.parameters import ParameterError, load_params
from doctor.reward_recipe import load_reward
from doctor.scoring import accuracy, score_all, step_metrics, weighted_accuracy
from doctor.sources import cases_of_draw
from rl.experience import StopReason, Trajectory, read_trajectories, write_trajectories

PARAMS = load_params()


@pytest.fixture(scope="module")
def factory() -> ConsultationFactory:
    return open_factory(PARAMS, Path("unused"))


@pytest.fixture(scope="module")
def cases(factory: ConsultationFactory) -> list[Case]:
    return list(draw_cases(factory.clinic, 12, 3, PARAMS.patient_cases.split))


def played(factory: ConsultationFactory, case: Case, place: int) -> Trajectory:
    """A consultation of a random asker, as a trajectory of placeholder tokens."""
    doctor = ReferenceDoctor(
        clinic=factory.clinic, case=case, ask=at_random, questions=4, rng=np.random.default_rng(place)
    )
    consultation = factory.consultation(case, 5)
    texts, events = list(consultation.opening()), []
    while True:
        turn = doctor.turn()
        reply = at_once(consultation.step(turn))
        texts.append({"role": "assistant", "content": turn})
        events.append(reply.event.to_json())
        if reply.text is None:
            break
        texts.append({"role": "user", "content": reply.text})
        doctor.hear(reply.event)
    turns = tuple((k, k + 1) for k in range(len(events)))
    size = len(events)
    return Trajectory(
        episode_id=f"{case.case_id}/0",
        case_id=case.case_id,
        group_id=case.case_id,
        sample=0,
        policy_version=0,
        turn_budget=5,
        token_ids=tuple(range(size)),
        logprobs=(0.0,) * size,
        loss_mask=(1,) * size,
        turns=turns,
        texts=tuple(texts),
        events=tuple(events),
        stop_reason="diagnosed",
        privileged={},
        started_s=0.0,
        ended_s=1.0,
    )


def test_stored_experience_scored_again_under_another_preset(
    factory: ConsultationFactory, cases: list[Case], tmp_path: Path
) -> None:
    trajectories = [played(factory, case, i) for i, case in enumerate(cases)]
    write_trajectories(trajectories, tmp_path / "rollout.parquet")
    stored = read_trajectories(tmp_path / "rollout.parquet")
    for preset in ("outcome", "doctoragent"):
        scorer = Scorer(load_reward(preset), [factory.clinic])
        assert score_all(scorer, cases, stored) == score_all(scorer, cases, trajectories)
    given = load_reward("doctoragent")
    scorer = Scorer(given, [factory.clinic])
    right = [
        scores.reward
        for scores, t, case in zip(score_all(scorer, cases, stored), stored, cases, strict=True)
        if accuracy([case], [t]) == 1
    ]
    assert right
    assert right == pytest.approx([given.correct + 4 * given.valid_question + 5 * given.turn] * len(right))


def test_step_metrics_add_up(factory: ConsultationFactory, cases: list[Case]) -> None:
    trajectories = [played(factory, case, i) for i, case in enumerate(cases)]
    scores = score_all(Scorer(load_reward("outcome"), [factory.clinic]), cases, trajectories)
    metrics = step_metrics(cases, trajectories, scores)
    components = sum(
        value
        for name, value in metrics.items()
        if name.startswith("reward/") and name.split("/")[1] not in ("mean", "max", "min", "std")
    )
    assert metrics["reward/mean"] == pytest.approx(components)
    assert metrics["rollout/turns"] == 5
    assert metrics["rollout/valid_questions"] == 1
    assert metrics["rollout/finished"] == 1


def test_every_group_shares_case_and_budget_and_none_shares_noise(
    factory: ConsultationFactory, cases: list[Case]
) -> None:
    rules = PARAMS.consultation.model_copy(update={"turn_budget": -1})
    specs = replace(factory, rules=rules).episodes([*cases, cases[0]], 4, 0, 7)
    budgets: dict[str, set[int]] = {}
    for spec in specs:
        budgets.setdefault(spec.group_id, set()).add(spec.turn_budget)
    assert all(len(found) == 1 for found in budgets.values())
    assert len({found.pop() for found in budgets.values()}) > 1
    assert len({(spec.group_id, spec.sample) for spec in specs}) == len(specs)


def test_the_cases_of_a_step_depend_on_seed_and_step_alone(cases: list[Case]) -> None:
    whole = [case.case_id for step in (1, 2, 3) for case in cases_of_draw(cases, 4, step - 1, 0)]
    assert sorted(whole) == sorted(case.case_id for case in cases)  # one epoch passes every case once
    assert [c.case_id for c in cases_of_draw(cases, 4, 1, 0)] == whole[4:8]
    assert [c.case_id for c in cases_of_draw(cases, 12, 0, 1)] != whole


def test_accuracy_is_of_patients_alone(factory: ConsultationFactory, cases: list[Case]) -> None:
    question = replace(cases[0], case_id="q1", source="questions")
    answer = replace(played(factory, cases[0], 0), case_id="q1")
    assert np.isnan(accuracy([question], [answer]))
    trajectories = [played(factory, case, i) for i, case in enumerate(cases)]
    assert accuracy([*cases, question], [*trajectories, answer]) == accuracy(cases, trajectories)


def test_what_was_not_played_is_missing_and_not_wrong(factory: ConsultationFactory, cases: list[Case]) -> None:
    trajectories = [played(factory, case, i) for i, case in enumerate(cases)]
    silent = replace(trajectories[0], events=(), turns=(), stop_reason="too_long")
    failed = replace(trajectories[1], stop_reason=StopReason.FAILED)
    rest = trajectories[2:]
    assert accuracy(cases, [silent, failed, *rest]) == accuracy(cases, rest) > 0
    assert np.isnan(accuracy(cases, [silent]))
    other = replace(cases[0], source="records")
    weights = {"starter": 1.0, "records": 9.0}
    assert weighted_accuracy([other, *cases[1:]], [silent, *rest], weights) == accuracy(cases, rest)


def test_a_patient_that_a_model_plays_echoes_no_disease_of_the_run(cases: list[Case], tmp_path: Path) -> None:
    write_cases(
        [replace(cases[0], case_id="r1", source="records", diagnosis="Dragon pox", synonyms=("Scale fever",))],
        tmp_path / "cases.parquet",
    )
    known = open_factory(PARAMS, Path("unused"), tmp_path).diseases
    assert {"Dragon pox", "Scale fever", "Pneumonia"} <= known
    assert "Dragon pox" not in open_factory(PARAMS, Path("unused")).diseases


def test_hybrid_matching_without_questions_off_the_record_is_refused() -> None:
    factory = open_factory(PARAMS, Path("unused"))
    chinese = replace(
        factory,
        rules=factory.rules.model_copy(update={"matching": "hybrid"}),
        clinic=replace(factory.clinic, language="zh"),
    )
    with pytest.raises(
        ParameterError, match=r"matching is hybrid, but there is no asking\.yaml for language 'zh' in .*; use lexical"
    ):
        _ = chinese.matcher
