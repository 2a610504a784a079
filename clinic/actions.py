"""What a doctor may do in one turn, and how it is written.

    <think>optional reasoning</think>
    <answer>Question: Do you have a fever?</answer>
    <answer>Search: causes of chest pain on breathing</answer>
    <answer>Test: chest X-ray</answer>
    <answer>Diagnosis: Pneumonia
    Recommendation: Chest X-ray and oral antibiotics
    Evidence: pneumonia#1, pneumonia#3</answer>

or in Chinese 问题： 检索： 检查： 诊断： 建议： 依据：. The evidence, ids of passages that a search showed, may
be left out. Any text parses: what breaks the grammar becomes an invalid action whose error the
doctor gets to read, in the language of the consultation.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from clinic.language import EN, Phrases

_ANSWER = re.compile(r"\A\s*(?:<think>.*?</think>\s*)?<answer>(.*?)</answer>\s*\Z", re.DOTALL)
# ASCII: "teſt" is no "test"
_KIND = re.compile(r"\A\s*((?ai:question|search|test|diagnosis)|问题|提问|检索|检查|诊断)\s*[:：]\s*")
_RECOMMENDATION = re.compile(r"(?<!\s)\s*(?:recommendation|建议)\s*[:：]\s*", re.IGNORECASE)
_EVIDENCE = re.compile(r"\s*(?:evidence|依据)\s*[:：]", re.IGNORECASE)
_BETWEEN_IDS = re.compile(r"[\s,，、;；\[\]()（）。]+")
_CHINESE = {"问题": "question", "提问": "question", "检索": "search", "检查": "test", "诊断": "diagnosis"}
MAX_DIAGNOSIS_CHARS = 120
# of every script, full, half and small width, doubled or an ornament; the inverted mark opens a question and ends none
_QUESTION_MARK = re.compile(
    "[?\uff1f\ufe56\u061f\u037e\u055e\u1367\u1945\u2047\u2048\u2049\u203d\u2753\u2754\u2cfa\u2cfb\u2e2e\u2e54\ua60f\ua6f7\ufe16"
    "\U00011143\U0001e95f]"
)


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
    evidence: tuple[str, ...] = ()  # ids, each once
    error: str = ""


def without_marks(text: str) -> str:
    """The text without the question marks of any script."""
    return _QUESTION_MARK.sub("", text).strip()


def questions_in(text: str) -> list[str]:
    """The questions of a text, each with what leads up to it, by question marks of any script."""
    ends = [mark.end() for mark in _QUESTION_MARK.finditer(text)]
    parts = [text[start:end].strip() for start, end in zip([0, *ends], ends, strict=False)]
    return [part for part in parts if any(letter.isalnum() for letter in part)]


def parse(turn: str, words: Phrases = EN, max_questions: int = 1) -> Action:
    """Read one doctor turn, in any language; errors are in that of `words`. Never raises.

    Above one, `max_questions` allows several questions in a turn; how many are answered is not the grammar's affair.
    """
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
    marks = len(_QUESTION_MARK.findall(text))
    too_many = marks > 1 and (name is Kind.TEST or max_questions == 1)
    if name in (Kind.QUESTION, Kind.TEST) and (too_many or (name is Kind.QUESTION and not marks)):
        return Action(Kind.INVALID, body, error=words.one_question)
    return Action(name, text)


def _diagnosis(text: str, words: Phrases) -> Action:
    text, evidence = _without_evidence(text)
    diagnosis, *rest = _RECOMMENDATION.split(text, maxsplit=1)
    diagnosis = diagnosis.strip()
    if not any(letter.isalnum() for letter in diagnosis):
        return Action(Kind.INVALID, text, error=words.empty.format(words.diagnosis.rstrip(":： ").lower()))
    if len(diagnosis) > MAX_DIAGNOSIS_CHARS or len(diagnosis.splitlines()) > 1:
        return Action(Kind.INVALID, text, error=words.one_diagnosis)
    return Action(Kind.DIAGNOSIS, diagnosis, recommendation=rest[0].strip() if rest else "", evidence=evidence)


def _without_evidence(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without its last line, if that is of evidence, and the ids that are cited there."""
    others, _, last = text.rpartition("\n")
    keyword = _EVIDENCE.match(last)
    if keyword is None:
        return text, ()
    return others, tuple(dict.fromkeys(one for one in _BETWEEN_IDS.split(last[keyword.end() :]) if one))


def thought(condition: str, words: Phrases = EN) -> str:
    """Write the condition that the doctor has in mind as its reasoning; it reads as a diagnosis does, so what is
    learned of one serves the other.
    """
    return f"<think>{words.diagnosis}{condition}?</think>"


def question(text: str, condition: str | None = None, words: Phrases = EN) -> str:
    """Write a question in the grammar, after the thought of a condition if there is one."""
    return f"{thought(condition, words) if condition else ''}<answer>{words.question}{text}</answer>"


def search(text: str, words: Phrases = EN) -> str:
    """Look something up, in the grammar."""
    return f"<answer>{words.search}{text}</answer>"


def examination(name: str, words: Phrases = EN) -> str:
    """Order an examination or test in the grammar."""
    return f"<answer>{words.test}{name}</answer>"


def lookup(query: str, words: Phrases = EN) -> str:
    """Look something up in the knowledge base, in the grammar."""
    return f"<answer>{words.search}{query}</answer>"


def diagnosis(name: str, recommendation: str, words: Phrases = EN, evidence: Sequence[str] = ()) -> str:
    """Write a diagnosis with its recommendation, and the ids of passages that speak for it, in the grammar."""
    cited = f"\n{words.evidence}{', '.join(evidence)}" if evidence else ""
    return f"<answer>{words.diagnosis}{name}\n{words.recommendation}{recommendation}{cited}</answer>"
