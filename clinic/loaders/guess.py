"""A first mapping file from the names of columns, to be corrected by hand."""

import json
import re
from pathlib import Path

from clinic.errors import ClinicError
from clinic.loaders.mapping import TAKEN
from clinic.loaders.rows import Table

NAMES = {
    "case_id": ("case id", "case no", "case number", "record id", "visit id", "id", "number", "编号", "病例号", "病案号", "住院号", "门诊号"),
    "group": ("group", "patient id", "patient no", "mrn", "patient", "subject", "subject id", "患者id", "病人", "患者"),
    "opening": ("opening", "chief complaint", "complaint", "self report", "presenting complaint", "reason for visit", "主诉"),
    "vignette": ("vignette", "case", "history", "note", "text", "story", "description", "presentation", "hpi", "case text", "clinical note", "clinical notes",
        "notes", "narrative", "summary", "病历", "病史", "现病史", "病例"),
    "dialogue": ("dialogue", "conversation", "transcript", "turns", "messages", "utterances", "对话"),
    "diagnosis": ("diagnosis", "dx", "final diagnosis", "correct diagnosis", "condition", "disease", "illness", "diagnose", "label", "answer",
        "primary diagnosis", "principal diagnosis", "main diagnosis", "discharge diagnosis", "final dx", "primary dx", "hauptdiagnose",
        "诊断", "主要诊断", "最终诊断", "出院诊断", "确诊", "疾病", "答案"),
    "synonyms": ("synonyms", "aliases", "other names", "别名", "同义词"),
    "recommendation": ("recommendation", "next step", "plan", "management", "treatment", "建议", "处理"),
    "category": ("category", "specialty", "department", "科室", "类别"),
    "red_flags": ("red flags", "warning signs", "危险信号"),
    "language": ("language", "lang", "语言"),
    "licence": ("licence", "license", "许可"),
}  # fmt: skip
LONG_TEXT = 80  # mean characters of a column that is taken for a vignette


def guess_mapping(table: Table, path: Path) -> str:
    """The text of a mapping file for a table.

    Raises:
        ClinicError: no column looks like a diagnosis, or none like a text.
    """
    plain = {
        re.sub(r"[\W_]+|(?<=[a-z])(?=[A-Z])", " ", column).strip().lower(): column for column in reversed(table.columns)
    }
    objects = {column for column in table.columns if _nested(table, column, dict)}
    lists = {column for column in table.columns if _nested(table, column, list)}
    found = {
        field: plain[name]
        for field, names in NAMES.items()
        if (name := next((n for n in names if n in plain and _may_be(field, plain[n], objects, lists)), None))
    }
    texts = [plain[name] for name in NAMES["vignette"] if name in plain and plain[name] not in objects | lists]
    if texts:
        found["vignette"] = max(texts, key=lambda column: _length(table, column))
    if not {"vignette", "dialogue"} & set(found):
        longest = max(table.columns, key=lambda column: _length(table, column), default="")
        if longest and longest not in found.values() and _length(table, longest) >= LONG_TEXT:
            found["vignette"] = longest
    for field, what in (("diagnosis", "a diagnosis"), ("vignette", "a text of the case")):
        if field not in found and not (field == "vignette" and "dialogue" in found):
            raise ClinicError(
                f"{path.name}: no column looks like {what}; write the mapping by hand (docs/reference/mapping.md). It has: {', '.join(table.columns)}"
            )
    left = [column for column in table.columns if column and column not in found.values()]
    lines = [
        "# yaml-language-server: $schema=schemas/mapping.schema.json",
        "# Guessed from the names of the columns: correct what is wrong (docs/reference/mapping.md).",
        f"name: {_name(path)}",
        *(f"{field}: {_quoted(column)}" for field, column in found.items()),
    ]
    return "\n".join([*lines, *([f"# not used: {', '.join(left)}"] if left else [])]) + "\n"


def _nested(table: Table, column: str, kind: type) -> bool:
    return any(isinstance(row, dict) and isinstance(row.get(column), kind) for _, row in table.rows)


def _may_be(field: str, column: str, objects: set[str], lists: set[str]) -> bool:
    """No field is an object, and only a dialogue, synonyms and red flags are lists."""
    return column not in objects and (column not in lists or field in ("dialogue", "synonyms", "red_flags"))


def _length(table: Table, column: str) -> float:
    texts = [str(row[column]) for _, row in table.rows if isinstance(row, dict) and isinstance(row.get(column), str)]
    return sum(map(len, texts)) / len(texts) if texts else 0.0


def _quoted(column: str) -> str:
    return (
        column
        if re.fullmatch(r"\w[\w -]*\w|\w", column) and not column.isdigit()
        else json.dumps(column, ensure_ascii=False)
    )


def _name(path: Path) -> str:
    stem = re.sub(r"[^a-z0-9_-]+", "_", path.name.split(".")[0].lower()).strip("_")
    stem = stem if re.match(r"[a-z]", stem) else f"own_{stem}".rstrip("_")
    return f"own_{stem}" if stem in TAKEN else stem
