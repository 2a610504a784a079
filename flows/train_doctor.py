"""The two-phase loop: rollout, score, learn, repeated."""

from pathlib import Path

from prefect import flow

from tasks.command import run
from tasks.console import follow
from tasks.outputs import metrics_file, output, plots_file, write_json
from tasks.parameters import ROOT
from tasks.recording import finish_recording, open_recording, record_checkpoint, record_step
from tasks.reward import score
from tasks.rollout import in_turn, rollout
from tasks.selection import ends, export, validate
from tasks.training import added, enough, learn, open_training, plays_ahead, restore, save, training, write_curve


def experience(run_id: str, step: int) -> dict[str, float]:
    """Play and score; with dynamic sampling again and again, until enough groups are informative or the cap is reached."""
    metrics: dict[str, float] = {}
    for draw in range(training(run_id).max_draws):
        played = rollout(run_id, step, draw)
        metrics = added(metrics, played | score(run_id, step, draw))
        if enough(run_id, step, draw + 1):
            break
    return metrics


@flow(name="train_doctor", on_running=[follow])
def train_doctor(
    out: Path | None = None,
    params_file: Path | None = None,
    warm_start: Path = ROOT / "models/warm_start",
    cases: Path = ROOT / "data/cases",
    index: Path = ROOT / "data/kb_index",
) -> None:
    """Train the doctor by reinforcement; killed at any moment, a rerun goes on from the last complete rollout step."""
    out = output(out, "doctor")
    with open_training(params_file, warm_start, cases, index) as run_id, open_recording(run_id):
        plan = training(run_id).params.train_doctor
        done, metrics = restore(run_id)
        record_step(run_id, done, metrics or validate(run_id, 0))
        todo = () if ends(run_id, done) else range(done + 1, plan.steps + 1)
        played = list(in_turn(run_id, todo, experience)) if plays_ahead(run_id) else in_turn(run_id, todo, experience)
        for step, metrics in played:
            metrics |= learn(run_id, step)
            if step % plan.test_freq == 0 or step == plan.steps:
                metrics |= validate(run_id, step)
            last = ends(run_id, step)
            checkpoint = save(run_id, step, metrics, last=last)
            record_step(run_id, step, metrics)
            if checkpoint:
                record_checkpoint(run_id, step, checkpoint, metrics)
            if last:
                break
        chosen = export(run_id, out)
        write_curve(run_id, plots_file(out, "train_doctor.csv"))
        write_json(metrics_file(out, "train_doctor"), chosen)
        finish_recording(run_id, chosen)


if __name__ == "__main__":
    run(train_doctor, Path("models/doctor"))
