"""`params.yaml`, parsed once at the edge into frozen models. A mistake is one line: file, key, value, fix."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from clinic.config import JUDGED, SINGLE_TURN, ConsultationParams, PatientCasesParams, RewardParams
from doctor.mistakes import ParameterError as ParameterError
from doctor.mistakes import did_you_mean, read_yaml, validated
from doctor.places import HOME as HOME
from doctor.places import ROOT as ROOT
from kb.config import DEFAULT_EMBEDDER, KnowledgeBaseParams
from rl.config import (
    DecodingParams,
    LanguageModelParams,
    LocalModelParams,
    LoraParams,
    MachinesParams,
    RolloutParams,
    SFTParams,
)

T = TypeVar("T")


def _folder_name(value: str) -> str:
    if not re.fullmatch(r"\w[\w .-]*", value):
        raise ValueError("it names a folder: a letter or digit, then letters, digits, spaces and . _ - only")
    return value


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BestOfNParams(_Section):
    """Rejection sampling: the base model's own best consultations are imitated (arXiv:2308.08998)."""

    samples: int = Field(
        ge=2, description="consultations of each case; the best is learned from if it is above the mean of all"
    )
    cases: int = Field(ge=1, description="training cases, at most; from the beginning of the first reshuffle")
    temperature: float = Field(gt=0, allow_inf_nan=False, description="of the sampling")
    instructions: Literal["short", "full"] = Field(
        description="under which they are played; full for a model that has not seen the grammar. Learned from them are those of `consultation.instructions`"
    )


class LookupParams(_Section):
    """Lessons in looking things up, on conditions that exist nowhere."""

    invented: int = Field(ge=40, description="conditions, drawn anew for each kind of lesson")
    dialogues: int = Field(ge=1, description="consultations with a search, beside the resident's others")
    known_share: float = Field(ge=0, le=1, description="of these: with a condition that the resident knows")


class WarmStartParams(_Section):
    """Section `warm_start`."""

    start: Literal["imitation", "recorded", "best_of_n", "none"] = Field(
        description="what the base model learns before the reinforcement: the resident's dialogues with starter cases; doctor turns of recorded consultations; "
        "its own best consultations on all cases; nothing"
    )
    best_of_n: BestOfNParams = Field(description="numbers of `start: best_of_n`")

    base: str = Field(
        description="the model that becomes a doctor: a folder, or any Hugging Face id (docs/how-to/use-your-own-model.md)"
    )
    dialogues_per_case: int = Field(ge=1, description="resident dialogues of every training case")
    short_every: int = Field(ge=1, description="every so manieth under a smaller turn budget")
    charts_every: int = Field(ge=1, description="every so manieth case as a whole chart too")
    searches_every: int | None = Field(
        ge=1,
        description="every so manieth case behind a search for its opening words, which is not learned, only what to make of the reply; null: none",
    )
    random_share: float = Field(ge=0, le=1, description="of the resident's questions: drawn at random")
    think_aloud: bool = Field(
        description="when the resident chases an illness, it says which in <think>...</think>; the patient does not hear it"
    )
    typicality: float = Field(
        ge=0,
        description="how much it prefers what is typical of the illness it chases: by probability to this power; .inf: the most typical",
    )
    unrelated_share: float = Field(ge=0, le=1, description="of those illnesses: have nothing to do with the patient")
    forced_cases: int = Field(ge=1, description="validation dialogues on which the forced diagnosis is measured")
    lookups: LookupParams | None = Field(
        description="null: none; or lessons in looking things up, {invented, dialogues, known_share} (profile rare)"
    )
    sft: SFTParams = Field(description="the supervised training")


class AlgorithmChoice(_Section):
    """Section `algorithm`."""

    name: str = Field(
        description="a file in recipes/: grpo, dr_grpo, rloo, reinforce_pp, dapo, gspo, cispo, ppo, ppo_roa, privileged_distillation, dpo, online_dpo (docs/algorithms/index.md)"
    )


class TrainDoctorParams(_Section):
    """Section `train_doctor`."""

    steps: int = Field(ge=1, description="rollout steps")
    lora: LoraParams | None = Field(
        description="null: all weights learn; or the adapter that learns alone, {rank, alpha, target_modules}"
    )
    export: Literal["average", "best", "last"] = Field(
        description="what becomes the doctor: the average of the warm start and the checkpoints that stay, the one that is best on validation accuracy, or the last"
    )
    patience: int | None = Field(
        ge=1, description="end once so many validations in a row bring nothing better; null: play all steps"
    )
    max_stalled_steps: int = Field(
        ge=1,
        description="steps in a row that teach nothing (no update, or no sample better than another): so many stop the run",
    )
    test_freq: int = Field(ge=1, description="steps between two validations")
    searches_every: int | None = Field(
        ge=1,
        description="of so many groups one begins behind a search for the opening words, made for the doctor: it learns to go by the patient, whatever was found; "
        "null: none",
    )
    source_weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        description="share of prompts and of validation accuracy by source, in any unit; names every source, own ones as their mapping does; {}: every case counts alike"
    )
    validation_cases: int = Field(
        ge=1, description="cases of a validation, at most: a sample by hash of case id and `split.salt`"
    )
    save_freq: int = Field(ge=1, description="steps between two checkpoints")
    keep_every: int = Field(ge=1, description="older checkpoints that are no multiple of this are deleted")
    traces_per_step: int = Field(ge=0, description="consultations of a step that MLflow shows")
    project: Annotated[str, AfterValidator(_folder_name)] = Field(description="folder under checkpoints/")
    experiment: Annotated[str, AfterValidator(_folder_name)] = Field(description="name of the run")


class EvaluateDoctorParams(_Section):
    """Section `evaluate_doctor`."""

    cases: int = Field(
        ge=1, description="test cases of each source, at most: a sample by hash of case id and `split.salt`"
    )
    max_missing_share: float = Field(
        ge=0,
        lt=1,
        description="of a doctor's consultations that could not be played; with more, it is shown as n/a, without figures",
    )


class InboxParams(_Section):
    """What is asked of a file that arrives in an inbox, beside what the stage that reads it asks."""

    max_rejected_share: float = Field(
        ge=0,
        le=1,
        description="of a file's documents that may be unusable; of its cases it is patient_cases.max_rejected_share",
    )
    max_file_mb: float = Field(
        gt=0, description="megabytes of a file that git is given; folders that DVC tracks take any size"
    )


class RetrainParams(_Section):
    """Section `retrain`: when a challenger takes the champion's place (docs/how-to/schedule-retraining.md)."""

    cases: int = Field(
        ge=1,
        description="held-out cases of each source on which challenger and champion meet, at most; as the test cases",
    )
    min_cases: int = Field(ge=1, description="with fewer than these in all, the champion stays")
    level: float = Field(
        gt=0, lt=1, description="of the exact McNemar test that the challenger is right more often: promoted below it"
    )
    red_flags_margin: float = Field(
        ge=0,
        le=1,
        description="share of red flags by which the challenger may miss more: the difference's 95% interval ends below it",
    )
    turns_margin: float = Field(ge=0, description="turns by which it may take longer, in the same way")
    category_margin: float = Field(
        ge=0, le=1, description="accuracy that it may lose in a category or source of cases, in the same way"
    )
    min_category_cases: int = Field(
        ge=1, description="a category, or what has red flags, with fewer cases is not judged"
    )
    approval: bool = Field(
        description="true: a better challenger waits for a person, who resumes the flow run in Prefect's UI"
    )
    keep_promoted: int | None = Field(
        ge=0,
        description="copies in models/registry that stay after a decision: so many of the last promoted, beside those in use; null: all (see `python -m commands.prune`)",
    )
    inbox: InboxParams = Field(description="bounds for files of an inbox")


class LanguageModels(_Section):
    """Section `language_models`: who plays patients and judges; null where no model does."""

    patient: LanguageModelParams | None = Field(
        description="plays the patients; null: they answer by rules, from their record (docs/how-to/patients-and-judges.md)"
    )
    reward_judge: LanguageModelParams | None = Field(
        description="grades for the presets doctoragent_judge and weighted"
    )
    evaluation_judge: LanguageModelParams | None = Field(
        description="grades in the evaluation; another model than the reward's judge"
    )

    @model_validator(mode="after")
    def _two_judges(self) -> "LanguageModels":
        if (
            self.reward_judge is not None
            and self.evaluation_judge is not None
            and self.reward_judge.model == self.evaluation_judge.model
        ):
            raise ValueError(
                f"reward_judge and evaluation_judge are the same model {self.reward_judge.model!r}: what a doctor learned to please cannot say how good it is; name another for one"
            )
        return self


class Params(_Section):
    """All of `params.yaml`."""

    seed: int = Field(ge=0, lt=2**63, description="of everything that is drawn in warm start, training and evaluation")
    warm_start: WarmStartParams = Field(description="the base model learns to hold a mediocre consultation")
    patient_cases: PatientCasesParams = Field(description="whom the doctor sees")
    knowledge_base: KnowledgeBaseParams = Field(description="what the doctor can look up")
    consultation: ConsultationParams = Field(description="the rules that doctor and patient play by")
    language_models: LanguageModels = Field(description="who plays patients and judges; null where no model does")
    reward: RewardParams = Field(
        description="what a consultation is worth; the preset's constants are in recipes/rewards/<preset>.yaml"
    )
    algorithm: AlgorithmChoice = Field(description="how the doctor learns; its numbers are in recipes/<name>.yaml")
    train_doctor: TrainDoctorParams = Field(description="the run")
    rollout: RolloutParams = Field(description="playing consultations")
    decoding: DecodingParams = Field(description="how the doctor's turns are sampled")
    evaluate_doctor: EvaluateDoctorParams = Field(description="on held-out cases, beside reference doctors")
    retrain: RetrainParams = Field(description="when a challenger takes the champion's place")
    machines: MachinesParams = Field(description="what a run takes of its machine")

    @property
    def run_name(self) -> str:
        """What a training is called where runs are listed: `grpo-s0-starter`."""
        return f"{self.algorithm.name}-s{self.seed}-{self.train_doctor.experiment}"

    @model_validator(mode="after")
    def _fits_together(self) -> "Params":
        if self.train_doctor.keep_every % self.train_doctor.save_freq:
            raise ValueError(
                f"train_doctor.keep_every ({self.train_doctor.keep_every}) must be a multiple of train_doctor.save_freq ({self.train_doctor.save_freq})"
            )
        if self.train_doctor.export == "best" and self.train_doctor.test_freq % self.train_doctor.keep_every:
            raise ValueError(
                f"train_doctor.test_freq ({self.train_doctor.test_freq}) must be a multiple of train_doctor.keep_every ({self.train_doctor.keep_every}), "
                "or the best checkpoint may be deleted before it is chosen"
            )
        if self.rollout.ahead and self.rollout.engine.kind == "transformers" and self.machines.backend == "local":
            raise ValueError(
                "rollout.ahead 1 needs an engine with weights of its own, and transformers in one process has none; use an engine of kind vllm, or machines.backend ray"
            )
        if self.warm_start.start == "imitation" and not self.patient_cases.starter.cases:
            raise ValueError(
                "warm_start.start imitation needs cases of the starter clinic, and patient_cases.starter.cases is 0; choose best_of_n, recorded or none, or draw some"
            )
        if self.warm_start.lookups is not None and not self.consultation.search_results:
            raise ValueError(
                "warm_start.lookups teaches to search, and consultation.search_results is 0, no library; set lookups to null, or show some results"
            )
        if self.consultation.matching == "cross_encoder" and self.knowledge_base.embedder != DEFAULT_EMBEDDER:
            raise ValueError(
                f"consultation.matching cross_encoder reads with {DEFAULT_EMBEDDER}, and knowledge_base.embedder is {self.knowledge_base.embedder}; choose hybrid, or that embedder"
            )
        own = isinstance(self.language_models.patient, LocalModelParams)
        if self.machines.backend == "ray" and self.machines.ray.model_workers and not own:
            raise ValueError(
                "machines.ray.model_workers play patients with a model of this machine, and language_models.patient names none; set model_workers to 0, or name a model there"
            )
        if self.reward.preset in JUDGED and self.language_models.reward_judge is None:
            raise ValueError(
                f"reward.preset {self.reward.preset} needs language_models.reward_judge; name a model or an endpoint there"
            )
        if self.reward.preset not in SINGLE_TURN and any(
            source.format == "questions" for source in self.patient_cases.imported
        ):
            raise ValueError(
                f"reward.preset {self.reward.preset} cannot score the single-turn questions of patient_cases.imported; choose one of: {', '.join(SINGLE_TURN)}"
            )
        return self


def load_params(path: Path | None = None, changes: Mapping[str, Any] | None = None) -> Params:
    """Parse `params.yaml` (YAML 1.2, so that 3e-05 is a number).

    Args:
        path: another file.
        changes: values by dotted key that take the place of the file's; those that are None do not.

    Raises:
        ParameterError: missing file, bad YAML, unknown key, wrong type or impossible combination.
    """
    path = path or ROOT / "params.yaml"
    content = read_yaml(path)
    for key, value in (changes or {}).items():
        if value is not None and isinstance(content, dict):
            *sections, last = key.split(".")
            place = content
            for section in sections:
                place = place.setdefault(section, {})
            place[last] = value
    return parse_params(content, path)


def chosen(algorithm: str | None, steps: int | None, seed: int | None) -> dict[str, Any]:
    """What somebody chose for one training in place of params.yaml, as `changes` of `load_params`."""
    return {"algorithm.name": algorithm, "train_doctor.steps": steps, "seed": seed}


def parse_params(content: Any, path: Path) -> Params:
    """As `load_params`, of what was read from `path` already."""
    return validated(content, path, Params.model_validate)


def recipe_path(name: str) -> Path:
    """Where the recipe of an algorithm is."""
    return ROOT / "recipes" / f"{name}.yaml"


def read_recipe(name: str) -> Any:
    """What the recipe of the chosen algorithm says; whether it is right is for `load_algorithm`, which needs torch.

    Raises:
        ParameterError: there is none of that name, or it is not YAML.
    """
    path = recipe_path(name)
    if not path.exists():
        known = sorted(one.stem for one in path.parent.glob("*.yaml") if one.stem != "base_model")
        near = did_you_mean(name, known) or f"; choose one of: {', '.join(known)}"
        raise ParameterError(f"params.yaml: algorithm.name is {name!r} but {path.name} is not in recipes/{near}")
    return read_yaml(path)
