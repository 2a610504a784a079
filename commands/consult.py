"""Talk to a doctor in the terminal: as its patient, or watching a held-out case.

Teaching and research material, not medical advice.
"""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from commands.resolve import NAMED, resolved
from doctor.told import NOTICE, lines_heard, lines_said

if TYPE_CHECKING:
    from pathlib import Path

    from clinic.actions import Action
    from clinic.consultation import Reply
    from doctor.parameters import Params
    from rl.config import EndpointParams
    from rl.experience import Trajectory

ASKED = {"en": "What brings you here? ", "zh": "您哪里不舒服？ "}
SCORES = ("1", "2", "3", "4", "5")


class Terminal:
    """Prints a consultation as it is held, and asks the person at the keyboard."""

    def __init__(self, *, watched: bool) -> None:
        """Args: whether the patient's answers have to be shown too."""
        self._watched = watched

    def said(self, turn: int, thought: str, action: "Action") -> None:
        """The doctor's turn."""
        for label, text in lines_said(thought, action):
            self._line(f"{turn:2} {label}: {text}" if label.startswith("Doctor") else f"   {label}: {text}")

    def heard(self, reply: "Reply", views: Sequence[tuple[str, float]]) -> None:
        """What came of it."""
        for label, text in lines_heard(reply, views):
            if self._watched or label != "Patient":
                self._line(f"   {label}: {text}")

    def ask(self, question: str) -> str:
        """The person's answer to what was just shown."""
        return self.read("   You: ") if question else ""

    @staticmethod
    def read(prompt: str) -> str:
        """A line from the keyboard; the end of the input ends the consultation."""
        try:
            return input(prompt)
        except EOFError:
            raise KeyboardInterrupt from None

    @staticmethod
    def _line(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def ratings_file() -> str | None:
    """The file of ratings that the reward preset `human` names, from the project's folder."""
    from clinic.config import HumanParams
    from doctor.mistakes import read_yaml, validated
    from doctor.reward_recipe import reward_path

    path = reward_path("human")
    return validated(read_yaml(path), path, HumanParams.model_validate).path


def keep_rating(trace: str | None, held: "Trajectory | None", score: int, comment: str = "") -> str:
    """Keep a person's score on the trace, and in the file of ratings if there is one; says where."""
    from doctor.consult import rate
    from doctor.parameters import ROOT
    from tracking.recorder import rate_consultation

    where: list[str] = []
    if trace is not None:
        rate_consultation(trace, score, comment.strip())
        where.append("on its trace in MLflow")
    ratings = ratings_file()
    if ratings is not None and held is not None:
        rate(ROOT / ratings, held, score)
        where.append(f"in {ratings}")
    if not where:
        return "Not kept: this doctor has no run in this MLflow store, and recipes/rewards/human.yaml names no file."
    return f"Thank you. The rating is kept {' and '.join(where)}."


def keep_trace(folder: "Path | None", held: "Trajectory") -> tuple[str | None, str]:
    """Keep a consultation as a trace of its doctor's run, if there is one; its id, and what is to be said of it. A store
    that is away costs the trace, not what was said.
    """
    from tracking.errors import TrackingError
    from tracking.recorder import record_consultation

    try:
        trace = record_consultation(folder, held) if folder is not None else None
    except TrackingError as error:
        return None, f"Not kept as a trace: {error}."
    return trace, "Kept as a trace in MLflow." if trace is not None else ""


def ask_for_score() -> int | None:
    """What a person at the keyboard thinks of the consultation; None: nothing, or there is no more input."""
    while True:
        try:
            typed = input("How good was it? 1 to 5, 5 is best; Enter to leave it out: ").strip()
        except EOFError:
            sys.stdout.write("\n")
            return None
        if typed in ("", *SCORES):
            return int(typed) if typed else None


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """The options that say which doctor; `doctor_of` reads them."""
    parser.add_argument(
        "--doctor",
        default="models/doctor",
        help=f"{NAMED}; or an address of OpenAI-compatible HTTP, as http://127.0.0.1:8000/v1; default models/doctor",
    )
    parser.add_argument("--model", help="at an address: as the server calls it; default the only one it serves")
    parser.add_argument(
        "--key-env",
        default="",
        metavar="NAME",
        help="at an address: environment variable with the key; default: none is sent",
    )


def doctor_of(given: argparse.Namespace, params: "Params") -> "Path | EndpointParams":
    """The doctor's folder, or where it is served.

    Raises:
        ParameterError: the address is none.
        TrackingError: there is no such doctor on this machine.
        EndpointError: there is none at this address.
    """
    from doctor.served import is_address, served_doctor

    if is_address(given.doctor):
        return served_doctor(given.doctor, given.model, given.key_env, params)
    return resolved(given.doctor)


def main() -> int:
    """Hold one consultation."""
    parser = argparse.ArgumentParser(
        prog="python -m commands.consult", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_doctor(parser)
    parser.add_argument("--case", help="id of a held-out case to watch; without it you are the patient")
    parser.add_argument("--language", choices=sorted(NOTICE), default="en", help="in which you are asked; default en")
    parser.add_argument("--forget", action="store_true", help="keep no trace of it in MLflow, and no rating")
    given = parser.parse_args()
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # a terminal of another encoding costs a letter, not the consultation
    from clinic.errors import ClinicError
    from doctor.parameters import ParameterError
    from kb.errors import KnowledgeBaseError
    from rl.errors import TrainingError
    from tracking.errors import TrackingError

    sys.stdout.write(f"{NOTICE[given.language]}\n\n")
    try:
        _hold(given)
    except (ClinicError, KnowledgeBaseError, ParameterError, TrainingError, TrackingError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped\n")
        return 130
    sys.stdout.write(f"\n{NOTICE[given.language]}\n")
    return 0


def _hold(given: argparse.Namespace) -> None:
    """Hold the consultation, keep it, and ask what it was like."""
    from doctor.parameters import ROOT, load_params

    params = load_params()
    doctor = doctor_of(given, params)  # a wrong name is told before the seconds that the next import takes
    from doctor.consult import Practice

    practice = Practice(params, doctor, ROOT / "data/cases", ROOT / "data/kb_index")
    terminal = Terminal(watched=given.case is not None)
    if given.case is None:
        complaint = terminal.read(ASKED[given.language]).strip()
        held = practice.with_person(complaint, given.language, terminal.ask, terminal)
    else:
        case = practice.case(given.case)
        sys.stdout.write(f"   Patient: {case.self_report}\n")
        held = practice.with_case(case, terminal)
        sys.stdout.write(f"\nWhat this patient has: {case.diagnosis}\n")
    sys.stdout.write(f"\n{practice.name}: {held.stop_reason} after {len(held.turns)} turns.\n")
    if given.forget:
        return
    trace, told = keep_trace(practice.folder, held)
    if told:
        sys.stdout.write(f"{told}\n")
    score = ask_for_score() if trace or ratings_file() else None
    if score is not None:
        sys.stdout.write(f"{keep_rating(trace, held, score)}\n")


if __name__ == "__main__":
    sys.exit(main())
