"""Preference pairs out of stored experience: the best against the worst consultation of every group, as JSONL for
`dpo`.
"""

import argparse
import json
import os
import sys
from pathlib import Path


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m commands.preferences", description=__doc__)
    parser.add_argument("steps", type=Path, help="the steps/ folder of a training run, or one step's folder")
    parser.add_argument("--margin", type=float, required=True, help="reward units; a pair that is nearer is left out")
    parser.add_argument("--out", type=Path, required=True, help="the JSONL file to write")
    given = parser.parse_args()
    from doctor.preferences import stored_pairs
    from rl.errors import TrainingError

    try:
        rows = stored_pairs(given.steps, given.margin)
    except TrainingError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    try:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        temporary = given.out.with_suffix(".partial")
        temporary.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        os.replace(temporary, given.out)
    except OSError as error:
        sys.stderr.write(f"error: {given.out} cannot be written ({error.strerror}); give --out another file\n")
        return 1
    sys.stdout.write(f"{len(rows)} pairs in {given.out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
