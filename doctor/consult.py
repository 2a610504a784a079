"""One consultation, told turn by turn while it is held: with a person as the patient, or with a patient of the run."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from clinic.actions import parse
from clinic.cases import Case, read_cases
from clinic.consultation import Consultation, Message, Reply, largest_turn_budget
from clinic.doctors import ReferenceDoctor, at_random
from clinic.errors import ClinicError
from clinic.language import phrases
from clinic.patients.person import PersonPatient, person_case
from clinic.questions import SingleTurn
from clinic.ratings import keep_rating
from doctor.environments import ConsultationFactory, open_factory
from doctor.mistakes import did_you_mean
from doctor.parameters import Params
from doctor.served import served_folder
from doctor.told import Audience
from rl.config import EndpointParams
from rl.environment import Count, EpisodeSpec
from rl.experience import Trajectory
from rl.machine import place_of
from rl.served import ServedPolicy, rough_count
from rl.workers.local import LocalSession

STEP = -3  # in the noise key: no step of a training, of validation or of evaluation
_THOUGHT = re.compile(r"\A\s*<think>(.*?)</think>", re.DOTALL)


def rate(path: Path, held: Trajectory, score: float) -> None:
    """Write a person's score into a file of ratings, which the reward preset `human` reads; the last one counts."""
    keep_rating(path, held.case_id, held.texts, score)


def held_out(cases: Path) -> dict[str, Case]:
    """The test cases of a case table by id; none where there is no table."""
    table = cases / "cases.parquet"
    return {case.case_id: case for case in read_cases(table, "test")} if table.exists() else {}


class Followed:
    """A consultation that somebody follows."""

    def __init__(self, held: Consultation, audience: Audience, bayes: ReferenceDoctor | None = None) -> None:
        """Args: the consultation; who follows it; who reckons along by Bayes' rule, if somebody can."""
        self._held, self._audience, self._bayes, self._turns = held, audience, bayes, 0

    def opening(self) -> list[Message]:
        """The messages before the first turn."""
        return self._held.opening()

    async def step(self, turn: str) -> Reply:
        """Take the doctor's turn; it is told before it is answered, and again with the answer."""
        self._turns += 1
        thought = _THOUGHT.match(turn)
        action = parse(turn, phrases(self._held.case.language), self._held.params.max_questions)
        self._audience.said(self._turns, thought[1].strip() if thought else "", action)
        reply = await self._held.step(turn)
        if self._bayes is not None:
            self._bayes.hear(reply.event)
        self._audience.heard(reply, _likeliest(self._bayes) if self._bayes is not None else ())
        return reply


def _likeliest(bayes: ReferenceDoctor, count: int = 3) -> tuple[tuple[str, float], ...]:
    posterior_C = bayes.posterior()
    order = np.argsort(posterior_C)[::-1][:count]
    return tuple((bayes.clinic.conditions[i].name, float(posterior_C[i])) for i in order)


class Practice:
    """A doctor with an open door. The model is loaded once, or served by somebody else.

    Attributes:
        folder: where its weights lie, if they lie on this machine.
        name: as it is told.
    """

    def __init__(self, params: Params, doctor: Path | EndpointParams, cases: Path, index: Path) -> None:
        """Load the doctor.

        Args:
            params: rules, limits and how it is sampled.
            doctor: its folder, or where it is served.
            cases: folder of the case table; it need not be there for a person's consultation.
            index: the knowledge base, opened at the first search.
        """
        self.params, self.cases = params, cases
        self.factory: ConsultationFactory = open_factory(params, index, cases if cases.exists() else None)
        self._waiting: Followed | None = None  # who is next
        self._hold: Callable[[EpisodeSpec], Trajectory]
        self._count: Count
        self.folder: Path | None
        if isinstance(doctor, EndpointParams):
            self.folder, self.name = served_folder(doctor), f"{doctor.model} at {doctor.url}"
            self._hold, self._count = ServedPolicy(doctor, self._seat).play, rough_count
        else:
            self.folder, self.name = doctor, str(doctor)
            self._hold, self._count = self._loaded(doctor)

    def _loaded(self, model: Path) -> tuple[Callable[[EpisodeSpec], Trajectory], Count]:
        place, temperature = place_of(self.params.machines), self.params.decoding.evaluate.temperature
        session = LocalSession(str(model), place, self.params.rollout, None, self.params.seed, seat=self._seat)
        return lambda spec: session.rollout([spec], temperature)[0], session.chat.count

    def _seat(self, spec: EpisodeSpec, _: Count) -> Followed:
        if self._waiting is None:
            raise RuntimeError(f"nobody waits for episode {spec.case_id}")
        return self._waiting

    def case(self, case_id: str) -> Case:
        """A held-out case by its id.

        Raises:
            ClinicError: there is none.
        """
        cases = held_out(self.cases)
        if case_id not in cases:
            raise ClinicError(f"no test case {case_id!r} in {self.cases}{did_you_mean(case_id, cases)}")
        return cases[case_id]

    def with_person(self, complaint: str, language: str, ask: Callable[[str], str], audience: Audience) -> Trajectory:
        """A consultation with somebody who answers for themselves.

        Args:
            complaint: what they came for.
            language: of the consultation, `en` or `zh`.
            ask: gets the doctor's question, gives the answer.
            audience: follows it.
        """
        case, patient = person_case(complaint, language), PersonPatient(ask, language)
        library = self.factory.library(self._count)
        held = Consultation(case, patient, self.factory.rules, self.budget, library)
        return self._play(case, Followed(held, audience))

    def with_case(self, case: Case, audience: Audience) -> Trajectory:
        """A consultation with a patient of the run; Bayes' rule follows where the case's probabilities are known."""
        consultation = self.factory.consultation(case, self.budget, self._count)
        if isinstance(consultation, SingleTurn):
            raise ClinicError(f"{case.case_id} is a single question, no patient")
        clinic = self.factory.clinic
        bayes = (
            ReferenceDoctor(clinic=clinic, case=case, ask=at_random, questions=0, rng=np.random.default_rng(0))
            if case.source == clinic.name
            else None
        )
        return self._play(case, Followed(consultation, audience, bayes))

    @property
    def budget(self) -> int:
        """Turns that the doctor has, the diagnosis included."""
        return largest_turn_budget(self.params.consultation)

    def _play(self, case: Case, followed: Followed) -> Trajectory:
        self._waiting = followed
        spec = EpisodeSpec(
            case_id=case.case_id,
            group_id=case.case_id,
            sample=0,
            turn_budget=self.budget,
            noise=(self.params.seed, STEP),
            case=case,
            privileged={},
        )
        return self._hold(spec)
