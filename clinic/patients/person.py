"""A person who plays the patient."""

from collections.abc import Callable, Sequence

from clinic.cases import Case
from clinic.language import phrases
from clinic.patients.base import Answer

NOT_KNOWN = "\N{EM DASH}"  # in place of a diagnosis: whoever plays knows best


class PersonPatient:
    """Asks a person for every answer. What was said is on no record, so that no answer tells a known fact."""

    def __init__(self, ask: Callable[[str], str], language: str) -> None:
        """Args: gets what the doctor said and gives what the person answers; the language of the consultation."""
        self._ask, self._words = ask, phrases(language)

    async def answer(self, question: str) -> Answer:
        """What the person says; nothing is "I don't know"."""
        return Answer(self._ask(question).strip() or self._words.unknown, None, None)

    async def examine(self, test: str) -> Sequence[Answer]:
        """What the person says that the test found."""
        return [await self.answer(test)]


def person_case(complaint: str, language: str) -> Case:
    """A record with nothing in it but what somebody came for."""
    return Case(
        case_id="person",
        group_id="person",
        split="test",
        source="person",
        licence="-",
        language=language,
        category="unclassified",
        persona="plain",
        self_report=complaint,
        opening=(),
        facts=(),
        diagnosis_id="unknown",
        diagnosis=NOT_KNOWN,
        synonyms=(),
        parents=(),
        recommendation="",
        urgent=False,
        red_flags=(),
        flags=(),
    )
