"""`make attacks`: what attacks on the reward earn, beside honest doctors, under every preset that asks nobody; on the
starter clinic or an imported case set.

Ends with status 1 if, under the preset in force, an attack earns as much as the weakest honest doctor.
"""

import argparse
import sys


def main() -> int:
    """Play every attack on the same cases and print what each earns."""
    parser = argparse.ArgumentParser(
        prog="python -m commands.attacks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument(
        "--imported",
        metavar="FORMAT=FILE",
        help="for example mtmeddialog_cases=cases.jsonl.gz, in place of the starter clinic",
    )
    given = parser.parse_args()
    from clinic.rewards import PRESETS
    from doctor.attacks import on_imported, on_starter, paid_attacks
    from doctor.parameters import load_params

    params = load_params()
    presets = [name for name, preset in PRESETS.items() if not preset.opinion]
    table = (
        on_imported(params, given.imported, given.cases, presets)
        if given.imported
        else on_starter(params, given.cases, presets)
    )
    width = max(map(len, table))
    sys.stdout.write(f"{'mean reward of a consultation':<{width}}" + "".join(f"{name:>16}" for name in presets) + "\n")
    for name, row in table.items():
        sys.stdout.write(f"{name:<{width}}" + "".join(f"{row[preset]:>16.3f}" for preset in presets) + "\n")
    for preset in presets:
        paid = paid_attacks(table, preset)
        sys.stdout.write(
            f"{preset}: {', '.join(paid) if paid else 'no attack'} earn(s) as much as the weakest honest doctor\n"
        )
    return int(params.reward.preset in presets and bool(paid_attacks(table, params.reward.preset)))


if __name__ == "__main__":
    sys.exit(main())
