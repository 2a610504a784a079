"""Tasks of `evaluate_doctor`: each plays one doctor on the test cases, or compares two."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from clinic.doctors import Ask
from clinic.tables import Evaluation
from doctor import evaluation
from doctor.evaluation import Ward
from tracking.progress import Phase


@task(cache_policy=NO_CACHE, task_run_name="evaluate {name}")
def evaluate_policy(ward: Ward, name: str, model: Path, budget: int, chart: bool, keep: Path | None) -> Evaluation:
    """Play every test case with a policy; `budget` 1 leaves it no question, `chart` shows it the whole chart first."""
    return evaluation.policy_table(ward, name, model, budget, chart, keep, Phase(f"evaluate {ward.label(name)}", "episodes"))


@task(cache_policy=NO_CACHE, task_run_name="evaluate {name}")
def evaluate_reference(ward: Ward, name: str, ask: Ask, questions: int) -> Evaluation:
    """Play every test case with a reference doctor, which decides by Bayes."""
    return evaluation.reference_table(ward, name, ask, questions)


@task(cache_policy=NO_CACHE)
def evaluate_full_information(ward: Ward) -> Evaluation:
    """Bayes' decision from the whole chart: the ceiling of any diagnosis."""
    return evaluation.full_information_table(ward)


@task(cache_policy=NO_CACHE)
def compare(ward: Ward, name: str, other: str) -> Evaluation:
    """Two evaluated doctors on the same cases."""
    return evaluation.comparison(ward, name, other)
