"""`make attacks`: what attacks on the reward earn, beside honest doctors, under every preset that asks nobody; on the
starter clinic and on every imported case set of the run, or on one set alone.

Ends with status 1 if, under the preset in force, an attack earns as much as the honest weak doctor, on an imported set
as the better of the honest doctors.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence


def main() -> int:
    """Play every attack on the same cases and print what each earns."""
    parser = argparse.ArgumentParser(
        prog="python -m commands.attacks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument(
        "--imported",
        metavar="FORMAT=FILE",
        help="for example mtmeddialog_cases=cases.jsonl.gz, in place of the sets of the run",
    )
    given = parser.parse_args()
    from clinic.config import CaseSource
    from clinic.errors import ClinicError
    from clinic.rewards import PRESETS
    from doctor.attacks import on_imported, on_starter, paid_attacks, sources_of
    from doctor.parameters import load_params

    params = load_params()
    presets = [name for name, preset in PRESETS.items() if not preset.opinion]
    sources = sources_of(params)
    if given.imported:
        name, _, path = given.imported.partition("=")
        stated = {"format": name, "path": path, "cases": 0, "licence": "see its source"}
        sources = [CaseSource.model_validate(stated)]
    tables = {} if given.imported else {"starter clinic": on_starter(params, given.cases, presets)}
    try:
        tables |= {source.path: on_imported(params, source, given.cases, presets) for source in sources}
    except ClinicError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    paid = {where: {preset: paid_attacks(table, preset) for preset in presets} for where, table in tables.items()}
    for where, table in tables.items():
        sys.stdout.write(_shown(where, table, paid[where], presets))
    return int(any(found.get(params.reward.preset) for found in paid.values()))


def _shown(
    where: str,
    table: Mapping[str, Mapping[str, float]],
    paid: Mapping[str, Sequence[str]],
    presets: Sequence[str],
) -> str:
    """The table of one source, and which attacks pay."""
    title = f"mean reward of a consultation, {where}"
    width = max(map(len, (title, *table)))
    lines = [f"{title:<{width}}" + "".join(f"{name:>16}" for name in presets)]
    lines += [
        f"{name:<{width}}" + "".join(f"{row[preset]:>16.3f}" for preset in presets) for name, row in table.items()
    ]
    lines += [
        f"{preset}: {', '.join(paid[preset]) or 'no attack'} earn(s) as much as an honest doctor" for preset in presets
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
