"""Starting points: recorded consultations in the grammar, and the best of what a model plays itself."""

from dataclasses import replace
from pathlib import Path

import pytest

from clinic.actions import Kind, parse
from clinic.cases import Fact
from clinic.starter import draw_cases
from doctor.environments import open_factory
from doctor.parameters import ROOT, ParameterError, load_params
from doctor.starts import best_examples, final_words, first_question, recorded_examples
from rl.chat import ChatFormat
from rl.experience import Trajectory
from rl.models import load_tokenizer

PARAMS = load_params()


@pytest.fixture(scope="module")
def chat():
    return ChatFormat(load_tokenizer(str(ROOT / "models/base")))


@pytest.fixture(scope="module")
def factory():
    return open_factory(PARAMS, Path("unused"))


@pytest.fixture(scope="module")
def drawn(factory):
    cases = draw_cases(factory.clinic, 6, 1, PARAMS.patient_cases.split)
    return [replace(case, source="mine") for case in cases]  # paid by the label, not by Bayes


@pytest.fixture
def recorded(drawn):
    facts = (
        Fact("Hello. How long have you had it? Is it sore?", True, "For three days."),
        Fact("I see, rest a little.", True, "I will."),
        Fact("Do you have a fever? (2)", False, "No fever."),
    )
    return replace(
        drawn[0],
        source="talks",
        self_report="My knee is sore.",
        opening=(),
        facts=facts,
        diagnosis="Gout",
        synonyms=(),
        recommendation="Rest the knee. Drink water, and come back in a week.",
    )


def with_start(**changes):
    section = PARAMS.warm_start
    best = section.best_of_n.model_copy(update=changes)
    return PARAMS.model_copy(update={"warm_start": section.model_copy(update={"best_of_n": best})})


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Hello. How long have you had it? Is it sore?", "How long have you had it?"),
        ("Do you have a fever? (2)", "Do you have a fever?"),
        ("Unasked", ""),
        ("您好。多久了？疼吗？", "多久了？"),
    ],
)
def test_the_first_question_of_a_turn_is_kept(said, asked):
    assert first_question(said) == asked


def test_a_recorded_consultation_speaks_the_grammar(chat, factory, recorded):
    (example,) = recorded_examples(chat, factory, [recorded], PARAMS)
    text = chat.tokenizer.decode(example.token_ids)
    learned = chat.tokenizer.decode([t for t, m in zip(example.token_ids, example.loss_mask, strict=True) if m])
    assert "My knee is sore." in text
    assert "For three days." in text
    assert "My knee is sore." not in learned
    assert learned == (
        "<answer>Question: How long have you had it?</answer><|end|><answer>Question: Do you have a fever?</answer><|end|>"
        "<answer>Diagnosis: Gout\nRecommendation: Rest the knee.</answer><|end|>"
    )


def test_a_diagnosis_that_is_a_sentence_is_named_by_its_synonym_or_left_out(recorded, chat, factory):
    sentence = "Based on your symptoms, it appears that you most likely have gout."
    named = replace(recorded, diagnosis=sentence, synonyms=("gout",))
    assert parse(final_words(named) or "").text == "gout"
    nameless = replace(recorded, diagnosis=sentence)
    assert final_words(nameless) is None
    with pytest.raises(ParameterError, match="start is recorded, but no training case has recorded questions"):
        recorded_examples(chat, factory, [nameless], PARAMS)


def test_a_recording_longer_than_the_budget_is_cut(recorded, chat, factory):
    facts = tuple(Fact(f"Is it {i} days?", True, f"It is {i}.") for i in range(20))
    (example,) = recorded_examples(chat, factory, [replace(recorded, facts=facts)], PARAMS)
    text = chat.tokenizer.decode(example.token_ids)
    assert text.count("Question:") == PARAMS.consultation.turn_budget - 1
    assert "(1 left)" in text


def consulted(spec, seat, turns):
    """What a model that says these turns would have recorded."""
    from clinic.consultation import at_once

    consultation = seat(spec)
    messages, events, reason = list(consultation.opening()), [], "out_of_tokens"
    for turn in turns:
        reply = at_once(consultation.step(turn))
        messages.append({"role": "assistant", "content": turn})
        events.append(reply.event.to_json())
        if reply.text is None:
            reason = str(reply.stop_reason)
            break
        messages.append({"role": "user", "content": reply.text})
    return Trajectory(
        episode_id=f"{spec.group_id}/{spec.sample}", case_id=spec.case_id, group_id=spec.group_id, sample=spec.sample,
        policy_version=0, turn_budget=spec.turn_budget, token_ids=(), logprobs=(), loss_mask=(), turns=(), texts=tuple(messages),
        events=tuple(events), stop_reason=reason, privileged={}, started_s=0.0, ended_s=0.0,
    )  # fmt: skip


def test_the_best_of_each_case_is_imitated_under_the_runs_instructions(drawn, chat, factory):
    names = {case.case_id: case.diagnosis for case in drawn}
    seen = []

    def play(specs, seat, temperature):
        seen.append((len(specs), temperature, seat(specs[0]).opening()[0]["content"]))
        right = {0: "Nobody", 1: None, 2: "Nobody"}
        return [
            consulted(s, seat, ["what?", f"<answer>Diagnosis: {right[s.sample] or names[s.case_id]}\nRecommendation: rest</answer>"])
            for s in specs
        ]  # fmt: skip

    params = with_start(samples=3, cases=4, temperature=0.7)
    examples, told = best_examples(chat, factory, drawn, params, play)
    assert seen == [(12, 0.7, factory.clinic.words.full)]
    assert (told["imitated"], told["cases"], len(examples)) == (4, 4, 4)
    assert told["best_reward"] > told["mean_reward"]
    for example in examples:
        text = chat.tokenizer.decode(example.token_ids)
        learned = chat.tokenizer.decode([t for t, m in zip(example.token_ids, example.loss_mask, strict=True) if m])
        assert factory.clinic.words.short in text
        assert factory.clinic.words.full not in text
        assert "what?" in text
        assert "what?" not in learned  # it broke the grammar
        assert parse(learned.removesuffix("<|end|>")).kind is Kind.DIAGNOSIS
        assert "Nobody" not in learned


def test_a_case_whose_consultations_are_all_below_the_mean_teaches_nothing(drawn, chat, factory):
    names = {case.case_id: case.diagnosis for case in drawn}
    good = {case.case_id for case in drawn[:2]}

    def play(specs, seat, _):
        return [
            consulted(s, seat, [f"<answer>Diagnosis: {names[s.case_id] if s.case_id in good else 'Nobody'}\nRecommendation: rest</answer>"])
            for s in specs
        ]  # fmt: skip

    _, told = best_examples(chat, factory, drawn, with_start(samples=2, cases=6), play)
    assert told["imitated"] == 2


def test_a_model_that_never_diagnoses_is_told_what_to_do(drawn, chat, factory):
    with pytest.raises(
        ParameterError, match=r"none of 12 consultations of models/base ended with a diagnosis: .* choose recorded"
    ):
        best_examples(chat, factory, drawn, with_start(samples=2, cases=6), lambda specs, seat, _: [consulted(s, seat, ["hm", "hm"]) for s in specs])  # fmt: skip


def test_imitation_needs_starter_cases():
    from doctor.mistakes import read_yaml
    from doctor.parameters import parse_params

    content = read_yaml(ROOT / "params.yaml")
    content["patient_cases"]["starter"]["cases"] = 0
    with pytest.raises(ParameterError, match="imitation needs cases of the starter clinic"):
        parse_params(content, ROOT / "params.yaml")
    content["warm_start"]["start"] = "none"
    assert parse_params(content, ROOT / "params.yaml").warm_start.start == "none"
