"""Teaching material for the warm start: charts with their diagnosis, and the dialogues of a mediocre resident.

The last turn states the chart's diagnosis (training charts are labelled); the questions are the resident's.
The Bayes doctor's questions never appear here, so that reinforcement has the asking to teach.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clinic.actions import Kind, diagnosis, parse, thought
from clinic.cases import Case, Fact
from clinic.config import ConsultationParams
from clinic.consultation import RANDOM_BUDGET, Consultation, Message, at_once
from clinic.doctors import Ask, Chase, ReferenceDoctor, at_random, chase_turn, chased
from clinic.generative import Array, Condition, GenerativeClinic
from clinic.language import EN, Phrases, phrases
from clinic.library import Library
from clinic.matching import MATCH_THRESHOLD, TopicMatcher
from clinic.openings import SearchedConsultation, chart_opening
from clinic.patients.scripted import ScriptedPatient

CHECKLIST_QUESTIONS = 12


def topic_matcher(clinic: GenerativeClinic) -> TopicMatcher:
    """Matches questions to the findings of a generative clinic, by all the wordings it knows."""
    wordings = {
        f.finding_id: (f.name, *f.doctor.train, *f.doctor.test, *f.patient.train, *f.patient.test)
        for f in clinic.findings
    }
    return TopicMatcher(wordings, MATCH_THRESHOLD)


def final_turn(case: Case) -> Message:
    """The doctor turn that states the case's diagnosis and recommendation."""
    return {"role": "assistant", "content": diagnosis(case.diagnosis, case.recommendation, phrases(case.language))}


def interview(doctor: ReferenceDoctor, consultation: Consultation) -> list[Message]:
    """Let a reference doctor ask all its questions; returns the messages up to the patient's last answer."""
    messages = consultation.opening()
    for _ in range(doctor.questions):
        turn = doctor.turn()
        reply = at_once(consultation.step(turn))
        doctor.hear(reply.event)
        messages += [{"role": "assistant", "content": turn}, {"role": "user", "content": reply.text or ""}]
    return messages


def _budget(rules: ConsultationParams, rng: np.random.Generator) -> int:
    low, high = RANDOM_BUDGET
    return rules.turn_budget if rules.turn_budget != -1 else int(rng.integers(low, high + 1))


def shorter(rules: ConsultationParams, rng: np.random.Generator) -> ConsultationParams:
    """The same rules under a smaller turn budget, uniform on 1 to turn_budget - 1; unchanged where none is smaller."""
    return (
        rules
        if rules.turn_budget in (1, -1)
        else rules.model_copy(update={"turn_budget": int(rng.integers(1, rules.turn_budget))})
    )


def resident_dialogue(
    clinic: GenerativeClinic,
    case: Case,
    matcher: TopicMatcher,
    rules: ConsultationParams,
    ask: Ask,
    rng: np.random.Generator,
    *,
    to_the_end: bool = False,
) -> list[Message]:
    """One dialogue of the resident (`ask` is its way, `doctors.resident`) with the scripted patient, ending in the
    chart's diagnosis.

    The number of questions is uniform on 0 to turn_budget - 1: every length is seen, and on average the
    diagnosis comes half way, too early. With `to_the_end` it asks up to the budget.
    """
    budget = _budget(rules, rng)
    questions = budget - 1 if to_the_end else int(rng.integers(budget))
    doctor = ReferenceDoctor(clinic=clinic, case=case, ask=ask, questions=questions, rng=rng)
    consultation = Consultation(case, ScriptedPatient(case, matcher.match), rules, budget, None)
    return [*interview(doctor, consultation), final_turn(case)]


def searched_dialogue(
    clinic: GenerativeClinic,
    case: Case,
    matcher: TopicMatcher,
    rules: ConsultationParams,
    ask: Ask,
    library: Library,
    rng: np.random.Generator,
) -> list[Message]:
    """As `resident_dialogue`, behind a search for the patient's opening words: the resident goes by what the patient says,
    whatever was found. The rules leave two turns or more.
    """
    budget = max(_budget(rules, rng), 2)
    doctor = ReferenceDoctor(clinic=clinic, case=case, ask=ask, questions=int(rng.integers(budget - 1)), rng=rng)
    consultation = SearchedConsultation(case, ScriptedPatient(case, matcher.match), rules, budget, library)
    return [*interview(doctor, consultation), final_turn(case)]


class Aside(NamedTuple):
    """What could be said in place of a question."""

    chase: (
        str  # the thought of the chart's own diagnosis, and a question for a typical finding of it that is not told yet
    )
    minds: dict[str, float]  # names of the conditions that come to the resident's mind, with their shares


def minds(
    clinic: GenerativeClinic, opening: Sequence[int], answers: Mapping[int, bool], draws: int, rng: np.random.Generator
) -> dict[str, float]:
    """What comes to the resident's mind: `draws` conditions from the posterior, as it draws those it chases; name ->
    share of the draws.
    """
    rows, count = np.unique(
        rng.choice(len(clinic.conditions), size=draws, p=clinic.posterior(opening, answers)), return_counts=True
    )
    return {clinic.conditions[int(row)].name: float(n) / draws for row, n in zip(rows, count, strict=True)}


def asides(
    clinic: GenerativeClinic,
    case: Case,
    matcher: TopicMatcher,
    dialogue: Sequence[Message],
    draws: int,
    rng: np.random.Generator,
    *,
    typicality: float = 1.0,
) -> list[Aside]:
    """For every turn of a dialogue but the last: what could be said there instead (`draws`: see `minds`, `typicality`:
    `chased`).
    """
    chart = clinic.conditions[clinic.condition_index[case.diagnosis_id]]
    present = {fact.topic: fact.present for fact in case.facts}
    opening = [clinic.finding_index[topic] for topic in case.opening]
    answers: dict[int, bool] = {}
    said = []
    for message in dialogue[:-1]:
        if message["role"] != "assistant":
            continue
        open_F = np.ones(len(clinic.findings), dtype=bool)
        open_F[[*opening, *answers]] = False
        column = chased(clinic, chart, open_F, typicality, rng)
        chase = (
            chase_turn(clinic, Chase(column, chart.name), "train")
            if column is not None
            else thought(chart.name, clinic.words)
        )
        said.append(Aside(chase, minds(clinic, opening, answers, draws, rng)))
        action = parse(message["content"])
        asked = matcher.match(action.text) if action.kind is Kind.QUESTION else None
        if asked is not None:
            answers[clinic.finding_index[asked]] = present[asked]
    return said


def chart_interview(
    clinic: GenerativeClinic,
    case: Case,
    matcher: TopicMatcher,
    rules: ConsultationParams,
    repeats: float,
    rng: np.random.Generator,
) -> list[Message]:
    """A chart as an interview that fills the budget: about half of the questions ask for what the chart says is
    present, the others for anything.

    A share of them, `repeats`, asks again what was asked before. Nobody asks like this, since it takes the chart to
    know what to ask: it teaches to weigh answers, each once, not to ask.
    """
    present = [clinic.finding_index[f.topic] for f in case.facts if f.present]
    asked: list[int] = []

    def from_chart(
        clinic: GenerativeClinic, posterior_C: Array, open_F: NDArray[np.bool_], rng: np.random.Generator
    ) -> int:
        if asked and rng.random() < repeats:
            return int(rng.choice(asked))
        left = [column for column in present if open_F[column]]
        asked.append(
            int(rng.choice(left)) if left and rng.random() < 0.5 else at_random(clinic, posterior_C, open_F, rng)
        )
        return asked[-1]

    budget = _budget(rules, rng)
    doctor = ReferenceDoctor(clinic=clinic, case=case, ask=from_chart, questions=budget - 1, rng=rng)
    return [
        *interview(doctor, Consultation(case, ScriptedPatient(case, matcher.match), rules, budget, None)),
        final_turn(case),
    ]


def checklist(
    clinic: GenerativeClinic,
    condition: Condition,
    rules: ConsultationParams,
    typicality: float,
    rng: np.random.Generator,
) -> list[Message]:
    """The questions for findings of one illness, each once and without answers, `CHECKLIST_QUESTIONS` at most: in any
    order, or with `typicality` the typical ones first (`chased`).

    What is left to ask follows from what was asked alone, so it teaches to go on where a dialogue with its evidence
    hardly does.
    """
    open_F = np.ones(len(clinic.findings), dtype=bool)
    messages: list[Message] = [
        {"role": "system", "content": clinic.words.instructions[rules.instructions]},
        {"role": "user", "content": clinic.words.checklist},
    ]
    for _ in range(CHECKLIST_QUESTIONS):
        column = chased(clinic, condition, open_F, typicality, rng)
        if column is None:
            break
        open_F[column] = False
        messages += [
            {"role": "assistant", "content": chase_turn(clinic, Chase(column, condition.name), "train")},
            {"role": "user", "content": ""},
        ]
    return messages[:-1]


def chart_excerpt(case: Case, most: int, rng: np.random.Generator) -> list[Fact]:
    """Part of a chart: the opening complaints, then 1 to `most` draws of further facts, about half of them present
    ones.
    """
    present = [f for f in case.facts if f.present]
    facts = {f.topic: f for f in case.facts if f.topic in case.opening}
    for _ in range(int(rng.integers(1, most + 1))):
        pool: Sequence[Fact] = present if rng.random() < 0.5 else case.facts
        fact = pool[int(rng.integers(len(pool)))]
        facts[fact.topic] = fact
    return list(facts.values())


def hasty(text: str, left_out: float, rng: np.random.Generator, space: str = EN.space) -> str:
    """A sentence as a hurried note: each word left out with probability `left_out`, the order of the others lost half
    of the time; never empty.

    `space` parts the words of its language; where nothing does, each character counts as one.
    """
    words = text.split() if space else list(text)
    kept = [word for word in words if rng.random() >= left_out] or words
    if rng.random() < 0.5:
        kept = [kept[i] for i in rng.permutation(len(kept))]
    return space.join(kept)


def hurried(
    dialogue: Sequence[Message], left_out: float, rng: np.random.Generator, words: Phrases = EN
) -> list[Message]:
    """The dialogue with a patient whose every sentence is a hurried note (`hasty`); a leading Yes or No and the turns
    left stay.
    """
    messages = []
    heads = tuple(phrase.partition("{}")[0] for phrase in (words.yes, words.no))
    mark = words.turns_left.split("{}")[1]
    for message in dialogue:
        text = message["content"]
        if message["role"] == "user":
            said, left = text.rsplit(mark, 1)
            head = next((head for head in heads if said.startswith(head)), "")
            text = f"{head}{hasty(said.removeprefix(head), left_out, rng, words.space)}{mark}{left}"
        messages.append({**message, "content": text})
    return messages


def chart_dialogue(case: Case, rules: ConsultationParams) -> list[Message]:
    """A chart and its diagnosis."""
    return [*chart_opening(case, rules), final_turn(case)]
