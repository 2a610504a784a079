"""The state of the project that made a registered doctor: its code, parameters, lock and data in
runs/reproduced/<version>, and, with --again, every stage of it run once more from nothing.

Exit status 0 if the doctor there has the registered weights, byte for byte; 1 if it has not.
"""

import argparse
import sys


def main() -> int:
    """Check out, run if asked to, and compare."""
    parser = argparse.ArgumentParser(
        prog="python -m commands.reproduce", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", help="champion, challenger or a version's number")
    parser.add_argument("--again", action="store_true", help="train it again: as long as the first time")
    given = parser.parse_args()
    from rl.files import held
    from tasks.command_line import USER_ERRORS, told
    from tasks.repository import WorkspaceError
    from tasks.reproduction import check_out, difference, place_of, version_of
    from tasks.versioning import VersioningError, reproduce_alone

    with told("reproduce", VersioningError, WorkspaceError, *USER_ERRORS):
        version = version_of(given.version)
        with held(place_of(version)):
            place = check_out(version)
            if given.again:
                reproduce_alone(place)
            differs = difference(version, place)
    how = "trained again" if given.again else "checked out"
    if differs:
        hint = "" if given.again else "; --again trains it"
        sys.stdout.write(f"{how}, not the weights of version {version.number}: {differs}{hint}\n")
        return 1
    sys.stdout.write(f"{how}: the weights of version {version.number}, sha256 {version.sha256}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
