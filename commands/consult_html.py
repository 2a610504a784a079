"""What is told of a consultation, as HTML. Everything that a model or a person wrote is escaped."""

from collections.abc import Sequence
from html import escape

from doctor.told import NOTICE, Line
from doctor.visit import Told

CSS = """
.gradio-container { max-width: 820px !important; margin: 0 auto !important; padding: 4rem 0 0 !important; }
.gradio-container .main { padding: 12px 0 !important; }
.gradio-container main { padding: 12px 16px !important; }
.notice { position: fixed; inset: 0 0 auto 0; z-index: 1000; padding: 6px 16px; text-align: center;
  background: #7a3b00; font-size: 14px; line-height: 1.35; }
.notice span { display: block; color: #fff !important; }
.problem { margin: 0; padding: 8px 12px; border-left: 4px solid #b3261e; background: #b3261e1a; }
.turn { padding: 8px 0; border-top: 1px solid var(--border-color-primary); }
.turn .count { display: block; text-align: right; font-size: 12px; line-height: 1; opacity: .7; }
.turn p { display: grid; grid-template-columns: 6.5em 1fr; gap: .5em; margin: 3px 0; }
.turn p span { white-space: pre-wrap; overflow-wrap: anywhere; }
.turn b { font-weight: 600; font-size: 13px; }
.turn .thinks, .turn .found, .turn .bayes { font-size: 14px; opacity: .75; }
.turn .thinks { font-style: italic; }
.turn .doctor b { color: #1d5f8a; }
.dark .turn .doctor b { color: #8cc6ec; }
.turn .not b { color: #b3261e; }
"""


def notice() -> str:
    """What stands above everything, in every language of a consultation."""
    told = "".join(f'<span lang="{language}">{escape(text)}</span>' for language, text in NOTICE.items())
    return f'<div class="notice" role="note">{told}</div>'


def problem(text: str) -> str:
    """A line that says what to mend."""
    return f'<p class="problem" role="alert">{escape(text)}</p>' if text else ""


def transcript(opening: str, told: Sequence[Told]) -> str:
    """What was said so far; what came of a turn stands below it."""
    blocks: dict[int, list[str]] = {}
    for one in told:
        blocks.setdefault(one.turn, [f'<span class="count">turn {one.turn}, {one.left} left</span>'])
        blocks[one.turn] += map(_line, one.lines)
    turns = "".join(f'<div class="turn">{"".join(lines)}</div>' for lines in blocks.values())
    return f'<div class="turn">{_line(("Patient", opening))}</div>{turns}'


def _line(line: Line) -> str:
    label, text = line
    return f'<p class="{label.split()[0].lower()}"><b>{escape(label)}</b><span>{escape(text)}</span></p>'
