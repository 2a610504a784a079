"""Part `growth`: how rollout and update time grow with the number of episodes, the engine's slots and the micro-batches staying as they are."""

from dataclasses import replace

from benchmarks.figures import exponent
from benchmarks.parts.base import Part, Run, models, with_rates
from benchmarks.setting import Task
from benchmarks.worker import Figures, Spec, interleaved, row

FACTORS = (1, 2, 4, 8)
GOAL = 1.05  # exponent, at most


def measure(run: Run) -> Part:
    """All sizes in turn, then the exponents of a power law through all repeats."""
    part = Part()
    base = replace(run.played, prompts=max(run.played.prompts // 2, 1), micro_batches=max(run.played.micro_batches // 2, 1))
    for name, shape, folder in models(run):
        specs = {}
        for factor in FACTORS:
            played = replace(base, prompts=base.prompts * factor, micro_batches=base.micro_batches * factor)
            task = Task(folder, shape, played, "variable")
            specs[str(factor)] = Spec("benchmarks.sides.ours:Ours", {"engine": "transformers", "task": task, "learns": True, "slots": base.episodes})
        raw = interleaved(specs, run.repeats)
        lines = [row(with_rates(figures), model=name, factor=int(factor), episodes=base.episodes * int(factor)) for factor, figures in raw.items()]
        part.rows += lines
        for phase in ("rollout_s", "update_s"):
            part.goal(f"{name}: exponent of {phase.removesuffix('_s')} time", _exponent(raw, phase), GOAL, at_least=False)
    part.notes.append(f"Turns of variable length, {base.episodes} slots. Exponent: least squares through all repeats' logarithms of seconds against episodes.")
    return part


def _exponent(raw: dict[str, list[Figures]], phase: str) -> float:
    pairs = [(figures["episodes"], figures[phase]) for repeats in raw.values() for figures in repeats]
    return exponent([size for size, _ in pairs], [seconds for _, seconds in pairs])
