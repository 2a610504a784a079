"""Teaching material for the warm start: charts with their diagnosis, and the dialogues of a mediocre resident.

The last turn states the chart's diagnosis (training charts are labelled); the questions are the resident's.
The Bayes doctor's questions never appear here, so that reinforcement has the asking to teach.
"""

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np

from clinic.actions import diagnosis
from clinic.cases import Case, Fact
from clinic.config import ConsultationParams
from clinic.consultation import INSTRUCTIONS, Consultation, Message
from clinic.doctors import ReferenceDoctor, resident
from clinic.generative import GenerativeClinic
from clinic.matching import TopicMatcher
from clinic.patient import MATCH_THRESHOLD, ScriptedPatient

T = TypeVar("T")


def topic_matcher(clinic: GenerativeClinic) -> TopicMatcher:
    """Matches questions to the findings of a generative clinic, by all the wordings it knows."""
    wordings = {f.finding_id: (f.name, *f.doctor.train, *f.doctor.test, *f.patient.train, *f.patient.test) for f in clinic.findings}
    return TopicMatcher(wordings, MATCH_THRESHOLD)


def at_once(step: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits (the scripted patient's) without an event loop."""
    try:
        step.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # StopIteration.value is untyped
    raise RuntimeError("a scripted patient must answer without waiting")


def final_turn(case: Case) -> Message:
    """The doctor turn that states the case's diagnosis and recommendation."""
    return {"role": "assistant", "content": diagnosis(case.diagnosis, case.recommendation)}


def interview(doctor: ReferenceDoctor, consultation: Consultation) -> list[Message]:
    """Let a reference doctor ask all its questions; returns the messages up to the patient's last answer."""
    messages = consultation.opening()
    for _ in range(doctor.questions):
        turn = doctor.turn()
        reply = at_once(consultation.step(turn))
        doctor.hear(reply.event["topic"], reply.event["present"])
        messages += [{"role": "assistant", "content": turn}, {"role": "user", "content": reply.text or ""}]
    return messages


def resident_dialogue(
    clinic: GenerativeClinic, case: Case, matcher: TopicMatcher, rules: ConsultationParams, random_share: float, rng: np.random.Generator, *, to_the_end: bool = False
) -> list[Message]:
    """One dialogue of the resident with the scripted patient, ending in the chart's diagnosis.

    The number of questions is uniform on 0 to turn_budget - 1: every length is seen, and on average the
    diagnosis comes half way, too early. With `to_the_end` it asks up to the budget.
    """
    budget = rules.turn_budget if rules.turn_budget != -1 else int(rng.integers(2, 11))
    questions = budget - 1 if to_the_end else int(rng.integers(budget))
    doctor = ReferenceDoctor(clinic, case, resident(random_share), questions, rng)
    consultation = Consultation(case, ScriptedPatient(case, matcher.match), rules, budget, None)
    return [*interview(doctor, consultation), final_turn(case)]


def chart_opening(case: Case, rules: ConsultationParams) -> list[Message]:
    """The whole chart as the opening message: every present fact in the patient's words, and one turn left."""
    told = "; ".join(fact.text for fact in case.facts if fact.present)
    return [
        {"role": "system", "content": INSTRUCTIONS[rules.instructions]},
        {"role": "user", "content": f"Chart: {told}. (1 left)"},
    ]


def chart_excerpt(case: Case, most: int, rng: np.random.Generator) -> list[str]:
    """Part of a chart as texts: the opening complaints, then 1 to `most` draws of further facts, about half of them present ones."""
    present = [f for f in case.facts if f.present]
    facts = {f.topic: f for f in case.facts if f.topic in case.opening}
    for _ in range(int(rng.integers(1, most + 1))):
        pool: Sequence[Fact] = present if rng.random() < 0.5 else case.facts
        fact = pool[int(rng.integers(len(pool)))]
        facts[fact.topic] = fact
    return [fact.text for fact in facts.values()]


def chart_dialogue(case: Case, rules: ConsultationParams) -> list[Message]:
    """A chart and its diagnosis."""
    return [*chart_opening(case, rules), final_turn(case)]
