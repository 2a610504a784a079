"""People's scores of consultations: a JSONL file that the run writes and a person fills in.

One line per consultation: {"transcript_id", "case_id", "score": null or a number, "transcript": [...]}. The id is a
hash of the transcript, so a score belongs to exactly the words that were rated, whichever run they come from.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clinic.errors import ClinicError

Messages = Sequence[Mapping[str, str]]


def transcript_id(messages: Messages) -> str:
    """A name for these very words; hex (16)."""
    said = json.dumps([[message["role"], message["content"]] for message in messages], ensure_ascii=False)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_ratings(path: Path) -> dict[str, float]:
    """Scores by transcript id; lines whose score is still null are passed over. A file that is not there holds none.

    Raises:
        ClinicError: a line is no rating, or two lines rate the same transcript differently.
    """
    ratings: dict[str, float] = {}
    if not path.exists():
        return ratings
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
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
    """
    lines = (
        [f"{line.decode('utf-8-sig')}\n" for line in path.read_bytes().split(b"\n") if line.strip()]
        if path.exists()
        else []
    )
    known: set[Any] = {json.loads(line)["transcript_id"] for line in lines}
    added = 0
    for case_id, messages in missing:
        key = transcript_id(messages)
        if key not in known:
            known.add(key)
            added += 1
            lines.append(
                json.dumps(
                    {
                        "transcript_id": key,
                        "case_id": case_id,
                        "score": None,
                        "transcript": [dict(m) for m in messages],
                    },
                    ensure_ascii=False,
                )
                + "\n"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".partial")
    temporary.write_text("".join(lines), encoding="utf-8")
    os.replace(temporary, path)
    return added
