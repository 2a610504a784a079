"""Preset `doctoragent_judge`: as `doctoragent_f1`, with a judge's 0 to 5 for diagnosis and recommendation in place of
the tokens' F1.

Differences from the released code: the judge (`clinic.judging`) answers in strict JSON and reads escaped text, and a
verdict that is missing leaves the consultation without a score instead of 0.

Source: the released environment `env_patient_llm_rm`, DoctorAgent-RL commit 9db6377.
"""

from clinic.config import ReleasedParams
from clinic.rewards.base import Components, Preset, Record
from clinic.rewards.doctoragent_f1 import COMPONENTS, with_agreement


def score(constants: ReleasedParams, record: Record) -> list[Components]:
    """Components of every turn; the opinion's criteria are in [0, 1]."""
    return with_agreement(constants, record, record.opinion["diagnosis"], record.opinion["recommendation"])


PRESET = Preset(score, COMPONENTS, opinion="judge", criteria=("diagnosis", "recommendation"))
