"""A table of your own cases, checked and shown before a run: what is rejected and why, five cases as
a doctor would meet them, what is doubtful, names that no vocabulary knows, charts that do not fit.

Ends with status 1 if the table or its mapping is unusable, or if more is rejected than
patient_cases.max_rejected_share.
"""

import argparse
import re
import sys
from pathlib import Path

_ENDING = re.compile(r"\.(?:jsonl?|csv|tsv|xlsx|parquet)(?:\.gz)?\Z", re.IGNORECASE)


def main() -> int:
    """Check and print."""
    parser = argparse.ArgumentParser(
        prog="python -m commands.cases", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="the table: .jsonl, .csv, .tsv (each also .gz), .xlsx or .parquet")
    parser.add_argument(
        "--mapping",
        type=Path,
        help="what its columns are (docs/reference/mapping.md); default: the table's name with .mapping.yaml",
    )
    parser.add_argument("--language", choices=["en", "zh"], default="en", help="of cases that do not say it themselves")
    parser.add_argument("--guess", action="store_true", help="write the mapping file first, from the names of columns")
    parser.add_argument("--show", type=int, default=5, help="how many cases to show in full; default 5")
    given = parser.parse_args()
    from clinic.config import CaseSource
    from clinic.errors import ClinicError
    from doctor.case_preview import guessed, preview, refuse, too_long
    from doctor.parameters import ParameterError, load_params
    from rl.errors import TrainingError

    mapping = given.mapping or given.path.with_name(f"{_ENDING.sub('', given.path.name)}.mapping.yaml")
    if not given.path.exists():
        sys.stderr.write(f"error: {given.path} does not exist; give the path of a table, or of a folder of tables\n")
        return 1
    try:
        if given.guess:
            guessed(given.path, mapping)
            sys.stdout.write(f"wrote {mapping}:\n{mapping.read_text(encoding='utf-8')}\n")
        stated = {"format": "own", "path": str(given.path), "mapping": str(mapping), "cases": 0, "licence": "-"}
        source = CaseSource.model_validate({**stated, "language": given.language})
        params = load_params()
        cases, rejected, lines = preview(params, source, given.show)
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()  # a tokenizer may have to come from a hub
        if cases:
            sys.stdout.write("\n".join(too_long(params, cases)) + "\n")
        refuse(params, source, cases, rejected)
    except FileExistsError:
        sys.stderr.write(f"error: {mapping} is there already; --guess overwrites nothing\n")
        return 1
    except (ClinicError, ParameterError, TrainingError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
