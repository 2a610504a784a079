"""What attackers know of a set of cases: names, questions and fixed lists."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from clinic.actions import examination, question
from clinic.attacks import Trade
from clinic.attacks.base import words_of
from clinic.cases import Case
from clinic.experienced import name_of
from clinic.generative import GenerativeClinic
from clinic.language import phrases
from clinic.patients.base import record_matchers
from clinic.understanding.record import Kind
from clinic.worth import commonest_inquiries

LIST = 7  # questions of a fixed list
CANDIDATES, SAMPLE = 60, 150  # questions that the best list is chosen from, and cases that it is tried on


def trade_of(clinic: GenerativeClinic) -> Trade:
    """What anybody in the trade knows of a clinic: names by how common they are, broader terms by how many they cover,
    questions; which findings most patients have, and which tell most of a patient of whom nothing is known.
    """
    by_prevalence = sorted(clinic.conditions, key=lambda condition: -condition.prevalence)
    weight: dict[str, float] = {}
    for condition in clinic.conditions:
        for parent in condition.parents:
            weight[parent] = weight.get(parent, 0.0) + condition.prevalence
    asked = [question(finding.doctor.train[0], None, clinic.words) for finding in clinic.findings]
    common_F, gain_F = clinic.prior_C @ clinic.probability_CF, clinic.information_gain(clinic.prior_C)
    return Trade(
        names=[condition.name for condition in by_prevalence],
        other_names=[(condition.name, *condition.synonyms)[-1] for condition in by_prevalence],
        broader=sorted(weight, key=lambda term: -weight[term]) or words_of(clinic.language).broader,
        questions=[finding.doctor.train[0] for finding in clinic.findings],
        routine=[asked[i] for i in np.argsort(-common_F, kind="stable")],
        best=[asked[i] for i in np.argsort(-gain_F, kind="stable")[:LIST]],
    )


def trade_of_records(seen: Sequence[Case]) -> Trade:
    """What anybody in the trade knows who has seen these cases."""
    words = phrases(seen[0].language)
    names = Counter(name_of(case) for case in seen)
    other = {name_of(case): (name_of(case), *case.synonyms)[-1] for case in seen}
    broader = Counter(parent for case in seen for parent in case.parents)
    routine = commonest_inquiries(seen)
    topics = dict.fromkeys(fact.topic for case in seen for fact in case.facts)
    questions = [topic for topic in topics if topic.count("?") + topic.count("？") == 1]

    def turns(inquiries: Iterable[tuple[Kind, str]]) -> list[str]:
        return [
            examination(text, words) if kind == "test" else question(f"{text}?", None, words)
            for kind, text in inquiries
        ]

    return Trade(
        names=[name for name, _ in names.most_common()],
        other_names=[other[name] for name, _ in names.most_common()],
        broader=[name for name, _ in broader.most_common()] or words_of(words.code).broader,
        questions=questions or [f"{fact.topic}?" for fact in seen[0].facts],
        routine=turns(routine),
        best=turns(_best_list(seen[:SAMPLE], routine[:CANDIDATES])),
    )


def _best_list(cases: Sequence[Case], inquiries: Sequence[tuple[Kind, str]]) -> list[tuple[Kind, str]]:
    """The inquiries that together bring out the largest share of the present facts, chosen one after the other."""
    told: list[list[set[str]]] = []  # of each case, by inquiry
    for case in cases:
        match = record_matchers(case)
        present = {fact.topic for fact in case.facts if fact.present and fact.topic not in case.opening}
        told.append([present.intersection(match[kind](text)) for kind, text in inquiries])
    known: list[set[str]] = [set() for _ in cases]
    chosen: list[int] = []
    for _ in range(min(LIST, len(inquiries))):
        new = [sum(len(row[i] - had) for row, had in zip(told, known, strict=True)) for i in range(len(inquiries))]
        chosen.append(int(np.argmax(new)))
        for row, had in zip(told, known, strict=True):
            had |= row[chosen[-1]]
    return [inquiries[i] for i in chosen]
