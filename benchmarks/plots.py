"""`make bench-plots RESULTS=benchmarks/results/X.json`: the step against TRL and the growth with episodes, as
docs/images/benchmarks.png.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.figures import exponent
from benchmarks.machine import ROOT

OUT = ROOT / "docs" / "images" / "benchmarks.png"
ROLLOUT, UPDATE = "#2a6f97", "#e09f3e"


def draw(parts: Mapping[str, Any], out: Path) -> None:
    """Both panels, of the first model measured."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    draw_steps(left, [row for row in parts["rl_step"]["rows"] if "median" in row])
    draw_growth(right, parts["growth"]["rows"])
    machine = parts["rl_step"]["run"]["machine"]
    figure.suptitle(
        f"{machine['gpu'] or machine['cpu']}, {machine['threads']} threads, medians of {parts['rl_step']['run']['repeats']}",
        fontsize=9,
    )
    figure.savefig(out, dpi=130)
    plt.close(figure)


def draw_steps(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Seconds of a step, rollout and update on top of each other."""
    rows = [row for row in rows if row["model"] == rows[0]["model"]]
    names = ["\n".join([row["variant"], *row["side"].split(", ")]) for row in rows]
    played = [row["median"]["rollout_s"] for row in rows]
    learned = [row["median"]["update_s"] for row in rows]
    axes.bar(names, played, color=ROLLOUT, width=0.6, label="rollout")
    axes.bar(names, learned, bottom=played, color=UPDATE, width=0.6, label="update")
    for place, row in enumerate(rows):
        axes.annotate(
            f"{row['median']['wall_s']:.1f}",
            (place, played[place] + learned[place]),
            ha="center",
            va="bottom",
            fontsize=8,
        )
    axes.set_title("one step of reinforcement learning", fontsize=9)
    _finish(axes, "seconds")
    axes.tick_params(axis="x", labelsize=7)


def draw_growth(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Seconds against episodes, both logarithmic, with the exponents."""
    rows = [row for row in rows if row["model"] == rows[0]["model"]]
    episodes = [row["episodes"] for row in rows]
    for phase, colour in (("rollout", ROLLOUT), ("update", UPDATE)):
        seconds = [row["median"][f"{phase}_s"] for row in rows]
        axes.plot(episodes, seconds, "o-", color=colour, label=f"{phase}, exponent {exponent(episodes, seconds):.2f}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(episodes, [str(count) for count in episodes])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("episodes", fontsize=8)
    axes.set_title("growth", fontsize=9)
    _finish(axes, "seconds")


def _finish(axes: Axes, label: str) -> None:
    axes.set_ylabel(label, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)


def main() -> None:
    """Draw the file named on the command line."""
    draw(json.loads(Path(sys.argv[1]).read_text())["parts"], OUT)


if __name__ == "__main__":
    main()
