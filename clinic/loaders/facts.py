"""What the cells of the columns `facts` and `tests` of an own table tell: a text, a value under its name, a list, or an object.

Raises everywhere: `BadRecord`, where a cell holds what cannot be read.
"""

import re
from collections.abc import Iterator
from collections.abc import Mapping as Dict
from typing import Any

from clinic.cases import ORDERED
from clinic.language import EN
from clinic.loaders.cells import parsed, text_of, told_by_flag
from clinic.loaders.free_text import Statement, as_denial, is_present, statements_of, under
from clinic.loaders.records import BadRecord
from clinic.loaders.text_rules import rules_of

HISTORY = {"en": "History: ", "zh": "病史："}  # how the topic of a history begins whose column sounds like a test
_LIKE_A_TEST = re.compile(
    r"\b(?:scores?|factors?|levels?|screen\w*|observations?|temperature|cultures?|monitoring|evaluation|interventions?|parameters|appearance)\b",
    re.IGNORECASE,
)
_BARE = re.compile(
    r"[<>≤≥~]?\s*[-+]?\d[\d.,:/ ×x*^-]*\s*(?:%|°?[CF]|[^\W\d_]{1,6}(?:/[^\W\d_]{1,5})?)?|[A-Z]|Ex|[男女]"
)  # a value that says nothing without its name
_NAMES, _VALUES = ("name", "test", "item", "code"), ("value", "result", "valueQuantity", "dose")  # keys of an object
_ABOUT = re.compile(r"\b(?:tests?|status|adherence|number|count|date)\b", re.IGNORECASE)  # of medicines, not they
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")  # between the words of familyHistory


def told_by_facts(column: str, cell: Any, language: str) -> Iterator[Statement]:
    """What the cell of a column of `facts` tells: history, whatever the column is called."""
    name = _CAMEL.sub(" ", column)
    topic = HISTORY[language] + name if _LIKE_A_TEST.search(name) else name
    yield from _told(column, topic, cell, language, test=False)


def told_by_tests(column: str, cell: Any, language: str) -> Iterator[Statement]:
    """What the cell of a column of `tests` tells, when it is ordered."""
    yield from _told(column, ORDERED[language] + column, cell, language, test=True)


def _told(column: str, topic: str, cell: Any, language: str, *, test: bool) -> Iterator[Statement]:
    """The facts in one cell: a text, or a list of texts and of {topic, present, text}; a bare value under its name."""
    for entry in _entries(column, parsed(cell), language):
        text = text_of(entry, denial=True)
        if isinstance(entry, Dict):
            yield from _in(column, entry, topic, language, test=test)
        elif isinstance(entry, bool):
            yield Statement(topic, *told_by_flag(column, entry, language))
        elif _BARE.fullmatch(text):
            yield Statement(topic, True, _named_value(column, text, language))
        elif text and test:
            yield Statement(topic, is_present(text, language), text)
        else:
            yield from statements_of(under(column, text, language), language, topic)


def _entries(column: str, value: Any, language: str) -> list[Any]:
    """What a cell holds, one by one; in one what is asked for at once: medicines, allergies, past illnesses."""
    entries = value if isinstance(value, list) else [value]
    name = _CAMEL.sub(" ", column).replace("_", " ")
    if not rules_of(language).at_once.search(name) or _ABOUT.search(name):
        return entries
    entries = [_in_words(entry) for entry in entries]
    if not all(isinstance(entry, str) and text_of(entry, denial=True) for entry in entries):
        return entries
    parts = [part for entry in entries for part in re.split(r"\s*[;；]\s*", entry) if part.strip()]
    there = [part for part in parts if is_present(part, language)]
    together = [(", " if language == EN.code else "、").join(there)] if there else []
    return [*together, *(part for part in parts if part not in there)]


def _in(column: str, entry: Dict[str, Any], topic: str, language: str, *, test: bool) -> Iterator[Statement]:
    """What an object tells: {topic, present, text}, or a value under each name ({"CRP": 187, "fever": false})."""
    name = _name_of(entry)
    if "text" in entry or entry.keys() & {"topic", "present"}:
        yield _stated(column, {"text": entry.get(name), **entry} if name else entry, topic, language, test=test)
        return
    if name:
        if unknown := entry.keys() - {name, "unit", *_VALUES}:
            raise BadRecord(
                f"column {column!r}: what {sorted(unknown)[0]!r} of an object means is not known; write {{name, value, unit}} or {{topic, present, text}}"
            )
        if not entry.keys() & set(_VALUES):  # a name alone: {"name": "metformin"}
            yield from statements_of(text_of(entry[name]), language, topic)
            return
        value = next((entry[key] for key in _VALUES if text_of(entry.get(key), denial=True)), "")
        if not isinstance(value, bool | list | Dict) and entry.get("unit"):
            value = f"{text_of(value)} {text_of(entry['unit'])}"
        entry = {entry[name]: value}
    for name, value in entry.items():
        if isinstance(value, list | Dict):
            raise BadRecord(f"column {column!r}: {name!r} in it holds a list or an object; it must be one value")
        own = f"{ORDERED[language]}{name}" if test else str(name)
        if isinstance(value, bool):
            yield Statement(own, *told_by_flag(str(name), value, language))
        elif text := text_of(value, denial=True):
            yield Statement(own, is_present(text, language), _named_value(str(name), text, language))


def _name_of(entry: Dict[str, Any]) -> str | None:
    """The key under which an object has its name."""
    return next((key for key in _NAMES if isinstance(entry.get(key), str)), None)


def _in_words(entry: Any) -> Any:
    """An object of name, value and unit in words ("metformin 1000 mg"), anything else as it is."""
    name = _name_of(entry) if isinstance(entry, Dict) else None
    if not name or entry.keys() - {name, "unit", *_VALUES}:
        return entry
    said = [entry[name], *(entry[key] for key in (*_VALUES, "unit") if isinstance(entry.get(key), str | int | float))]
    return " ".join(filter(None, map(text_of, said)))


def _named_value(name: str, text: str, language: str) -> str:
    name = name.replace("_", " ").strip()
    return f"{name[:1].upper()}{name[1:]}: {text}{rules_of(language).stop}"


def _stated(column: str, entry: Dict[str, Any], topic: str, language: str, *, test: bool) -> Statement:
    text = text_of(entry.get("text"), denial=True)
    if not text:
        raise BadRecord(f"column {column!r}: a fact without text; write {{topic, present, text}}")
    present = is_present(text, language) if entry.get("present") is None else entry["present"]
    if not isinstance(present, bool):
        raise BadRecord(f"column {column!r}: present = {present!r} of a fact is neither true nor false")
    if not present and is_present(text, language):
        text = as_denial(text, language)
    own = text_of(entry.get("topic"))
    text = _named_value(own, text, language) if own and _BARE.fullmatch(text) else text
    return Statement(ORDERED[language] + own if own and test else own or topic, present, text)
