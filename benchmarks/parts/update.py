"""Part `update`: the learner alone, as length, vocabulary and group grow; beside it a plain padded update with logits
of every position.
"""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.parts.base import Part, Run, with_utilisation
from benchmarks.setting import Shape
from benchmarks.sides.updates import Load
from benchmarks.worker import BenchmarkError, Figures, Spec, interleaved, row

BASE = Load(length=256, group=8, prompts=1, micro_batch_tokens=2048)
LENGTHS = (256, 512, 1024, 2048)
VOCABULARIES = (2_048, 32_000, 151_936)
GROUPS = (4, 8, 16, 32)
NAIVE = "padded, all logits"


def points(shape: Shape, *, quick: bool) -> list[tuple[str, Shape, Load]]:
    """What grows, model and load of every point: one quantity at a time from the same base."""
    small = replace(shape, vocabulary=VOCABULARIES[0])
    if quick:
        tiny = replace(BASE, length=64, group=4, micro_batch_tokens=128)
        return [
            ("length", small, tiny),
            ("vocabulary", replace(shape, vocabulary=VOCABULARIES[1]), tiny),
            ("group", small, replace(tiny, group=8)),
        ]
    return [
        *(("length", small, replace(BASE, length=length)) for length in LENGTHS),
        *(("vocabulary", replace(shape, vocabulary=vocabulary), BASE) for vocabulary in VOCABULARIES),
        *(("group", small, replace(BASE, group=group)) for group in GROUPS),
    ]


def measure(run: Run) -> Part:
    """Both sides in turn at every point, each in a fresh process, so that its memory peak is its own."""
    part = Part()
    for name, first in run.played.shapes.items():
        for axis, shape, load in points(first, quick=run.quick):
            labels = {
                "model": name,
                "axis": axis,
                "length": load.length,
                "vocabulary": shape.vocabulary,
                "episodes": load.episodes,
            }
            specs = {
                side: Spec(f"benchmarks.sides.updates:{kind}", {"shape": shape, "load": load})
                for side, kind in (("ours", "Ours"), (NAIVE, "Naive"))
            }
            try:
                raw = interleaved(specs, run.repeats)
                skipped = {}
            except BenchmarkError as error:  # the padded update may well not fit
                raw = interleaved({"ours": specs["ours"]}, run.repeats)
                skipped = {NAIVE: str(error).strip().splitlines()[-1]}
            part.rows += [row(_rated(figures, shape), **labels, side=side) for side, figures in raw.items()]
            part.rows += [{**labels, "side": side, "skipped": why} for side, why in skipped.items()]
    part.notes.append(
        "Lengths uniform between a half and all of `length`, half of the tokens carry loss, 2048 padded tokens a micro-batch (a longer episode alone), one gradient step. "
        "tokens/s counts real tokens. Peak: of the process (GPU: of its allocator), weights, gradients and optimizer included."
    )
    return part


def _rated(raw: Sequence[Figures], shape: Shape) -> list[Figures]:
    return with_utilisation(
        [figures | {"tokens_per_s": figures["tokens"] / figures["update_s"]} for figures in raw], shape
    )
