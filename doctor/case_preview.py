"""A look at a table of own cases before a run: what would be rejected, how a doctor would meet the cases, what would
not fit.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from clinic.actions import examination, question
from clinic.cases import ORDERED, Case, Rejected
from clinic.config import CaseSource
from clinic.consultation import at_once
from clinic.contamination import inherit_groups
from clinic.errors import ClinicError
from clinic.events import Asked, Examined
from clinic.language import phrases
from clinic.loaders import load_source
from clinic.loaders.cells import text_of, with_flags
from clinic.loaders.guess import guess_mapping
from clinic.loaders.mapping import Mapping, read_mapping
from clinic.loaders.own import stated_diagnosis
from clinic.loaders.records import UNCLASSIFIED, BadRecord, names_of
from clinic.loaders.rows import FORMATS, Table, read_table, tables_at
from clinic.matching import normalise
from clinic.naming import group_of
from clinic.openings import chart_opening
from clinic.rejections import refuse_too_many, told
from clinic.splits import refuse_empty_splits
from clinic.vocabulary import Term, Vocabulary, read_vocabulary
from doctor.case_doubts import doubts
from doctor.environments import ConsultationFactory, open_factory
from doctor.parameters import ROOT, Params
from rl.chat import ChatFormat
from rl.errors import TrainingError
from rl.models import load_tokenizer

COMMON_QUESTIONS = {
    "en": (
        "How long have you had this?",
        "Where exactly is it?",
        "How bad is it?",
        "What makes it worse?",
        "Do you have a fever?",
        "What other symptoms do you have?",
        "Which medicines do you take?",
        "Do you have any allergies?",
        "Which illnesses have you had before?",
        "Does anybody in your family have a similar illness?",
    ),
    "zh": (
        "这样多久了？",
        "具体是哪个部位？",
        "有多严重？",
        "什么情况下会加重？",
        "发烧吗？",
        "还有别的症状吗？",
        "在吃什么药？",
        "对什么过敏吗？",
        "以前得过什么病？",
        "家里人有类似的病吗？",
    ),
}
SHOWN_NAMES = 20
_NUMBER = re.compile(r" \(\d+\)\Z")  # of a topic that comes more than once
SHOWN_FACTS = 60  # of a case, with + where they are there and - where they are denied
SHOWN_ORDERS = 3  # of examinations and tests
FEW = 4  # different words of a column that could be codes


def guessed(path: Path, mapping: Path) -> None:
    """Write a first mapping file for a table, or for the first of a folder.

    Raises:
        ClinicError: the table cannot be read, or its columns say too little.
        FileExistsError: there is a mapping file already.
    """
    text = guess_mapping(read_table(str(_tables(path)[0])), path).encode()
    try:
        with mapping.open("xb") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                mapping.unlink()
                raise
    except FileExistsError:
        raise
    except OSError as error:
        raise ClinicError(
            f"{mapping} cannot be written ({error.strerror}); give --mapping a place that can, in a folder that is there"
        ) from error


def _tables(path: Path) -> list[Path]:
    if not (found := tables_at(path)):
        raise ClinicError(f"{path} has no table in it; one ends in {', '.join(FORMATS)}")
    return found


def preview(params: Params, source: CaseSource, shown: int) -> tuple[list[Case], list[Rejected], list[str]]:
    """The cases of a source as the stage would group them, its rejections, and a report in lines, `shown` cases in full.

    Raises:
        ClinicError: it is unusable, or there is no row in it.
    """
    _tables(Path(source.path))
    cases, rejected = load_source(source, params.patient_cases.split)
    if not cases and not rejected:
        raise ClinicError(f"{source.path} has no row in it")
    lines = told(source.path, rejected, len(cases) + len(rejected))
    cases, bridging = inherit_groups(cases, params.patient_cases.near_duplicate)
    lines += told("near-duplicates", bridging, len(cases) + len(bridging))
    if not cases:
        return cases, rejected, lines
    factory = replace(open_factory(params, ROOT / "data/kb_index"), patient_model=None)
    mapping = read_mapping(Path(source.mapping or ""))
    tables = [read_table(str(path)) for path in tables_at(Path(source.path))]
    every = max(1, len(cases) // max(shown, 1))
    return (
        cases,
        rejected,
        [
            *lines,
            *_summary(cases),
            *_columns(mapping, tables),
            *_unused_corrections(mapping, tables),
            *_empty_splits(params, source, cases),
            *doubts(mapping, tables, cases),
            *(line for case in cases[::every][:shown] for line in _meeting(factory, case)),
            *_unknown_names(params, factory, cases),
        ],
    )


def refuse(params: Params, source: CaseSource, cases: Sequence[Case], rejected: Sequence[Rejected]) -> None:
    """What the stage `patient_cases` would refuse.

    Raises:
        ClinicError: too many rejections; or no case for a split, where the table stands alone.
    """
    refuse_too_many(source.path, rejected, len(cases) + len(rejected), params.patient_cases.max_rejected_share)
    if _alone(params, source):
        refuse_empty_splits(cases)


def _alone(params: Params, source: CaseSource) -> bool:
    """Whether no other source can give a split its cases."""
    others = [
        one for one in params.patient_cases.imported if (ROOT / one.path).resolve() != Path(source.path).resolve()
    ]
    return not params.patient_cases.starter.cases and not others


def _empty_splits(params: Params, source: CaseSource, cases: Sequence[Case]) -> list[str]:
    try:
        refuse_empty_splits(cases)
    except ClinicError as error:
        return [] if _alone(params, source) else [f"  without other sources the stage would stop: {error}"]
    return []


def _summary(cases: Sequence[Case]) -> list[str]:
    facts = [fact for case in cases for fact in case.facts]
    diagnoses = Counter(case.diagnosis_id for case in cases)
    splits = Counter(case.split for case in cases)
    groups = Counter(case.group_id for case in cases)
    common = ", ".join(f"{name} ({count})" for name, count in diagnoses.most_common(5))
    flagged = sum(bool(case.flags) for case in cases)
    return [
        f"{len(cases)} cases of source {cases[0].source!r}: {', '.join(f'{splits[name]} {name}' for name in sorted(splits))}",
        f"  facts in a case: {median(len(case.facts) for case in cases):g} (median), {sum(not fact.present for fact in facts) / len(facts):.0%} of them denied",
        f"  diagnoses: {len(diagnoses)} different, {sum(count == 1 for count in diagnoses.values())} of them once; the commonest: {common}",
        f"  cases that share a group with another, and so a split: {sum(count for count in groups.values() if count > 1)}, at most {max(groups.values())} in one",
        *([f"  opening words that name the diagnosis (masked, flagged): {flagged}"] if flagged else []),
        *(["  all have one diagnosis: whoever says it is always right"] if len(diagnoses) == 1 else []),
    ]


def _columns(mapping: Mapping, tables: Sequence[Table]) -> list[str]:
    """How each column of facts and tests was read, and the columns that nothing was made of."""
    of_facts = [*mapping.facts, *mapping.tests]
    rows = [row for table in tables for _, row in with_flags(table.rows, of_facts) if not isinstance(row, BadRecord)]
    used = {column for _, column in mapping.columns()}
    unused = [
        column
        for column in dict.fromkeys(name for table in tables for name in table.columns if name)
        if column not in used
    ]
    return [
        *(f"  column {column}: {_as_read([row.get(column) for row in rows])}" for column in of_facts),
        *([f"  columns that nothing is made of: {', '.join(unused)}"] if unused else []),
    ]


def _as_read(cells: Sequence[Any]) -> str:
    flags = Counter(cell for cell in cells if isinstance(cell, bool))
    given = [cell for cell in cells if not isinstance(cell, bool) and cell not in ([], {})]
    texts = Counter(text for cell in given if (text := text_of(cell, denial=True)))
    empty = len(cells) - flags.total() - texts.total()
    counts = [f"{flags[True]} yes", f"{flags[False]} no"] if flags else []
    counts += [f"{texts.total()} texts"] if texts else []
    few = len(texts) <= FEW and texts.total() > 2 * FEW and not any(" " in text for text in texts)
    words = f"; told as they stand, as no yes or no: {', '.join(sorted(texts))}" if few else ""
    return ", ".join([*counts, f"{empty} empty"]) + words


def _unused_corrections(mapping: Mapping, tables: Sequence[Table]) -> list[str]:
    """Corrections of the mapping that no row of the table asks for: misspelt, or for a table of another month."""
    rows = [row for table in tables for _, row in table.rows]
    stated = {
        normalise(name)
        for row in rows
        if not isinstance(row, BadRecord) and not isinstance(row.get(mapping.diagnosis), list | dict)
        for name in stated_diagnosis(row, mapping)
    }
    unused = [name for name in mapping.corrections if normalise(name) not in stated]
    return [f"  corrections of diagnoses that no row has: {', '.join(map(repr, unused))}"] if unused else []


def _meeting(factory: ConsultationFactory, case: Case) -> list[str]:
    """A case as a doctor would meet it, who orders the first tests, too."""
    words, questions, ordered = phrases(case.language), COMMON_QUESTIONS[case.language], ORDERED[case.language]
    tests = (fact.topic for fact in case.facts if fact.topic.startswith(ordered))
    orders = [_NUMBER.sub("", topic.removeprefix(ordered)) for topic in tests][:SHOWN_ORDERS]
    consultation = factory.consultation(case, len(questions) + len(orders) + 1)
    opening = consultation.opening()[-1]["content"]
    lines = ["", f"{case.case_id} (diagnosis: {case.diagnosis}; {len(case.facts)} facts{_beside(case)})"]
    lines += [f"  patient: {opening}"]
    lines += [f"  {'+' if fact.present else '-'} {fact.topic}: {fact.text}" for fact in case.facts[:SHOWN_FACTS]]
    lines += ["  ..."] if len(case.facts) > SHOWN_FACTS else []
    asked = [(text, question(text, words=words)) for text in questions]
    asked += [(f"{words.test}{name}", examination(name, words)) for name in orders]
    for text, turn in asked:
        event = at_once(consultation.step(turn)).event
        if isinstance(event, Asked | Examined):
            lines.append(f"  {text} -> {event.reply}")
    return lines


def _beside(case: Case) -> str:
    """What a mapping may say of a case beside what the patient tells."""
    said = {
        "also": ", ".join(case.synonyms),
        "category": case.category if case.category != UNCLASSIFIED else "",
        "recommendation": case.recommendation,
        "red flags": ", ".join(case.red_flags),
    }
    return "".join(f"; {name}: {text}" for name, text in said.items() if text)


def _unknown_names(params: Params, factory: ConsultationFactory, cases: Sequence[Case]) -> list[str]:
    """Diagnoses whose other names nobody knows: only the table's own words will count as right."""
    path = params.patient_cases.vocabulary
    known = read_vocabulary(ROOT / path) if path is not None else None
    bundled = Vocabulary([Term(c.condition_id, c.name, c.synonyms, c.parents) for c in factory.clinic.conditions])
    names = {case.diagnosis: [*names_of(case.diagnosis), *case.synonyms] for case in cases}
    unknown = Counter(
        case.diagnosis
        for case in cases
        if not any(vocabulary is not None and vocabulary.find(names[case.diagnosis]) for vocabulary in (known, bundled))
        and all(group_of(name) is None for name in names[case.diagnosis])
    )
    beside = f" and {path}" if known is not None else ", and patient_cases.vocabulary is null"
    return [
        "",
        f"diagnoses without a known synonym: {len(unknown)}, of {sum(unknown.values())} cases (known are names of clinic/disease_names.yaml and of the starter clinic{beside})",
        "only their own words count as right: check them, give synonyms, or correct them in the mapping",
        *(f"  {name}" + f" ({count})" * (count > 1) for name, count in unknown.most_common(SHOWN_NAMES)),
        *(["  ..."] if len(unknown) > SHOWN_NAMES else []),
    ]


def too_long(params: Params, cases: Sequence[Case]) -> list[str]:
    """Openings and charts beside the tokens of an episode, as the model of the warm start counts them; who cannot be asked
    is named.
    """
    base = params.warm_start.base
    try:
        chat = ChatFormat(load_tokenizer(str(ROOT / base) if (ROOT / base).exists() else base))
    except TrainingError as error:
        return ["", f"tokens are not counted, so that charts may be too long: {error}"]
    rules, limits = params.consultation, params.rollout
    room = limits.max_episode_tokens - limits.response_length
    charts = [len(chat.opening_ids(chart_opening(case, rules))) for case in cases]
    reports = [len(chat.content_ids(case.self_report)) for case in cases]
    longest = max(max(len(chat.content_ids(fact.text)) for fact in case.facts) for case in cases)
    return [
        "",
        f"tokens of {base}: opening words at most {max(reports)}, an answer at most {longest}, a chart {median(charts):g} (median), at most {max(charts)}",
        f"charts that leave no room for a diagnosis in rollout.max_episode_tokens ({limits.max_episode_tokens}): {sum(chart > room for chart in charts)} of {len(cases)}"
        + (f"; all fit from {max(charts) + limits.response_length}" if max(charts) > room else ""),
    ]
