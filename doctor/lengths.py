"""Whether openings, charts and turns of a run's cases fit into its token budget, said before the run begins."""

import logging
from collections.abc import Sequence

from clinic.cases import QUESTIONS, Case
from clinic.consultation import largest_turn_budget
from doctor.environments import ConsultationFactory
from doctor.parameters import ParameterError
from rl.chat import ChatFormat
from rl.config import RolloutParams
from rl.lengths import fit_openings, longest_turn
from rl.sft import Example

log = logging.getLogger(__name__)


def check_openings(
    factory: ConsultationFactory, chat: ChatFormat, cases: Sequence[Case], rollout: RolloutParams, which: str
) -> None:
    """Openings that leave no room for a turn: a line that says so, or the end of a run that has too many.

    Args:
        factory: makes the consultations.
        chat: the policy's chat format.
        cases: all of a kind that the run will play.
        rollout: the budget.
        which: the kind, as in "training".

    Raises:
        ParameterError: they are more than `max_failed_share` of the cases.
    """
    budget = largest_turn_budget(factory.rules)
    fit = fit_openings(
        chat,
        cases,
        lambda case: len(case.self_report.encode()),
        lambda case: factory.opening(case, budget),
        rollout,
    )
    if fit.too_long > rollout.max_failed_share * fit.openings:
        raise ParameterError(f"params.yaml: of the openings of the {which} cases {fit.text(rollout)}")
    if fit.too_long:
        log.warning("params.yaml: of the openings of the %s cases %s", which, fit.text(rollout))


def warn_of_long_charts(
    factory: ConsultationFactory, chat: ChatFormat, cases: Sequence[Case], rollout: RolloutParams
) -> None:
    """Charts that leave no room for the diagnosis: what the policy can do with full information is then not known."""
    patients = [case for case in cases if case.source != QUESTIONS]
    fit = fit_openings(
        chat,
        patients,
        lambda case: sum(len(fact.text.encode()) for fact in case.facts if fact.present),
        lambda case: factory.opening(case, 1, "chart"),
        rollout,
    )
    if fit.too_long:
        log.warning("params.yaml: full_information: of the charts of the test cases %s", fit.text(rollout))


def warn_of_long_turns(examples: Sequence[Example], rollout: RolloutParams) -> None:
    """Turns and dialogues that are taught and could not be said within the budget: they would be cut when played."""
    turn, dialogue = longest_turn(examples), max((len(example.token_ids) for example in examples), default=0)
    if turn > rollout.response_length:
        log.warning(
            "params.yaml: rollout.response_length is %d, but the longest turn of the warm start has %d tokens: the policy will be cut short; set it to %d or more",
            rollout.response_length,
            turn,
            turn,
        )
    if dialogue > rollout.max_episode_tokens:
        log.warning(
            "params.yaml: rollout.max_episode_tokens is %d, but the longest dialogue or chart of the warm start has %d: such consultations will be cut short; set it to %d or more",
            rollout.max_episode_tokens,
            dialogue,
            dialogue,
        )
