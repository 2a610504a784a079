"""Part `growth`: how rollout and update time grow with the number of episodes, the engine's slots and the micro-batches
staying as they are.
"""

from dataclasses import replace

from benchmarks.figures import exponent
from benchmarks.parts.base import Part, Run, models, with_rates
from benchmarks.setting import Task
from benchmarks.worker import Spec, interleaved, row

FACTORS = (1, 2, 4, 8)
GOAL = 1.05  # exponent, at most


def measure(run: Run) -> Part:
    """All sizes in turn, then the exponents of a power law through the medians."""
    part = Part()
    base = replace(
        run.played, prompts=max(run.played.prompts // 2, 1), micro_batches=max(run.played.micro_batches // 2, 1)
    )
    for name, shape, folder in models(run):
        specs = {}
        for factor in FACTORS:
            played = replace(base, prompts=base.prompts * factor, micro_batches=base.micro_batches * factor)
            task = Task(folder, shape, played, "variable")
            specs[str(factor)] = Spec(
                "benchmarks.sides.ours:Ours",
                {"engine": "transformers", "task": task, "learns": True, "slots": base.episodes},
            )
        raw = interleaved(specs, run.repeats)
        lines = [
            row(with_rates(figures), model=name, factor=int(factor), episodes=base.episodes * int(factor))
            for factor, figures in raw.items()
        ]
        part.rows += lines
        for phase in ("rollout_s", "update_s"):
            power = exponent([line["episodes"] for line in lines], [line["median"][phase] for line in lines])
            part.goal(f"{name}: exponent of {phase.removesuffix('_s')} time", power, GOAL, at_least=False)
    part.notes.append(
        f"Turns of variable length, {base.episodes} slots. Exponent: least squares on the logarithms of the medians."
    )
    return part
