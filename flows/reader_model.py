"""Makes the bundled model that can read a library (`make reader-model`); not a stage, its result is committed."""

from pathlib import Path

from prefect import flow

from doctor.base_model_recipe import load_reader_params
from tasks.base_model import READER, deliver, phase_folder, teach_reading
from tasks.command_line import run
from tracking.console import WATCHED


@flow(name="reader_model", **WATCHED)
def reader_model(out: Path, params_file: Path | None = None, recipe_file: Path | None = None) -> None:
    """Go on from the bundled base model: it learns to copy names and to read lines of a library, beside what it knows; a
    killed run goes on where its round was last kept.
    """
    params = load_reader_params(params_file, recipe_file)
    rounds = len(params.base_model.reader.rounds)
    for number in range(1, 1 + rounds):
        teach_reading(params, number)
    deliver(phase_folder(params, rounds, READER), out)


if __name__ == "__main__":
    run(reader_model, Path("models/reader"))
