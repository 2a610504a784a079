"""Starting points beside the resident's dialogues: recorded consultations in the grammar of the clinic, and the base
model's own best ones.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from clinic.actions import Kind, diagnosis, parse, question
from clinic.cases import QUESTIONS, Case
from clinic.consultation import Message, at_once, largest_turn_budget
from clinic.events import Diagnosed, Invalid, read_events
from clinic.language import phrases
from clinic.rewards import Scorer
from doctor.environments import ConsultationFactory
from doctor.parameters import ParameterError, Params
from doctor.reward_recipe import load_reward
from doctor.scoring import score_all
from rl.chat import ChatFormat
from rl.environment import EpisodeSpec, Seat
from rl.experience import Scores, Trajectory
from rl.rollout import refuse_if_many_failed
from rl.sft import Example

Play = Callable[[Sequence[EpisodeSpec], Seat, float], Sequence[Trajectory]]
STEP = -3  # the step in the noise key of best-of-n episodes
MAX_NAME_WORDS = 8  # of a diagnosis that is a name; a longer one is a sentence
_QUESTION = re.compile(r"[^.?!。？！]*[?？]")
_NUMBERED = re.compile(r"\s*\(\d+\)\Z")


def recorded_examples(
    chat: ChatFormat, factory: ConsultationFactory, cases: Sequence[Case], params: Params
) -> list[Example]:
    """Recorded consultations, each doctor turn brought into the grammar and answered by the scripted patient; the last
    turn is the case's diagnosis.

    Of several questions in one turn the first is kept, turns that ask nothing are left out, and so are cases whose
    diagnosis has no short name.

    Raises:
        ParameterError: no case has a recorded question.
    """
    seated = replace(factory, patient_model=None)
    dialogues = [dialogue for case in cases if (dialogue := _recorded(seated, case, params))]
    if not dialogues:
        raise ParameterError(
            "params.yaml: warm_start.start is recorded, but no training case has recorded questions and a short name of its diagnosis; "
            "import some (mtmeddialog_cases, or own with `dialogue`), or choose best_of_n or none"
        )
    return [Example(*chat.dialogue_ids(dialogue)) for dialogue in dialogues]


def _recorded(factory: ConsultationFactory, case: Case, params: Params) -> list[Message] | None:
    """A recorded consultation as messages; None where there is none."""
    words, budget = phrases(case.language), largest_turn_budget(params.consultation)
    turns = [question(asked, words=words) for fact in case.facts if (asked := first_question(fact.topic))]
    turns = [turn for turn in dict.fromkeys(turns) if parse(turn, words).kind is Kind.QUESTION][: budget - 1]
    end = final_words(case)
    if not turns or end is None or case.source == QUESTIONS:
        return None
    consultation = factory.consultation(case, budget)
    messages = list(consultation.opening())
    for turn in turns:
        reply = at_once(consultation.step(turn))
        messages += [{"role": "assistant", "content": turn}, {"role": "user", "content": reply.text or ""}]
    return [*messages, {"role": "assistant", "content": end}]


def first_question(topic: str) -> str:
    """The first question in what a doctor said, or ""."""
    found = _QUESTION.search(_NUMBERED.sub("", topic))
    return found[0].strip(" ,，") if found else ""


def final_words(case: Case) -> str | None:
    """The turn that states the case's diagnosis by a short name, and the first sentence of its recommendation; None
    without such a name.
    """
    words = phrases(case.language)
    name = next((name for name in (case.diagnosis, *case.synonyms) if len(name.split()) <= MAX_NAME_WORDS), None)
    if name is None:
        return None
    advice = re.split(r"(?<=[.!?。！？])\s*", case.recommendation.strip())[0]
    turn = diagnosis(name, advice, words)
    return turn if parse(turn, words).kind is Kind.DIAGNOSIS else None


def best_examples(
    chat: ChatFormat, factory: ConsultationFactory, cases: Sequence[Case], params: Params, play: Play
) -> tuple[list[Example], dict[str, float]]:
    """The best of several consultations that the base model plays with each case under instructions of its own, and what
    they were worth.

    Learned from is the best of a case if it ended with a diagnosis and earned at least the mean of all; turns that
    broke the grammar carry no loss. What a consultation earned says the preset `outcome`, whatever the run's: it asks
    nobody. Source: rejection sampling as in ReST, arXiv:2308.08998.

    Raises:
        ParameterError: no consultation is worth imitating.
        TrainingError: too many episodes failed.
    """
    section = params.warm_start.best_of_n
    patients = [case for case in cases if case.source != QUESTIONS]
    order = np.random.default_rng([params.seed, 3]).permutation(len(patients))[: section.cases]
    chosen = [patients[int(place)] for place in order]
    told = replace(factory, rules=factory.rules.model_copy(update={"instructions": section.instructions}))
    played = play(told.episodes(chosen, section.samples, params.seed, STEP), told.seat, section.temperature)
    refuse_if_many_failed(played, params.rollout)
    scores = score_all(Scorer(load_reward("outcome"), [factory.clinic]), chosen, played)
    rewards = [score.reward for score in scores if score.turns]
    mean = float(np.mean(rewards)) if rewards else 0.0
    kept = list(_best(played, scores, section.samples, mean))
    if not kept:
        raise ParameterError(
            f"params.yaml: warm_start.start is best_of_n, but none of {len(played)} consultations of {params.warm_start.base} ended with a diagnosis: "
            "it cannot follow the instructions; take a larger instruct model, give it more tokens (rollout.response_length), or choose recorded"
        )
    by_id = {case.case_id: case for case in chosen}
    return [_example(chat, by_id[trajectory.case_id], trajectory, params) for trajectory, _ in kept], {
        "mean_reward": round(mean, 4),
        "best_reward": round(float(np.mean([reward for _, reward in kept])), 4),
        "imitated": len(kept),
        "cases": len(chosen),
    }


def _best(
    played: Sequence[Trajectory], scores: Sequence[Scores], samples: int, least: float
) -> Iterator[tuple[Trajectory, float]]:
    """The best consultation of each case that has one worth imitating, and its reward; of equals the first."""
    for first in range(0, len(played), samples):
        worthy = [
            (played[i], scores[i].reward)
            for i in range(first, first + samples)
            if scores[i].turns
            and isinstance(read_events(played[i].events)[-1], Diagnosed)
            and scores[i].reward >= least
        ]
        if worthy:
            yield max(worthy, key=lambda one: one[1])


def _example(chat: ChatFormat, case: Case, trajectory: Trajectory, params: Params) -> Example:
    """A consultation under the run's own instructions, without loss on turns that broke the grammar."""
    system, *rest = trajectory.texts
    messages = [{**system, "content": phrases(case.language).instructions[params.consultation.instructions]}, *rest]
    ids, mask = chat.dialogue_ids(messages)
    broken = [isinstance(event, Invalid) for event in read_events(trajectory.events)]
    turn, kept = -1, []
    for place, learned in enumerate(mask):
        turn += learned and not mask[place - 1]
        kept.append(int(learned and not broken[turn]))
    return Example(ids, kept)
