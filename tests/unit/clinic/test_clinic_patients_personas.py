"""Personas, the language-model patient and the measures of fidelity, each by hand."""

import asyncio

import pytest

from clinic.cases import PERSONAS, Fact, persona_of
from clinic.events import Asked, Searched
from clinic.patients.fidelity import denies, fidelity
from clinic.patients.llm import LanguageModelPatient, PatientError, system_prompt, usable
from clinic.patients.scripted import ScriptedPatient
from clinic.starter import draw_cases


def ask(patient, text):
    return asyncio.run(patient.answer(text))


def known(question):
    return {"Cough?": "cough", "Fever?": "fever", "Sweat?": "sweat"}.get(question)


def test_a_persona_changes_words_and_never_facts(starter, starter_matcher, split):
    from dataclasses import replace

    (case,) = draw_cases(starter, 1, 3, split)
    for persona in PERSONAS:
        patient = ScriptedPatient(replace(case, persona=persona), starter_matcher.match)
        for finding in starter.findings[:40]:
            answer = ask(patient, finding.doctor.train[0])
            if answer.withheld:
                assert (persona, answer.topic) == ("reluctant", None)
                answer = ask(patient, finding.doctor.train[0])
            fact = next(fact for fact in case.facts if fact.topic == finding.finding_id)
            assert (answer.topic, answer.present) == (fact.topic, fact.present)
            assert (fact.text in answer.text) == (persona != "terse")


def test_the_words_of_personas(make_case):
    said = {
        p: ask(ScriptedPatient(make_case(persona=p), known), "Fever?").text
        for p in ("plain", "terse", "worried", "talkative")
    }
    assert said["plain"] == "No, I have no fever."
    assert said["terse"] == "No."
    assert said["worried"] == "No, I have no fever. Is it serious?"
    assert "No, I have no fever." in said["talkative"]
    chinese = make_case(language="zh", persona="terse", facts=(Fact("cough", True, "我咳嗽"),))
    assert ask(ScriptedPatient(chinese, known), "Cough?").text == "是的。"


def test_personas_are_dealt_out_by_the_case():
    dealt = [persona_of(f"case-{i}", PERSONAS) for i in range(500)]
    assert dealt == [persona_of(f"case-{i}", PERSONAS) for i in range(500)]
    assert all(60 < dealt.count(persona) < 140 for persona in PERSONAS)
    assert persona_of("x", ["plain"]) == "plain"


class Model:
    def __init__(self, *replies):
        self.replies, self.heard = list(replies), []

    async def generate(self, messages):
        self.heard.append([dict(message) for message in messages])
        return self.replies.pop(0)


def test_the_prompt_holds_facts_and_history_and_no_diagnosis(make_case):
    model = Model("Yes, all day.", "Just a bit.")
    patient = LanguageModelPatient(make_case(), known, model.generate)
    first, second = ask(patient, "Cough?"), ask(patient, "How bad?")
    assert (first.text, first.topic, first.present) == ("Yes, all day.", "cough", True)
    assert second.topic is None
    assert [m["content"] for m in model.heard[1][1:]] == ["Cough?", "Yes, all day.", "How bad?"]
    prompt = model.heard[0][0]["content"]
    assert "- I cough all day" in prompt
    assert "My chest hurts." in prompt
    assert "neumonia" not in prompt
    assert "lung infection" not in prompt
    chinese = system_prompt(make_case(language="zh", persona="worried"))
    assert "扮演病人" in chinese
    assert "担心" in chinese


def test_a_reply_that_is_none_is_asked_for_again_and_then_fails(make_case):
    model = Model("@@@###", "Yes, I do.")
    assert ask(LanguageModelPatient(make_case(), known, model.generate), "Cough?").text == "Yes, I do."
    with pytest.raises(PatientError, match="'<answer>Diagnosis: x</answer>', which is no reply"):
        ask(LanguageModelPatient(make_case(), known, Model("", "<answer>Diagnosis: x</answer>").generate), "Cough?")
    marked = ["a <b> c", "</answer", "<think", "<|im_end|>", "<｜end｜>", '<p class="x">', "<br />", "<诊断>"]
    assert not any(map(usable, ["", "  ", "!?", "x" * 601, "%%%%%%ab", *marked]))
    assert all(map(usable, ["Yes.", "1.2%", "120/80 mmHg", "没有。", "< 2 seconds", "platelets <150, CRP < 5"]))
    assert usable("I lost weight <no other underlying causes>.")


def test_tests_are_answered_by_the_record(make_case):
    model = Model()
    [answer] = asyncio.run(LanguageModelPatient(make_case(), known, model.generate).examine("Fever?"))
    assert (answer.text, answer.present) == ("No, I have no fever.", False)
    assert model.heard == []


@pytest.mark.parametrize(
    ("text", "language", "no"),
    [
        ("Yes, I have no appetite.", "en", False),
        ("No, I cough.", "en", True),
        ("I do not cough", "en", True),
        ("Denies fever", "en", True),
        ("I cough", "en", False),
        ("Not really", "en", True),
        ("是的，我没有胃口。", "zh", False),
        ("没有，我不咳嗽。", "zh", True),
        ("我不咳嗽", "zh", True),
        ("我咳嗽", "zh", False),
        ("有，咳嗽", "zh", False),
    ],
)
def test_yes_and_no_are_heard(text, language, no):
    assert denies(text, language) == no


def asked(text, reply, repeated=False):
    return Asked(text=text, topic=known(text), present=True, repeated=repeated, reply=reply)


def test_fidelity_by_hand(make_case):
    """Four questions: a true answer; one that tells another fact too; the opposite of the record; and "I don't know"
    where the record knows.
    """
    case = make_case(source="toy")
    texts = {fact.text: fact.topic for fact in case.facts}

    def match(text):
        return known(text) or next((topic for said, topic in texts.items() if said in text), None)

    events = [
        asked("Cough?", "Yes, I cough all day."),
        asked("Sweat?", "Yes, I sweat at night; I smoke."),
        asked("Fever?", "Yes, I do."),
        asked("Cough?", "x", repeated=True),
        asked("Sweat?", "I don't know."),
    ]
    measures = fidelity([(case, events)], {"toy": match})
    assert measures == {
        "information_control": pytest.approx(4 / 5),
        "completeness": pytest.approx(3 / 4),
        "conflict": pytest.approx(1 / 3),
    }
    assert fidelity([(case, [Searched("x")])], {}) == {}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Yes, all day.", True),
        ("I don’t know.", False),
        ("I do not know, sorry.", False),
        ("I'm not sure.", False),
        ("Honestly, no idea.", False),
        ("I don't know about that, but yes: I cough all day", True),
        ("No.", True),
        ("I cannot say.", False),
    ],
)
def test_not_knowing_is_no_answer(make_case, said, told):
    def match(text):
        return "cough" if "cough" in text.lower() else None

    answer = ask(LanguageModelPatient(make_case(), match, Model(said).generate), "Do you cough?")
    assert (answer.topic == "cough") == told


def test_a_reply_earns_nothing_that_was_not_asked_for(make_case):
    def match(text):
        return "cough" if "cough" in text.lower() else None

    assert (
        ask(LanguageModelPatient(make_case(), match, Model("No, but I cough.").generate), "Are you married?").topic
        is None
    )


def test_thoughts_are_not_heard_and_broken_unicode_is_no_reply(make_case):
    model = Model("<think>They ask about <cough>.</think> Yes, all day.", "\ud83d yes", "Yes.")
    patient = LanguageModelPatient(make_case(), known, model.generate)
    assert ask(patient, "Cough?").text == "Yes, all day."
    assert ask(patient, "Fever?").text == "Yes."
    assert model.heard[2][-1]["content"] == "Fever?"
    assert len(model.heard[2]) == len(model.heard[1]) + 2


def test_no_test_is_a_way_round_reluctance_in_a_generative_clinic(starter, starter_matcher, split):
    from dataclasses import replace

    (case,) = draw_cases(starter, 1, 3, split)
    shy = replace(case, persona="reluctant")
    asked = {
        f.finding_id: ask(ScriptedPatient(shy, starter_matcher.match), f.doctor.train[0]).withheld
        for f in starter.findings
    }
    examined = {
        f.finding_id: asyncio.run(ScriptedPatient(shy, starter_matcher.match).examine(f.doctor.train[0]))[0].withheld
        for f in starter.findings
    }
    assert asked == examined
    assert 0.3 < sum(asked.values()) / len(asked) < 0.7
    record = ScriptedPatient(replace(shy, source="records"), None)
    assert not any(one.withheld for fact in case.facts for one in asyncio.run(record.examine(fact.text)))
