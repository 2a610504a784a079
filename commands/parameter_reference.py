"""The reference of all parameters, docs/reference/parameters.md, and the JSON schemas that editors complete from, made
of the descriptions in the code.
"""

import argparse
import sys


def main() -> int:
    """Write what is out of date, or only say so; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m commands.parameter_reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a file is out of date")
    given = parser.parse_args()
    from doctor.parameter_reference import generated, stale
    from doctor.parameters import ROOT

    old = stale()
    for path, text in generated().items():
        if not given.check and path.relative_to(ROOT).as_posix() in old:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    sys.stdout.write(
        "".join(f"{name}: {'out of date' if given.check else 'written'}\n" for name in old) or "all up to date\n"
    )
    return int(given.check and bool(old))


if __name__ == "__main__":
    sys.exit(main())
