"""The mapping file of own cases: which column of a table is what of a case. One small YAML, beside the table.

Every value of a field is the name of a column; a text that is the same for all cases is written `{constant: ...}`.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml.error import YAMLError

from clinic.errors import ClinicError
from clinic.yaml_files import load_yaml

MENDS = {  # type of a mistake -> how to mend it, where the checker's words do not say
    "tuple_type": "write a list of columns, in brackets",
    "string_type": "write one text; a number in quotes",
    "dict_type": "write pairs, {as the table has it: as it should be named}",
    "string_pattern_mismatch": "take small letters, digits, _ and -, a letter first",
    "string_too_short": "it is empty; leave the field out, or say something",
}
NESTED = {  # field whose value is a mapping of its own -> how to write it
    "recommendation": "write the name of a column, or {constant: text}",
    "category": "write the name of a column, or {constant: text}",
}
TAKEN = ("starter", "questions", "agentclinic", "mtmeddialog", "ddxplus")  # names of the other sources


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Constant(_Section):
    """A text that is the same for all cases."""

    constant: str = Field(min_length=1, description="the text")


Column = Annotated[str, Field(min_length=1)]


TOLD = ("vignette", "opening", "facts", "tests", "dialogue")  # fields of what a consultation can bring out


class Mapping(_Section):
    """What the columns of a table of own cases are; what is left out is not in the table.

    Of `vignette`, `facts`, `tests` and `dialogue` one is needed, and `diagnosis` always.
    """

    name: str = Field(
        pattern=r"^[a-z][a-z0-9_-]*$",
        description="what evaluation and weights call these cases, in small letters: mine, ward_7",
    )
    diagnosis: Column = Field(description="column of the diagnosis: a name, no sentence")
    vignette: Column | None = Field(
        default=None,
        description="column of free text: parted into sentences, each a fact, present or denied; sections with a heading keep it",
    )
    opening: Column | None = Field(
        default=None,
        description="column of what the patient says first; left out: the first sentence of the vignette, or what the patient complains of first in the dialogue",
    )
    facts: tuple[Column, ...] = Field(
        default=(),
        description="columns of what the patient can tell, the column's name being the topic; "
        "0 and 1, true and false or yes and no tell the column's name (Fever., No fever.); a cell may be a list of texts or of {topic, present, text}",
    )
    tests: tuple[Column, ...] = Field(
        default=(), description="columns of examinations and tests, told when they are ordered; a cell is one result"
    )
    dialogue: Column | None = Field(
        default=None,
        description="column of a recorded consultation, a list of {doctor, patient}, {speaker, text} or {role, content}, "
        "or lines that begin with who speaks; each answer is a fact, its question the topic",
    )
    synonyms: Column | None = Field(default=None, description="column of other names of the diagnosis")
    recommendation: Column | Constant | None = Field(default=None, description="the right next step")
    category: Column | Constant | None = Field(
        default=None, description="kind of case, a row of its own in the evaluation"
    )
    red_flags: Column | None = Field(
        default=None,
        description="column of what must be asked in an urgent case: topics or texts of facts, others are added; a case with any is urgent",
    )
    case_id: Column | None = Field(
        default=None, description="column of ids, each once; left out: made of the case's words"
    )
    group: Column | None = Field(
        default=None,
        description="column of what must not be parted between training and test, such as a patient; left out: cases with the same words",
    )
    language: Column | None = Field(
        default=None, description="column of en or zh; left out: `language` of the source in params.yaml"
    )
    licence: Column | None = Field(
        default=None, description="column of licences; left out: `licence` of the source in params.yaml"
    )
    separator: str = Field(
        default="|", min_length=1, description="between several entries of one cell of `synonyms` and `red_flags`"
    )
    corrections: dict[str, str] = Field(
        default={}, description="diagnosis as the table has it -> as it should be named"
    )

    @model_validator(mode="after")
    def _tells_something(self) -> "Mapping":
        if not (self.vignette or self.facts or self.tests or self.dialogue):
            raise ValueError("nothing tells of the patient; name a column of free text (vignette), or of facts")
        if self.name in TAKEN:
            raise ValueError(f"name {self.name!r} is another source's; choose one of your own")
        if not (self.opening or self.vignette or self.dialogue):
            raise ValueError("nothing is said first; name a column for opening, a vignette or a dialogue")
        return self

    def columns(self) -> Iterator[tuple[str, str]]:
        """(field, column) of every column that it names."""
        for field in type(self).model_fields:
            value = getattr(self, field)
            if field in ("name", "separator", "corrections") or isinstance(value, Constant) or value is None:
                continue
            for column in (value,) if isinstance(value, str) else value:
                yield field, column


def read_mapping(path: Path) -> Mapping:
    """Read a mapping file.

    Raises:
        ClinicError: it is missing or says something that is no mapping; file, key, value and fix in one line.
    """
    try:
        content = load_yaml(path)
    except FileNotFoundError:
        raise ClinicError(
            f"{path} does not exist; write the mapping of the columns, or begin with `python -m commands.cases <table> --guess`"
        ) from None
    except (YAMLError, ValueError, OSError) as error:
        raise ClinicError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ClinicError(
            f"{path} must say `field: column` on each line; its fields are: {', '.join(Mapping.model_fields)}"
        )
    try:
        return Mapping.model_validate(content)
    except ValidationError as error:
        raise ClinicError(f"{path}: {_mistake(error)}") from error


def _mistake(error: ValidationError) -> str:
    first = min(error.errors(), key=lambda mistake: mistake["type"] != "extra_forbidden")
    key = str(first["loc"][0]) if first["loc"] else ""
    if key in NESTED:
        return f"{key}: {NESTED[key]}"
    if first["type"] == "extra_forbidden":
        fields = list(Mapping.model_fields)
        return f"unknown field {key}{did_you_mean(key, fields) or '; the fields are: ' + ', '.join(fields)}"
    if first["type"] == "missing":
        return f"{key} is missing; name its column"
    message = MENDS.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    return f"{key} = {first['input']!r}: {message}" if key else message


def check_columns(mapping: Mapping, mapped_by: Path, table: Path, columns: Sequence[str]) -> None:
    """Refuse a mapping that names a column which the table does not have.

    Raises:
        ClinicError: the first such column, with the nearest one that there is.
    """
    named = [column for column in columns if column]
    title = "; its first row must name the columns" if 2 * len(named) < len(columns) else ""
    for field, column in mapping.columns():
        if column not in columns:
            raise ClinicError(
                f"{mapped_by}: {field}: {table.name} has no column {column!r} (it has: {', '.join(named)}){title or did_you_mean(column, named)}"
            )
    for field, column in mapping.columns():
        if column == mapping.diagnosis and field.partition("[")[0].strip() in TOLD:
            raise ClinicError(
                f"{mapped_by}: {field}: {column!r} is the column of the diagnosis; what the patient tells is another"
            )


def did_you_mean(given: str, known: Sequence[str]) -> str:
    """The end of a message about a misspelt word; empty if nothing known is near."""
    by_lower = {name.lower().strip(): name for name in known}
    near = get_close_matches(given.lower().strip(), list(by_lower), 1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""
