"""People's scores of consultations: a JSONL file that the run writes and a person fills in.

One line per consultation: {"transcript_id", "case_id", "score": null or a number, "transcript": [...]}. The id is a
hash of the transcript, so a score belongs to exactly the words that were rated, whichever run they come from.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from clinic.errors import ClinicError

Messages = Sequence[Mapping[str, str]]


def transcript_id(messages: Messages) -> str:
    """A name for these very words; hex (16)."""
    said = json.dumps([[message["role"], message["content"]] for message in messages], ensure_ascii=False)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_ratings(path: Path) -> dict[str, float]:
    """Scores by transcript id; lines whose score is still null are passed over. A file that is not there holds none.

    Raises:
        ClinicError: a line is no rating, two lines rate the same transcript differently, or the file cannot be read.
    """
    ratings: dict[str, float] = {}
    if not path.exists():
        return ratings
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ClinicError(
            f"{path} cannot be read ({error.strerror}); correct path in recipes/rewards/human.yaml"
        ) from error
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8-sig"))
            key, score = row["transcript_id"], row["score"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ClinicError(
                f"{path}, line {number}: not a rating ({' '.join(str(error).split())}); it needs transcript_id and score"
            ) from error
        if not isinstance(key, str):
            raise ClinicError(f"{path}, line {number}: transcript_id {key!r} is no text; leave it as it was written")
        if score is None:
            continue
        if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) <= sys.float_info.max:
            raise ClinicError(
                f"{path}, line {number}: score {score!r} is no number; give one, or null for not yet rated"
            )
        if ratings.setdefault(key, float(score)) != float(score):
            raise ClinicError(
                f"{path}, line {number}: transcript {key} is rated {ratings[key]:g} above and {score:g} here; keep one"
            )
    return ratings


def ask_for_ratings(path: Path, missing: Iterable[tuple[str, Messages]]) -> int:
    """Add (case id, transcript) pairs that the file does not have yet, with score null; returns how many.

    What stands in it stays.

    Raises:
        ClinicError: as `read_ratings`, or the file cannot be written.
    """
    with _alone_with(path):
        lines = _lines(path)
        known: set[Any] = {json.loads(line)["transcript_id"] for line in lines}
        before = len(lines)
        for case_id, messages in missing:
            key = transcript_id(messages)
            if key not in known:
                known.add(key)
                lines.append(json.dumps(_row(case_id, messages), ensure_ascii=False))
        _write(path, lines)
    return len(lines) - before


def keep_rating(path: Path, case_id: str, messages: Messages, score: float) -> None:
    """Write one person's score of a transcript; the last one counts.

    Raises:
        ClinicError: as `ask_for_ratings`.
    """
    with _alone_with(path):
        rows = [json.loads(line) for line in _lines(path)]
        rated = [row for row in rows if row["transcript_id"] == transcript_id(messages)]
        if not rated:
            rated = [_row(case_id, messages)]
            rows += rated
        for row in rated:
            row["score"] = score
        _write(path, [json.dumps(row, ensure_ascii=False) for row in rows])


@contextmanager
def _alone_with(path: Path) -> Iterator[None]:
    """Nobody else changes the file meanwhile, in this process or another."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock.partial")):
            read_ratings(path)
            yield
    except OSError as error:
        raise ClinicError(
            f"{path} cannot be written ({error.strerror}); make room or correct path in recipes/rewards/human.yaml"
        ) from error


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [line.decode("utf-8-sig") for line in path.read_bytes().split(b"\n") if line.strip()]


def _row(case_id: str, messages: Messages) -> dict[str, Any]:
    return {
        "transcript_id": transcript_id(messages),
        "case_id": case_id,
        "score": None,
        "transcript": [dict(message) for message in messages],
    }


def _write(path: Path, lines: Iterable[str]) -> None:
    temporary = path.with_suffix(".partial")
    # half a character is written as JSON escapes it
    temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="backslashreplace")
    os.replace(temporary, path)
