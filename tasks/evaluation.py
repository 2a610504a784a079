"""Tasks of `evaluate_doctor`: each plays one doctor on the test cases, or compares two."""

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from clinic.doctors import Ask
from clinic.openings import Opening
from clinic.tables import Evaluation
from doctor import evaluation, references
from doctor.evaluation import EvaluationSet
from doctor.lengths import warn_of_long_charts
from rl.lengths import open_chat
from tracking.progress import Phase


@task(cache_policy=NO_CACHE, task_run_name="evaluate {name}")
def evaluate_policy(
    test_set: EvaluationSet, name: str, model: Path, budget: int, opened: Opening, keep: Path | None
) -> Evaluation:
    """Play every test case with a policy; `budget` 1 leaves it no question, `opened` says what it is told first."""
    if opened == "chart":
        warn_of_long_charts(test_set.factory, open_chat(str(model)), test_set.cases, test_set.params.rollout)
    return evaluation.policy_table(
        test_set, name, model, budget, opened, keep, Phase(f"evaluate {test_set.label(name)}", "episodes")
    )


@task(cache_policy=NO_CACHE, task_run_name="evaluate {name}")
def evaluate_reference(test_set: EvaluationSet, name: str, ask: Ask, questions: int) -> Evaluation:
    """Play every test case with a reference doctor, which decides by Bayes."""
    return references.reference_table(test_set, name, ask, questions)


@task(cache_policy=NO_CACHE)
def evaluate_full_information(test_set: EvaluationSet) -> Evaluation:
    """Bayes' decision from the whole chart: the ceiling of any diagnosis."""
    return references.full_information_table(test_set)


@task(cache_policy=NO_CACHE)
def evaluate_fitted(test_set: EvaluationSet) -> Evaluation:
    """Reference doctors that know what training cases of the same source teach."""
    return references.fitted_tables(test_set)


@task(cache_policy=NO_CACHE)
def compare(test_set: EvaluationSet, name: str, other: str) -> Evaluation:
    """Two evaluated doctors on the same cases."""
    return evaluation.comparison(test_set, name, other)
