"""How a consultation begins: with the patient's own words, behind a search for them that was made already, or with the
whole chart.
"""

from functools import cached_property
from typing import Literal

from clinic.actions import lookup
from clinic.cases import Case
from clinic.config import ConsultationParams
from clinic.consultation import Consultation, Message, Reply, at_once, self_report
from clinic.language import phrases
from clinic.leaks import LeakFilter
from clinic.library import harmless

Opening = Literal["", "search", "chart"]
"""The patient's own words; these and a search for them, a turn of the doctor's; the chart."""
QUERY_CHARS = 200  # of the patient's words; a doctor's turn is no longer


class SearchedConsultation(Consultation):
    """A consultation whose first turn has been taken: a search for the patient's opening words. With one turn in all, or no
    words to look up, there is none.
    """

    found: Reply | None = None  # what the library said

    def opening(self) -> list[Message]:
        """All up to what was found, the same whenever it is asked for; the first time the library answers without waiting."""
        return list(self._opening)

    @cached_property
    def _opening(self) -> list[Message]:
        opening, query = super().opening(), opening_query(self.case)
        if self.left < 2 or not query:
            return opening
        turn = lookup(query, phrases(self.case.language))
        self.found = at_once(self.step(turn))
        return [
            *opening,
            {"role": "assistant", "content": turn},
            {"role": "user", "content": self.found.text or ""},
        ]


class ChartConsultation(Consultation):
    """A consultation that begins with the whole chart."""

    def opening(self) -> list[Message]:
        """The chart in place of the patient's own words."""
        return chart_opening(self.case, self.params)


OPENED: dict[Opening, type[Consultation]] = {
    "": Consultation,
    "search": SearchedConsultation,
    "chart": ChartConsultation,
}


def opening_query(case: Case) -> str:
    """What is searched for before the doctor's own first turn: the patient's first words, on one line and as the grammar
    reads them.
    """
    return harmless(self_report(case))[:QUERY_CHARS].strip()


def chart_opening(case: Case, rules: ConsultationParams) -> list[Message]:
    """The whole chart as the opening message: every present fact in the patient's words, and one turn left."""
    words = phrases(case.language)
    told = words.list_comma.join(fact.text for fact in case.facts if fact.present)
    return [
        {"role": "system", "content": words.instructions[rules.instructions]},
        {"role": "user", "content": words.turns_left.format(words.chart.format(LeakFilter(case).clean(told)[0]), 1)},
    ]
