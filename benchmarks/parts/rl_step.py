"""Part `rl_step`: a whole step (play, score, one gradient update) of this project against TRL, on the same episodes."""

from benchmarks.engines import trl_missing
from benchmarks.parts.base import Part, Run, models, sides_of_ours, with_rates, with_utilisation
from benchmarks.setting import Task
from benchmarks.worker import Spec, interleaved, row

OTHERS = {"TRL": "generate", "TRL, vllm": "vllm"}  # sides and who generates for them
GOALS = {"variable": 2.5, "fixed": 1.6}  # TRL's seconds over ours, at least


def measure(run: Run) -> Part:
    """Both sides in turn, for every model and both kinds of turn lengths."""
    part = Part()
    for name, shape, folder in models(run):
        for variant in run.variants:
            task = Task(folder, shape, run.played, variant)
            specs, skipped = sides_of_ours(task, run.engines, learns=True)
            ours = list(specs)
            for side, generator in OTHERS.items():
                if (why := trl_missing(generator)) is not None:
                    skipped[side] = why
                else:
                    specs[side] = Spec("benchmarks.sides.trl:TRL", {"task": task, "generator": generator})
            raw = interleaved(specs, run.repeats)
            lines = {
                side: row(with_utilisation(with_rates(figures), shape), model=name, variant=variant, side=side)
                for side, figures in raw.items()
            }
            part.rows += [
                *lines.values(),
                *({"model": name, "variant": variant, "side": side, "skipped": why} for side, why in skipped.items()),
            ]
            for other in OTHERS:
                for side in ours:
                    ratio = (
                        lines[other]["median"]["wall_s"] / lines[side]["median"]["wall_s"] if other in lines else None
                    )
                    part.goal(f"{name}, {variant}: seconds of {other} / {side}", ratio, GOALS[variant])
    part.notes.append(
        f"{run.played.prompts} prompts x {run.played.samples} episodes x {run.played.turns} doctor turns of {run.played.fixed} tokens (fixed) or {run.played.variable[0]} to "
        f"{run.played.variable[1]} (variable, the same on both sides); one gradient step; TRL in {run.played.micro_batches} micro-batches, ours under a token budget as large. "
        "TRL's update is everything that is not its rollout function."
    )
    return part
