"""An evaluation as figures and text: the terminal's table, `dvc plots`, and what is looked at more closely."""

import csv
from collections.abc import Sequence
from pathlib import Path

from clinic.tables import FEW, Evaluation, Summary
from rl.experience import Scores, Trajectory


def closed_distance(metrics: Evaluation) -> float:
    """(trained - warm start) / (bayes_optimal - warm start), in accuracy: how much of what asking well can give was
    learned; NaN without a starter clinic.
    """
    found = metrics.accuracies
    if not {"trained", "warm_start", "bayes_optimal"} <= set(found):
        return float("nan")
    trained, start, best = (found[name].mean for name in ("trained", "warm_start", "bayes_optimal"))
    return (trained - start) / (best - start) if best > start else float("nan")


def write_accuracy_plot(metrics: Evaluation, path: Path) -> None:
    """Accuracy of every doctor with its interval, as CSV for `dvc plots`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["doctor", "accuracy", "low", "high", "turns"])
        for name, accuracy in metrics.accuracies.items():
            writer.writerow(
                [name, accuracy.mean, accuracy.low, accuracy.high, metrics.doctors[name].overall.mean("turns")]
            )


def told(summary: Summary) -> str:
    """A doctor's accuracy, or its reward where there is nothing to diagnose, in words."""
    which = "accuracy" if summary.accuracy else "reward"
    shown = summary.measures.get(which)
    if shown is None:
        return summary.withheld or f"no {which}"
    missing = f", {len(summary.missing)} missing" if summary.missing else ""
    return f"{which} {shown.mean:.3f} [{shown.low:.3f}, {shown.high:.3f}] on {summary.cases} cases{missing}"


def table_text(metrics: Evaluation) -> str:
    """The evaluation table for the terminal; a doctor who missed too many cases has the reason in place of figures."""
    width = max([len(name) for name in metrics.doctors], default=0) + 2
    lines = [f"{'doctor':<{width}}{'accuracy':>20}{'top-3':>8}{'reward':>8}{'turns':>7}{'recall':>8}"]
    for name, table in metrics.doctors.items():
        lines += _row_text(f"{name:<{width}}", table.overall)
    for name, comparison in metrics.comparisons.items():
        if comparison.mcnemar:
            by = comparison.measures["accuracy"]
            lines.append(
                f"{name}: {by.mean:+.3f} [{by.low:+.3f}, {by.high:+.3f}], McNemar p {comparison.mcnemar.p:.2g}"
            )
    unplaced = {name: table.overall.mean("unplaced") for name, table in metrics.doctors.items()}
    lines += [
        f"{name}: {share:.1%} of answers are names that no rule knows" for name, share in unplaced.items() if share > 0
    ]
    return "\n".join(lines)


def _row_text(name: str, summary: Summary) -> list[str]:
    if summary.withheld:
        return [f"{name}{summary.withheld}"]
    if (accuracy := summary.accuracy) is None:
        return []
    shown = f"{accuracy.mean:.3f} [{accuracy.low:.3f}, {accuracy.high:.3f}]"
    cells = [
        f"{found.mean:.2f}" if (found := summary.measures.get(measure)) else "-"
        for measure in ("top3", "reward", "turns", "fact_recall")
    ]
    few = f"  n = {summary.cases - len(summary.missing)}, below {FEW}" if summary.few else ""
    missing = f"  {len(summary.missing)} missing" if summary.missing else ""
    return [f"{name}{shown:>20}{cells[0]:>8}{cells[1]:>8}{cells[2]:>7}{cells[3]:>8}{few}{missing}"]


def trajectories_of_note(
    trajectories: Sequence[Trajectory], scores: Sequence[Scores], count: int
) -> tuple[list[Trajectory], list[Scores]]:
    """A fixed sample to look at: the best, the worst, and the first ones."""
    if count <= 0:
        return [], []
    order = sorted(range(len(scores)), key=lambda i: (scores[i].reward, i))
    chosen = list(dict.fromkeys([order[-1], order[0], *range(len(scores))]))[:count]
    return [trajectories[i] for i in chosen], [scores[i] for i in chosen]
