"""Reference doctors on the test cases: those of the starter clinic know its probabilities, those of other sources are
fitted on training cases.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from clinic.cases import Case
from clinic.consultation import Consultation, at_once
from clinic.doctors import Ask, Doctor, ReferenceDoctor, at_random
from clinic.events import Ending, Event, final_diagnosis
from clinic.fitted import Commonest, FittedBayes, FittedDoctor, chart, commonest, report
from clinic.metrics import Missing, Row, answer_first
from clinic.patients.scripted import ScriptedPatient
from clinic.tables import Evaluation
from doctor.evaluation import EvaluationSet

COMMONEST = "commonest_diagnosis"


def reference_table(test_set: EvaluationSet, name: str, ask: Ask, questions: int) -> Evaluation:
    """Play every test case with a reference doctor: asks by `ask`, decides by Bayes; asks in test wordings."""
    rows = []
    for place, case in enumerate(test_set.cases):
        rng = np.random.default_rng([test_set.params.seed, place])
        doctor = ReferenceDoctor(
            clinic=test_set.factory.clinic, case=case, ask=ask, questions=questions, rng=rng, wordings="test"
        )
        events = _played(test_set, case, doctor)
        rows.append(_row(test_set, case, events, _ranking(doctor, events)))
    return test_set.table(name, rows)


def full_information_table(test_set: EvaluationSet) -> Evaluation:
    """Bayes' decision from the whole chart: the ceiling of any diagnosis."""
    rows = []
    for case in test_set.cases:
        doctor = ReferenceDoctor(
            clinic=test_set.factory.clinic, case=case, ask=at_random, questions=0, rng=np.random.default_rng(0)
        )
        for fact in case.facts:
            doctor.learn(fact.topic, fact.present)
        events = _played(test_set, case, doctor)
        rows.append(_from_the_chart(_row(test_set, case, events, _ranking(doctor, events))))
    return test_set.table("bayes_full_information", rows)


def fitted_tables(test_set: EvaluationSet) -> Evaluation:
    """What training cases of the same source alone teach: always naming their commonest diagnosis; and, where no
    probabilities are known, naive Bayes that asks, that does not, and that reads the whole chart. None without such
    cases.
    """
    if not test_set.seen:
        return Evaluation()
    tables = test_set.table(COMMONEST, commonest_rows(test_set))
    if test_set.generative:
        return tables
    fitted = FittedBayes(test_set.seen)
    asking, hearing, reading = [], [], []
    for case in test_set.cases:
        doctor = partial(FittedDoctor, fitted, opening=case.opening)
        asking.append(_fitted_row(test_set, case, doctor(questions=test_set.budget - 1, heard=report(case))))
        hearing.append(_fitted_row(test_set, case, doctor(questions=0, heard=report(case))))
        reading.append(_from_the_chart(_fitted_row(test_set, case, doctor(questions=0, heard=chart(case)))))
    return (
        tables
        | test_set.table("fitted_bayes", asking)
        | test_set.table("fitted_bayes_no_questions", hearing)
        | test_set.table("fitted_bayes_full_information", reading)
    )


def commonest_rows(test_set: EvaluationSet) -> list[Row | Missing]:
    """Of one who always names the commonest diagnosis of the training cases, of which there is at least one."""
    examples = commonest(test_set.seen)
    return [_fitted_row(test_set, case, Commonest(examples)) for case in test_set.cases]


def _played(test_set: EvaluationSet, case: Case, doctor: Doctor) -> list[Event]:
    """One consultation of a scripted doctor, who ends it in time, with a scripted patient."""
    consultation = Consultation(
        case,
        ScriptedPatient(case, test_set.factory.matchers.get(case.source)),
        test_set.params.consultation,
        test_set.budget,
        None,
    )
    events: list[Event] = []
    while True:
        reply = at_once(consultation.step(doctor.turn()))
        events.append(reply.event)
        if reply.text is None:
            return events
        doctor.hear(reply.event)


def _fitted_row(test_set: EvaluationSet, case: Case, doctor: Commonest | FittedDoctor) -> Row | Missing:
    events = _played(test_set, case, doctor)
    return _row(test_set, case, events, doctor.ranking())


def _ranking(doctor: ReferenceDoctor, events: Sequence[Event]) -> list[str]:
    order = np.argsort(doctor.posterior())[::-1]
    last = final_diagnosis(events)
    return answer_first([doctor.clinic.conditions[i] for i in order], last.diagnosis if last else None)


def _row(test_set: EvaluationSet, case: Case, events: Sequence[Event], ranking: Sequence[str]) -> Row | Missing:
    turns = test_set.scorer.score(case, events, Ending.DIAGNOSED)
    reward = sum(sum(turn.values()) for turn in turns) if turns else None
    return test_set.measure(case, events, reward, None, ranking, None)


def _from_the_chart(row: Row | Missing) -> Row | Missing:
    """What was not asked for earns nothing that could be compared."""
    return row if isinstance(row, Missing) else row | {"reward": None, "fact_recall": 1.0, "red_flags_missed": None}
