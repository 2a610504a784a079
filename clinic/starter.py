"""Loads and checks the bundled starter clinic (`data/starter`), and draws cases from a generative clinic.

The check is strict, because everything downstream believes these files: ids resolve, probabilities lie in
(0, 1], wordings are unique, no two conditions are alike, and the task is worth learning.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml.error import YAMLError

from clinic.cases import Case, Fact, flag_opening
from clinic.config import SplitParams, StarterParams
from clinic.errors import ClinicError, shortened
from clinic.generative import Condition, Finding, GenerativeClinic, Wordings
from clinic.language import EN, phrases
from clinic.splits import group_of_facts, split_of
from clinic.yaml_files import load_yaml

LICENCE = "CC0-1.0"
MIN_ARTICLE_WORDS = 300
MAX_MISSES = 100_000  # draws in a row without a new patient, before a clinic counts as used up


def load_clinic(root: Path, params: StarterParams) -> GenerativeClinic:
    """The starter clinic as section `patient_cases.starter` has it, with its rare conditions where it names some.

    Args:
        root: what its folders are relative to.
        params: the section.

    Raises:
        ClinicError: something is missing or inconsistent; the message names file, id and value.
    """
    clinic = load_starter(root / params.directory, params.second_complaint, params.language)
    return clinic if params.rare is None else _with_rare(clinic, root / params.rare.directory, params.rare.share)


def _with_rare(clinic: GenerativeClinic, directory: Path, share: float) -> GenerativeClinic:
    """The clinic with the conditions of `directory/conditions`, to which a share of the patients falls."""
    if clinic.language != EN.code:
        raise ClinicError(
            f"{directory}: its texts are English, and the clinic is in {clinic.language!r}; set patient_cases.starter.rare to null"
        )
    known = set(clinic.finding_index)
    rare = [replace(_condition(path, entry, known), rare=True) for path, entry in _entries(directory / "conditions")]
    common = sum(condition.prevalence for condition in clinic.conditions)
    scale = share / (1 - share) * common / sum(condition.prevalence for condition in rare)
    rare = [replace(condition, prevalence=condition.prevalence * scale) for condition in rare]
    clinic = replace(clinic, conditions=(*clinic.conditions, *rare))
    _check_unique(directory, clinic)
    _check_distinguishable(directory, clinic)
    return clinic


def load_starter(directory: Path, second_complaint: float, language: str = EN.code) -> GenerativeClinic:
    """Read `conditions/*.yaml` and `findings/*.yaml` and check them.

    In another language it is the slice of the clinic for which `<language>/conditions.yaml` and
    `<language>/findings.yaml` have texts, with the same probabilities.

    Raises:
        ClinicError: something is missing or inconsistent; the message names file, id and value.
    """
    findings = tuple(_finding(path, entry) for path, entry in _entries(directory / "findings"))
    known = {finding.finding_id for finding in findings}
    conditions = tuple(_condition(path, entry, known) for path, entry in _entries(directory / "conditions"))
    clinic = GenerativeClinic("starter", conditions, findings, second_complaint)
    if language != EN.code:
        clinic = _translated(clinic, directory / language, language)
    _check_unique(directory, clinic)
    _check_distinguishable(directory, clinic)
    return clinic


def _translated(clinic: GenerativeClinic, folder: Path, language: str) -> GenerativeClinic:
    """The conditions and findings that have texts in a folder, with those texts; probabilities, urgency and codes stay."""
    phrases(language)
    texts = {name: _texts(folder / f"{name}.yaml") for name in ("conditions", "findings")}
    findings = tuple(
        _said_by(f, folder / "findings.yaml", entry)
        for f in clinic.findings
        if (entry := texts["findings"].pop(f.finding_id, None))
    )
    kept = {finding.finding_id for finding in findings}
    conditions = tuple(
        replace(
            c,
            name=entry["name"],
            synonyms=tuple(entry["synonyms"]),
            parents=tuple(entry["parents"]),
            next_steps=tuple(entry["next_steps"]),
            findings={k: v for k, v in c.findings.items() if k in kept},
            red_flags=tuple(flag for flag in c.red_flags if flag in kept),
        )
        for c in clinic.conditions
        if (entry := texts["conditions"].pop(c.condition_id, None))
    )
    for name, left in texts.items():
        if left:
            raise ClinicError(
                f"{folder / name}.yaml: {next(iter(left))!r} is not among the clinic's {name}; correct the id or remove the entry"
            )
    if missing := sorted(kept - {finding_id for condition in conditions for finding_id in condition.findings}):
        raise ClinicError(
            f"{folder}/findings.yaml: {missing[0]!r} belongs to no condition of conditions.yaml; remove it or add its condition"
        )
    return replace(clinic, conditions=conditions, findings=findings, language=language)


def _said_by(finding: Finding, path: Path, entry: dict[str, Any]) -> Finding:
    wordings = _wordings(path, entry)
    return replace(
        finding, name=entry["name"], patient=wordings["patient"], denial=wordings["denial"], doctor=wordings["doctor"]
    )


def _texts(path: Path) -> dict[str, dict[str, Any]]:
    """Entries of a file of texts by id."""
    texts: dict[str, dict[str, Any]] = {}
    needed = (
        ("name", "patient", "denial", "doctor")
        if path.stem == "findings"
        else ("name", "synonyms", "parents", "next_steps")
    )
    for _, entry in _entries(path):
        missing = [key for key in ("id", *needed) if not entry.get(key)]
        if missing:
            raise ClinicError(f"{path}: entry {entry.get('id', '?')!r} lacks {missing[0]}; add it")
        for key in sorted({"synonyms", "parents", "next_steps"} & set(needed)):
            _texts_of(path, entry, key)
        if entry["id"] in texts:
            raise ClinicError(f"{path}: id {entry['id']!r} is used twice; remove one")
        texts[entry["id"]] = entry
    return texts


def _texts_of(path: Path, entry: dict[str, Any], key: str) -> tuple[str, ...]:
    """A list of texts; a lone text would be read letter by letter."""
    texts = entry[key]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ClinicError(
            f"{path}: entry {entry.get('id', '?')!r}: {key} must be a list of texts, not {texts!r}; write it as [..., ...]"
        )
    return tuple(texts)


def _entries(place: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    paths = sorted(place.glob("*.yaml")) if place.suffix != ".yaml" else [place]
    if not paths or not paths[0].exists():
        raise ClinicError(f"{place} holds no .yaml file; point patient_cases.starter.directory at a clinic")
    for path in paths:
        entries = _content(path)
        if not isinstance(entries, list | None):
            raise ClinicError(f"{path} must be a list of entries with an id, not {shortened(repr(entries))}")
        for entry in entries or []:
            if not isinstance(entry, dict):
                raise ClinicError(f"{path} must be a list of entries with an id, not {entry!r}")
            yield path, entry


def _content(path: Path) -> Any:
    try:
        return load_yaml(path)
    except (YAMLError, ValueError, OSError) as error:
        raise ClinicError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error


def _finding(path: Path, entry: dict[str, Any]) -> Finding:
    wordings = _wordings(path, entry)
    try:
        finding = Finding(
            finding_id=entry["id"],
            name=entry["name"],
            complaint=float(entry["complaint"]),
            background=float(entry["background"]),
            **wordings,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ClinicError(f"{path}: finding {entry.get('id', '?')!r} lacks or mistypes {error}") from error
    if not 0 < finding.background <= 1:
        raise ClinicError(f"{path}: {finding.finding_id}: background {finding.background} must lie in (0, 1]")
    return finding


def _wordings(path: Path, entry: dict[str, Any]) -> dict[str, Wordings]:
    try:
        wordings = {
            key: Wordings(*(_texts_of(path, entry[key] | {"id": entry["id"]}, fold) for fold in ("train", "test")))
            for key in ("patient", "denial", "doctor")
        }
    except (KeyError, TypeError) as error:
        raise ClinicError(f"{path}: finding {entry.get('id', '?')!r} lacks or mistypes {error}") from error
    if any(not w.train or not w.test for w in wordings.values()):
        raise ClinicError(f"{path}: {entry.get('id', '?')}: each wording list needs a train and a test entry")
    return wordings


def _condition(path: Path, entry: dict[str, Any], known: set[str]) -> Condition:
    try:
        condition = Condition(
            condition_id=entry["id"],
            name=entry["name"],
            specialty=entry["specialty"],
            icd10=str(entry["icd10"]),
            synonyms=_texts_of(path, entry, "synonyms"),
            parents=_texts_of(path, entry, "parents"),
            prevalence=float(entry["prevalence"]),
            urgent=bool(entry["urgent"]),
            red_flags=_texts_of(path, entry, "red_flags"),
            next_steps=_texts_of(path, entry, "next_steps"),
            findings={k: float(v) for k, v in entry["findings"].items()},
            held_out=bool(entry.get("held_out", False)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ClinicError(f"{path}: condition {entry.get('id', '?')!r} lacks or mistypes {error}") from error
    where = f"{path}: {condition.condition_id}"
    for finding_id, probability in condition.findings.items():
        if finding_id not in known:
            raise ClinicError(f"{where}: finding {finding_id!r} is defined in no file under findings/")
        if not 0 < probability <= 1:
            raise ClinicError(f"{where}: P({finding_id}) = {probability} must lie in (0, 1]")
    for flag in condition.red_flags:
        if flag not in condition.findings:
            raise ClinicError(f"{where}: red flag {flag!r} is not among its findings")
    if not condition.next_steps:
        raise ClinicError(f"{where}: next_steps is empty; give at least one")
    if condition.prevalence <= 0:
        raise ClinicError(f"{where}: prevalence {condition.prevalence} must be positive")
    return condition


def _check_unique(directory: Path, clinic: GenerativeClinic) -> None:
    seen: dict[str, str] = {}
    for kind, name in [
        *(("id", c.condition_id) for c in clinic.conditions),
        *(("id", f.finding_id) for f in clinic.findings),
        *(("name", term.lower()) for c in clinic.conditions for term in {c.name.lower(), *map(str.lower, c.synonyms)}),
        *(
            ("wording", text.lower())
            for f in clinic.findings
            for w in (f.patient, f.denial, f.doctor)
            for text in w.train + w.test
        ),
    ]:
        key = f"{kind} {name!r}"
        if key in seen:
            raise ClinicError(f"{directory}: {key} is used twice; every id, name and wording must be unique")
        seen[key] = name


def _check_distinguishable(directory: Path, clinic: GenerativeClinic) -> None:
    """No two conditions whose findings probabilities differ by less than .5, summed over findings."""
    table_CF = clinic.probability_CF
    for i, j in zip(*np.triu_indices(len(clinic.conditions), k=1), strict=True):
        if np.abs(table_CF[i] - table_CF[j]).sum() < 0.5:
            a, b = clinic.conditions[i].condition_id, clinic.conditions[j].condition_id
            raise ClinicError(f"{directory}: {a} and {b} have nearly the same findings; tell them apart or merge them")


def read_asking(directory: Path, clinic: GenerativeClinic) -> tuple[dict[str, list[str]], list[str]]:
    """How doctors ask: questions by finding id (the clinic's own and those of `asking.yaml`, where there is one for its
    language), and questions off the record.

    Raises:
        ClinicError: `asking.yaml` is no YAML, or names a finding that the clinic has not.
    """
    asking = {f.finding_id: [f.name, *f.doctor.train, *f.doctor.test] for f in clinic.findings}
    path = directory / "asking.yaml" if clinic.language == EN.code else directory / clinic.language / "asking.yaml"
    if not path.exists():
        return asking, []
    more = _content(path)
    if (
        not isinstance(more, dict)
        or not isinstance(more.get("asking"), dict)
        or not isinstance(more.get("off_record"), list)
    ):
        raise ClinicError(
            f"{path} needs a mapping `asking` (finding id: questions) and a list `off_record` (questions that no finding answers)"
        )
    for finding_id, questions in more["asking"].items():
        if finding_id not in asking:
            raise ClinicError(f"{path}: {finding_id!r} is no finding of the clinic; correct the id or remove the entry")
        asking[finding_id] += questions
    return asking, list(more["off_record"])


def check_articles(directory: Path, clinic: GenerativeClinic) -> None:
    """Every condition has a readable article.

    Raises:
        ClinicError: an article is missing or shorter than 300 words.
    """
    folder = directory / "articles" if clinic.language == EN.code else directory / clinic.language / "articles"
    for condition in clinic.conditions:
        path = folder / f"{condition.condition_id}.md"
        if not path.exists():
            raise ClinicError(f"{path} is missing; every condition needs an article")
        body = path.read_text(encoding="utf-8").split("---", 2)[-1]
        if (words := len(body.split()) if clinic.words.space else len(body)) < MIN_ARTICLE_WORDS:
            raise ClinicError(f"{path} has {words} words; an article needs at least {MIN_ARTICLE_WORDS}")


def bayes_accuracy(clinic: GenerativeClinic, patients: int, seed: int) -> dict[str, float]:
    """How often Bayes' best guess is right with no question and with the whole chart, over drawn patients.

    Returns:
        {"no_questions": share, "full_information": share}, each in [0, 1].
    """
    rng = np.random.default_rng(seed)
    right = np.zeros(2)
    for _ in range(patients):
        row, opening, present_F = clinic.draw(rng)
        answers = {column: bool(present) for column, present in enumerate(present_F)}
        right += [clinic.posterior(opening, {}).argmax() == row, clinic.posterior(opening, answers).argmax() == row]
    return {"no_questions": right[0] / patients, "full_information": right[1] / patients}


def check_worth_learning(clinic: GenerativeClinic, patients: int, seed: int) -> dict[str, float]:
    """Refuse a clinic that is solved without questions or hopeless even with the whole chart.

    Raises:
        ClinicError: full-information Bayes accuracy outside .85 to .98, or above .40 with no question.
    """
    accuracy = bayes_accuracy(clinic, patients, seed)
    if not 0.85 <= accuracy["full_information"] <= 0.98:
        raise ClinicError(
            f"clinic {clinic.name}: Bayes accuracy with the whole chart is {accuracy['full_information']:.3f}; it must lie in .85 to .98"
        )
    if accuracy["no_questions"] > 0.40:
        raise ClinicError(
            f"clinic {clinic.name}: Bayes accuracy with no question is {accuracy['no_questions']:.3f}; it must be at most .40"
        )
    return accuracy


def draw_cases(
    clinic: GenerativeClinic,
    count: int,
    seed: int,
    split: SplitParams,
    licence: str = LICENCE,
    keep: Sequence[str] | None = None,
) -> Iterator[Case]:
    """Draw distinct patients and word them.

    A test case uses patient wordings that no training text contains. Of a condition that is held out there are test
    cases alone. A patient with the same condition and
    findings as an earlier one is drawn again.

    Args:
        clinic: whose statistics to draw from.
        count: how many cases.
        seed: of the draw; the same seed gives the same cases.
        split: how groups fall to train, validation and test.
        licence: recorded in every case.
        keep: only cases of these splits (others are drawn and passed over); None keeps all.

    Raises:
        ClinicError: the clinic has fewer distinct patients than asked for.
    """
    rng = np.random.default_rng(seed)
    seen: set[str] = set()
    misses = 0
    while len(seen) < count:
        row, opening, present_F = clinic.draw(rng)
        present = [f.finding_id for f, here in zip(clinic.findings, present_F, strict=True) if here]
        group = group_of_facts(clinic.conditions[row].condition_id, present)
        fold = split_of(group, split)
        passed_over = (keep is not None and fold not in keep) or (clinic.conditions[row].held_out and fold != "test")
        if group in seen or passed_over:
            misses += 1
            if misses >= MAX_MISSES:
                raise ClinicError(
                    f"clinic {clinic.name}: found {len(seen)} distinct patients of {count} asked for; ask for fewer cases"
                )
            continue
        seen.add(group)
        misses = 0
        case_id = f"{clinic.name}-{seed}-{len(seen):05d}"
        yield flag_opening(_worded_case(clinic, row, opening, present_F, case_id, group, fold, licence, rng))


def _worded_case(  # noqa: PLR0913  the parts of one drawn patient
    clinic: GenerativeClinic,
    row: int,
    opening: tuple[int, ...],
    present_F: Any,
    case_id: str,
    group: str,
    fold: str,
    licence: str,
    rng: np.random.Generator,
) -> Case:
    condition = clinic.conditions[row]
    facts = []
    for finding, present in zip(clinic.findings, present_F, strict=True):
        wordings = (finding.patient if present else finding.denial).of(fold)
        facts.append(Fact(finding.finding_id, bool(present), wordings[int(rng.integers(len(wordings)))]))
    said = [facts[column].text for column in opening]
    self_report = clinic.words.also.join(said)
    return Case(
        case_id=case_id,
        group_id=group,
        split=fold,
        source=clinic.name,
        licence=licence,
        language=clinic.language,
        category=condition.specialty,
        persona="plain",
        self_report=self_report[0].upper() + self_report[1:] + clinic.words.stop,
        opening=tuple(facts[column].topic for column in opening),
        facts=tuple(facts),
        diagnosis_id=condition.condition_id,
        diagnosis=condition.name,
        synonyms=condition.synonyms,
        parents=condition.parents,
        recommendation=condition.next_steps[0],
        urgent=condition.urgent,
        red_flags=condition.red_flags,
        flags=(),
    )
