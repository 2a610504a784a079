"""What stands in the cells of a table: texts, words for nothing, lists, and flags such as 0 and 1."""

import ast
import html
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, time
from typing import Any

from clinic.language import phrases
from clinic.loaders.records import BadRecord
from clinic.loaders.rows import Row

NOTHING = frozenset(
    ["-", "--", "—", "——", "?", ".", "n/a", "n.a.", "na", "nan", "<na>", "null", "unknown", "tbd", "pending", "未知", "不详", "未做", "未查", "未测", "未记录", "unk"]
    + [f"not {done}" for done in ("available", "done", "performed", "sent", "tested", "recorded", "documented", "assessed", "reported", "asked", "sure")]
    + ["unsure", "refused", "declined", "未问", "不清楚"]
)  # fmt: skip
ERRORS = frozenset(["#n/a", "#ref!", "#value!", "#name?", "#div/0!", "#null!", "#num!"])  # of Excel, nothing too
NONE = frozenset(["none", "nil", "无", "無", "没有"])  # nothing, but a denial where something is told of the patient
FLAGS = {
    **dict.fromkeys(["1", "1.0", "true", "yes", "y", "ja", "oui", "si", "sí", "是", "有"], True),
    **dict.fromkeys(["0", "0.0", "false", "no", "n", "nein", "non", "否", "无"], False),
}
SIGNS = {
    **dict.fromkeys(["+", "++", "+++", "＋", "(+)", "（+）", "（＋）", "present", "✓", "✔", "x"], True),
    **dict.fromkeys(["-", "−", "–", "－", "(-)", "(−)", "（-）", "（－）", "absent", "✗", "✘"], False),
}  # flags where a column holds nothing else
# what stands among flags for a question that was not asked, or not answered
UNASKED = frozenset(["u", "unk", "nk", "n/k", "missing", "?"])
UNASKED_CODES = frozenset(["9", "99", "999", "-9"])  # of a long table of 0 and 1
LONG = 20  # rows
NAMED = {"en": ("No {}.", "{}."), "zh": ("无{}。", "{}。")}  # a flag told: denied, present
WORDS = FLAGS.keys() - {"1", "1.0", "0", "0.0"}
_NEGATED = re.compile(
    r"(?:no (?:known|history of)|denies|denied|absence of|negative for)[\s_]+(?=\S)|否认(?=\S)", re.IGNORECASE
)
_WHOLE = re.compile(r"-?\d+\.0+")  # a whole number as pandas writes it beside empty cells
_BREAK = re.compile(
    r"<(?:br|/?(?:p|div|li|ul|ol|tr|table|tbody|thead|h[1-6]|section|blockquote))(?:\s+[\w-]+=[^<>]*)?\s*/?>",
    re.IGNORECASE,
)  # of HTML
_CELL_END = re.compile(r"</t[dh]\s*>", re.IGNORECASE)
_POWER = re.compile(r"(?<=\d)<sup>(?=[-\d])", re.IGNORECASE)
_TAG = re.compile(
    r"</?(?:b|i|u|em|strong|span|font|small|sup|sub|a|td|th|body|html)(?:\s+[\w-]+=[^<>]*)?\s*/?>", re.IGNORECASE
)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[\da-f]{1,6}|[a-z][a-z\d]{1,30});", re.IGNORECASE)
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
    text = without_tags(str(value)).strip()
    said = text.casefold()
    return "" if said in NOTHING | ERRORS or (said in NONE and not denial) else text


def without_tags(text: str) -> str:
    """A text without what is left of HTML: tags, and signs written as &names;."""
    if "<" in text:
        text = _TAG.sub("", _POWER.sub("^", _CELL_END.sub(" ", _BREAK.sub("\n", text))))
    return _ENTITY.sub(lambda found: html.unescape(found[0]).replace("\xa0", " "), text) if "&" in text else text


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
    """The rows, with true and false for the flags of those columns, and whole numbers without a point."""
    table = [row for _, row in rows if not isinstance(row, BadRecord)]
    readers = {column: _reader([row.get(column) for row in table]) for column in columns}
    return [
        (number, row if isinstance(row, BadRecord) else {**row, **{c: read(row.get(c)) for c, read in readers.items()}})
        for number, row in rows
    ]


def _reader(cells: Sequence[Any]) -> Callable[[Any], Any]:
    """How the cells of a column are read: flags as such, and 45.0 as 45 where all its numbers are written so."""
    texts = {text for cell in cells if isinstance(cell, str) and (text := text_of(cell))}
    whole = bool(texts) and all(map(_WHOLE.fullmatch, texts))

    def plain(cell: Any) -> Any:
        return text_of(cell).partition(".")[0] if whole and isinstance(cell, str) else cell

    flags = flags_of([plain(cell) for cell in cells])
    return lambda cell: _flag(plain(cell), flags) if flags else plain(cell)


def flags_of(cells: Iterable[Any]) -> Mapping[str, bool | None]:
    """The words of a column that are flags, and what they say; None of those for what was not asked.

    All of them, where it holds nothing else, or signs (+ and -) alone; else the words of which both are there ("yes", "no"
    beside "maybe"), and 0 and 1 where no other number is.
    """
    given = [cell for cell in cells if not isinstance(cell, list | dict)]
    signs = {_said(cell) for cell in given} - {""}
    empty = UNASKED | (NOTHING - SIGNS.keys())
    if signs - empty <= SIGNS.keys() and any(SIGNS.get(sign) for sign in signs):
        return {sign: SIGNS.get(sign) for sign in signs}
    texts = {text_of(cell).casefold() for cell in given} - {""}
    told = texts - UNASKED
    if not told & WORDS and len(given) >= LONG:
        told -= UNASKED_CODES
    both = {FLAGS[text] for text in told & FLAGS.keys()} == {True, False}
    if told <= FLAGS.keys() and (told == texts or both or not told - WORDS):
        return {text: FLAGS.get(text) for text in texts} if told else {}
    words, digits = texts & WORDS, (texts & FLAGS.keys()) - WORDS
    numbers = any(re.search(r"\d", text) for text in texts - digits)
    kinds = ([] if numbers else [words | digits]) + [words]
    pair = next((kind for kind in kinds if {FLAGS[text] for text in kind} == {True, False}), set())
    return {text: FLAGS[text] for text in pair}


def _said(cell: Any) -> str:
    return "" if cell is None or cell != cell else str(cell).strip().casefold()


def _flag(value: Any, flags: Mapping[str, bool | None]) -> Any:
    if isinstance(value, list | dict):
        return value
    for said in (_said(value), text_of(value, denial=True).casefold()):
        if said in flags:
            return flags[said]
    return FLAGS[said] if said in NONE & FLAGS.keys() else value


def told_by_flag(column: str, flag: bool, language: str) -> tuple[bool, str]:
    """Whether a flag says that something is there, and its sentence; of a column that denies ("No allergies") the contrary."""
    denies = _NEGATED.match(column) if not column.rstrip().endswith(("?", "？")) else None
    present = flag is not bool(denies)
    return present, named(column[denies.end() :] if denies else column, present, language)


def named(column: str, flag: bool, language: str) -> str:
    """A flag as a sentence, by the name of its column; a question is answered."""
    if column.rstrip().endswith(("?", "？")):
        return phrases(language).bare_yes if flag else phrases(language).bare_no
    name = " ".join(column.replace("_", " ").split())
    begins = str.upper if flag else str.lower
    name = name if name[:2].isupper() else begins(name[:1]) + name[1:]
    return NAMED[language][flag].format(name)
