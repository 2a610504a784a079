"""Asks judges, reward models and people what they think of recorded consultations, for the reward presets that need it."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from clinic.cases import Case
from clinic.config import HumanParams, PresetParams, RewardModelParams
from clinic.errors import ClinicError
from clinic.events import Answered, Diagnosed, read_events
from clinic.judging import Ask, Subject, answer_subject, consultation_subject, judge
from clinic.ratings import ask_for_ratings, read_ratings, transcript_id
from clinic.rewards import PRESETS
from doctor.parameters import ROOT, LanguageModels
from rl import stoppable
from rl.config import LanguageModelParams
from rl.experience import Trajectory
from rl.language_models import LanguageModel, open_model
from rl.language_models.local import LocalModel
from rl.machine import device_of
from rl.reward_models import RewardModel

log = logging.getLogger(__name__)
Opinions = Sequence[Mapping[str, float] | None]
Gather = Callable[[Sequence[Case], Sequence[Trajectory]], Opinions]


def opinions_of(reward: PresetParams, models: LanguageModels, root: Path, seed: int) -> Gather:
    """How to get opinions for the preset in force; what it needs is loaded once, here."""
    preset = PRESETS[reward.name]
    if preset.opinion == "judge" and models.reward_judge is not None:
        return judged_by(models.reward_judge, preset.criteria, seed)
    if isinstance(reward, RewardModelParams):
        return _by_model(reward, root)
    if isinstance(reward, HumanParams):
        return _by_people(reward, root)
    return lambda _, trajectories: [None] * len(trajectories)


def judged_by(params: LanguageModelParams, criteria: Sequence[str], seed: int) -> Gather:
    """Opinions of a judge on these criteria."""
    ask = asking(open_model(params, ROOT, seed))

    def gather(cases: Sequence[Case], trajectories: Sequence[Trajectory]) -> Opinions:
        async def all_of_them() -> Opinions:
            return await asyncio.gather(
                *(_verdict(ask, case, t, criteria) for case, t in zip(cases, trajectories, strict=True))
            )

        return stoppable.run(all_of_them())

    return gather


def asking(model: LanguageModel) -> Ask:
    """A model as a judge's mouth; a local one has no structured decoding, so its answers are only checked."""
    if isinstance(model, LocalModel):
        return lambda messages, schema: model.generate(messages)  # noqa: ARG005  one signature
    return model.generate


async def _verdict(ask: Ask, case: Case, trajectory: Trajectory, criteria: Sequence[str]) -> Mapping[str, float] | None:
    return await judge(ask, subject_of(case, trajectory), criteria) if trajectory.played else None


def subject_of(case: Case, trajectory: Trajectory) -> Subject:
    """What a judge is shown of one episode."""
    events = read_events(trajectory.events)
    match events[-1]:
        case Answered(text):
            return answer_subject(case.self_report, [fact.text for fact in case.facts], text)
        case Diagnosed(diagnosis, recommendation):
            said = diagnosis, recommendation
        case _:
            said = "", ""
    return consultation_subject(case, trajectory.texts, *said, events, len(trajectory.turns))


def _by_model(params: RewardModelParams, root: Path) -> Gather:
    path = str(params.path)
    model = RewardModel(
        str(root / path) if (root / path).exists() else path,
        params.dtype,
        params.batch_size,
        params.max_tokens,
        device_of(params.device),
    )

    def gather(cases: Sequence[Case], trajectories: Sequence[Trajectory]) -> Opinions:  # noqa: ARG001  one signature
        played = [trajectory for trajectory in trajectories if trajectory.played]
        scores = {
            id(t): value
            for t, value in zip(played, model.score([trajectory.texts for trajectory in played]), strict=True)
        }
        return [
            {"model": value} if (value := scores.get(id(trajectory))) is not None else None
            for trajectory in trajectories
        ]

    return gather


def _by_people(params: HumanParams, root: Path) -> Gather:
    path = root / str(params.path)

    def gather(cases: Sequence[Case], trajectories: Sequence[Trajectory]) -> Opinions:
        ratings = read_ratings(path)
        keys = [transcript_id(trajectory.texts) for trajectory in trajectories]
        missing = [
            (case.case_id, t.texts)
            for case, t, key in zip(cases, trajectories, keys, strict=True)
            if t.played and key not in ratings
        ]
        if missing:
            added = ask_for_ratings(path, missing)
            log.warning(
                "%d of %d consultations are not rated in %s; %d were added to it",
                len(missing),
                len(trajectories),
                path,
                added,
            )
        return [{"human": ratings[key]} if key in ratings else None for key in keys]

    return gather


def refuse_if_many_missing(
    reward: PresetParams, max_missing_share: float, trajectories: Sequence[Trajectory], opinions: Opinions
) -> None:
    """Stop when too many scores are owed.

    Raises:
        ClinicError: the share of played consultations without an opinion exceeds `max_missing_share`.
    """
    played = [opinion for t, opinion in zip(trajectories, opinions, strict=True) if t.played]
    missing = sum(opinion is None for opinion in played)
    if PRESETS[reward.name].opinion and played and missing / len(played) > max_missing_share:
        fix = (
            f"rate them in {reward.path} (a number in place of null) and run again"
            if isinstance(reward, HumanParams)
            else "see the warnings above, mend the judge and run again"
        )
        raise ClinicError(
            f"{missing} of {len(played)} consultations have no score, more than reward.max_missing_share = {max_missing_share:g}; {fix}"
        )
