"""Part `rollout`: playing alone. This project's scheduler against lock-step loops on the same engines' own generation."""

import importlib.util

from benchmarks.parts.base import Part, Run, models, sides_of_ours, with_rates
from benchmarks.setting import Task
from benchmarks.worker import Spec, interleaved, row

GOAL = 0.85  # sampled tokens per second of ours on vLLM over raw vLLM's, at least
RAW = "lock-step, LLM.generate"


def measure(run: Run) -> Part:
    """All sides in turn, for every model and both kinds of turn lengths."""
    part = Part()
    for name, shape, folder in models(run):
        for variant in run.variants:
            task = Task(folder, shape, run.played, variant)
            specs, skipped = sides_of_ours(task, run.engines, learns=False)
            specs["lock-step, generate"] = Spec(
                "benchmarks.sides.lockstep:LockStep", {"generator": "generate", "task": task}
            )
            if "vllm" not in run.engines:
                skipped[RAW] = "left out"
            elif importlib.util.find_spec("vllm") is not None:
                specs[RAW] = Spec("benchmarks.sides.lockstep:LockStep", {"generator": "vllm", "task": task})
            else:
                skipped[RAW] = "vllm is not installed in this environment"
            raw = interleaved(specs, run.repeats)
            lines = {
                side: row(with_rates(figures), model=name, variant=variant, side=side) for side, figures in raw.items()
            }
            part.rows += [
                *lines.values(),
                *({"model": name, "variant": variant, "side": side, "skipped": why} for side, why in skipped.items()),
            ]
            speed = {side: line["median"]["sampled_tokens_per_s"] for side, line in lines.items()}
            ours = speed.get("ours, vllm")
            part.goal(
                f"{name}, {variant}: sampled tokens/s of ours on vllm / raw vLLM",
                ours / speed[RAW] if ours and RAW in speed else None,
                GOAL,
            )
    part.notes.append(
        "Lock-step: one turn for all episodes, then all patients answer, then the next turn, over the whole dialogue so far (vLLM: with its prefix cache)."
    )
    return part
