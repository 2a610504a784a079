"""What the warm start reads, the resident's dialogues, and how well the policy then knows what it has heard."""

from collections.abc import Sequence

import numpy as np

from clinic.cases import Case
from clinic.consultation import Consultation, Message
from clinic.dialogues import chart_dialogue, interview, resident_dialogue, searched_dialogue, shorter
from clinic.doctors import ReferenceDoctor, resident
from clinic.generative import GenerativeClinic
from clinic.openings import opening_query
from clinic.patients.scripted import ScriptedPatient
from doctor.environments import ConsultationFactory
from doctor.parameters import Params
from rl.chat import ChatFormat
from rl.ranking import Rank
from rl.sft import Example


def examples(chat: ChatFormat, factory: ConsultationFactory, cases: Sequence[Case], params: Params) -> list[Example]:
    """Resident dialogues of every training case, some under a smaller budget, some behind a search that is not learned,
    only what to make of its reply; and whole charts: with one turn left it diagnoses, whatever was said before.
    """
    rng = np.random.default_rng([params.seed, 1])
    matcher, rules = factory.topics, params.consultation
    section = params.warm_start
    ask = resident(
        section.random_share,
        aloud=section.think_aloud,
        typicality=section.typicality,
        unrelated_share=section.unrelated_share,
    )
    every = section.searches_every if rules.search_results and rules.turn_budget != 1 else None
    searched = range(every - 1, len(cases), every) if every is not None else range(0)
    library = factory.library(chat.count)
    factory.shelf.find_beforehand([opening_query(cases[place]) for place in searched])
    found: list[Example] = []
    for _ in range(section.dialogues_per_case):
        for place, case in enumerate(cases):
            if place in searched:
                dialogue = searched_dialogue(factory.clinic, case, matcher, rules, ask, library, rng)
            else:
                own = rules if place % section.short_every else shorter(rules, rng)
                dialogue = resident_dialogue(factory.clinic, case, matcher, own, ask, rng)
            found.append(Example(*chat.dialogue_ids(dialogue, given=int(place in searched))))
    charts = (chart_dialogue(case, rules) for case in cases[:: section.charts_every])
    return [*found, *(Example(*chat.dialogue_ids(chart)) for chart in charts)]


def forced_accuracy(
    rank: Rank, chat: ChatFormat, factory: ConsultationFactory, cases: Sequence[Case], params: Params
) -> tuple[float, float]:
    """Accuracy of the likeliest diagnosis after a resident's dialogue of random length: the model's, and Bayes' on the
    same words.
    """
    rng = np.random.default_rng([params.seed, 2])
    prefixes, bayes = [], []
    for case in cases:
        messages, doctor = _interview(
            factory, case, int(rng.integers(max(params.consultation.turn_budget, 2))), params, rng
        )
        prefixes.append(chat.dialogue_ids([*messages, {"role": "assistant", "content": ""}])[0][:-1])
        bayes.append(int(doctor.posterior().argmax()))
    forced = rank(prefixes, diagnosis_turns(chat, factory.clinic)).argmax(dim=1)
    truths = [factory.clinic.condition_index[case.diagnosis_id] for case in cases]
    of_model, of_bayes = (
        round(float(np.mean([said == truth for said, truth in zip(answers, truths, strict=True)])), 4)
        for answers in (forced.tolist(), bayes)
    )
    return of_model, of_bayes


def _interview(
    factory: ConsultationFactory, case: Case, questions: int, params: Params, rng: np.random.Generator
) -> tuple[list[Message], ReferenceDoctor]:
    section = params.warm_start
    ask = resident(
        section.random_share,
        aloud=section.think_aloud,
        typicality=section.typicality,
        unrelated_share=section.unrelated_share,
    )
    doctor = ReferenceDoctor(clinic=factory.clinic, case=case, ask=ask, questions=questions, rng=rng)
    consultation = Consultation(case, ScriptedPatient(case, factory.matcher), params.consultation, questions + 1, None)
    return interview(doctor, consultation), doctor


def diagnosis_turns(chat: ChatFormat, clinic: GenerativeClinic) -> list[list[int]]:
    """Token ids of the beginning of a diagnosis turn, one per condition of the clinic."""
    return [chat.content_ids(f"<answer>{clinic.words.diagnosis}{condition.name}\n") for condition in clinic.conditions]
