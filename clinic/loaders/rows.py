"""Rows of a table in any of four formats: JSON lines, CSV, Excel or Parquet. A row is a dict, column to value.

Text is UTF-8, with or without a byte order mark. A row that cannot be read is a `BadRecord` in its place; a blank row of
CSV or Excel is none.
"""

import csv
import importlib
import importlib.util
import io
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet

from clinic.errors import ClinicError
from clinic.loaders.records import BadRecord, damaged, existing, lines, parse_line

FORMATS = (".jsonl", ".csv", ".tsv", ".xlsx", ".parquet", ".json")
DELIMITERS = ",;\t"
_ABOVE = re.compile(
    r'[\r\n]*(?:"?sep=([^\w\s"]|\t)"?\r?\n[\r\n]*)?', re.IGNORECASE
)  # a header: blank lines, and the separator as Excel says it
_QUOTED = re.compile(r'"[^"]*"')
_NO_UTF8 = re.compile("[\udc80-\udcff]")  # what "surrogateescape" makes of such bytes
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A table as it was found: its columns in order, and number (line or row of the file) and content of each row."""

    columns: Sequence[str]
    rows: Sequence[tuple[int, Row | BadRecord]]


def is_table(path: Path) -> bool:
    """Whether its name ends as that of a table does."""
    return path.name.lower().removesuffix(".gz").endswith(FORMATS)


def tables_at(place: Path) -> list[Path]:
    """The tables of a folder and of those in it, in the order of their names, without hidden ones and Excel's marks of open
    ones; a file is its own.
    """
    if not place.is_dir():
        return [place]
    found = (path for path in sorted(place.rglob("*")) if path.is_file() and is_table(path))
    return [path for path in found if not any(part.startswith((".", "~$")) for part in path.relative_to(place).parts)]


def read_table(place: str) -> Table:
    """Read a table by the end of its name; `.jsonl`, `.csv` and `.tsv` may be gzipped (`.gz`).

    Raises:
        ClinicError: it is missing, of another format, or unreadable as a whole or in every row.
    """
    path = existing(place)
    table = _table(path)
    if table.rows and all(isinstance(row, BadRecord) for _, row in table.rows):
        lines_only = "; JSON must be an object on each line" if ".json" in path.name.lower() else ""
        raise ClinicError(f"{path}: no row can be read; line {table.rows[0][0]}: {table.rows[0][1]}{lines_only}")
    return table


def _table(path: Path) -> Table:
    ending = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    match ending.lower().removesuffix(".gz"):
        case ".jsonl" | ".json":
            return _json_lines(path)
        case ".csv" | ".tsv":
            return _separated(path)
        case ".xlsx":
            return _sheet(path)
        case ".parquet":
            return _parquet(path)
    old = "; save it as .xlsx" if ending.lower() == ".xls" else "; convert it"
    raise ClinicError(f"{path}: a table of cases ends in {', '.join(FORMATS)}{old}")


def _json_lines(path: Path) -> Table:
    rows: list[tuple[int, Row | BadRecord]] = []
    for number, line in lines(path):
        try:
            record = parse_line(line)
            if not isinstance(record, dict):
                raise BadRecord("the line is no JSON object")
            rows.append((number, record))
        except BadRecord as error:
            rows.append((number, _not_utf8(line) or error))
    return Table(list(dict.fromkeys(str(key) for _, row in rows if isinstance(row, dict) for key in row)), rows)


def _not_utf8(line: bytes) -> BadRecord | None:
    try:
        line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return BadRecord(f"byte {line[error.start]:#04x} is no UTF-8; save the file as UTF-8")
    return None


def _separated(path: Path) -> Table:
    """CSV as spreadsheets write it: comma, semicolon or tab, whichever the header has most of, or bars."""
    content = b"".join(line for _, line in lines(path, blank=True))
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ClinicError(f"{path} is UTF-16; save it as CSV in UTF-8")
    text = content.decode("utf-8-sig", errors="surrogateescape")
    head, stated = next(_ABOVE.finditer(text)).group(0, 1)  # it may be empty
    text, above = text[len(head) :], head.count("\n")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=stated or _delimiter(text), strict=True)
    before = above
    rows: list[tuple[int, Row | BadRecord]] = []
    try:
        columns = [name.strip() for name in next(reader, [])]
        _check_header(path, columns)
        before = above + reader.line_num
        for cells in reader:
            if _filled(cells):
                rows.append((before + 1, _row(columns, cells)))
            before = above + reader.line_num
    except csv.Error as error:
        raise ClinicError(
            f"{path}, line {before + 1}: {error}; close its quotes and double those within a text, or save the table again"
        ) from error
    return Table(columns, rows)


def _delimiter(text: str) -> str:
    """What the header has most of; a bar where it has nothing else."""
    header = _QUOTED.sub("", text.partition("\n")[0])
    found = max(DELIMITERS, key=header.count)
    return "|" if not header.count(found) and "|" in header else found


def _row(columns: Sequence[str], cells: Sequence[str]) -> Row | BadRecord:
    if wrong := next(filter(_NO_UTF8.search, cells), None):
        byte = wrong.encode("utf-8", "surrogateescape")
        return _not_utf8(byte) or BadRecord("the row is no UTF-8; save the file as UTF-8")
    if len(cells) != len(columns):
        return BadRecord(f"the row has {len(cells)} cells and the header {len(columns)}; quote texts with separators")
    return dict(zip(columns, cells, strict=True))


def _check_header(path: Path, columns: Sequence[str]) -> None:
    if not any(columns):
        raise ClinicError(f"{path} is empty; its first line must name the columns")
    if any(map(_NO_UTF8.search, columns)):
        raise ClinicError(f"{path}: the header is no UTF-8; save the file as UTF-8")
    if twice := [name for name in columns if name and columns.count(name) > 1]:
        raise ClinicError(f"{path}: two columns are named {twice[0]!r}; rename one")


def _sheet(path: Path) -> Table:
    if importlib.util.find_spec("openpyxl") is None:
        raise ClinicError(
            f"{path}: reading Excel needs the package openpyxl, which is not installed; save the sheet as CSV (UTF-8), or install openpyxl"
        )
    try:
        book = importlib.import_module("openpyxl").load_workbook(path, read_only=True, data_only=True)
        sheets = [
            [["" if c is None else c for c in row] for row in s.iter_rows(values_only=True)] for s in book.worksheets
        ]
    except Exception as error:  # openpyxl raises zip's, XML's and its own errors
        if not zipfile.is_zipfile(path):
            raise ClinicError(
                f"{path} is no .xlsx, whatever its name; open it in Excel and save it as .xlsx"
            ) from error
        raise damaged(path, error) from error
    filled = [(sheet, cells) for sheet, cells in zip(book.worksheets, sheets, strict=True) if any(map(_filled, cells))]
    if len(filled) > 1:
        names = ", ".join(repr(sheet.title) for sheet, _ in filled)
        raise ClinicError(
            f"{path} has {len(filled)} sheets with something in them ({names}); save that of the cases alone"
        )
    cells = filled[0][1] if filled else []
    columns = [str(name).strip() for name in cells[0]] if cells else []
    _check_header(path, columns)
    rows = enumerate(cells[1:], start=2)
    return Table(columns, [(number, dict(zip(columns, row, strict=False))) for number, row in rows if _filled(row)])


def _filled(row: Sequence[Any]) -> bool:
    return any(str(cell).strip() for cell in row)


def _parquet(path: Path) -> Table:
    try:
        table = pyarrow.parquet.read_table(path)
        return Table(table.column_names, list(enumerate(table.to_pylist(), start=1)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, error) from error


def cells_of(table: Table) -> Iterator[tuple[str, int]]:
    """Columns with how many rows have something in them."""
    for column in table.columns:
        yield column, sum(isinstance(row, dict) and row.get(column) not in (None, "", []) for _, row in table.rows)
