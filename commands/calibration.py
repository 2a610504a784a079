"""How well questions and names of diagnoses are understood, leaks heard, and how well a judge agrees
with labels.

What is measured:

    patient     data/calibration/patient_*.jsonl: natural questions to patients of imported cases; the
                scripted patient with all ways of matching (half an hour), or language_models.patient
    fit_patient learns again from those questions how the patient of imported cases decides, with and
                without the cross-encoder (clinic/understanding/decision.yaml, decision_cross_encoder.yaml,
                answering.npz), and says what it understands of each hand left out
    fit_cross_encoder
                learns the cross-encoder again (clinic/understanding/cross_encoder.npz) from
                data/calibration/patient_practice.jsonl, an hour or more on two cores; with --new
                NAME it goes on from there with the questions of the writers whose names begin so
                and some of the others
    orders      data/calibration/orders_*.jsonl: orders of examinations and tests to the same patients
    patient_zh  questions in Chinese: data/calibration/patient_zh_*.jsonl, whose cases are included
    orders_zh   orders in Chinese: data/calibration/orders_zh_*.jsonl, to patients of those cases
    questions   agreement of both ways of matching with data/calibration/questions_*.jsonl: right
                topic, or rightly none
    names       recall and precision of the matching of diagnoses on data/calibration/diagnoses_*.jsonl
    notes       denials and findings heard in the notes of data/calibration/notes_*.jsonl, which are read as
                vignettes of own cases are
    leaks       what the leak filter hears of data/calibration/leaks_*.jsonl
    search      what one forced search costs a doctor (--model) in tokens, and does to its accuracy
    searches    what the searches that it makes of its own find, and its accuracy with them and without
    judge       the model of language_models.reward_judge (or evaluation_judge) against
                data/calibration/judge.jsonl
"""

import argparse
import logging
import sys
from collections.abc import Iterable
from pathlib import Path

from commands.attacks import count

OF_PUBLIC_SETS = ("patient", "orders", "fit_patient", "fit_cross_encoder")


def main() -> int:
    """Measure and print."""
    parser = _parser()
    given = parser.parse_args()
    if given.what in OF_PUBLIC_SETS and given.cases is None:
        parser.error(f"{given.what} asks patients of the public case sets; name their folder with --cases FOLDER")
    from clinic.errors import ClinicError
    from doctor.parameters import ParameterError
    from kb.errors import KnowledgeBaseError
    from rl.errors import TrainingError

    try:
        for line in _measured(given):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()  # some take minutes each
    except (ParameterError, ClinicError, KnowledgeBaseError, TrainingError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m commands.calibration", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        choices=[
            "questions",
            "patient",
            "fit_patient",
            "fit_cross_encoder",
            "orders",
            "patient_zh",
            "orders_zh",
            "names",
            "notes",
            "leaks",
            "search",
            "searches",
            "judge",
        ],
    )
    parser.add_argument(
        "--imported",
        metavar="FORMAT=FILE",
        help="questions: recorded question and answer pairs, for example mtmeddialog_cases=cases.jsonl.gz",
    )
    parser.add_argument(
        "--cases",
        type=Path,
        metavar="FOLDER",
        help=f"{', '.join(OF_PUBLIC_SETS)}: the folder of the public case sets",
    )
    parser.add_argument(
        "--matching", choices=["lexical", "hybrid", "cross_encoder"], help="patient: this way of matching alone"
    )
    parser.add_argument(
        "--hands",
        type=lambda text: [name.strip() for name in text.split(",")],
        default=[],
        help="patient: these halves alone, by how their names begin, for example fifteenth,sixteenth",
    )
    parser.add_argument("--new", default="", metavar="NAME", help="fit_cross_encoder: writers, for example third")
    parser.add_argument("--judge", choices=["reward_judge", "evaluation_judge"], default="reward_judge")
    parser.add_argument(
        "--model", type=Path, default=Path("models/doctor"), help="search, searches: folder of the doctor"
    )
    parser.add_argument(
        "--table", type=Path, default=Path("data/cases"), help="search, searches: folder of the case table"
    )
    parser.add_argument(
        "--index", type=Path, default=Path("data/kb_index"), help="search, searches: the knowledge base"
    )
    parser.add_argument("--count", type=count, default=200, help="search, searches: test cases; default 200")
    return parser


def _measured(given: argparse.Namespace) -> Iterable[str]:
    from doctor.calibration import judge_lines, questions, recorded_pairs
    from doctor.naming_calibration import hearing_lines, naming_lines
    from doctor.notes_calibration import note_lines
    from doctor.order_calibration import chinese_order_lines, order_lines
    from doctor.parameters import load_params
    from doctor.patient_calibration import chinese_patient_lines, patient_lines
    from doctor.patient_fitting import fit_lines
    from doctor.search_calibration import own_search_lines, search_lines

    if given.what in ("leaks", "notes", "orders", "orders_zh"):  # of no parameters
        of_files = {"leaks": hearing_lines, "notes": note_lines, "orders_zh": chinese_order_lines}
        return of_files[given.what]() if given.what in of_files else order_lines(given.cases)
    params = load_params()
    match given.what:
        case "judge":
            return judge_lines(params, given.judge)
        case "patient":
            return patient_lines(params, given.cases, [given.matching] if given.matching else [], given.hands)
        case "fit_patient":
            return fit_lines(params, given.cases)
        case "fit_cross_encoder":
            from doctor.cross_encoder_fitting import fit_cross_encoder_lines  # with the training library

            logging.basicConfig(level=logging.WARNING, format="%(message)s")
            logging.getLogger("doctor").setLevel(logging.INFO)  # it takes an hour
            return fit_cross_encoder_lines(params, given.cases, given.new)
        case "patient_zh":
            return chinese_patient_lines(params)
        case "names":
            return naming_lines(params)
        case "search":
            return search_lines(params, given.model, given.table, given.index, given.count)
        case "searches":
            return own_search_lines(params, given.model, given.table, given.index, given.count)
        case _:
            return recorded_pairs(params, given.imported) if given.imported else questions(params)


if __name__ == "__main__":
    sys.exit(main())
