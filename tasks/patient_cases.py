"""Tasks of `patient_cases`: the starter clinic and imported sets -> one table of validated, split cases."""

import logging
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from clinic.cases import Case, Rejected, flag_opening, persona_of, write_cases, write_rejected
from clinic.config import CaseSource, PatientCasesParams
from clinic.contamination import check, inherit_groups
from clinic.diagnoses import flag_diagnosis, with_names_of_run
from clinic.errors import ClinicError
from clinic.loaders import GENERATED, load_source
from clinic.rejections import refuse_too_many, told
from clinic.splits import refuse_empty_splits
from clinic.starter import check_articles, check_worth_learning, draw_cases, load_clinic
from clinic.vocabulary import read_vocabulary, with_vocabulary
from clinic.worth import with_worth
from doctor.parameters import ROOT
from rl.files import replace_folder

log = logging.getLogger(__name__)
WORTH_PATIENTS = 2000


@task(cache_policy=NO_CACHE)
def check_starter(params: PatientCasesParams) -> dict[str, float]:
    """Check the starter clinic's files and that it is worth learning; returns Bayes' accuracy without and with
    everything known. Nothing where no case of it is wanted.
    """
    if not params.starter.cases:
        return {}
    clinic = load_clinic(ROOT, params.starter)
    check_articles(ROOT / params.starter.directory, clinic.common)
    if params.starter.rare is not None:
        check_articles(ROOT / params.starter.rare.directory, clinic.rare)
    accuracy = check_worth_learning(clinic, WORTH_PATIENTS, params.starter.seed)
    return {f"bayes_{name}": round(float(value), 4) for name, value in accuracy.items()}


@task(cache_policy=NO_CACHE)
def collect_cases(params: PatientCasesParams, out: Path) -> dict[str, Any]:
    """Write `cases.parquet` and `rejected.jsonl` to `out`, whole or not at all; returns counts.

    Raises:
        ClinicError: a file is unusable, or too much of it; cases of different splits overlap; a split is empty.
    """
    clinic = load_clinic(ROOT, params.starter)
    drawn: list[Case] = list(draw_cases(clinic, params.starter.cases, params.starter.seed, params.split))
    imported, generated, rejected = _imported(params)
    cases = [*drawn, *imported]
    generated |= {clinic.name}
    repeated = [case_id for case_id, count in Counter(case.case_id for case in cases).items() if count > 1]
    if repeated:
        raise ClinicError(f"patient_cases: case id {repeated[0]!r} comes from two sources; rename it in one of them")
    authored, bridging = inherit_groups([case for case in cases if case.source not in generated], params.near_duplicate)
    authored, taken = with_names_of_run([flag_diagnosis(case) for case in authored])
    for name, diagnoses in taken.items():
        log.warning("%r names %s, and counts for none of them", name, " as well as ".join(diagnoses))
    for line in told("near-duplicates", bridging, len(authored) + len(bridging)):
        log.warning("%s", line)
    cases = [*(case for case in cases if case.source in generated), *authored]
    rejected += bridging
    check(cases, generated, params.near_duplicate)
    refuse_empty_splits(cases)
    cases = [replace(case, persona=persona_of(case.case_id, params.personas)) for case in cases]
    authored = [case for case in cases if case.source not in generated]
    valued = {case.case_id: case for case in with_worth(authored, (c for c in authored if c.split == "train"))}
    cases = [valued.get(case.case_id, case) for case in cases]
    temporary = out.with_name(f".{out.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    write_cases(cases, temporary / "cases.parquet")
    write_rejected(rejected, temporary / "rejected.jsonl")
    replace_folder(temporary, out)
    splits = dict(sorted(Counter(case.split for case in cases).items()))
    log.info("%d cases: %s", len(cases), ", ".join(f"{n} {split}" for split, n in splits.items()))
    return {
        "cases": len(cases),
        "rejected": len(rejected),
        "ambiguous_names": len(taken),
        "flagged": sum(bool(case.flags) for case in cases),
        "splits": splits,
        "sources": dict(sorted(Counter(case.source for case in cases).items())),
    }


def _imported(params: PatientCasesParams) -> tuple[list[Case], set[str], list[Rejected]]:
    """Cases of all imported files, names of the sources that are drawn from probabilities, and what was rejected; told
    in the log.
    """
    vocabulary = read_vocabulary(ROOT / params.vocabulary) if params.vocabulary is not None else None
    cases: list[Case] = []
    generated: set[str] = set()
    rejected: list[Rejected] = []
    for source in params.imported:
        found, bad = load_source(at_root(source), params.split)
        drawn = source.format in GENERATED
        if not found and not bad:
            log.warning("%s: no case in it", source.path)
        generated |= {case.source for case in found} if drawn else set()
        if not drawn:  # of probabilities it is not records that are left out
            for line in told(str(ROOT / source.path), bad, len(found) + len(bad)):
                log.warning("%s", line)
            refuse_too_many(str(ROOT / source.path), bad, len(found) + len(bad), params.max_rejected_share)
        cases += (
            [flag_opening(with_vocabulary(case, vocabulary)) for case in found]
            if vocabulary is not None and not drawn
            else found
        )
        rejected += bad
    return cases, generated, rejected


def at_root(source: CaseSource) -> CaseSource:
    """The source with its files below the project."""
    return source.model_copy(
        update={
            "path": str(ROOT / source.path),
            "mapping": str(ROOT / source.mapping) if source.mapping is not None else None,
        }
    )
