"""What past trainings keep on disk, and deleting what nothing needs: checkpoints, experience and
validation below checkpoints/. The newest and the best stay, those of models/doctor and of every
alias of the registry (champion, challenger) always; MLflow's record stays too. Without --delete
nothing is deleted.
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
    parser.add_argument("--delete", action="store_true", help="delete what is listed as going")
    given = parser.parse_args()
    from doctor.parameters import HOME
    from rl.errors import TrainingError
    from tracking.errors import TrackingError
    from tracking.recorder import run_of
    from tracking.retention import delete, past_trainings, superfluous
    from tracking.store import setup

    try:
        setup(HOME)
        doctor = HOME / "models" / "doctor"
        found = past_trainings(HOME, run_of(doctor) if doctor.is_dir() else None)
        going = superfluous(found, given.keep_last, given.keep_best)
        for one in found:
            fate = "goes" if one in going else f"stays: {one.needed}" if one.needed else "stays"
            accuracy = "    –" if one.accuracy is None else f"{one.accuracy:5.3f}"
            day = datetime.fromtimestamp(one.changed, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
            place = one.folder.relative_to(HOME)
            sys.stdout.write(f"{day}  step {one.step:5d}  accuracy {accuracy}  {_size(one.size):>9}  {place}  {fate}\n")
        for one in going if given.delete else ():
            delete(one)
    except (TrainingError, TrackingError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    total = f"{len(going)} of {len(found)} trainings, {_size(sum(one.size for one in going))}"
    sys.stdout.write(f"{total}: {'deleted' if given.delete else 'nothing was deleted; add --delete'}\n")
    return 0


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of trainings; give 0 or more")
    return int(text)


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


if __name__ == "__main__":
    sys.exit(main())
