"""Results as Markdown: one table a part, goals, remarks."""

from collections.abc import Mapping, Sequence
from typing import Any

LABELS = ("model", "variant", "axis", "length", "vocabulary", "episodes", "factor", "side")
COLUMNS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "rl_step": (
        ("wall_s", "step s"),
        ("rollout_s", "rollout s"),
        ("update_s", "update s"),
        ("sync_s", "of it sync s"),
        ("episodes_per_s", "episodes/s"),
        ("sampled_tokens_per_s", "sampled tokens/s of rollout"),
        ("cpu_s", "CPU s"),
        ("mfu", "MFU of update"),
        ("peak_bytes", "peak"),
    ),
    "rollout": (
        ("rollout_s", "rollout s"),
        ("sampled_tokens", "sampled tokens"),
        ("sampled_tokens_per_s", "sampled tokens/s"),
        ("cpu_s", "CPU s"),
    ),
    "update": (
        ("update_s", "update s"),
        ("tokens_per_s", "tokens/s"),
        ("peak_bytes", "peak"),
        ("model_bytes", "before the first update"),
        ("cpu_s", "CPU s"),
        ("mfu", "MFU"),
    ),
    "overhead": (
        ("wall_s", "step s"),
        ("rollout_s", "rollout s"),
        ("update_s", "update s"),
        ("outside_s", "outside s"),
        ("outside_share", "outside share"),
        ("scoring_s", "scoring s"),
        ("saving_s", "checkpoint s"),
        ("recording_s", "MLflow s"),
        ("rest_s", "Prefect and disk s"),
        ("patients_share_of_rollout", "patients' share of rollout"),
    ),
    "growth": (
        ("rollout_s", "rollout s"),
        ("update_s", "update s"),
        ("sampled_tokens_per_s", "sampled tokens/s"),
        ("cpu_s", "CPU s"),
    ),
}


def render(parts: Mapping[str, Any]) -> str:
    """The whole page; `parts` as they are in the JSON file, by name."""
    lines = ["# Benchmark", "", "Medians after one warm-up; every raw number is in the JSON file beside this page.", ""]
    for name, part in parts.items():
        lines += [f"## {name}", "", *_head(part["run"]), "", *_part(name, part), ""]
    return "\n".join(lines)


def _head(run: Mapping[str, Any]) -> list[str]:
    machine = run["machine"]
    return [
        f"- `{run['command']}`, {run['date']}, commit {run['checkout']['commit']}{' and uncommitted changes' if run['checkout']['dirty'] else ''}, {run['repeats']} repeats",
        f"- {machine['gpu'] or 'no GPU'}; {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; {machine['threads']} threads a process; load average before "
        + " ".join(str(load) for load in machine["load_average"]),
        *(
            [f"- our matrix products: {machine['products']}; vector code of torch: {machine['simd']}"]
            if "products" in machine
            else []
        ),
        "- " + ", ".join(f"{name} {version or 'not installed'}" for name, version in run["versions"].items()),
    ]


def _part(name: str, part: Mapping[str, Any]) -> list[str]:
    if "failed" in part:
        return [f"Failed: {part['failed']}"]
    rows = part["rows"]
    labels = [label for label in LABELS if any(label in row for row in rows)]
    columns = [(key, title) for key, title in COLUMNS[name] if any(key in row.get("median", {}) for row in rows)]
    lines = [_line([*labels, *(title for _, title in columns)]), _line(["---"] * (len(labels) + len(columns)))]
    for row in rows:
        values = (
            [f"skipped: {row['skipped']}", *[""] * (len(columns) - 1)]
            if "skipped" in row
            else [shown(key, row["median"].get(key)) for key, _ in columns]
        )
        lines.append(_line([*(str(row.get(label, "")) for label in labels), *values]))
    lines += ["", *(f"{note}\n" for note in part["notes"])]
    return [*lines, *goals(part["goals"])]


def goals(given: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for every goal: reached, missed or not measured."""
    lines = []
    for goal in given:
        bound = f"{'at least' if goal['at_least'] else 'at most'} {goal['goal']:g}"
        verdict = {True: "reached", False: "missed", None: "not measured here"}[goal["met"]]
        value = "" if goal["value"] is None else f" {goal['value']:.3g}"
        lines.append(f"- {goal['what']}:{value} (goal: {bound}) **{verdict}**")
    return lines


def shown(key: str, value: float | None) -> str:
    """A figure for people: bytes in MiB, shares in percent, three digits."""
    if value is None:
        return ""
    if key.endswith("_bytes"):
        return f"{value / 2**20:,.0f} MiB"
    if key == "mfu" or "share" in key:
        return f"{100 * value:.1f} %"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
