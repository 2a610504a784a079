import asyncio
import itertools
import re

import numpy as np
import pytest

from clinic.actions import Kind, parse
from clinic.consultation import Consultation
from clinic.diagnoses import relation
from clinic.dialogues import (
    CHECKLIST_QUESTIONS,
    asides,
    at_once,
    chart_dialogue,
    chart_excerpt,
    chart_interview,
    checklist,
    final_turn,
    hasty,
    hurried,
    resident_dialogue,
)
from clinic.doctors import ReferenceDoctor, anchored, at_random, chasing, greedy, resident
from clinic.events import Asked, Diagnosed, Searched
from clinic.metrics import (
    WITHOUT_A_TURN,
    Missing,
    answer_first,
    by_category,
    mcnemar,
    measure,
    paired,
    placed,
    rouge_l,
    summarise,
)
from clinic.patients.scripted import ScriptedPatient
from clinic.starter import draw_cases
from clinic.tables import Comparison, Interval, McNemar

RESIDENT = resident(0.5, aloud=False)
ASK = {
    "greedy": greedy,
    "random": at_random,
    "chasing": lambda *a: chasing(*a[:-1], 1.0, a[-1]),
    "resident": resident(0.5, aloud=True),
}


def play(clinic, matcher, rules, case, ask, questions, seed, wordings="train"):
    doctor = ReferenceDoctor(
        clinic=clinic, case=case, ask=ask, questions=questions, rng=np.random.default_rng(seed), wordings=wordings
    )
    consultation = Consultation(case, ScriptedPatient(case, matcher.match), rules, questions + 1, None)
    events = []
    while True:
        reply = at_once(consultation.step(doctor.turn()))
        events.append(reply.event)
        if reply.text is None:
            return events
        doctor.hear(reply.event)


@pytest.fixture(scope="module")
def patients(starter, split):
    return list(draw_cases(starter, 120, 77, split))


def accuracy(starter, starter_matcher, rules, patients, ask, questions):
    played = [play(starter, starter_matcher, rules, case, ask, questions, i) for i, case in enumerate(patients)]
    return np.mean(
        [relation(case, events[-1].diagnosis) == "exact" for case, events in zip(patients, played, strict=True)]
    )


def test_greedy_beats_the_others_and_asking_beats_not_asking(starter, starter_matcher, rules, patients):
    share = {name: accuracy(starter, starter_matcher, rules, patients, ask, 7) for name, ask in ASK.items()}
    share["none"] = accuracy(starter, starter_matcher, rules, patients, greedy, 0)
    assert share["greedy"] > share["random"] + 0.2
    assert share["greedy"] > share["resident"] + 0.05
    assert share["random"] >= share["none"] - 0.05
    assert share["none"] <= 0.45


@pytest.mark.parametrize("name", ASK)
@pytest.mark.parametrize("wordings", ["train", "test"])
def test_reference_doctors_keep_the_grammar_and_never_repeat(starter, starter_matcher, rules, patients, name, wordings):
    known = {f.doctor.of(wordings)[0] for f in starter.findings}  # one standard question for each
    for i, case in enumerate(patients[:10]):
        events = play(starter, starter_matcher, rules, case, ASK[name], 9, i, wordings)
        assert [type(event) for event in events] == [Asked] * 9 + [Diagnosed]
        assert not any(event.repeated or event.topic is None or event.text not in known for event in events[:-1])
        assert events == play(starter, starter_matcher, rules, case, ASK[name], 9, i, wordings)


def test_greedy_asks_the_most_telling_open_question(toy):
    posterior, rng = toy.posterior([], {}), np.random.default_rng(0)
    gain = toy.information_gain(posterior)
    assert greedy(toy, posterior, np.ones(4, dtype=bool), rng) == gain.argmax()
    only = np.array([False, False, True, True])
    assert greedy(toy, posterior, only, rng) == 2 + gain[2:].argmax()
    assert {at_random(toy, posterior, only, rng) for _ in range(40)} == {2, 3}
    assert all(chasing(toy, posterior, np.array([False, False, False, True]), 1.0, rng).column == 3 for _ in range(20))


def test_the_resident_asks_for_what_is_most_typical_and_still_open_of_the_illness_in_mind(starter):
    rng = np.random.default_rng(0)
    for row, condition in enumerate(starter.conditions):
        sure = np.eye(len(starter.conditions))[row]
        open_F = np.ones(len(starter.findings), dtype=bool)
        asked = []
        for _ in condition.findings:
            chase = chasing(starter, sure, open_F, np.inf, rng)
            assert chase.condition == condition.name
            asked.append(condition.findings[starter.findings[chase.column].finding_id])
            open_F[chase.column] = False
        assert asked == sorted(condition.findings.values(), reverse=True)
        assert open_F[chasing(starter, sure, open_F, np.inf, rng).column]
    sure = np.eye(len(starter.conditions))[0]
    everything = np.ones(len(starter.findings), dtype=bool)
    minds = [
        resident(0.0, aloud=True, unrelated_share=w)(starter, sure, everything, rng).condition
        for w in (0.0, 0.5)
        for _ in range(200)
    ]
    assert set(minds[:200]) == {starter.conditions[0].name}
    assert 0.4 < np.mean([name == starter.conditions[0].name for name in minds[200:]]) < 0.6


def test_a_resident_who_thinks_aloud_names_the_illness_it_chases_and_the_patient_does_not_hear(
    starter, starter_matcher, rules, patients
):
    typical = {
        f"{c.name}?": {w for f in starter.findings if f.finding_id in c.findings for w in f.doctor.train}
        for c in starter.conditions
    }
    thoughts = silent = 0
    for i, case in enumerate(patients[:40]):
        aloud, quiet = (
            resident_dialogue(
                starter, case, starter_matcher, rules, resident(0.5, aloud=a), np.random.default_rng(i), to_the_end=True
            )
            for a in (True, False)
        )
        assert [m["content"] for m in aloud if m["role"] == "user"] == [
            m["content"] for m in quiet if m["role"] == "user"
        ]
        for turn in [m["content"] for m in aloud if m["role"] == "assistant"][:-1]:
            thought = re.match("<think>Diagnosis: (.*)</think>", turn)
            thoughts += thought is not None
            silent += thought is None
            assert thought is None or parse(turn).text in typical[thought[1]]
    assert 0.4 < thoughts / (thoughts + silent) < 0.6


def test_a_fixed_idea_stays_and_is_chased_to_its_end(starter, starter_matcher, rules, patients):
    ideas = []
    for i, case in enumerate(patients[:200]):
        rng = np.random.default_rng(i)
        opening = [starter.finding_index[topic] for topic in case.opening]
        ask = anchored(starter, opening, 1.0, 0.3, rng)
        turns = [
            m["content"]
            for m in resident_dialogue(starter, case, starter_matcher, rules, ask, rng, to_the_end=True)
            if m["role"] == "assistant"
        ][:-1]
        (thought,) = {turn.partition("<answer>")[0] for turn in turns}
        (idea,) = [c for c in starter.conditions if f"<think>Diagnosis: {c.name}?</think>" == thought]
        asked = [parse(turn).text for turn in turns]
        typical = {
            starter.findings[starter.finding_index[f]].doctor.train[0]
            for f in idea.findings
            if starter.finding_index[f] not in opening
        }
        assert len(set(asked)) == len(asked)
        assert len(typical & set(asked)) == min(len(typical), len(asked))
        ideas.append(
            (starter.posterior(opening, {})[starter.condition_index[idea.condition_id]], 1 / len(starter.conditions))
        )
    believed, by_chance = np.array(ideas).mean(axis=0)
    assert 0.1 < believed < 0.3
    assert believed > 4 * by_chance


def test_the_residents_dialogues_end_in_the_chart_diagnosis(starter, starter_matcher, rules, patients):
    lengths = set()
    for i, case in enumerate(patients[:40]):
        messages = resident_dialogue(starter, case, starter_matcher, rules, RESIDENT, np.random.default_rng(i))
        assert [m["role"] for m in messages] == ["system", *["user", "assistant"] * ((len(messages) - 1) // 2)]
        turns = [parse(m["content"]) for m in messages if m["role"] == "assistant"]
        assert [t.kind for t in turns] == [Kind.QUESTION] * (len(turns) - 1) + [Kind.DIAGNOSIS]
        assert turns[-1].text == case.diagnosis
        assert messages[-2]["content"].endswith(f"({rules.turn_budget - len(turns) + 1} left)")
        lengths.add(len(turns))
    assert lengths == set(range(1, rules.turn_budget + 1))


def test_asides_chase_the_chart_diagnosis_and_never_what_was_told(starter, starter_matcher, rules, patients):
    columns = {wording: f.finding_id for f in starter.findings for wording in f.doctor.train}
    for i, case in enumerate(patients[:40]):
        dialogue = resident_dialogue(
            starter, case, starter_matcher, rules, RESIDENT, np.random.default_rng(i), to_the_end=True
        )
        typical = starter.conditions[starter.condition_index[case.diagnosis_id]].findings
        told = set(case.opening)
        turns = [m["content"] for m in dialogue if m["role"] == "assistant"]
        said = asides(starter, case, starter_matcher, dialogue, 1, np.random.default_rng(i))
        assert len(said) == len(turns) - 1
        for aside, turn in zip(said, turns[:-1], strict=True):
            assert aside.chase.startswith(f"<think>Diagnosis: {case.diagnosis}?</think>")
            left = set(typical) - told
            action = parse(aside.chase)
            assert (action.kind is Kind.QUESTION) == bool(left)
            if left:
                assert columns[action.text] in left
            told.add(columns[parse(turn).text])


def test_what_comes_to_mind_follows_the_posterior(starter, starter_matcher, rules, patients):
    case = patients[0]
    dialogue = resident_dialogue(
        starter, case, starter_matcher, rules, RESIDENT, np.random.default_rng(0), to_the_end=True
    )
    opening, answers = [starter.finding_index[topic] for topic in case.opening], {}
    present = {fact.topic: fact.present for fact in case.facts}
    asked = [starter_matcher.match(parse(m["content"]).text) for m in dialogue if m["role"] == "assistant"][:-1]
    for aside, topic in zip(
        asides(starter, case, starter_matcher, dialogue, 4000, np.random.default_rng(0)), asked, strict=True
    ):
        assert sum(aside.minds.values()) == pytest.approx(1)
        shares = np.array([aside.minds.get(c.name, 0.0) for c in starter.conditions])
        np.testing.assert_allclose(shares, starter.posterior(opening, answers), atol=0.04)
        answers[starter.finding_index[topic]] = present[topic]


def test_charts_and_excerpts_tell_true_facts_only(patients, rules):
    for i, case in enumerate(patients[:20]):
        chart = chart_dialogue(case, rules)
        present = [fact.text for fact in case.facts if fact.present]
        assert chart[1]["content"] == f"Chart: {'; '.join(present)}. (1 left)"
        assert chart[-1] == final_turn(case)
        told = chart_excerpt(case, 6, np.random.default_rng(i))
        assert len(case.opening) <= len(told) <= len(case.opening) + 6
        assert set(told) <= set(case.facts)
        assert {fact.topic for fact in told[: len(case.opening)]} == set(case.opening)


def test_a_checklist_has_each_question_of_an_illness_once(starter, rules):
    orders = set()
    for seed in range(5):
        for condition in starter.conditions:
            messages = checklist(starter, condition, rules, 0.0, np.random.default_rng(seed))
            turns = [m["content"] for m in messages if m["role"] == "assistant"]
            known = {starter.findings[starter.finding_index[f]].doctor.train[0] for f in condition.findings}
            asked = [parse(turn).text for turn in turns]
            assert len(asked) == len(set(asked)) == min(len(known), CHECKLIST_QUESTIONS)
            assert set(asked) <= known
            assert {turn.partition("<answer>")[0] for turn in turns} == {f"<think>Diagnosis: {condition.name}?</think>"}
            assert [m["content"] for m in messages if m["role"] == "user"] == ["Checklist.", *[""] * (len(turns) - 1)]
            orders.add((condition.name, tuple(asked)))
    assert len(orders) == 5 * len(starter.conditions)


def test_a_checklist_with_focus_goes_from_typical_to_rare(starter, rules):
    for condition in starter.conditions:
        messages = checklist(starter, condition, rules, np.inf, np.random.default_rng(0))
        findings = {f.doctor.train[0]: f.finding_id for f in starter.findings}
        asked = [condition.findings[findings[parse(m["content"]).text]] for m in messages if m["role"] == "assistant"]
        assert asked == sorted(condition.findings.values(), reverse=True)[:CHECKLIST_QUESTIONS]


def test_a_chart_interview_fills_the_budget_and_asks_for_what_is_there(starter, starter_matcher, rules, patients):
    def answers(messages):
        return [m["content"].split(" (")[0] for m in messages[2:] if m["role"] == "user"]

    read, asked = [], []
    for i, case in enumerate(patients[:60]):
        messages = chart_interview(starter, case, starter_matcher, rules, 0.0, np.random.default_rng(i))
        assert messages[-1] == final_turn(case)
        assert len(answers(messages)) == len(set(answers(messages))) == rules.turn_budget - 1
        read += answers(messages)
        asked += answers(
            resident_dialogue(
                starter, case, starter_matcher, rules, RESIDENT, np.random.default_rng(i), to_the_end=True
            )
        )
    yes = [np.mean([text.startswith("Yes") for text in texts]) for texts in (read, asked)]
    assert 0.4 < yes[0] < 0.65
    assert yes[1] < yes[0] - 0.15
    again = [
        answers(chart_interview(starter, case, starter_matcher, rules, 0.3, np.random.default_rng(i)))
        for i, case in enumerate(patients[:60])
    ]
    assert 0.15 < 1 - np.mean([len(set(texts)) / len(texts) for texts in again]) < 0.35


def test_hurried_notes_keep_words_and_say_something():
    rng = np.random.default_rng(0)
    text = "a burning rises up from my stomach"
    notes = [hasty(text, 0.3, rng) for _ in range(300)]
    assert all(set(note.split()) <= set(text.split()) and note for note in notes)
    assert 0.6 < np.mean([len(note.split()) / 7 for note in notes]) < 0.8
    in_order = np.mean(
        [
            [text.split().index(w) for w in note.split()] == sorted(text.split().index(w) for w in note.split())
            for note in notes
        ]
    )
    assert 0.4 < in_order < 0.65
    assert hasty("pain", 0.99, rng) == "pain"


def test_a_hurried_patient_keeps_yes_and_no_and_the_count(starter, starter_matcher, rules, patients):
    rng = np.random.default_rng(0)
    for i, case in enumerate(patients[:10]):
        dialogue = resident_dialogue(
            starter, case, starter_matcher, rules, RESIDENT, np.random.default_rng(i), to_the_end=True
        )
        noisy = hurried(dialogue, 0.5, rng)
        assert [m for m in noisy if m["role"] != "user"] == [m for m in dialogue if m["role"] != "user"]
        for before, after in zip(dialogue, noisy, strict=True):
            if before["role"] == "user":
                assert before["content"].split(" (")[1] == after["content"].split(" (")[1]
                assert before["content"].split(",")[0] in ("Yes", "No") or before == dialogue[1]
                assert before == dialogue[1] or before["content"].split(",")[0] == after["content"].split(",")[0]
                assert set(after["content"].split()) <= set(before["content"].split())
    assert sum(len(m["content"]) for m in noisy) < sum(len(m["content"]) for m in dialogue)


def test_a_coroutine_that_waits_is_refused():
    coroutine = asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="must answer without waiting"):
        at_once(coroutine)
    coroutine.close()


def asked(topic, repeated=False):
    return Asked(text="?", topic=topic, present=True, repeated=repeated)


def test_measures_of_one_consultation_by_hand(make_case):
    events = [asked("cough"), asked("cough", repeated=True), asked(None), Searched("x"), Diagnosed("Lung infection")]
    row = measure(make_case(), events, 0.7, None, ["Asthma", "Flu", "Pneumonia", "Gout"])
    assert row == {
        "accuracy": 1.0,
        "accepted_parent": 1.0,
        "top3": 1.0,
        "reward": 0.7,
        "turns": 5.0,
        "tokens": None,
        "valid_question_rate": pytest.approx(1 / 3),
        "fact_recall": 0.5,
        "red_flags_missed": None,
        "searches": 1.0,
        "searches_found": 0.0,
        "searches_repeated": 0.0,
        "recommendation": 0.0,
        "judge_diagnosis": None,
        "judge_recommendation": None,
        "combined": None,
        "dei": None,
        "unplaced": None,
    }
    parent = measure(make_case(), [Diagnosed("chest disease")], 0.0, 12, [])
    assert (
        parent["accuracy"],
        parent["accepted_parent"],
        parent["top3"],
        parent["valid_question_rate"],
        parent["tokens"],
    ) == (0.0, 1.0, None, None, 12.0)
    summary = summarise({"a": row, "b": parent}, 0.0)
    assert summary.mean("accuracy") == 0.5
    assert summary.accuracy.low <= 0.5 <= summary.accuracy.high
    assert summarise({"b": parent}, 0.0).measures["top3"] is None


def test_recommendation_combined_and_dei_by_hand(make_case):
    """Two turns of 30 tokens in all; the advice shares 2 words in order of 3 and 4; the judge gives 5 and 3 of 5."""
    events = [asked("cough"), Diagnosed("Pneumonia", "An X-ray, today")]
    row = measure(
        make_case(recommendation="X-ray of the chest"), events, 0.0, 30, [], {"diagnosis": 1.0, "recommendation": 0.6}
    )
    advice = 2 * 2 / (4 + 5)  # an x ray today; x ray of the chest
    assert row["recommendation"] == pytest.approx(advice)
    assert (row["judge_diagnosis"], row["judge_recommendation"]) == (1.0, 0.6)
    combined = ((1.0 + advice) / 2 + (1.0 + 0.6) / 2) / 2
    assert row["combined"] == pytest.approx(combined)
    assert row["dei"] == pytest.approx(combined**2 / (2 + 0.01 * 15))


@pytest.mark.parametrize(
    ("given", "true", "score"),
    [
        ("a b c", "a x c", 2 / 3),
        ("", "a", 0.0),
        ("a", "", 0.0),
        ("c b a", "a b c", 1 / 3),
        ("胸片", "拍胸片", 4 / 5),
        ("A-b", "a b", 1.0),
    ],
)
def test_rouge_l_by_hand(given, true, score):
    assert rouge_l(given, true) == pytest.approx(score)


def test_an_episode_without_a_turn_is_missing_not_wrong(make_case):
    assert measure(make_case(), [], None, 0, []) is WITHOUT_A_TURN


RIGHT = [Diagnosed("Pneumonia")]


def test_missing_consultations_are_named_counted_and_in_no_mean(make_case):
    right = measure(make_case(), RIGHT, 1.0, 5, [])
    played = {str(i): right for i in range(99)} | {"cut": WITHOUT_A_TURN}
    summary = summarise(played, 0.02)
    assert (summary.cases, summary.missing, summary.withheld) == (100, {"cut": "without a turn"}, None)
    assert (summary.mean("accuracy"), summary.mean("turns")) == (1.0, 1.0)


@pytest.mark.parametrize(("missing", "shown"), [(1, True), (2, True), (3, False)])
def test_more_than_two_percent_missing_are_not_shown_as_a_number(make_case, missing, shown):
    right = measure(make_case(), RIGHT, 1.0, 5, [])
    summary = summarise({str(i): WITHOUT_A_TURN if i < missing else right for i in range(100)}, 0.02)
    assert (summary.accuracy is not None, summary.withheld is None) == (shown, shown)
    assert len(summary.missing) == missing
    if not shown:
        assert summary.withheld == "n/a: 3% without a turn"
        assert not any(summary.measures.values())


def test_each_category_is_withheld_by_its_own_missing_cases(make_case):
    right = measure(make_case(), RIGHT, 1.0, 5, [])
    cases = [make_case(case_id=str(i), category="a" if i < 50 else "b") for i in range(100)]
    table = by_category(cases, [right] * 98 + [WITHOUT_A_TURN, Missing("failed")], 0.02)
    assert table.overall.missing == {"98": "without a turn", "99": "failed"}
    assert table.overall.mean("accuracy") == table.categories["a"].mean("accuracy") == 1.0
    assert table.categories["b"].withheld == "n/a: 2% failed, 2% without a turn"
    assert not table.categories["a"].missing


def test_the_paired_comparison_by_hand(make_case):
    right, wrong = ([Diagnosed(name)] for name in ("Pneumonia", "Gout"))
    first = [measure(make_case(), events, 1.0, 5, []) for events in (right, right, right, wrong, right)]
    second = [measure(make_case(), events, 0.5, 5, []) for events in (right, wrong, wrong, wrong, wrong)]
    comparison = paired(first, second, 0.0)
    assert comparison.measures["accuracy"].mean == 0.6
    assert comparison.mcnemar == McNemar(3, 0, 0.25)
    assert comparison.measures["reward"] == Interval(0.5, 0.5, 0.5)
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(8, 2) == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert paired(first, first, 0.0).measures["accuracy"].mean == 0.0


def test_pairs_that_either_misses_are_left_out_and_too_many_are_not_compared(make_case):
    right, wrong = (measure(make_case(), [Diagnosed(name)], 1.0, 5, []) for name in ("Pneumonia", "Gout"))
    first, second = [right, right, WITHOUT_A_TURN, right], [wrong, right, wrong, WITHOUT_A_TURN]
    assert paired(first, second, 0.5).mcnemar == McNemar(1, 0, 1.0)
    assert paired(first, second, 0.5).measures["accuracy"].mean == 0.5
    assert paired(first, second, 0.4) == Comparison({}, None)


def test_the_first_three_names_hold_the_answer_given(starter):
    order = starter.conditions[:5]
    names = [condition.name for condition in order]
    assert answer_first(order, None) == names
    assert answer_first(order, names[4]) == [names[4], *names[:4]]
    synonym = next(condition for condition in starter.conditions if condition.synonyms)
    assert answer_first([order[0], synonym], synonym.synonyms[0])[0] == synonym.synonyms[0]
    assert synonym.name not in answer_first([order[0], synonym], synonym.synonyms[0])
    assert answer_first(order, "nonsense") == ["nonsense", *names]


def test_a_right_answer_that_the_ranking_puts_fourth_is_in_the_first_three(make_case, starter):
    others = [condition for condition in starter.conditions if condition.name not in ("Pneumonia", "Gout")][:3]
    row = measure(make_case(), RIGHT, 0.0, 5, answer_first(others, "Pneumonia"))
    assert (row["accuracy"], row["top3"]) == (1.0, 1.0)


def test_answers_that_are_no_name_of_a_known_disease_are_counted(make_case):
    known = frozenset({"gout"})

    def unplaced(name):
        return measure(make_case(), [Diagnosed(name)], 0.0, 5, [], None, known)["unplaced"]

    named = {name: unplaced(name) for name in ("Pneumonia", "chest disease", "GOUT", "a bad back")}
    assert named == {"Pneumonia": 0.0, "chest disease": 0.0, "GOUT": 0.0, "a bad back": 1.0}
    assert measure(make_case(), [asked("cough")], 0.0, 5, [], None, known)["unplaced"] is None
    assert placed(make_case(), "Gout", known)


def test_a_reference_doctor_asks_again_for_what_was_withheld(starter, starter_matcher, rules, patients):
    from dataclasses import replace

    shy = [replace(case, persona="reluctant") for case in patients[:20]]
    withheld = again = 0
    for case in shy:
        events = play(starter, starter_matcher, rules.model_copy(update={"turn_budget": 20}), case, greedy, 15, 0)
        assert len(events) == 16
        for first, second in itertools.pairwise(events):
            if isinstance(first, Asked) and first.withheld:
                withheld += 1
                if isinstance(second, Asked):
                    again += second.text == first.text
                    assert not second.withheld
                    assert not second.repeated
    assert withheld > 50
    assert again > 0.9 * withheld  # the last question apart, nothing was learned that would change what tells most
