"""Rewards: pure functions from a recorded consultation to named components per turn; one file per preset, one registry
line each.

They read events, never the dialogue's tokens, so stored experience can be scored again under another preset.
The reward of a turn is the sum of its components; the reward of an episode the sum over its turns.
"""

from collections.abc import Mapping, Sequence

from clinic.cases import Case
from clinic.config import PresetParams
from clinic.errors import ClinicError
from clinic.events import Event
from clinic.generative import GenerativeClinic
from clinic.rewards import doctoragent, doctoragent_f1, doctoragent_judge, outcome, rated, weighted
from clinic.rewards.base import Components, Preset, Record

PRESETS: Mapping[str, Preset] = {
    "outcome": outcome.PRESET,
    "doctoragent": doctoragent.PRESET,
    "doctoragent_f1": doctoragent_f1.PRESET,
    "doctoragent_judge": doctoragent_judge.PRESET,
    "weighted": weighted.PRESET,
    "model": rated.MODEL,
    "human": rated.HUMAN,
}
REWARD_COMPONENTS = frozenset(name for preset in PRESETS.values() for name in preset.components)
"""Every name that a preset gives to a part of a reward."""


class Scorer:
    """Scores recorded consultations under the preset in force."""

    def __init__(self, params: PresetParams, clinics: Sequence[GenerativeClinic]) -> None:
        """Choose the preset.

        Args:
            params: constants of the preset in force.
            clinics: generative clinics, used for the cases drawn from them.
        """
        self._params = params
        self.preset = PRESETS[params.name]
        self._clinics = {clinic.name: clinic for clinic in clinics}

    def score(
        self, case: Case, events: Sequence[Event], stop_reason: str, opinion: Mapping[str, float] | None = None
    ) -> list[Components]:
        """Components of every turn of one consultation.

        Args:
            case: the case that was played.
            events: one per doctor turn, as `Consultation.step` recorded them.
            stop_reason: how it ended, an `Ending` or a reason of the rollout's.
            opinion: what a judge, reward model or person said of it, for the presets that ask one.

        Returns:
            One dict per turn; a component that does not apply to a turn is left out or 0. Empty, if the preset needs an
            opinion and
            there is none: a missing score is missing, never zero.

        Raises:
            ClinicError: there is no event to score.
        """
        if not events:
            raise ClinicError(f"case {case.case_id}: a consultation without turns cannot be scored")
        if self.preset.opinion and opinion is None:
            return []
        return self.preset.score(
            self._params, Record(case, events, stop_reason, opinion or {}, self._clinics.get(case.source))
        )
