"""An evaluation as figures and text: the terminal's table, `dvc plots`, and what is looked at more closely."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from clinic.tables import FEW, Evaluation, Summary
from doctor.report_texts import Texts, columns_wide, padded
from rl.experience import Scores, Trajectory

COLUMNS = {"accuracy": 20, "top3": 8, "reward": 8, "turns": 7, "fact_recall": 8}  # of the terminal's table, and widths


def closed_distance(metrics: Evaluation) -> float:
    """(trained - warm start) / (bayes_optimal - warm start), in accuracy: how much of what asking well can give was
    learned; NaN without a starter clinic.
    """
    found = metrics.accuracies
    if not {"trained", "warm_start", "bayes_optimal"} <= set(found):
        return float("nan")
    trained, start, best = (found[name].mean for name in ("trained", "warm_start", "bayes_optimal"))
    return (trained - start) / (best - start) if best > start else float("nan")


def first_source(metrics: Evaluation) -> str:
    """What stands behind the doctors' names on the source that a run is known by: nothing on the starter clinic, "@cases"
    on own cases alone.
    """
    trained = [name.removeprefix("trained") for name in metrics.doctors if name.partition("@")[0] == "trained"]
    return "" if "" in trained else next(iter(trained), "")


def headline(metrics: Evaluation) -> dict[str, float]:
    """The dozen figures that two runs are compared by: the trained doctor on the first source, and the accuracy alone on
    any other. What nobody measured is left out.
    """
    found, source = metrics.accuracies, first_source(metrics)
    figures = {name: found[name].mean for name in found if name.partition("@")[0] in ("trained", "warm_start")}
    if table := metrics.doctors.get(f"trained{source}"):
        overall = table.overall
        figures |= {name: overall.mean(name) for name in ("reward", "top3", "turns", "fact_recall", "red_flags_missed")}
    if accuracy := found.get(f"trained{source}"):
        figures |= {"trained_low": accuracy.low, "trained_high": accuracy.high}
    if (both := metrics.comparisons.get(f"trained{source} minus warm_start{source}")) and both.mcnemar:
        figures["p_against_warm_start"] = both.mcnemar.p
    figures["closed"] = closed_distance(metrics)
    return {name: figure for name, figure in sorted(figures.items()) if not math.isnan(figure)}


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


def table_text(metrics: Evaluation, words: Texts) -> str:
    """The evaluation table for the terminal; a doctor who missed too many cases has the reason in place of figures."""
    width = max([columns_wide(words.name(name)) for name in metrics.doctors], default=0) + 2
    heads = [padded(words.table[name], -size) for name, size in COLUMNS.items()]
    lines = [padded(words.table["doctor"], width) + "".join(heads)]
    for name, table in metrics.doctors.items():
        lines += _row_text(padded(words.name(name), width), table.overall, words)
    for name, comparison in metrics.comparisons.items():
        if comparison.mcnemar:
            by = comparison.measures["accuracy"]
            lines.append(
                f"{words.name(name)}: {by.mean:+.3f} [{by.low:+.3f}, {by.high:+.3f}], McNemar p {comparison.mcnemar.p:.2g}"
            )
    unplaced = {name: table.overall.mean("unplaced") for name, table in metrics.doctors.items()}
    lines += [
        f"{words.name(name)}: {words.say('table_unplaced', f'{share:.1%}')}"
        for name, share in unplaced.items()
        if share > 0
    ]
    return "\n".join([*lines, *_searches_text(metrics, words)])


def _searches_text(metrics: Evaluation, words: Texts) -> list[str]:
    """A line for each doctor who searched."""
    searched = {name: table.overall for name, table in metrics.doctors.items() if table.overall.mean("searches") > 0}
    return [
        f"{words.name(name)}: "
        + words.say(
            "table_searches",
            f"{overall.mean('searches'):.2f}",
            f"{overall.mean('searches_found'):.0%}",
            f"{overall.mean('searches_repeated'):.0%}",
        )
        for name, overall in searched.items()
    ]


def _row_text(name: str, summary: Summary, words: Texts) -> list[str]:
    if withheld := words.withheld(summary):
        return [f"{name}{withheld}"]
    if (accuracy := summary.accuracy) is None:
        return []
    shown = {"accuracy": f"{accuracy.mean:.3f} [{accuracy.low:.3f}, {accuracy.high:.3f}]"} | {
        measure: f"{found.mean:.2f}" if (found := summary.measures.get(measure)) else "-"
        for measure in COLUMNS
        if measure != "accuracy"
    }
    few = words.say("table_few", summary.cases - len(summary.missing), FEW) if summary.few else ""
    missing = words.say("table_missing", len(summary.missing)) if summary.missing else ""
    return [f"{name}{''.join(padded(shown[measure], -size) for measure, size in COLUMNS.items())}{few}{missing}"]


def trajectories_of_note(
    trajectories: Sequence[Trajectory], scores: Sequence[Scores], count: int
) -> tuple[list[Trajectory], list[Scores]]:
    """A fixed sample to look at: of those with a score the best and the worst, and the first ones."""
    if count <= 0:
        return [], []
    order = sorted((i for i, score in enumerate(scores) if score.turns), key=lambda i: (scores[i].reward, i))
    chosen = list(dict.fromkeys([*order[-1:], *order[:1], *range(len(scores))]))[:count]
    return [trajectories[i] for i in chosen], [scores[i] for i in chosen]
