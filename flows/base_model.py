"""Makes the bundled base model (`make base-model`); not a stage, its result is committed."""

from pathlib import Path

from prefect import flow

from doctor.base_model_recipe import load_base_model_params
from tasks.base_model import deliver, phase_folder, read_first, teach_round
from tasks.command_line import run
from tracking.console import WATCHED


@flow(name="base_model", **WATCHED)
def base_model(out: Path, params_file: Path | None = None, recipe_file: Path | None = None) -> None:
    """Train a tokenizer and a small model on the starter clinic's articles, charts and resident dialogues; a killed run
    goes on where its round was last kept.
    """
    params = load_base_model_params(params_file, recipe_file)
    rounds = len(params.base_model.rounds)
    read_first(params)
    for number in range(1, 1 + rounds):
        teach_round(params, number)
    deliver(phase_folder(params, rounds), out)


if __name__ == "__main__":
    run(base_model, Path("models/base"))
