"""How long a training step would take on many GPUs, and how to divide them: `python -m commands.plan --cards 8`.

From params.yaml, its recipe and the shape of the doctor; lengths of turns are what the parameters allow unless they
are given, such as those of a run so far (MLflow's turns and tokens). It is arithmetic, not a measurement:
docs/scaling.md says on which rates it rests and what it was held against.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rl.scaling import CARDS, Decoder, Fleet, Rates, Step, Work, between, cards_of, least_trainers, steps

if TYPE_CHECKING:
    from doctor.parameters import Params
    from rl.algorithms.base import Algorithm
    from rl.memory import ModelShape

GB = 1e9
DIVIDED = ("weights", "gradients", "optimizer", "critic", "frozen")  # by FSDP
HEAD = (
    f"{'':<16}{'cards to':>8}{'':>18}{'seconds':>13}\n"
    f"{'':<16}{'learn':>8}{'play':>8}{'answer':>10}{'rollout':>13}{'learn':>9}{'hand over':>11}{'step':>9}   nobody learns, plays"
)


def main() -> int:
    """Print what a step takes, in turns and one step ahead."""
    given = _parser().parse_args()
    from doctor.parameters import ParameterError, load_params
    from doctor.recipe import load_algorithm
    from rl.errors import TrainingError
    from rl.memory import model_shape

    try:
        params = load_params(given.params_file) if given.params_file else load_params()
        algorithm = load_algorithm(params)
        if algorithm.feature is not None:
            raise ParameterError(
                f"params.yaml: the plan knows nothing of the parts of {params.algorithm.name}; take another algorithm"
            )
        shape = model_shape(given.doctor or params.warm_start.base, "bfloat16", params.train_doctor.lora)
        patient = model_shape(given.patient, "bfloat16") if given.patient else None
        sys.stdout.write(_planned(given, params, algorithm, shape, patient))
    except (ParameterError, TrainingError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m commands.plan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cards", type=_cards, default=8, help="GPUs, all of one kind; default 8")
    parser.add_argument("--kind", choices=["a100", "h20", "h100", "h200"], default="h100")
    parser.add_argument("--doctor", metavar="MODEL", help="id or folder; default: warm_start.base")
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--patient", metavar="MODEL", help="a model that answers, on cards of its own; default: rules")
    who.add_argument("--patient-seconds", type=_positive, metavar="S", help="of a reply, where an endpoint answers")
    parser.add_argument("--turns", type=_positive, metavar="N", help="of a mean consultation")
    parser.add_argument("--opening-tokens", type=_positive, metavar="N", help="before the first turn")
    parser.add_argument("--turn-tokens", type=_positive, metavar="N", help="sampled a turn")
    parser.add_argument("--reply-tokens", type=_positive, metavar="N", help="read a turn")
    parser.add_argument(
        "--learned", type=_positive, metavar="TOKENS", help="a second that one card learns, if measured"
    )
    parser.add_argument(
        "--sampled", type=_positive, metavar="TOKENS", help="a second that one card samples, if measured"
    )
    parser.add_argument("--params-file", type=Path, help="instead of params.yaml")
    return parser


def _cards(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of GPUs")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def _planned(
    given: argparse.Namespace, params: "Params", algorithm: "Algorithm", shape: "ModelShape", voice: "ModelShape | None"
) -> str:
    from rl.errors import TrainingError

    rates = Rates(learned=given.learned, sampled=given.sampled)
    fleet = Fleet(cards=given.cards, card=CARDS[given.kind], rates=rates)
    doctor, patient = _decoder(shape), _decoder(voice) if voice is not None else None
    work = _work(given, params, algorithm)
    state = _state(shape, params, algorithm)
    shared = cards_of(doctor, fleet.card)
    best = {}
    for label, ahead in (("in turns", False), ("one step ahead", True)):
        found = list(steps(work, doctor, fleet, state, patient, ahead=ahead))
        if not found:
            needed = (
                f"{least_trainers(state, fleet.card)} to learn ({state / GB:.0f} GB of weights, gradients and moments)"
            )
            needed += f", {shared} to play"
            needed += f", {cards_of(patient, fleet.card)} for the patient" if patient is not None else ""
            raise TrainingError(f"{given.cards} x {given.kind} are too few: {needed}; take more, or train_doctor.lora")
        best[label] = min(found, key=lambda step: step.seconds)
    answers = f"a model of {_size(patient)}" if patient is not None else "rules"
    answers = f"an endpoint, {given.patient_seconds:g} s a reply" if given.patient_seconds else answers
    lines = [
        f"{given.cards} x {given.kind}; a doctor of {_size(doctor)}; the patient: {answers}",
        f"a step: {work.episodes} consultations of {work.turns:g} turns and {work.length:.0f} tokens; {work.passes:g} passes to learn",
        "",
        HEAD,
        *(_line(label, step, shared) for label, step in best.items()),
        "",
        *(f"- {note}" for note in _notes(best["one step ahead"], fleet, state, shared)),
    ]
    return "\n".join(lines) + "\n"


def _decoder(shape: "ModelShape") -> Decoder:
    return Decoder(parameters=shape.parameters, cached=shape.layers * 2 * shape.key_value_heads * shape.head_width)


def _work(given: argparse.Namespace, params: "Params", algorithm: "Algorithm") -> Work:
    """What the parameters allow at most, or what was given."""
    from clinic.consultation import RANDOM_BUDGET

    rollout, optimizer = params.rollout, algorithm.optimizer
    budget = params.consultation.turn_budget
    longest = budget if budget > 0 else RANDOM_BUDGET[1]
    said = given.turn_tokens or rollout.response_length
    opening = given.opening_tokens or rollout.max_episode_tokens / 4
    left = max(0.0, (rollout.max_episode_tokens - opening) / longest - said)
    twice = 2 if algorithm.critic is not None and algorithm.critic.trunk == "own" else 1
    looks = 1 + len(algorithm.frozen_roles) + (algorithm.critic is not None)
    return Work(
        episodes=rollout.prompts * algorithm.group_size,
        turns=given.turns or longest,
        longest_turns=max(longest, given.turns or 0),
        opening_tokens=opening,
        turn_tokens=said,
        reply_tokens=given.reply_tokens or left,
        slots=rollout.slots,
        passes=twice * optimizer.num_epochs * (3 + optimizer.gradient_checkpointing) + looks,
        gathers=twice * optimizer.num_epochs * 2 + looks,
        reduces=twice * optimizer.num_epochs,
        micro_batch_tokens=optimizer.micro_batch_tokens,
        patient_s=given.patient_seconds or 0.0,
    )


def _state(shape: "ModelShape", params: "Params", algorithm: "Algorithm") -> float:
    """Bytes that the trainers divide."""
    from rl.machine import Place
    from rl.memory import estimate

    parts = estimate(shape, params.rollout, algorithm, Place(), holes=False).parts
    return sum(parts.get(part, 0) for part in DIVIDED)


def _line(label: str, step: Step, shared: int) -> str:
    cards = f"{step.trainers:>8}{step.rollout_workers * shared:>8}{step.patients:>10}"
    seconds = f"{step.rollout_s:>13.1f}{step.learn_s:>9.1f}{step.hand_over_s:>11.1f}{step.seconds:>9.1f}"
    return f"{label:<16}{cards}{seconds}   {step.trainers_wait:>4.0%}, {step.players_wait:.0%} of it"


def _size(model: Decoder) -> str:
    return f"{model.parameters / 1e9:.2f} billion weights"


def _notes(step: Step, fleet: Fleet, state: float, shared: int) -> Iterator[str]:
    """What the division asks of the machines."""
    card = fleet.card
    yield f"a trainer holds {state / step.trainers / GB:.1f} GB besides activations, of {card.memory / GB:.0f}"
    if step.trainers > 1:
        rate = between(card, step.trainers)
        yield f"it moves {step.sent / GB:.1f} GB a second if nothing waits for that; {rate / GB:.0f} are there"
        if step.sent > rate:
            yield "so learning waits for the network: raise optimizer.micro_batch_tokens in the recipe"
    if shared > 1:
        yield f"an engine of this doctor takes {shared} cards; rollout workers have one each so far, and cannot play it"
    yield "one step ahead: experience is one update old; sampler_correction has to be set in the recipe"


if __name__ == "__main__":
    sys.exit(main())
