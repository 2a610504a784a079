"""Ten thousand records that somebody got wrong, over every file that a user writes: each becomes a case, a document, a
value, or a reason in one line; none ends in a traceback, takes long or gets lost.
"""

import csv
import functools
import gzip
import io
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from clinic.cases import read_cases, write_cases, write_rejected
from clinic.config import CaseSource, PresetParams, SplitParams
from clinic.errors import ClinicError
from clinic.loaders import load_source
from clinic.loaders.mapping import read_mapping
from clinic.ratings import ask_for_ratings, read_ratings
from clinic.vocabulary import read_vocabulary
from doctor.base_model_recipe import load_base_model_params
from doctor.mistakes import read_yaml, validated
from doctor.parameters import ROOT, ParameterError, load_params
from doctor.recipe import parse_algorithm
from kb.config import DocumentSource
from kb.documents import load_documents
from kb.errors import KnowledgeBaseError
from kb.quality import load_queries
from rl.algorithms import ALGORITHMS
from rl.chat import ChatFormat
from rl.errors import TrainingError
from rl.models import new_tokenizer
from rl.preferences import read_preferences
from tests.faults.mutations import changed, cut, deep, json_line, text_of
from tests.unit.kb.documents import MEDQUAD, PAGE, pdf

TOLD = (ClinicError, KnowledgeBaseError, ParameterError, TrainingError)
LIMIT_S = 2.0  # of processor time for a file
LONGEST = 2000  # characters of a line for a person
SPLIT = SplitParams(salt="s", validation=0.2, test=0.2)
PER_FILE = 40
PAGES = 10
RECIPES = tuple(f"recipes/{name}.yaml" for name in ALGORITHMS)
PRESETS = tuple(f"recipes/rewards/{name}.yaml" for name in ("doctoragent", "weighted", "human", "doctoragent_judge"))
Write = Callable[[Path, random.Random], int]  # puts wrong files into a folder; returns how many records
Read = Callable[[Path, int], None]  # reads them as a stage does

STORY = "A man of 40 comes with a sore knee. It began on Sunday. He denies fever, chills, or injury. He takes aspirin."
OWN = {
    "story": STORY,
    "dx": "Gout (GA)",
    "first": "My knee hurts.",
    "talk": [{"doctor": "Since when?", "patient": "Sunday."}],
    "smoke": [{"topic": "Smoking", "present": False, "text": "I do not smoke."}, "I drink a little."],
    "flag": "fever|swelling",
    "other": "podagra|gouty arthritis",
    "lang": "en",
    "who": "p1",
    "lab": "Uric acid 9 mg/dl",
}
MAPPING = {
    "name": "mine",
    "vignette": "story",
    "diagnosis": "dx",
    "opening": "first",
    "facts": ["smoke"],
    "tests": ["lab"],
    "dialogue": "talk",
    "red_flags": "flag",
    "synonyms": "other",
    "language": "lang",
    "group": "who",
    "licence": {"constant": "CC0"},
    "corrections": {"Gout": "Gout, acute"},
}
OSCE = {
    "case_id": "AC1",
    "group": "g1",
    "correct_diagnosis": "Gout (GA)",
    "OSCE_Examination": {
        "Patient_Actor": {
            "Demographics": "40-year-old man",
            "History": "His knee is sore. It began on Sunday.",
            "Symptoms": {"Primary_Symptom": "Pain.", "Secondary_Symptoms": ["Fever", "Chills"]},
        },
        "Physical_Examination_Findings": {"Vital_Signs": {"Heart_Rate": "80", "Weight": 71.5, "Height": None}},
        "Test_Results": {"Blood": {"Findings": "Uric acid 9 mg/dl."}},
    },
}
TALK = {
    "case_id": "M1",
    "self_report": "My knee hurts (male, 40)",
    "diagnosis": "Based on your symptoms, you likely have gout.",
    "recommendation": "Rest.",
    "dialogue": [{"doctor": ["Since when?"], "patient": ["Sunday.", None]}, {"doctor": [], "patient": ["It is red."]}],
}
TURN = {
    "case_id": "M1",
    "prompt": [{"role": "user", "content": "Patient self-report: my knee hurts"}],
    "reward_model": {
        "ground_truth": {"diagnosis": "Gout.", "recommendation": "Rest."},
        "patient_information": [{"doctor_question": ["Since when?"], "patient_response": ["Sunday."]}],
    },
}
EVIDENCE = {"evidence": "E1", "question_en": "Do you have a cough?", "data_type": "B", "p_train": 0.5}
CONDITION = {
    "condition": "Gout",
    "icd10": "m10",
    "severity": 4,
    "n_train_patients": 30,
    "symptoms": [EVIDENCE],
    "antecedents": [EVIDENCE | {"evidence": "E2", "question_en": "Do you drink?", "p_train": 0.8}],
}
QUESTION = {
    "question_id": "q1",
    "language": "en",
    "category": "joints",
    "question": "How is gout treated?",
    "points": ["rest", "an anti-inflammatory drug"],
    "licence": "CC0-1.0",
}
TEXT = "# Gout\n\nGout is a disease of the joints.\n\n## Signs\n\nA red toe."
DOCUMENT = {
    "doc_id": "gout",
    "title": "Gout",
    "text": TEXT,
    "source": "us",
    "licence": "CC0-1.0",
    "tags": ["joints", "pain"],
}
COLUMNS = {
    "id": "1",
    "focus": "Gout",
    "qtype": "signs",
    "abstract": ["A red toe.", "It hurts."],
    "year": 2020,
    "by": "us",
}
MAPPED = {
    "path": "cases.jsonl",
    "fields": {"doc_id": "id", "title": ["focus", "qtype"], "text": "abstract", "date": "year", "source": "by"},
    "licence": "CC0-1.0",
    "language": "en",
}
RATING = {"transcript_id": "0123456789abcdef", "case_id": "c", "score": 0.5, "transcript": []}
PAIR = {
    "prompt": [{"role": "user", "content": "it hurts"}],
    "chosen": [{"role": "assistant", "content": "since when?"}],
    "rejected": "rest",
}
QUERY = {"query_id": "q1", "text": "what is gout"}


def wrong(record: dict[str, Any], key: str, folder: Path, rng: random.Random) -> int:
    """A JSONL file, each line with an id of its own if it still has one."""
    own = [{**record, key: f"{record.get(key)}-{number}"} for number in range(PER_FILE)]
    (folder / "cases.jsonl").write_bytes(b"\n".join(json_line(one, rng) for one in own))
    return PER_FILE


def one_line(record: dict[str, Any], folder: Path, rng: random.Random) -> int:
    """A sound line and a wrong one."""
    (folder / "lines.jsonl").write_bytes(json.dumps(record).encode() + b"\n" + json_line(record, rng))
    return 1


def turns(folder: Path, rng: random.Random) -> int:
    """A Parquet file of what its format can hold; sometimes its bytes are wrong too."""
    place = folder / "turns.parquet"
    rows = [changed(TURN, rng) | {"case_id": f"M{number}"} for number in range(PER_FILE)]
    kept = next(held for held in (rows, rows[:2], rows[:1], [TURN]) if _to_parquet(held, place))
    if rng.random() < 0.3:
        place.write_bytes(cut(place.read_bytes(), rng))
    return len(kept)


def _to_parquet(rows: list[Any], place: Path) -> bool:
    columns: dict[str, list[Any]] = {name: [row.get(name) for row in rows] for name in TURN}
    try:
        pyarrow.parquet.write_table(pyarrow.table(columns), place)
    except (pyarrow.ArrowException, OverflowError, UnicodeError):
        return False
    return True


def own_lines(folder: Path, rng: random.Random) -> int:
    """Own cases as JSON lines, with a sound mapping and a sound case."""
    (folder / "m.yaml").write_text(_yaml(MAPPING))
    wrong(OWN, "dx", folder, rng)
    with (folder / "cases.jsonl").open("ab") as file:
        file.write(b"\n" + json.dumps(OWN).encode())
    return PER_FILE + 1


def own_csv(folder: Path, rng: random.Random) -> int:
    """Own cases as CSV: cells changed, or the text as bytes."""
    (folder / "m.yaml").write_text(_yaml(MAPPING))
    out = io.StringIO()
    table = csv.writer(out, delimiter=rng.choice(",;\t"))
    table.writerow(OWN)
    for _ in range(PER_FILE):
        row = changed(OWN, rng)
        table.writerow([row.get(name, "") if rng.random() < 0.5 else OWN[name] for name in OWN])
    content = out.getvalue().encode("utf-8", "surrogatepass")
    (folder / "cases.csv").write_bytes(cut(content, rng) if rng.random() < 0.5 else content)
    return PER_FILE


TERM = {"doid": "DOID:13189", "label": "gout", "synonyms_exact": "podagra|gouty arthritis", "parents": "arthritis"}


def vocabulary(folder: Path, rng: random.Random) -> int:
    """A vocabulary as CSV: cells and columns changed, or the text as bytes."""
    out = io.StringIO()
    rows = [{name: str(value) for name, value in changed(TERM, rng).items()} for _ in range(PER_FILE)]
    table = csv.DictWriter(out, [*rows[0], *TERM] if rng.random() < 0.2 else list(TERM), extrasaction="ignore")
    table.writeheader()
    table.writerows(rows)
    content = out.getvalue().encode("utf-8", "surrogatepass")
    (folder / "terms.csv").write_bytes(cut(content, rng) if rng.random() < 0.5 else content)
    return PER_FILE


def own_packed(folder: Path, rng: random.Random) -> int:
    """The same, gzipped and damaged."""
    own_csv(folder, rng)
    (folder / "cases.csv.gz").write_bytes(cut(gzip.compress((folder / "cases.csv").read_bytes()), rng))
    return PER_FILE


def mapping(folder: Path, rng: random.Random) -> int:
    """A wrong mapping with a sound table."""
    (folder / "m.yaml").write_bytes(text_of(_yaml, MAPPING, rng))
    (folder / "cases.jsonl").write_text(json.dumps(OWN))
    return 1


def documents(folder: Path, rng: random.Random) -> int:
    """A folder: JSON lines, and Markdown with front matter."""
    wrong(DOCUMENT, "doc_id", folder, rng)
    for number in range(PAGES):
        front = text_of(_yaml, {name: DOCUMENT[name] for name in ("title", "source", "licence", "tags")}, rng)
        (folder / f"{number}.md").write_bytes(b"---\n" + front + b"---\n" + cut(TEXT.encode(), rng))
    return PER_FILE + PAGES


def packed_documents(folder: Path, rng: random.Random) -> int:
    """JSON lines, gzipped and damaged."""
    wrong(DOCUMENT, "doc_id", folder, rng)
    lines = folder / "cases.jsonl"
    (folder / "a.jsonl.gz").write_bytes(cut(gzip.compress(lines.read_bytes()), rng))
    lines.unlink()
    return PER_FILE


def entry(folder: Path, rng: random.Random) -> int:
    """A source of documents, as it is written into the parameters."""
    (folder / "entry.yaml").write_bytes(text_of(_yaml, MAPPED, rng))
    return 1


def formatted(suffix: str, content: bytes, folder: Path, rng: random.Random) -> int:
    """Ten files of a format that a library reads, damaged in one to three places, beside a sound document."""
    (folder / "sound.md").write_text(TEXT)
    for number in range(PAGES):
        damaged = content
        for _ in range(rng.choice((1, 1, 2, 3))):
            damaged = cut(damaged, rng)
        (folder / f"{number}{suffix}").write_bytes(damaged)
    return PAGES


def queries(folder: Path, rng: random.Random) -> int:
    """Questions, and a table of grades."""
    one_line(QUERY, folder, rng)
    (folder / "grades.tsv").write_bytes(cut(b"query_id\tdoc_id\trelevance\nq1\tgout\t2\nq1\tknee\t0\n", rng))
    return 1


def yaml_file(names: tuple[str, ...], folder: Path, rng: random.Random) -> int:
    """One of the project's own files."""
    name = rng.choice(names)
    (folder / Path(name).name).write_bytes(text_of(_yaml, _content(name), rng))
    return 1


@functools.cache
def _content(name: str) -> Any:
    return read_yaml(ROOT / name)


def _yaml(content: Any) -> str:
    out = io.StringIO()
    YAML(typ="safe").dump(content, out)
    return out.getvalue()


def import_cases(name: str, folder: Path, records: int) -> None:
    """Every line is a case or a rejection, which the stage can write and read again."""
    place = next(
        folder / name
        for name in ("turns.parquet", "cases.csv.gz", "cases.csv", "cases.jsonl")
        if (folder / name).exists()
    )
    given = {"mapping": str(folder / "m.yaml")} if name == "own" else {}
    source = CaseSource.model_validate(
        {"format": name, "path": str(place), "cases": int(name == "ddxplus"), "licence": "MIT", **given}
    )
    cases, rejected = load_source(source, SPLIT)
    assert all("\n" not in item.reason and len(item.reason) < LONGEST for item in rejected)
    write_cases(cases, folder / "cases.parquet")
    write_rejected(rejected, folder / "rejected.jsonl")
    assert read_cases(folder / "cases.parquet") == cases
    if place.suffix == ".jsonl" and name != "ddxplus":
        assert len(cases) + len(rejected) == records


def read_documents(folder: Path, records: int) -> None:
    """Every line and every page is a document or a rejection."""
    found, rejected = load_documents(["."], folder, None)
    assert all("\n" not in item.reason and len(item.reason) < LONGEST for item in rejected)
    if list(folder.glob("*.gz")):  # damage may make two lines of one; what it costs is told
        assert rejected or len(found) == records
    else:
        assert len(found) + len(rejected) == records


def read_formatted(folder: Path, records: int) -> None:
    """Every file leaves a trace, and the sound one beside them is there."""
    found, rejected = load_documents(["."], folder, None)
    assert all("\n" not in item.reason and len(item.reason) < LONGEST for item in rejected)
    told = {document.doc_id.split(":")[0] for document in found} | {item.path.name for item in rejected}
    assert "sound" in told
    assert len(told - {"sound"}) >= (1 if list(folder.glob("*.xml")) else records)


def read_mapped(folder: Path, records: int) -> None:
    """Every line is a document or a rejection; a column that none has is one more."""
    source = DocumentSource.model_validate(MAPPED)
    found, rejected = load_documents([source], folder, None)
    assert all("\n" not in item.reason and len(item.reason) < LONGEST for item in rejected)
    assert records <= len(found) + len(rejected) <= records + 1


def read_entry(folder: Path, _records: int) -> None:
    """An entry of `sources`, as the parameters are read."""
    place = folder / "entry.yaml"
    entry = read_yaml(place)
    validated(entry, place, TypeAdapter(DocumentSource).validate_python)


def read_ratings_and_ask(folder: Path, _records: int) -> None:
    """What people rated is read, and gone on with; it stays as it was where it cannot be read."""
    place = folder / "lines.jsonl"
    before = place.read_bytes()
    try:
        read_ratings(place)
        ask_for_ratings(place, [("c", [{"role": "user", "content": "it hurts"}])])
    except ClinicError:
        assert place.read_bytes() == before
        raise
    assert place.read_bytes().decode("utf-8-sig").split("\n")[0] == json.dumps(RATING)


def read_pairs(folder: Path, _records: int) -> None:
    """Pairs of answers, as a policy with a tokenizer reads them."""
    read_preferences(folder / "lines.jsonl", _chat())


@functools.cache
def _chat() -> ChatFormat:
    return ChatFormat(new_tokenizer(["it hurts", "since when?", "rest"] * 3, 300))


def read_judged(folder: Path, _records: int) -> None:
    """Questions with their grades."""
    load_queries(folder / "lines.jsonl", folder / "grades.tsv")


def read_params(folder: Path, _records: int) -> None:
    """`params.yaml`."""
    load_params(folder / "params.yaml")


def read_recipe(folder: Path, _records: int) -> None:
    """The recipe of an algorithm."""
    (place,) = folder.iterdir()
    parse_algorithm(read_yaml(place), _params(), place)


def read_preset(folder: Path, _records: int) -> None:
    """The constants of a reward."""
    (place,) = folder.iterdir()
    validated(read_yaml(place), place, TypeAdapter(PresetParams).validate_python)


def read_base_recipe(folder: Path, _records: int) -> None:
    """The recipe of the base model."""
    load_base_model_params(None, folder / "base_model.yaml")


def read_terms(folder: Path, _records: int) -> None:
    """A vocabulary of diseases, and one that it is asked for."""
    read_vocabulary(folder / "terms.csv").find(("gout",))


@functools.cache
def _params() -> Any:
    return load_params()


def _table(name: str) -> Read:
    return functools.partial(import_cases, name)


def _lines(record: dict[str, Any], key: str) -> Write:
    return functools.partial(wrong, record, key)


FILES: dict[str, tuple[int, Write, Read]] = {  # how many records, who gets them wrong, who reads them
    "agentclinic": (1000, _lines(OSCE, "case_id"), _table("agentclinic")),
    "mtmeddialog": (1000, _lines(TALK, "case_id"), _table("mtmeddialog_cases")),
    "mtmeddialog turns": (200, turns, _table("mtmeddialog_turns")),
    "questions": (1000, _lines(QUESTION, "question_id"), _table("questions")),
    "ddxplus": (1000, _lines(CONDITION, "condition"), _table("ddxplus")),
    "own, JSON lines": (1200, own_lines, _table("own")),
    "own, CSV": (800, own_csv, _table("own")),
    "own, packed": (400, own_packed, _table("own")),
    "mapping": (400, mapping, _table("own")),
    "documents": (1200, documents, read_documents),
    "documents, packed": (400, packed_documents, read_documents),
    "documents, HTML": (300, functools.partial(formatted, ".html", PAGE.encode()), read_formatted),
    "documents, PDF": (300, functools.partial(formatted, ".pdf", pdf("Gout hurts.", "Rest.")), read_formatted),
    "documents, XML": (600, functools.partial(formatted, ".xml", MEDQUAD.encode()), read_formatted),
    "documents, mapped": (800, _lines(COLUMNS, "id"), read_mapped),
    "entry of sources": (300, entry, read_entry),
    "ratings": (400, functools.partial(one_line, RATING), read_ratings_and_ask),
    "preferences": (400, functools.partial(one_line, PAIR), read_pairs),
    "judged queries": (300, queries, read_judged),
    "params.yaml": (300, functools.partial(yaml_file, ("params.yaml",)), read_params),
    "recipes": (300, functools.partial(yaml_file, RECIPES), read_recipe),
    "recipe of the base model": (50, functools.partial(yaml_file, ("recipes/base_model.yaml",)), read_base_recipe),
    "vocabulary": (1200, vocabulary, read_terms),
    "reward presets": (200, functools.partial(yaml_file, PRESETS), read_preset),
}


def test_there_are_ten_thousand() -> None:
    assert sum(count for count, _, _ in FILES.values()) >= 10_000


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_what_is_wrong_is_told_in_a_line(name: str, tmp_path: Path, base_seed: int) -> None:
    count, write, read = FILES[name]
    done = number = 0
    while done < count:
        folder = tmp_path / str(number)
        folder.mkdir()
        with deep():
            records = write(folder, random.Random(f"{name} {base_seed} {number}"))
        began = time.process_time()
        said = ""
        try:
            read(folder, records)
        except TOLD as error:
            said = str(error)
        assert "\n" not in said, f"file {number}"
        assert len(said) < LONGEST, f"file {number}"
        assert time.process_time() - began < LIMIT_S, f"file {number} took {time.process_time() - began:.1f} s"
        done += records
        number += 1


BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
)
"""Ten lines that stand for three thousand million values."""


@pytest.mark.parametrize("read", [load_params, read_mapping])
def test_aliases_are_bounded(read: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(BOMB)
    began = time.process_time()
    with pytest.raises(TOLD, match=r"a\.yaml is not valid YAML: aliases \(\*name\) repeat values"):
        read(tmp_path / "a.yaml")
    assert time.process_time() - began < LIMIT_S


@pytest.mark.parametrize("read", [load_params, read_mapping])
def test_a_folder_is_no_file_of_parameters(read: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(TOLD, match="it is a folder"):
        read(tmp_path)
