"""What stands in the cells of a table: texts, words for nothing, lists, and flags such as 0 and 1."""

import ast
import json
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, time
from typing import Any

from clinic.language import phrases
from clinic.loaders.records import BadRecord
from clinic.loaders.rows import Row

NOTHING = frozenset(["-", "--", "?", ".", "n/a", "n.a.", "na", "nan", "<na>", "null", "unknown", "not available", "tbd", "未知", "不详"])  # fmt: skip
ERRORS = frozenset(["#n/a", "#ref!", "#value!", "#name?", "#div/0!", "#null!", "#num!"])  # of Excel, nothing too
NONE = frozenset(["none", "nil", "无", "無", "没有"])  # nothing, but a denial where something is told of the patient
FLAGS = {
    **dict.fromkeys(["1", "1.0", "true", "yes", "y", "是", "有"], True),
    **dict.fromkeys(["0", "0.0", "false", "no", "n", "否", "无"], False),
}
NAMED = {"en": ("No {}.", "{}."), "zh": ("无{}。", "{}。")}  # a flag told: denied, present
_BETWEEN = re.compile(r"(?<=['\"])\s+(?=['\"])")  # entries of an array as numpy writes it


def text_of(value: Any, *, denial: bool = False) -> str:
    """A cell as text; what says that nothing is there is "", but "none" where that is a `denial`.

    Raises:
        BadRecord: it is bytes that are no UTF-8.
    """
    if value is None or value != value:  # NaN differs from itself
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise BadRecord(f"byte {value[error.start]:#04x} is no UTF-8; write the column as text") from error
    if isinstance(value, float) and value.is_integer():  # an integer beside empty cells
        value = int(value)
    if isinstance(value, datetime) and value.time() == time.min:  # a date in Excel
        value = value.date()
    text = str(value).strip()
    said = text.casefold()
    return "" if said in NOTHING | ERRORS or (said in NONE and not denial) else text


def parsed(value: Any) -> Any:
    """The value of a cell; a list that a CSV holds, as JSON or as Python writes it, is read."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    try:
        return json.loads(value)
    except ValueError:
        pass
    try:
        return ast.literal_eval(_BETWEEN.sub(", ", value.strip()))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return value


def with_flags(
    rows: Sequence[tuple[int, Row | BadRecord]], columns: Iterable[str]
) -> list[tuple[int, Row | BadRecord]]:
    """The rows, with true and false in the cells of those columns that hold nothing but flags."""
    said = {
        column: {text_of(row.get(column)).casefold() for _, row in rows if not isinstance(row, BadRecord)} - {""}
        for column in columns
    }
    flags = [column for column, texts in said.items() if texts and texts <= FLAGS.keys()]
    return [
        (number, row if isinstance(row, BadRecord) else {**row, **{c: _flag(row.get(c)) for c in flags}})
        for number, row in rows
    ]


def _flag(value: Any) -> Any:
    return FLAGS.get(text_of(value, denial=True).casefold(), value)


def named(column: str, flag: bool, language: str) -> str:
    """A flag as a sentence, by the name of its column; a question is answered."""
    if column.rstrip().endswith(("?", "？")):
        return phrases(language).bare_yes if flag else phrases(language).bare_no
    name = " ".join(column.replace("_", " ").split())
    begins = str.upper if flag else str.lower
    name = name if name[:2].isupper() else begins(name[:1]) + name[1:]
    return NAMED[language][flag].format(name)
