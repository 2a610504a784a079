"""What past trainings and registered models keep on disk, and deleting what nothing needs.

Below checkpoints/ (checkpoints, experience, validation) the newest and the best stay, those of
models/doctor and of every alias of the registry (champion, challenger) always. Below
models/registry/ the last that were promoted stay, and always what an alias names, what waits for
a decision and what the champion replaced; a version whose copy goes says so (tag `pruned`).
MLflow's record stays. Without --delete nothing is deleted.
"""

import argparse
import sys
from datetime import UTC, datetime


def main() -> int:
    """List, and delete if asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m commands.prune", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep-last", type=_count, default=3, metavar="N", help="the newest N stay; default 3")
    parser.add_argument(
        "--keep-best", type=_count, default=1, metavar="N", help="so do the N best on validation cases; default 1"
    )
    parser.add_argument(
        "--keep-promoted",
        type=_count,
        default=3,
        metavar="N",
        help="so do the copies of the last N promoted; default 3",
    )
    parser.add_argument("--delete", action="store_true", help="delete what is listed as going")
    given = parser.parse_args()
    from doctor.parameters import HOME
    from rl.errors import TrainingError
    from tracking.errors import TrackingError
    from tracking.store import setup

    try:
        setup(HOME)
        _trainings(given.keep_last, given.keep_best, delete=given.delete)
        _copies(given.keep_promoted, delete=given.delete)
    except (TrainingError, TrackingError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def _trainings(last: int, best: int, *, delete: bool) -> None:
    from doctor.parameters import HOME
    from rl.files import folder_hash
    from tracking import retention
    from tracking.runs import run_of_doctor

    doctor = HOME / "models" / "doctor"
    found = retention.past_trainings(HOME, run_of_doctor(HOME, folder_hash(doctor)) if doctor.is_dir() else None)
    going = retention.superfluous(found, last, best)
    for one in found:
        accuracy = "    –" if one.accuracy is None else f"{one.accuracy:5.3f}"
        day = datetime.fromtimestamp(one.changed, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
        place = one.folder.relative_to(HOME)
        told = f"{day}  step {one.step:5d}  accuracy {accuracy}  {_size(one.size):>9}  {place}"
        sys.stdout.write(f"{told}  {_fate(one.needed, going=one in going)}\n")
    for one in going if delete else ():
        retention.delete(one)
    _conclude(len(going), len(found), "trainings", sum(one.size for one in going), deleted=delete)


def _copies(promoted: int, *, delete: bool) -> None:
    from doctor.parameters import HOME
    from tasks.registry import MODEL_NAME
    from tracking import registry

    found = registry.copies(MODEL_NAME)
    going = registry.superfluous(found, promoted)
    sizes = {one.number: sum(path.stat().st_size for path in one.folder.iterdir()) for one in found}
    for one in found:
        told = f"version {one.number:>4}  {'promoted' if one.promoted else '        '}  {_size(sizes[one.number]):>9}"
        place = one.folder.relative_to(HOME) if one.folder.is_relative_to(HOME) else one.folder
        sys.stdout.write(f"{told}  {place}  {_fate(one.needed, going=one in going)}\n")
    for one in going if delete else ():
        registry.prune(MODEL_NAME, one)
    _conclude(len(going), len(found), "copies of models", sum(sizes[one.number] for one in going), deleted=delete)


def _fate(needed: str, *, going: bool) -> str:
    return "goes" if going else f"stays: {needed}" if needed else "stays"


def _conclude(going: int, found: int, what: str, size: int, *, deleted: bool) -> None:
    done = "deleted" if deleted else "nothing was deleted; add --delete"
    sys.stdout.write(f"{going} of {found} {what}, {_size(size)}: {done}\n")


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number; give 0 or more")
    return int(text)


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


if __name__ == "__main__":
    sys.exit(main())
