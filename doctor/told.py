"""What whoever follows a consultation is told of it, wherever it is shown. No model library comes with it."""

from collections.abc import Sequence
from typing import Protocol

from clinic.actions import Action, Kind
from clinic.consultation import Reply
from clinic.events import Inquiry, Searched

NOTICE = {
    "en": "Teaching and research material. It is no doctor and gives no medical advice.",
    "zh": "教学与研究材料。它不是医生，不提供医疗建议。",
}
Line = tuple[str, str]  # of what is told of a turn: its label, and the text


class Audience(Protocol):
    """Who follows a consultation while it is held."""

    def said(self, turn: int, thought: str, action: Action) -> None:
        """The doctor's turn, from 1, before anybody answers; `thought` is empty if it thought nothing aloud."""
        ...

    def heard(self, reply: Reply, views: Sequence[tuple[str, float]]) -> None:
        """What came of it, and the likeliest conditions by Bayes' rule, where probabilities are known."""
        ...


def lines_said(thought: str, action: Action) -> list[Line]:
    """What is told of the doctor's turn before it is answered. One label begins with `Doctor`: that of the action."""
    what = "" if action.kind in (Kind.QUESTION, Kind.INVALID) else f" [{action.kind}]"
    lines = [
        ("thinks", thought),
        (f"Doctor{what}", action.text),
        ("advice", action.recommendation),
        ("evidence", ", ".join(action.evidence)),
        ("not understood", action.error),
    ]
    return [(label, text) for label, text in lines if text or label.startswith("Doctor")]


def lines_heard(reply: Reply, views: Sequence[tuple[str, float]]) -> list[Line]:
    """What is told of what came of it; the patient's words without what the doctor hears of its turns."""
    lines: list[Line] = []
    if isinstance(reply.event, Searched):
        lines = [("found", passage.title) for passage in reply.event.passages] or [("found", "nothing")]
    if isinstance(reply.event, Inquiry):
        said = [reply.event.reply, *(one.reply for one in reply.event.further)]
        lines.append(("Patient", " ".join(said)))
    if views:
        lines.append(("Bayes", ", ".join(f"{name} {share:.0%}" for name, share in views)))
    return lines
