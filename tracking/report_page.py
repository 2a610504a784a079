"""One HTML page about an evaluated doctor, readable without a network and without a server; and two tables of it for
`dvc plots`.

Texts of doctors and patients are hostile: the template escapes every value, and characters that would reorder or hide
what stands around them are written out, as ⟨U+202E⟩. The same arguments give the same bytes.
"""

import csv
import io
import math
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from clinic.actions import Kind, parse
from clinic.cases import Case
from clinic.diagnoses import relation
from clinic.events import Asked, Event, Inquiry, Searched, final_diagnosis, told_topics
from clinic.intervals import proportion
from clinic.matching import normalise
from clinic.metrics import MEASURES
from clinic.tables import FEW, Evaluation, Summary
from doctor.report_texts import language_of, texts

NO_DIAGNOSIS, SOMETHING_ELSE, OTHERS = "no diagnosis", "something else", "other conditions"
RECORDED = Markup("<!--recorded-->")  # where the copy in MLflow says when and as what it was recorded
SHOWN_CONDITIONS = 22  # with the rest folded, something else and no diagnosis, 25 columns
SHOWN = 5  # best consultations, worst ones, and most frequent mistakes
JOINERS = "\u200c\u200d"  # part of how Persian, Hindi and others are spelt, and they reorder nothing
PANELS = (  # title, axis or None for one that fits, name -> column of the training curve; names of phrases
    (
        "panel_reward",
        None,
        {
            "line_training": "reward/mean",
            "line_diagnosis": "reward/diagnosis",
            "line_information": "reward/information",
        },
    ),
    (
        "panel_accuracy",
        (0.0, 1.0),
        {"line_training": "rollout/accuracy", "line_held_out": "validation/accuracy"},
    ),
)
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 250, 46, 14, 12, 40  # of a panel, with its margins


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One played consultation."""

    case: Case
    messages: Sequence[Mapping[str, str]]  # roles system, user, assistant
    events: Sequence[Event]  # one per doctor turn; a consultation that failed may lack the last
    rewards: Sequence[Mapping[str, float]]  # components per doctor turn; empty: not scored
    stop_reason: str
    correct: bool


def confusion(seen: Sequence[Seen]) -> list[tuple[str, str, int]]:
    """How often which condition was taken for which: (true, named, consultations), largest first.

    Named is a condition of the seen cases by its own name, whichever synonym the doctor used; "something else" for any
    other name; or "no diagnosis".
    """
    counts = Counter(_named_in(seen))
    return sorted(
        ((actual, named, count) for (actual, named), count in counts.items()), key=lambda row: (-row[2], row[0], row[1])
    )


def _named_in(seen: Sequence[Seen]) -> list[tuple[str, str]]:
    known = {normalise(synonym): one.case.diagnosis for one in seen for synonym in one.case.synonyms}
    known |= {normalise(one.case.diagnosis): one.case.diagnosis for one in seen}
    return [(one.case.diagnosis, _named(one, known)) for one in seen]


def _named(one: Seen, known: Mapping[str, str]) -> str:
    said = _diagnosis(one)
    if said is None:
        return NO_DIAGNOSIS
    return one.case.diagnosis if relation(one.case, said) == "exact" else known.get(normalise(said), SOMETHING_ELSE)


def _diagnosis(one: Seen) -> str | None:
    return last.diagnosis if (last := final_diagnosis(one.events)) else None


def accuracy_by_turns(seen: Sequence[Seen]) -> list[dict[str, float]]:
    """For each number of doctor turns: turns, cases, accuracy, and low and high of its 95% interval."""
    rows: list[dict[str, float]] = []
    for turns in sorted({len(one.events) for one in seen}):
        right = [one.correct for one in seen if len(one.events) == turns]
        share = proportion(sum(right), len(right))
        rows.append({"turns": turns, "cases": len(right), "accuracy": share.mean, "low": share.low, "high": share.high})
    return rows


def report_html(
    title: str,
    facts: Mapping[str, str],
    metrics: Evaluation,
    curve: Sequence[Mapping[str, float]],
    seen: Sequence[Seen],
) -> str:
    """The page, in the language of most of the consultations.

    Args:
        title: its heading.
        facts: what made the doctor, shown in this order: git commit, recipe, reward preset, seed ...
        metrics: the tables of `evaluate_doctor`.
        curve: one row per training step, with "step"; columns may be missing or NaN.
        seen: consultations of the trained doctor.
    """
    doctors = dict(
        sorted(
            metrics.doctors.items(),
            key=lambda item: (-(found.mean if (found := item[1].overall.accuracy) else -1.0), item[0]),
        )
    )
    best, worst = _of_note(seen)
    categories, pairs = (
        sorted({category for table in doctors.values() for category in table.categories}),
        confusion(seen),
    )
    words = texts(language_of(one.case.language for one in seen))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["decimals"] = lambda value, places=3: f"{value:z.{places}f}"
    environment.filters["signed"] = lambda value: f"{value:+z.3f}".replace("-", "−")
    return environment.get_template("report.html.j2").render(
        t=words,
        recorded=RECORDED,
        title=title,
        facts=facts,
        doctors=doctors,
        compared={name: both for name, both in metrics.comparisons.items() if both.mcnemar},
        by_turns=accuracy_by_turns(seen),
        seen=len(seen),
        few=FEW,
        measures=[name for name in MEASURES if any(_is_told(table.overall, name) for table in doctors.values())],
        categories={
            name: max(table.categories[name].cases for table in doctors.values() if name in table.categories)
            for name in categories
        },
        panels=[panel for panel in (_panel(curve, *given) for given in PANELS) if panel["lines"]],
        heat=_heat(pairs),
        mistakes=[pair for pair in pairs if pair[0] != pair[1]][:SHOWN],
        consultations={"best": [_view(one) for one in best], "worst": [_view(one) for one in worst]},
    )


def recorded(page: str, when: str, run_id: str, origin: Mapping[str, str]) -> str:
    """The page with a line that says when and as what it was recorded; the page itself stays the same for the same inputs.

    Args:
        page: as `report_html` made it.
        when: the date.
        run_id: of the MLflow run.
        origin: `git.sha` and `git.dirty` of that run.
    """
    words = texts("zh" if '<html lang="zh' in page else "en")
    changed = words.say("changed") if origin.get("git.dirty") == "true" else ""
    line = words.say("recorded", when, run_id, f"{origin.get('git.sha', 'unknown')[:12]}{changed}")
    return page.replace(RECORDED, f"<p>{line}</p>", 1)


def _is_told(summary: Summary, measure: str) -> bool:
    """Whether a measure is there to be shown; searches only where there was one."""
    found = summary.measures.get(measure)
    return found is not None and not (measure == "searches" and found.mean == 0)


def _visible(value: Any) -> Any:
    """Writes out control and format characters (bidirectional overrides, zero-width ones), lone surrogates and strange
    line ends.
    """
    # what a macro of the template made has been through here
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return "".join(
        f"⟨U+{ord(c):04X}⟩"
        if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in f"\n\t{JOINERS}"
        else c
        for c in value
    )


def _panel(
    curve: Sequence[Mapping[str, float]], title: str, axis: tuple[float, float] | None, columns: Mapping[str, str]
) -> dict[str, Any]:
    """A small line chart in pixels: ticks of both axes and the lines that have points."""
    lines = {
        name: [(float(row["step"]), float(row[column])) for row in curve if math.isfinite(row.get(column, math.nan))]
        for name, column in columns.items()
    }
    lines = {name: points for name, points in lines.items() if points}
    points = [point for line in lines.values() for point in line]
    xs, ys = _ticks((x for x, _ in points), 1.0), _ticks(axis or [0.0, *(y for _, y in points)], 0.0)

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = (x - xs[0]) / (xs[-1] - xs[0]), (y - ys[0]) / (ys[-1] - ys[0])
        return round(LEFT + across * (WIDTH - LEFT - RIGHT), 1), round(
            HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM), 1
        )

    return {
        "title": title,
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "top": TOP,
        "bottom": HEIGHT - BOTTOM,
        "x": [(place(x, ys[0])[0], f"{x:g}") for x in xs],
        "y": [(place(xs[0], y)[1], f"{y:g}") for y in ys],
        "lines": [
            {"name": name, "points": [place(*point) for point in line], "last": line[-1][1]}
            for name, line in lines.items()
        ],
    }


def _ticks(values: Iterable[float], least: float) -> list[float]:
    """Two to eight round numbers around the values, at least `least` apart."""
    found = list(values) or [0.0]
    low, high = min(found), max(found)
    rough = max((high - low or 1.0) / 5, least)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, max(last, first + 1) + 1)]


def _heat(counts: Sequence[tuple[str, str, int]]) -> dict[str, Any]:
    """The confusion table of the conditions with most mistakes, as true or as named condition; the others are folded
    into one.
    """
    conditions = {actual for actual, _, _ in counts}
    mistakes: Counter[str] = Counter()
    for actual, named, count in counts:
        mistakes.update({name: count for name in {actual, named} & conditions if actual != named})
    kept = sorted(mistakes, key=lambda name: (-mistakes[name], name))[:SHOWN_CONDITIONS]
    rest, cells = OTHERS, Counter[tuple[str, str, bool]]()
    for actual, named, count in counts:
        cells[
            actual if actual in kept else rest,
            named if named in kept or named not in conditions else rest,
            actual == named,
        ] += count
    rows = [*kept, *([rest] if len(conditions) > len(kept) else [])]
    columns = [*rows, *(name for name in (SOMETHING_ELSE, NO_DIAGNOSIS) if any(named == name for _, named, _ in cells))]
    table = []
    for row in rows:
        total = sum(count for (actual, _, _), count in cells.items() if actual == row)
        table.append(
            {
                "name": row,
                "total": total,
                "cells": [
                    {"named": name, "right": cells[row, name, True], "wrong": cells[row, name, False]}
                    for name in columns
                ],
            }
        )
    return {"columns": columns, "rows": table, "shown": len(kept), "folded": len(conditions) - len(kept)}


def _of_note(seen: Sequence[Seen]) -> tuple[list[Seen], list[Seen]]:
    """The best and the worst, each from its end; of those that were scored, if any was. No consultation is both."""
    pool = [one for one in seen if one.rewards] or list(seen)
    ranked, half = sorted(pool, key=lambda one: (-_worth(one), one.case.case_id)), min(SHOWN, (len(pool) + 1) // 2)
    return ranked[:half], sorted(ranked[half:], key=lambda one: (_worth(one), one.case.case_id))[:SHOWN]


def _worth(one: Seen) -> float:
    return round(sum(sum(turn.values()) for turn in one.rewards), 9) if one.rewards else float(one.correct)


def _view(one: Seen) -> dict[str, Any]:
    heard = {*one.case.opening, *told_topics(one.events)}
    unasked = [fact for fact in one.case.facts if fact.topic not in heard]
    return {
        "seen": one,
        "named": _diagnosis(one),
        "reward": _worth(one) if one.rewards else None,
        "utterances": _utterances(one),
        "unasked": [fact for fact in unasked if fact.present],
        "unasked_absent": sum(not fact.present for fact in unasked),
    }


def _utterances(one: Seen) -> list[dict[str, Any]]:
    """The dialogue: who speaks and what is said, and what `_turn` adds for the doctor."""
    said: list[dict[str, Any]] = []
    turns = zip_longest(one.events, one.rewards)
    for message in one.messages:
        text = message["content"].replace("\r\n", "\n")
        if message["role"] == "assistant":
            said.append(_turn(text, *next(turns, (None, None))))
        elif message["role"] == "user":
            asked = said[-1].get("kind") if said else None  # what is answered, and so by whom
            said.append({"who": asked if asked in ("search", "test", "invalid") else "patient", "text": text})
        else:
            said.append({"who": "instructions", "text": text})
    return said


def _turn(text: str, event: Event | None, rewards: Mapping[str, float] | None) -> dict[str, Any]:
    action, remarks = parse(text, max_questions=2 if isinstance(event, Asked) else 1), []
    if isinstance(event, Inquiry | Searched) and event.repeated:
        remarks.append("known")
    if isinstance(event, Inquiry) and event.topic is None:
        remarks.append("unanswered")
    turn = {
        "who": "doctor",
        "kind": action.kind.value,
        "text": text,
        "thought": "",
        "recommendation": " ".join([action.recommendation, *(f"[{one}]" for one in action.evidence)]).strip(),
        "remarks": remarks,
    }
    if action.kind is not Kind.INVALID:  # else the text stays as it was written
        thought = text.partition("<answer>")[0].strip()
        turn |= {"text": action.text, "thought": thought.removeprefix("<think>").removesuffix("</think>").strip()}
    return {
        **turn,
        "parts": rewards and {name: value for name, value in rewards.items() if value},
        "reward": sum((rewards or {}).values()),
    }


def write_report(
    path: Path,
    title: str,
    facts: Mapping[str, str],
    metrics: Evaluation,
    curve: Sequence[Mapping[str, float]],
    seen: Sequence[Seen],
) -> None:
    """Write `report_html` of the same arguments, so that the file is whole or absent."""
    _write(path, report_html(title, facts, metrics, curve, seen))


def write_confusion(seen: Sequence[Seen], path: Path) -> None:
    """Write one row per consultation for DVC's `confusion` template: actual, predicted."""
    _write(path, _csv(["actual", "predicted"], _named_in(seen)))


def write_accuracy_by_turns(seen: Sequence[Seen], path: Path) -> None:
    """Write `accuracy_by_turns` as CSV for `dvc plots`: turns, cases, accuracy, low, high."""
    columns = ["turns", "cases", "accuracy", "low", "high"]
    _write(path, _csv(columns, [[round(row[column], 4) for column in columns] for row in accuracy_by_turns(seen)]))


def _csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([columns, *rows])
    return file.getvalue()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    temporary.write_text(text, encoding="utf-8", newline="")
    os.replace(temporary, path)
