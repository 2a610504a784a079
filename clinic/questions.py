"""Single-turn medical questions as an environment: a question in, one answer out.

Scored by a reward model, a judge or a person.

A question is a case without a patient: its text stands as the self-report, its key points as the facts. So cases of
both kinds share one table, its splits and its checks.
"""

from clinic.cases import Case
from clinic.consultation import Message, Reply
from clinic.events import Answered, Ending
from clinic.language import phrases


class SingleTurn:
    """One question; over after the first turn, whatever it is."""

    def __init__(self, case: Case) -> None:
        """Ask a question.

        Args:
            case: the question, as a case.
        """
        self._case = case
        self._over = False

    def opening(self) -> list[Message]:
        """The system message and the question."""
        return [
            {"role": "system", "content": phrases(self._case.language).answer_questions},
            {"role": "user", "content": self._case.self_report},
        ]

    async def step(self, turn: str) -> Reply:
        """Take the answer.

        Raises:
            RuntimeError: it was answered already.
        """
        if self._over:
            raise RuntimeError(f"question {self._case.case_id} was answered; start a new one")
        self._over = True
        return Reply(None, Answered(turn.strip()), Ending.ANSWERED)
