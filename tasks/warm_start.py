"""Tasks of `warm_start`: supervised fine-tuning of the base model on doctor turns of the resident's dialogues."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from prefect import task
from prefect.cache_policies import NO_CACHE
from transformers import PreTrainedModel

from clinic.cases import Case, read_cases
from clinic.consultation import Consultation, Message
from clinic.dialogues import chart_dialogue, interview, resident_dialogue, shorter
from clinic.doctors import ReferenceDoctor, resident
from clinic.generative import GenerativeClinic
from clinic.patients.scripted import ScriptedPatient
from doctor.environments import Waiting, open_waiting_room
from doctor.parameters import ROOT, Params
from rl.chat import ChatFormat
from rl.models import load_model, save_model
from rl.ranking import continuation_logprobs
from rl.sft import Example, train_supervised
from tracking.progress import supervised

log = logging.getLogger(__name__)


@task(cache_policy=NO_CACHE)
def fine_tune(params: Params, cases: Path, index: Path, out: Path) -> dict[str, float]:
    """Train on the resident's dialogues with training cases, save to `out`, and measure forced diagnoses on validation cases.

    Returns:
        loss (nats per doctor token), forced_accuracy and bayes_accuracy on the same dialogues, and their ratio.
    """
    section = params.warm_start
    base = str(ROOT / section.base) if (ROOT / section.base).exists() else section.base
    model, tokenizer = load_model(base, params.machines.compute)
    chat = ChatFormat(tokenizer)
    waiting = open_waiting_room(params, index)
    drawn = [case for case in read_cases(cases / "cases.parquet", "train") if case.source == waiting.clinic.name]
    loss = train_supervised(model, _examples(chat, waiting, drawn, params), section.sft, supervised("warm start"))
    model.eval()
    held_out = [case for case in read_cases(cases / "cases.parquet", "validation") if case.source == waiting.clinic.name][: section.forced_cases]
    forced, bayes = _forced_accuracy(model, chat, waiting, held_out, params)
    save_model(model, tokenizer, out)
    return {"loss": round(loss, 4), "forced_accuracy": forced, "bayes_accuracy": bayes, "forced_to_bayes": round(forced / bayes, 4) if bayes else 0.0}


def _examples(chat: ChatFormat, waiting: Waiting, cases: Sequence[Case], params: Params) -> list[Example]:
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


def _forced_accuracy(model: PreTrainedModel, chat: ChatFormat, waiting: Waiting, cases: Sequence[Case], params: Params) -> tuple[float, float]:
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
