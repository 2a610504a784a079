"""The two-phase loop: rollout, score, learn, repeated."""

from contextlib import closing
from pathlib import Path

from prefect import flow
from prefect.runtime import flow_run

from doctor.parameters import ROOT, chosen, load_params
from doctor.training import Training, has_enough_groups, open_training, write_curve
from rl.files import held, write_json
from tasks.command_line import run as start
from tasks.outputs import metrics_file, output, plots_file
from tasks.reward import score
from tasks.rollout import in_turn, rollout
from tasks.selection import ends, export, validate
from tasks.student import side_by_side
from tasks.training import accumulate_metrics, learn, restore, save
from tracking.console import WATCHED
from tracking.recorder import open_recording


def experience(run: Training, step: int) -> dict[str, float]:
    """Play and score; with dynamic sampling again and again, until enough groups are informative or the cap is reached."""
    metrics: dict[str, float] = {}
    for draw in range(run.max_draws):
        played = rollout(run, step, draw)
        metrics = accumulate_metrics(metrics, played | score(run, step, draw))
        if has_enough_groups(run, step, draw + 1):
            break
    return metrics | side_by_side(run, step, metrics)


@flow(name="train_doctor", **WATCHED)
def train_doctor(  # noqa: PLR0913  the fields of a form
    algorithm: str | None = None,
    steps: int | None = None,
    seed: int | None = None,
    out: Path | None = None,
    params_file: Path | None = None,
    warm_start: Path = ROOT / "models/warm_start",
    cases: Path = ROOT / "data/cases",
    index: Path = ROOT / "data/kb_index",
) -> None:
    """Train the doctor by reinforcement; killed at any moment, a rerun goes on from the last complete rollout step.

    Args:
        algorithm: a file in recipes/, in place of the one in params.yaml: grpo, ppo, ...
        steps: rollout steps, in place of those in params.yaml.
        seed: in place of the one in params.yaml.
        out: where the doctor goes; by default a folder of its own under runs/, so that nothing versioned is touched.
        params_file: another params.yaml.
        warm_start: folder of the weights to begin with.
        cases: folder of the case table.
        index: folder of the knowledge base.
    """
    params = load_params(params_file, chosen(algorithm, steps, seed))
    out = output(out, "doctor")
    run = open_training(params, warm_start, cases, index)
    with closing(run.session), held(run.folder), open_recording(run, str(flow_run.id or "")) as recorder:
        plan = run.params.train_doctor
        done, metrics = restore(run)
        recorder.step(done, metrics or validate(run, 0))
        todo = () if ends(run, done) else range(done + 1, plan.steps + 1)
        for step, metrics in in_turn(run, todo, experience):
            metrics |= learn(run, step)
            if step % plan.test_freq == 0 or step == plan.steps:
                metrics |= validate(run, step)
            last = ends(run, step)
            recorder.written()
            checkpoint = save(run, step, metrics, last=last)
            recorder.step(step, metrics, checkpoint)
            if last:
                break
        exported = export(run, out)
        write_curve(run, plots_file(out, "train_doctor.csv"))
        write_json(metrics_file(out, "train_doctor"), exported)
        recorder.finish(exported)


if __name__ == "__main__":
    start(train_doctor, Path("models/doctor"))
