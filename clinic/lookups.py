"""Lessons in looking things up: what the warm start reads so that a doctor can search and read what is found.

Half of the skill is copying: the name of a condition that was never met is taken from a line of the library, letter by
letter. Conditions that exist nowhere (`clinic.invented`) teach it; known ones beside them teach that not every line
fits.
"""

from collections.abc import Callable, Sequence

import numpy as np

from clinic.actions import diagnosis, search
from clinic.cases import Case
from clinic.config import ConsultationParams
from clinic.consultation import Consultation, Message
from clinic.dialogues import at_once, final_turn, interview
from clinic.doctors import Ask, ReferenceDoctor
from clinic.events import FoundPassage
from clinic.generative import Condition, GenerativeClinic
from clinic.invented import passage
from clinic.library import Fits
from clinic.matching import Matcher
from clinic.patients.scripted import ScriptedPatient

QUERY_FINDINGS = 6  # in a search, at most: the last ones told


class PracticeLibrary:
    """A library of a clinic's conditions for one dialogue, a line for each; it always finds one of them."""

    def __init__(
        self,
        clinic: GenerativeClinic,
        found: Condition | None,
        count: Callable[[str], int],
        rng: np.random.Generator,
    ) -> None:
        """Args: the clinic; the condition that every search finds, if there is one; tokens of a text; chance."""
        self._clinic, self._found, self._rng = clinic, found, rng
        self.tokens = count

    async def search(self, query: str, results: int, fits: Fits) -> Sequence[FoundPassage]:
        """Lines of the conditions that share most findings with the query, as many as fit."""
        asked = {f.finding_id for f in self._clinic.findings if f.name in query}
        chance_C = self._rng.random(len(self._clinic.conditions))
        shared_C = np.array([sum(p for f, p in c.findings.items() if f in asked) for c in self._clinic.conditions])
        order = [self._clinic.conditions[int(row)] for row in np.argsort(-(shared_C + 0.8 * chance_C))[:results]]
        if self._found is not None and self._found not in order:
            order[int(self._rng.integers(len(order)))] = self._found
        lines = [passage(self._clinic, condition, self._rng) for condition in order]
        while len(lines) > 1 and not fits(lines):
            place = len(lines) - 1
            lines.pop(place - 1 if self._found is not None and lines[place].title == self._found.name else place)
        return lines


def query_of(clinic: GenerativeClinic, told: Sequence[str]) -> str:
    """What is searched for: the names of the last findings that were told."""
    return ", ".join(clinic.findings[clinic.finding_index[topic]].name for topic in told[-QUERY_FINDINGS:])


def lookup_dialogue(  # noqa: PLR0913  the parts of one lesson
    known: GenerativeClinic,
    stocked: GenerativeClinic,
    case: Case,
    matcher: Matcher,
    rules: ConsultationParams,
    ask: Ask,
    count: Callable[[str], int],
    rng: np.random.Generator,
) -> list[Message]:
    """A resident who asks, searches for what was told, reads, and names the chart's diagnosis.

    Args:
        known: the clinic as the resident knows it, whose illnesses it chases.
        stocked: the clinic that the library knows, with the same findings; its line for the case is always found where
            the resident does not know the condition.
        case: of `stocked`.
        matcher: of questions to findings.
        rules: of the consultation; the number of questions is uniform on 0 to turn_budget - 2.
        ask: the resident's way.
        count: tokens of a text, as the doctor reads it.
        rng: chance.
    """
    budget = rules.turn_budget
    doctor = ReferenceDoctor(clinic=known, case=case, ask=ask, questions=int(rng.integers(budget - 1)), rng=rng)
    unknown = case.diagnosis_id not in known.condition_index
    found = stocked.conditions[stocked.condition_index[case.diagnosis_id]] if unknown else None
    library = PracticeLibrary(stocked, found, count, rng)
    consultation = Consultation(case, ScriptedPatient(case, matcher), rules, budget, library)
    messages = interview(doctor, consultation)
    told = [*case.opening, *(known.findings[column].finding_id for column, here in doctor.answers.items() if here)]
    turn = search(query_of(known, told), known.words)
    reply = at_once(consultation.step(turn))
    return [
        *messages,
        {"role": "assistant", "content": turn},
        {"role": "user", "content": reply.text or ""},
        final_turn(case),
    ]


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
