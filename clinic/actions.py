"""What a doctor may do in one turn, and how it is written.

    <think>optional reasoning</think>
    <answer>Question: Do you have a fever?</answer>
    <answer>Search: causes of chest pain on breathing</answer>
    <answer>Test: chest X-ray</answer>
    <answer>Diagnosis: Pneumonia
    Recommendation: Chest X-ray and oral antibiotics</answer>

or in Chinese 问题： 检索： 检查： 诊断： 建议：. Any text parses: what breaks the grammar becomes an invalid action whose error the
doctor gets to read, in the language of the consultation.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from clinic.language import EN, Phrases

_ANSWER = re.compile(r"\A\s*(?:<think>.*?</think>\s*)?<answer>(.*?)</answer>\s*\Z", re.DOTALL)
# ASCII: "teſt" is no "test"
_KIND = re.compile(r"\A\s*((?ai:question|search|test|diagnosis)|问题|提问|检索|检查|诊断)\s*[:：]\s*")
_RECOMMENDATION = re.compile(r"(?<!\s)\s*(?:recommendation|建议)\s*[:：]\s*", re.IGNORECASE)
_CHINESE = {"问题": "question", "提问": "question", "检索": "search", "检查": "test", "诊断": "diagnosis"}
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


def parse(turn: str, words: Phrases = EN) -> Action:
    """Read one doctor turn, in any language; errors are in that of `words`. Never raises."""
    answer = _ANSWER.match(turn)
    if answer is None or "<answer>" in answer[1] or "</answer>" in answer[1]:
        return Action(Kind.INVALID, turn, error=words.one_answer)
    body = answer[1].strip()
    kind = _KIND.match(body)
    if kind is None:
        return Action(Kind.INVALID, body, error=words.begin_with)
    name, text = Kind(_CHINESE.get(kind[1]) or kind[1].lower()), body[kind.end() :].strip()
    if name is Kind.DIAGNOSIS:
        return _diagnosis(text, words)
    if not text:
        return Action(Kind.INVALID, body, error=words.empty.format(kind[1].lower()))
    marks = text.count("?") + text.count("？")
    if (name is Kind.QUESTION and marks != 1) or (name is Kind.TEST and marks > 1):
        return Action(Kind.INVALID, body, error=words.one_question)
    return Action(name, text)


def _diagnosis(text: str, words: Phrases) -> Action:
    diagnosis, *rest = _RECOMMENDATION.split(text, maxsplit=1)
    diagnosis = diagnosis.strip()
    if not diagnosis:
        return Action(Kind.INVALID, text, error=words.empty.format(words.diagnosis.rstrip(":： ").lower()))
    if len(diagnosis) > MAX_DIAGNOSIS_CHARS or "\n" in diagnosis:
        return Action(Kind.INVALID, text, error=words.one_diagnosis)
    return Action(Kind.DIAGNOSIS, diagnosis, recommendation=rest[0].strip() if rest else "")


def thought(condition: str, words: Phrases = EN) -> str:
    """Write the condition that the doctor has in mind as its reasoning; it reads as a diagnosis does, so what is
    learned of one serves the other.
    """
    return f"<think>{words.diagnosis}{condition}?</think>"


def question(text: str, condition: str | None = None, words: Phrases = EN) -> str:
    """Write a question in the grammar, after the thought of a condition if there is one."""
    return f"{thought(condition, words) if condition else ''}<answer>{words.question}{text}</answer>"


def test(name: str, words: Phrases = EN) -> str:
    """Order an examination or test in the grammar."""
    return f"<answer>{words.test}{name}</answer>"


def diagnosis(name: str, recommendation: str, words: Phrases = EN) -> str:
    """Write a diagnosis with its recommendation in the grammar."""
    return f"<answer>{words.diagnosis}{name}\n{words.recommendation}{recommendation}</answer>"
