"""Lessons in looking things up: what the warm start reads so that a doctor can search and read what is found.

Half of the skill is copying: the name of a condition that was never met is taken from a line of the library, letter by
letter. Conditions that exist nowhere (`clinic.invented`) teach it; known ones beside them teach that not every line
fits.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clinic.actions import diagnosis, search
from clinic.cases import Case
from clinic.config import ConsultationParams
from clinic.consultation import Consultation, Message, at_once, largest_turn_budget
from clinic.dialogues import final_turn, interview
from clinic.doctors import Ask, Chase, ReferenceDoctor
from clinic.events import FoundPassage
from clinic.generative import Array, Condition, GenerativeClinic
from clinic.invented import passage
from clinic.library import Fits
from clinic.patients.base import Matcher
from clinic.patients.scripted import ScriptedPatient

LATE = 0.7  # share of the consultations with a search in which it comes after all questions but one
QUERY_FINDINGS = 6  # in a search, at most: the last ones told
INVENTED_ON_SHELF = 20  # beside the clinic's own conditions


class PracticeLibrary:
    """A library of a few conditions for one dialogue, a line for each."""

    def __init__(
        self,
        clinic: GenerativeClinic,
        shelf: Sequence[Condition],
        found: Condition | None,
        count: Callable[[str], int],
        rng: np.random.Generator,
    ) -> None:
        """Args: a clinic with the findings; the conditions; the one that every search finds first, if there is one;
        tokens of a text; chance.
        """
        self._clinic, self._shelf, self._found, self._rng = clinic, shelf, found, rng
        self.tokens = count

    async def search(self, query: str, results: int, fits: Fits) -> Sequence[FoundPassage]:
        """Lines of the conditions that share most findings with the query, as many as fit, at least one."""
        order = self._ranked(query)
        if self._found is not None:
            order = [self._found, *(condition for condition in order if condition is not self._found)]
        lines = [passage(self._clinic, condition, self._rng) for condition in order[:results]]
        titles = [replace(line, text="") for line in lines]
        while len(titles) > 1 and not fits(titles):
            titles.pop()
        lines = lines[: len(titles)]
        shown = len(lines)  # with their texts, from the first on
        while shown and not fits([*lines[:shown], *titles[shown:]]):
            shown -= 1
        return [*lines[:shown], *titles[shown:]]

    def _ranked(self, query: str) -> list[Condition]:
        asked = {f.finding_id for f in self._clinic.findings if f.name in query}
        shared = [sum(p for f, p in c.findings.items() if f in asked) + 0.8 * self._rng.random() for c in self._shelf]
        return [self._shelf[int(row)] for row in np.argsort(shared)[::-1]]


def query_of(clinic: GenerativeClinic, told: Sequence[str]) -> str:
    """What is searched for: the names of the last findings that were told."""
    return ", ".join(clinic.findings[clinic.finding_index[topic]].name for topic in told[-QUERY_FINDINGS:])


class Lookup(NamedTuple):
    """A consultation with a search."""

    messages: list[Message]
    searches: list[str]  # turns: what could be searched for in place of each question


def lookup_dialogue(  # noqa: PLR0913  the parts of one lesson
    clinic: GenerativeClinic,
    invented: Sequence[Condition],
    case: Case,
    matcher: Matcher,
    rules: ConsultationParams,
    ask: Ask,
    count: Callable[[str], int],
    rng: np.random.Generator,
) -> Lookup:
    """A resident who asks, searches for what was told, reads, and names the chart's diagnosis.

    Args:
        clinic: as the resident knows it, whose illnesses it chases.
        invented: conditions beside the clinic's own in the library.
        case: of the clinic, or of one of these conditions, whose line is then always found first.
        matcher: of questions to findings.
        rules: of the consultation; mostly all questions but one are asked first.
        ask: the resident's way.
        count: tokens of a text, as the doctor reads it.
        rng: chance.
    """
    budget = largest_turn_budget(rules)
    last = max(budget - 2, 0)
    questions = last if rng.random() < LATE else int(rng.integers(max(last, 1)))
    searches: list[str] = []

    def looking_up() -> str:
        here = [clinic.findings[column].finding_id for column, present in doctor.answers.items() if present]
        return search(query_of(clinic, [*case.opening, *here]), clinic.words)

    def asking(
        clinic: GenerativeClinic, posterior_C: Array, open_F: NDArray[np.bool_], rng: np.random.Generator
    ) -> int | Chase:
        searches.append(looking_up())
        return ask(clinic, posterior_C, open_F, rng)

    doctor = ReferenceDoctor(clinic=clinic, case=case, ask=asking, questions=questions, rng=rng)
    found = next((condition for condition in invented if condition.condition_id == case.diagnosis_id), None)
    others = [invented[int(row)] for row in rng.choice(len(invented), INVENTED_ON_SHELF, replace=False)]
    shelf = [*clinic.conditions, *(one for one in others if one is not found), *([found] if found is not None else [])]
    library = PracticeLibrary(clinic, shelf, found, count, rng)
    consultation = Consultation(case, ScriptedPatient(case, matcher), rules, budget, library)
    messages = interview(doctor, consultation)
    turn = looking_up()
    reply = at_once(consultation.step(turn))
    looked_up: list[Message] = [{"role": "assistant", "content": turn}, {"role": "user", "content": reply.text or ""}]
    return Lookup([*messages, *looked_up, final_turn(case)], searches)


def reading_exercise(
    stocked: GenerativeClinic, rules: ConsultationParams, lines: int, rounds: int, rng: np.random.Generator
) -> list[Message]:
    """Lines of the library, then charts of three findings each, and the line that each fits."""
    chosen = [stocked.conditions[int(row)] for row in rng.choice(len(stocked.conditions), lines, replace=False)]
    words = stocked.words
    shown = words.library.format("\n".join(passage(stocked, condition, rng).shown for condition in chosen))
    messages: list[Message] = [{"role": "system", "content": words.instructions[rules.instructions]}]
    for _ in range(rounds):
        condition = chosen[int(rng.integers(lines))]
        columns = [stocked.finding_index[str(f)] for f in rng.permutation(sorted(condition.findings))[:3]]
        told = words.list_comma.join(
            finding.name if rng.random() < 0.5 else finding.patient.train[int(rng.integers(len(finding.patient.train)))]
            for finding in (stocked.findings[column] for column in columns)
        )
        text = words.turns_left.format(words.chart.format(told), 1)
        messages += [
            {"role": "user", "content": text if len(messages) > 1 else f"{shown}\n{text}"},
            {"role": "assistant", "content": diagnosis(condition.name, condition.next_steps[0], words)},
        ]
    return messages
