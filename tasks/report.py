"""What a person reads when a run has ended."""

import json

from prefect import task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE

from tasks.evaluation import closed_distance, table_text
from tasks.parameters import ROOT

MLFLOW_UI = "mlflow ui --backend-store-uri sqlite:///mlruns/mlflow.db"


@task(cache_policy=NO_CACHE)
def summary(registered: str) -> str:
    """The evaluation table, what was registered and where to look; also kept as a Prefect artifact."""
    metrics = json.loads((ROOT / "metrics/evaluate_doctor.json").read_text())
    table = table_text(metrics)
    closed = closed_distance(metrics)
    text = (
        f"\nHeld-out cases of the starter clinic (means with 95% bootstrap intervals):\n\n{table}\n\n"
        f"The trained doctor closes {closed:.0%} of the distance between its warm start and the Bayes doctor at the same turn budget.\n"
        f"{registered}\n\nTo look closer:\n  MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false .venv/bin/{MLFLOW_UI} --workers 1\n"
        "  then open http://127.0.0.1:5000/#/experiments/1/runs\n"
    )
    create_markdown_artifact(f"```\n{text}\n```", key="retrain-report", description="Evaluation after retraining")
    return text
