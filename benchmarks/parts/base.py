"""What every part gets and gives."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.engines import ENGINES, missing
from benchmarks.figures import training_flops
from benchmarks.machine import machine
from benchmarks.setting import VARIANTS, Scale, Shape, Task, Variant, build, context_of, write_model
from benchmarks.worker import Figures, Spec


@dataclass(frozen=True, kw_only=True)
class Run:
    """One call of `make bench`. Made by the command line, read by the parts."""

    played: Scale
    quick: bool
    repeats: int
    folder: Path  # for models and other things that go away afterwards
    variants: tuple[Variant, ...] = VARIANTS  # of the parts that have turns of a length
    engines: tuple[str, ...] = ENGINES  # of ours


@dataclass
class Part:
    """What a part measured: rows of {labels, median, raw}, or of {labels, skipped: why}; figures against their goals;
    remarks.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    goals: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def goal(self, what: str, value: float | None, goal: float, *, at_least: bool = True) -> None:
        """Compare a figure with its goal; None: not measured here."""
        met = None if value is None else (value >= goal if at_least else value <= goal)
        self.goals.append({"what": what, "value": value, "goal": goal, "at_least": at_least, "met": met})


def with_rates(raw: Sequence[Figures]) -> list[Figures]:
    """Each repeat with its rates."""
    made = []
    for figures in raw:
        rates = {
            "episodes_per_s": figures["episodes"] / figures["wall_s"],
            "sampled_tokens_per_s": figures["sampled_tokens"] / figures["rollout_s"],
        }
        made.append(figures | rates)
    return made


def with_utilisation(raw: Sequence[Figures], shape: Shape) -> list[Figures]:
    """Each repeat with the model FLOP utilisation of its update, where the GPU's peak is known."""
    peak = machine()["peak_flops"]
    if peak is None:
        return list(raw)
    weights = matrix_weights(shape)
    made = []
    for figures in raw:
        flops = training_flops(
            weights, figures["tokens"], figures["squared_tokens"], shape.layers, shape.heads * shape.head_width
        )
        made.append(figures | {"mfu": flops / (figures["update_s"] * peak)})
    return made


def matrix_weights(shape: Shape) -> int:
    """Weights of all matrices of a shape; the tied embedding counts once, as the head."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(shape, 64).parameters() if parameter.ndim == 2)


def merged(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """A part of some variants or engines only, beside what an earlier call measured of the others; rows and goals that
    both have are the later's.
    """

    def label(row: dict[str, Any]) -> tuple[Any, ...]:
        return row.get("model"), row.get("variant"), row.get("side"), row.get("what")

    found = dict(now)
    for name in ("rows", "goals"):
        new = [label(row) for row in now[name]]
        found[name] = [*(row for row in before.get(name, []) if label(row) not in new), *now[name]]
    return found


def sides_of_ours(
    task: Task, engines: Sequence[str] = ENGINES, *, learns: bool
) -> tuple[dict[str, Spec], dict[str, str]]:
    """This project with every engine there is: those that can be measured, and why the others cannot."""
    specs, skipped = {}, {}
    for engine in engines:
        reason = missing(engine)
        if reason is not None:
            skipped[f"ours, {engine}"] = reason
            continue
        specs[f"ours, {engine}"] = Spec(
            "benchmarks.sides.ours:Ours", {"engine": engine, "task": task, "learns": learns}
        )
    return specs, skipped


def models(run: Run) -> Iterator[tuple[str, Shape, Path]]:
    """The models of the scale, written where every side can load them."""
    for name, shape in run.played.shapes.items():
        yield name, shape, write_model(shape, context_of(run.played), run.folder / name)
