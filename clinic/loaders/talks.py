"""Recorded talks of a doctor and a patient: who speaks, what brings the patient, and what it answers."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Dict
from typing import Any

from clinic.loaders.cells import parsed, text_of
from clinic.loaders.free_text import Statement, is_present
from clinic.loaders.records import BadRecord
from clinic.loaders.text_lines import EMPHASIS
from clinic.loaders.text_rules import rules_of
from clinic.simplified import simplified

MOST_BEFORE, SHORT = 2, 8  # lines before the first who speaks, and words of one
_SETTING = re.compile(r"\A(?:【[^】\n]{1,20}】|\[[^\]\n]{2,30}\])\s*")  # of a talk
_STAMP = re.compile(r"\A[\[(]?\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d+)?[\])]?\s*[-–]?\s*")  # of a line of a talk
_DASH = re.compile(r"[\w. ]{1,30}\s[-–]\s")
_MESSAGE = (("speaker", "text"), ("role", "content"), ("from", "value"))  # who speaks, and what
_ROLES = dict.fromkeys(("assistant", "gpt", "nurse", "护士"), "doctor") | dict.fromkeys(
    ("user", "human", "husband", "wife", "caregiver", "family", "患者家属", "病人家属", "患儿家属"), "patient"
)
_UNHEARD = ("system", "tool", "function", "observation")
UNASKED = {"en": "Unasked", "zh": "未问"}


def turns_of(text: str, language: str) -> list[dict[str, str]]:
    """The turns of a talk whose lines, or parts of one line, begin with who speaks ("Doctor: ...", "Patient: ..."), a
    patient's behind the doctor's before it; [] where it is none, or each speaks once.
    """
    rules, count = rules_of(language), Counter[str]()
    turns: list[dict[str, str]] = []
    parting = re.compile(r"\s*\n\s*") if "\n" in text.strip() else rules.speaks  # a talk may stand in one line
    before, loose = MOST_BEFORE, False  # a list of people, or of times and measurements, may look like a talk
    for line in filter(None, parting.split(_SETTING.sub("", text.strip()))):
        loose = loose or bool(_STAMP.match(line)) or bool(_DASH.match(line))
        line = _STAMP.sub("", EMPHASIS.sub(r"\2", line))
        for side, speaker in (("doctor", rules.doctor), ("patient", rules.patient)):
            if found := speaker.match(simplified(line)):
                if not turns or side in turns[-1] or side == "doctor":
                    turns.append({})
                turns[-1][side] = line[found.end() :].strip(' \t"“”')
                count[side] += 1
                break
        else:
            if not turns and (line[-1] in ":：" or (rules.length(line) <= SHORT and (before := before - 1) >= 0)):
                loose = True
                continue
            if not turns:
                return []
            last = list(turns[-1])[-1]
            turns[-1][last] += f" {line}"
    asks = any(set(turn.get("doctor", "")) & set("?？") for turn in turns)
    return turns if min(count["doctor"], count["patient"]) > 1 and (asks or not loose) else []


def recorded(column: str, cell: Any, language: str) -> list[Dict[str, Any]]:
    """The turns of a recorded consultation, as `turns_of` gives them.

    Raises:
        BadRecord: the cell of this column holds none, the patient says nothing, or somebody speaks who is neither of both.
    """
    turns = parsed(cell) or []
    if isinstance(turns, str):
        turns = turns_of(text_of(turns), language) or turns
    elif isinstance(turns, list) and turns and all(isinstance(turn, Dict) and _keys(turn) for turn in turns):
        turns = _behind_each_other(column, turns, language)
    if not isinstance(turns, list) or not all(isinstance(t, Dict) and t.keys() & {"doctor", "patient"} for t in turns):
        lines = ", nor a text whose lines begin with who speaks (Doctor: ...)" if isinstance(turns, str) else ""
        raise BadRecord(f"column {column!r} is no list of {{doctor, patient}} or {{role, content}}{lines}")
    return turns


def _keys(turn: Dict[str, Any]) -> tuple[str, str] | None:
    """Under which keys a turn says who speaks, and what."""
    return next((keys for keys in _MESSAGE if turn.keys() >= set(keys)), None)


def _behind_each_other(column: str, messages: Iterable[Dict[str, Any]], language: str) -> list[dict[str, Any]]:
    """Messages of one speaker each as turns; what stands before a chat as its instructions is left out."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        who, what = _keys(message) or _MESSAGE[0]
        if str(message[who]).casefold() in _UNHEARD:
            continue
        if (side := _side(str(message[who]), language)) is None:
            raise BadRecord(f"column {column!r}: {who} {message[who]!r} is neither doctor nor patient")
        if not turns or side in turns[-1] or side == "doctor":
            turns.append({})
        turns[-1][side] = " ".join(_said(message[what]).split())
    if not any("patient" in turn for turn in turns):
        raise BadRecord(f"column {column!r}: no message is the patient's")
    return turns


def _side(speaker: str, language: str) -> str | None:
    """Whether it is the doctor or the patient who is called so: in the language of the case or in English, as keys are."""
    speaker = simplified(speaker).strip(" :：").casefold()
    name = f"{_ROLES.get(speaker, speaker)}:"
    for rules in (rules_of(language), rules_of("en")):
        for side, called in (("doctor", rules.doctor), ("patient", rules.patient)):
            if called.fullmatch(name):
                return side
    return None


def _said(content: Any) -> str:
    """The text of a message, which may have parts."""
    parts = content if isinstance(content, list) else [content]
    return " ".join(text_of(part.get("text") if isinstance(part, Dict) else part, denial=True) for part in parts)


def answers(turns: Iterable[Dict[str, Any]], language: str) -> Iterator[Statement]:
    """What a patient answers, under what was asked; not what says nothing, nor that it agrees to what it was told."""
    for turn in turns:
        doctor, patient = (_joined(turn.get(side)) for side in ("doctor", "patient"))
        if not patient or rules_of(language).not_known.fullmatch(simplified(patient)):
            continue
        told = doctor and not set(doctor) & set("?？")  # what a doctor says, and is agreed to
        if not (told and rules_of(language).greeting.fullmatch(simplified(patient))):
            yield Statement(doctor or UNASKED[language], is_present(patient, language), patient)


def _joined(said: Any) -> str:
    return " ".join(
        text for part in (said if isinstance(said, list) else [said]) if (text := text_of(part, denial=True))
    )


def complaints(turns: Iterable[Dict[str, Any]], language: str) -> Iterator[str]:
    """What a patient says in a talk that may be what brings it: neither a greeting nor a denial."""
    for turn in turns:
        said = _joined(turn.get("patient"))
        if said and not rules_of(language).greeting.fullmatch(simplified(said)) and is_present(said, language):
            yield said
