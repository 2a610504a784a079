"""What the warm start reads, the resident's dialogues, and how well the policy then knows what it has heard."""

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedModel

from clinic.cases import Case
from clinic.consultation import Consultation, Message
from clinic.dialogues import chart_dialogue, interview, resident_dialogue, shorter
from clinic.doctors import ReferenceDoctor, resident
from clinic.generative import GenerativeClinic
from clinic.patients.scripted import ScriptedPatient
from doctor.environments import Waiting
from doctor.parameters import Params
from rl.chat import ChatFormat
from rl.ranking import continuation_logprobs
from rl.sft import Example


def examples(chat: ChatFormat, waiting: Waiting, cases: Sequence[Case], params: Params) -> list[Example]:
    """Resident dialogues of every training case, some under a smaller budget, and whole charts: with one turn left it diagnoses, whatever was said before."""
    rng = np.random.default_rng([params.seed, 1])
    matcher = waiting.topics
    section = params.warm_start
    ask = resident(section.random_share, aloud=section.think_aloud, focus=section.focus, wandering=section.wandering)
    rules = params.consultation
    dialogues = [
        resident_dialogue(waiting.clinic, case, matcher, rules if place % section.short_every else shorter(rules, rng), ask, rng)
        for _ in range(section.dialogues_per_case)
        for place, case in enumerate(cases)
    ]
    dialogues += [chart_dialogue(case, rules) for case in cases[:: section.charts_every]]
    return [Example(*chat.dialogue_ids(dialogue)) for dialogue in dialogues]


def forced_accuracy(model: PreTrainedModel, chat: ChatFormat, waiting: Waiting, cases: Sequence[Case], params: Params) -> tuple[float, float]:
    """Accuracy of the likeliest diagnosis after a resident's dialogue of random length: the model's, and Bayes' on the same words."""
    rng = np.random.default_rng([params.seed, 2])
    prefixes, bayes = [], []
    for case in cases:
        messages, doctor = _interview(waiting, case, int(rng.integers(max(params.consultation.turn_budget, 2))), params, rng)
        prefixes.append(chat.dialogue_ids([*messages, {"role": "assistant", "content": ""}])[0][:-1])
        bayes.append(int(doctor.posterior().argmax()))
    forced = continuation_logprobs(model, prefixes, diagnosis_turns(chat, waiting.clinic)).argmax(dim=1)
    truths = [waiting.clinic.condition_index[case.diagnosis_id] for case in cases]
    of_model, of_bayes = (round(float(np.mean([said == truth for said, truth in zip(answers, truths, strict=True)])), 4) for answers in (forced.tolist(), bayes))
    return of_model, of_bayes


def _interview(waiting: Waiting, case: Case, questions: int, params: Params, rng: np.random.Generator) -> tuple[list[Message], ReferenceDoctor]:
    section = params.warm_start
    ask = resident(section.random_share, aloud=section.think_aloud, focus=section.focus, wandering=section.wandering)
    doctor = ReferenceDoctor(clinic=waiting.clinic, case=case, ask=ask, questions=questions, rng=rng)
    consultation = Consultation(case, ScriptedPatient(case, waiting.matcher), params.consultation, questions + 1, None)
    return interview(doctor, consultation), doctor


def diagnosis_turns(chat: ChatFormat, clinic: GenerativeClinic) -> list[list[int]]:
    """Token ids of the beginning of a diagnosis turn, one per condition of the clinic."""
    return [chat.content_ids(f"<answer>{clinic.words.diagnosis}{condition.name}\n") for condition in clinic.conditions]
