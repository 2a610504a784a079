"""`make attacks`: what attacks on the reward earn, beside honest doctors, under every preset that
asks nobody or a judge (one that reads the criteria to the letter); on the starter clinic and every
imported case set of the run, or one set.

Ends with status 1 if, under the preset in force, an attack earns as much as the honest weak doctor
of the starter clinic, or as the best of the honest doctors of an imported set; and if that preset
cannot be measured.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clinic.config import CaseSource
    from doctor.attacks import Earnings


def main() -> int:
    """Play every attack on the same cases and print what each earns."""
    given = _parser().parse_args()
    from clinic.errors import ClinicError
    from doctor.attacks import MEASURED, on_imported, on_starter, paid_attacks, sources_of
    from doctor.parameters import ParameterError, load_params
    from kb.errors import KnowledgeBaseError

    try:
        params = load_params()
        sources = [_named(given)] if given.imported else sources_of(params)
        tables = {} if given.imported else {"starter clinic": on_starter(params, given.cases, MEASURED, given.index)}
        tables |= {source.path: on_imported(params, source, given.cases, MEASURED) for source in sources}
    except (ClinicError, KnowledgeBaseError, ParameterError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    for where, table in tables.items():
        sys.stdout.write(_shown(where, table, MEASURED))
    if params.reward.preset not in MEASURED:
        sys.stderr.write(f"error: reward.preset {params.reward.preset} is not measured: it asks a model or people\n")
        return 1
    return int(any(paid_attacks(table, params.reward.preset) for table in tables.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m commands.attacks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=count, default=200, help="of each set, at most half of it; default 200")
    parser.add_argument(
        "--imported",
        metavar="FORMAT=FILE",
        help="for example mtmeddialog_cases=cases.jsonl.gz, in place of the sets of the run",
    )
    parser.add_argument("--mapping", metavar="FILE", help="what the columns are, for --imported own=FILE")
    parser.add_argument("--language", choices=["en", "zh"], help="of the texts of --imported; default en")
    parser.add_argument(
        "--index",
        type=Path,
        metavar="FOLDER",
        help="knowledge base that is searched on the starter clinic; default: a literal library, which needs no model",
    )
    parser.add_argument("--draw", type=count, default=1000, help="patients to draw, for --imported ddxplus=FILE")
    return parser


def count(text: str) -> int:
    """A number of cases, as an argument.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of cases; give 1 or more")
    return int(text)


def _named(given: argparse.Namespace) -> "CaseSource":
    """The one set that was asked for.

    Raises:
        ParameterError: it is no set.
    """
    from pydantic import ValidationError

    from clinic.config import CaseSource
    from doctor.parameters import ParameterError

    name, _, path = given.imported.partition("=")
    stated = {
        "format": name,
        "path": path,
        "cases": given.draw if name == "ddxplus" else 0,
        "licence": "see its source",
        "mapping": given.mapping,
        "language": given.language,
    }
    try:
        return CaseSource.model_validate(stated)
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ParameterError(
            f"--imported {given.imported}: {problem}; write FORMAT=FILE, for own with --mapping"
        ) from error


def _shown(where: str, table: "Earnings", presets: Sequence[str]) -> str:
    """The table of one source, and which attacks pay."""
    from doctor.attacks import HONEST, nearest_attack, paid_attacks

    cases, attacks = len(next(iter(table.values()))[presets[0]]), sum(name not in HONEST for name in table)
    title = f"mean reward of {cases} consultations, {where}"
    width = max(map(len, (title, *table)))
    lines = [f"{title:<{width}}" + "".join(f"{name:>19}" for name in presets)]
    lines += [
        f"{name:<{width}}" + "".join(f"{row[preset].mean():>19.3f}" for preset in presets)
        for name, row in table.items()
    ]
    for preset in presets:
        paid, (best, less) = paid_attacks(table, preset), nearest_attack(table, preset)
        lines.append(
            f"{preset}: {len(paid)} of {attacks} attacks earn as much as an honest doctor{': ' * bool(paid)}{', '.join(paid)}; "
            f"the honest doctor earns {less.mean:.3f} [{less.low:.3f}, {less.high:.3f}] more than {best}"
        )
    return "\n".join(lines) + "\n\n"


if __name__ == "__main__":
    sys.exit(main())
