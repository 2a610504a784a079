"""What a doctor may do in one turn, and how it is written.

    <think>optional reasoning</think>
    <answer>Question: Do you have a fever?</answer>
    <answer>Search: causes of chest pain on breathing</answer>
    <answer>Test: chest X-ray</answer>
    <answer>Diagnosis: Pneumonia
    Recommendation: Chest X-ray and oral antibiotics</answer>

Any text parses: what breaks the grammar becomes an invalid action whose error the doctor gets to read.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

_ANSWER = re.compile(r"\A\s*(?:<think>.*?</think>\s*)?<answer>(.*?)</answer>\s*\Z", re.DOTALL)
_KIND = re.compile(r"\A\s*((?ai:question|search|test|diagnosis))\s*[:：]\s*")  # ASCII: "teſt" is no "test"
_RECOMMENDATION = re.compile(r"(?<!\s)\s*recommendation\s*[:：]\s*", re.IGNORECASE)
MAX_DIAGNOSIS_CHARS = 120


class Kind(StrEnum):
    """The kinds of action."""

    QUESTION = "question"
    SEARCH = "search"
    TEST = "test"
    DIAGNOSIS = "diagnosis"
    INVALID = "invalid"


@dataclass(frozen=True)
class Action:
    """One parsed doctor turn; `error` is empty unless the kind is INVALID."""

    kind: Kind
    text: str
    recommendation: str = ""
    error: str = ""


def parse(turn: str) -> Action:
    """Read one doctor turn. Never raises."""
    answer = _ANSWER.match(turn)
    if answer is None or "<answer>" in answer[1] or "</answer>" in answer[1]:
        return Action(Kind.INVALID, turn, error="write exactly one <answer>...</answer> and nothing after it")
    body = answer[1].strip()
    kind = _KIND.match(body)
    if kind is None:
        return Action(Kind.INVALID, body, error="begin the answer with Question:, Search:, Test: or Diagnosis:")
    name, text = Kind(kind[1].lower()), body[kind.end():].strip()
    if name is Kind.DIAGNOSIS:
        return _diagnosis(text)
    if not text:
        return Action(Kind.INVALID, body, error=f"the {name} is empty")
    if name is Kind.QUESTION and text.count("?") + text.count("？") != 1:
        return Action(Kind.INVALID, body, error="ask exactly one question, with one question mark")
    return Action(name, text)


def _diagnosis(text: str) -> Action:
    diagnosis, *rest = _RECOMMENDATION.split(text, maxsplit=1)
    diagnosis = diagnosis.strip()
    if not diagnosis:
        return Action(Kind.INVALID, text, error="the diagnosis is empty")
    if len(diagnosis) > MAX_DIAGNOSIS_CHARS or "\n" in diagnosis:
        return Action(Kind.INVALID, text, error="give one diagnosis, on one short line")
    return Action(Kind.DIAGNOSIS, diagnosis, recommendation=rest[0].strip() if rest else "")


def thought(condition: str) -> str:
    """Write the condition that the doctor has in mind as its reasoning; it reads as a diagnosis does, so what is learned of one serves the other."""
    return f"<think>Diagnosis: {condition}?</think>"


def question(text: str, condition: str | None = None) -> str:
    """Write a question in the grammar, after the thought of a condition if there is one."""
    return f"{thought(condition) if condition else ''}<answer>Question: {text}</answer>"


def diagnosis(name: str, recommendation: str) -> str:
    """Write a diagnosis with its recommendation in the grammar."""
    return f"<answer>Diagnosis: {name}\nRecommendation: {recommendation}</answer>"
