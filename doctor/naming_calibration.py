"""How well names of diagnoses are matched, alone and in whole answers, and how well the leak filter hears them:
data/calibration/diagnoses_*.jsonl, answers_*.jsonl and leaks_*.jsonl, labelled by the rules in the README beside them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from clinic.cases import Case, Fact
from clinic.diagnoses import is_placed, keys_of_run, relation, with_names_of_run
from clinic.leaks import LeakFilter
from clinic.loaders.records import diagnosis_id, names_of
from clinic.vocabulary import Vocabulary, read_vocabulary, with_vocabulary
from doctor.calibration import CALIBRATION, read_lines
from doctor.parameters import ROOT, Params

HALVES = ("open", "sealed")


def case_of(diagnosis: str) -> Case:
    """An imported case of which nothing but the diagnosis is known."""
    names = names_of(diagnosis)
    return Case(
        case_id=diagnosis,
        group_id=diagnosis,
        split="test",
        source="calibration",
        licence="CC0-1.0",
        language="en",
        category="",
        persona="plain",
        self_report="",
        opening=(),
        facts=(Fact("Complaint", True, ""),),
        diagnosis_id=diagnosis_id(names[0]),
        diagnosis=diagnosis,
        synonyms=names if len(names) > 1 else (),
        parents=(),
        recommendation="",
        urgent=False,
        red_flags=(),
        flags=(),
    )


def naming(rows: Sequence[Mapping[str, Any]], vocabulary: Vocabulary | None) -> dict[str, float]:
    """Recall and precision of exact credit over labelled pairs, whose truths are one run; `unplaced`: share of the
    answers that name no disease that anybody knows; `pairs`.
    """
    cases = [case_of(truth) for truth in dict.fromkeys(row["truth"] for row in rows)]
    settled, _ = with_names_of_run([with_vocabulary(case, vocabulary) if vocabulary else case for case in cases])
    by_truth = {case.diagnosis: case for case in settled}
    same = [row["kind"] == "same" for row in rows]
    exact = [relation(by_truth[row["truth"]], row["answer"]) == "exact" for row in rows]
    right = sum(a and b for a, b in zip(same, exact, strict=True))
    known = keys_of_run(settled)
    return {
        "pairs": len(rows),
        "recall": right / sum(same),
        "precision": right / max(sum(exact), 1),
        "unplaced": sum(not is_placed(row["answer"], known) for row in rows) / len(rows),
    }


def hearing(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Kind of leak -> how many were caught (of "none": how many texts stayed as they were), and how many
    there are.
    """
    good: Counter[str] = Counter()
    for row in rows:
        said, _ = LeakFilter(case_of(row["truth"])).clean(row["text"])
        good[row["kind"]] += said == row["text"] if row["told"] is None else row["told"] not in said
    return {kind: (good[kind], n) for kind, n in sorted(Counter(row["kind"] for row in rows).items())}


def naming_lines(params: Params) -> list[str]:
    """A line for each half of the names and of the answers, without the vocabulary and, where one is configured, with it."""
    named = params.patient_cases.vocabulary
    known = {"bundled names": None} | ({named: read_vocabulary(ROOT / named)} if named is not None else {})
    lines = []
    for half, file in product(HALVES, ("diagnoses", "answers")):
        rows = read_lines(CALIBRATION / f"{file}_{half}.jsonl")
        for what, vocabulary in known.items():
            found = naming(rows, vocabulary)
            lines.append(
                f"{half:<7} {file}, {what}: recall {found['recall']:.3f}, precision {found['precision']:.3f} of"
                f" {found['pairs']:.0f} pairs; unplaced {found['unplaced']:.3f}"
            )
    return lines


def hearing_lines() -> list[str]:
    """A line for each half."""
    lines = []
    for half in HALVES:
        found = hearing(read_lines(CALIBRATION / f"leaks_{half}.jsonl"))
        kept, clean = found.pop("none")
        caught, told = (sum(column) for column in zip(*found.values(), strict=True))
        kinds = ", ".join(f"{kind} {n}/{of}" for kind, (n, of) in found.items())
        lines.append(f"{half:<7} caught {caught / told:.3f} of {told} ({kinds}); left alone {kept} of {clean}")
    return lines
