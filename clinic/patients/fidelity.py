"""How true to the record the patients of a run were: DoctorAgent-RL's three measures, by rules instead of a judge.

Over all questions (tests apart, which the record answers) of a set of consultations, each in [0, 1]:

    information_control  replies that tell no fact which was not asked for / replies
    completeness         replies that tell the fact asked for / questions whose answer is on record
    conflict             replies that say the opposite of the record / questions whose answer is on record

A fact is told where a clause of the reply matches it; the opposite is told where reply and record begin with, or else
contain, opposite yes and no. These are lexical measures: they see what is said in words near the record's, and miss
what is paraphrased far from it, so compare runs and models by them rather than read them as absolute.

Source: the names, Feng et al., DoctorAgent-RL, arXiv:2505.19630, table 1 (there scored by a language model).
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from clinic.cases import Case
from clinic.events import Asked, Event, one_by_one
from clinic.language import phrases, says_unknown
from clinic.patients.base import Matcher, clauses, question_matcher, statement_matcher

_LEAD = {
    "en": (re.compile(r"\A\W*(?:yes|yeah|yep)\b", re.I), re.compile(r"\A\W*(?:no|nope|not really)\b", re.I)),
    "zh": (re.compile(r"\A(?:是|对|有(?!时))"), re.compile(r"\A(?:没|不|无|否)")),
}
_NEGATION = {
    "en": re.compile(r"\b(?:no|not|never|none|nothing|without|denies|cannot|\w+n't)\b", re.I),
    "zh": re.compile(r"没|不|无|未|否认|从来"),
}


def denies(text: str, language: str) -> bool:
    """Whether a statement says no: by its first word if that is yes or no, else by any negation in it."""
    yes, no = _LEAD[language]
    if yes.match(text) or no.match(text):
        return no.match(text) is not None
    return _NEGATION[language].search(text) is not None


def fidelity(played: Iterable[tuple[Case, Sequence[Event]]], matcher: Mapping[str, Matcher]) -> dict[str, float]:
    """The three measures over (case, events) pairs; a measure without a question to go by is left out.

    Args:
        played: cases with the events of their consultations.
        matcher: for cases of a generative clinic, by source; others are matched against their own record.
    """
    controlled: list[bool] = []
    complete: list[bool] = []
    opposite: list[bool] = []
    for case, events in played:
        match = matcher.get(case.source) or question_matcher(case)
        match_statement = matcher.get(case.source) or statement_matcher(case)
        facts = {fact.topic: fact for fact in case.facts}
        words = phrases(case.language)
        for event in one_by_one(events):
            if not isinstance(event, Asked):
                continue
            reply, asked = event.reply, match(event.text)
            told = {topic for clause in clauses(reply) if (topic := match_statement(clause)) in facts} - set(
                case.opening
            )
            controlled.append(told <= {asked})
            if asked not in facts or event.repeated:
                continue
            silent = says_unknown(reply, case.language) or reply == words.withheld
            complete.append(not silent)
            if not silent:
                fact = facts[asked]
                record = (
                    fact.text
                    if case.source not in matcher
                    else (words.yes if fact.present else words.no).format(fact.text)
                )
                opposite.append(denies(reply, case.language) != denies(record, case.language))
    measures = {"information_control": controlled, "completeness": complete, "conflict": opposite}
    return {name: sum(values) / len(values) for name, values in measures.items() if values}
