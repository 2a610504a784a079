"""What a person reads when a run has ended."""

import logging
import math

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from clinic.cases import read_cases
from doctor.evaluation_text import closed_distance, table_text
from doctor.parameters import HOME, ROOT
from doctor.report_texts import Texts, language_of, texts
from tasks.registry import measured
from tracking import registry
from tracking.store import runs_place, setup

log = logging.getLogger(__name__)


@task(cache_policy=NO_CACHE)
def summary(registered: str) -> str:
    """The evaluation table of this doctor in the language of the cases, if there is one, what was registered and where to
    look; also kept as a Prefect artifact.
    """
    metrics = measured()
    words = texts(language_of(case.language for case in read_cases(ROOT / "data/cases/cases.parquet", "test")))
    closed = closed_distance(metrics)
    told = "" if math.isnan(closed) else f"{words.say('summary_closed', f'{closed:.0%}')}\n"
    table = f"{words.say('summary_title')}\n\n{table_text(metrics, words)}\n\n"
    if not metrics.doctors:
        table = ""
        log.warning("metrics/evaluate_doctor.json is of no evaluation of this doctor; bring evaluate_doctor up to date")
    text = f"\n{table}{told}{registered}\n\n{words.say('summary_look')}\n  {_where_to_look(words)}\n"
    create_markdown_artifact(f"```\n{text}\n```", key="retrain-report", description="Evaluation after retraining")
    return text


def _where_to_look(words: Texts) -> str:
    page = registry.trainings_page()
    if page:
        return page
    return f"make ui\n  {words.say('summary_open', f'http://127.0.0.1:5000/#/{runs_place(setup(HOME))}')}"
