"""`params.yaml`, parsed once at the edge into frozen models. A mistake is one line: file, key, value, fix."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from clinic.config import JUDGED, SINGLE_TURN, ConsultationParams, PatientCasesParams, RewardParams
from kb.config import KnowledgeBaseParams
from rl.config import LanguageModelParams, LoraParams, MachinesParams, RolloutParams, SFTParams

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
"""The checkout that is running: its parameters, code and outputs."""
HOME = Path(os.environ.get("ANAMNESIS_HOME") or os.environ.get("DVC_ROOT") or ROOT).resolve()
"""The project that owns checkpoints, runs and the MLflow store: the parent's in `dvc exp run --temp`, else the same checkout."""


class ParameterError(ValueError):
    """`params.yaml` or a recipe is unusable; one line that names file, key, value and fix."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AskingRoundParams(_Section):
    """A round of the base model in which it learns the resident's questions."""

    kind: Literal["asking"]
    dialogues: int = Field(ge=0)
    focus: float = Field(ge=0)
    checklists: int = Field(ge=0)
    checklist_focus: float = Field(ge=0)
    charts: int = Field(ge=0)
    short_share: float = Field(ge=0, le=1)
    minds_weight: float = Field(gt=0)
    sft: SFTParams


class OwnRoundParams(_Section):
    """A round of the base model in which it learns to read the dialogues that it holds itself."""

    kind: Literal["own"]
    dialogues: int = Field(ge=1)
    temperature: float = Field(gt=0)
    minds_weight: float = Field(gt=0)
    sft: SFTParams


class BaseModelParams(_Section):
    """Section `base_model`: the bundled stand-in for a pretrained language model."""

    seed: int
    cases: int = Field(ge=1)
    excerpts_per_case: int = Field(ge=0)
    excerpt_facts: int = Field(ge=1)
    interviews_per_case: int = Field(ge=0)
    interview_repeats: float = Field(ge=0, lt=1)
    asking_every: int = Field(ge=1)
    asking_random_share: float = Field(ge=0, le=1)
    anchored_share: float = Field(ge=0, le=1)
    minds: int = Field(ge=1)
    minds_weight: float = Field(gt=0)
    reading_focus: float = Field(ge=0)
    hasty_share: float = Field(ge=0, le=1)
    hasty_left_out: float = Field(ge=0, lt=1)
    article_repeats: int = Field(ge=0)
    vocabulary: int = Field(ge=512)
    width: int = Field(ge=8)
    layers: int = Field(ge=1)
    heads: int = Field(ge=1)
    context: int = Field(ge=64)
    store_dtype: Literal["float32", "bfloat16"]
    sft: SFTParams
    rounds: list[Annotated[AskingRoundParams | OwnRoundParams, Field(discriminator="kind")]]


class WarmStartParams(_Section):
    """Section `warm_start`."""

    base: str
    dtype: Literal["float32", "bfloat16"]
    dialogues_per_case: int = Field(ge=1)
    short_every: int = Field(ge=1)
    charts_every: int = Field(ge=1)
    random_share: float = Field(ge=0, le=1)
    think_aloud: bool
    focus: float = Field(ge=0)
    wandering: float = Field(ge=0, le=1)
    forced_cases: int = Field(ge=1)
    sft: SFTParams


class AlgorithmChoice(_Section):
    """Section `algorithm`."""

    name: str


class TrainDoctorParams(_Section):
    """Section `train_doctor`."""

    project: str
    experiment: str
    steps: int = Field(ge=1)
    save_freq: int = Field(ge=1)
    keep_every: int = Field(ge=1)
    test_freq: int = Field(ge=1)
    validation_cases: int = Field(ge=1)
    patience: int | None = Field(ge=1)  # looks at validation cases without a better one before training ends; null: all steps
    choose: Literal["average", "best", "last"]
    lora: LoraParams | None
    traces_per_step: int = Field(ge=0)


class EvaluateDoctorParams(_Section):
    """Section `evaluate_doctor`."""

    cases: int = Field(ge=1)
    temperature: float = Field(ge=0)
    resamples: int = Field(ge=100)


class LanguageModels(_Section):
    """Section `language_models`: who plays patients and judges; null where no model does."""

    patient: LanguageModelParams | None
    reward_judge: LanguageModelParams | None
    evaluation_judge: LanguageModelParams | None

    @model_validator(mode="after")
    def _two_judges(self) -> "LanguageModels":
        if self.reward_judge is not None and self.evaluation_judge is not None and self.reward_judge.model == self.evaluation_judge.model:
            raise ValueError(
                f"reward_judge and evaluation_judge are the same model {self.reward_judge.model!r}: what a doctor learned to please cannot say how good it is; name another for one"
            )
        return self


class Params(_Section):
    """All of `params.yaml`."""

    seed: int
    knowledge_base: KnowledgeBaseParams
    patient_cases: PatientCasesParams
    consultation: ConsultationParams
    reward: RewardParams
    base_model: BaseModelParams
    warm_start: WarmStartParams
    language_models: LanguageModels
    algorithm: AlgorithmChoice
    rollout: RolloutParams
    train_doctor: TrainDoctorParams
    evaluate_doctor: EvaluateDoctorParams
    machines: MachinesParams

    @model_validator(mode="after")
    def _fits_together(self) -> "Params":
        if self.train_doctor.keep_every % self.train_doctor.save_freq:
            raise ValueError(
                f"train_doctor.keep_every ({self.train_doctor.keep_every}) must be a multiple of train_doctor.save_freq ({self.train_doctor.save_freq})"
            )
        if self.train_doctor.choose == "best" and self.train_doctor.test_freq % self.train_doctor.keep_every:
            raise ValueError(
                f"train_doctor.test_freq ({self.train_doctor.test_freq}) must be a multiple of train_doctor.keep_every ({self.train_doctor.keep_every}), "
                "or the best checkpoint may be deleted before it is chosen"
            )
        if self.consultation.patient.backend == "llm" and self.language_models.patient is None:
            raise ValueError("consultation.patient.backend is llm, but language_models.patient is null; name a model or an endpoint there")
        if self.reward.preset in JUDGED and self.language_models.reward_judge is None:
            raise ValueError(f"reward.preset {self.reward.preset} needs language_models.reward_judge; name a model or an endpoint there")
        if self.reward.preset not in SINGLE_TURN and any(source.format == "questions" for source in self.patient_cases.imported):
            raise ValueError(f"reward.preset {self.reward.preset} cannot score the single-turn questions of patient_cases.imported; choose one of: {', '.join(SINGLE_TURN)}")
        return self


def load_params(path: Path | None = None) -> Params:
    """Parse `params.yaml` (YAML 1.2, so that 3e-05 is a number).

    Raises:
        ParameterError: missing file, bad YAML, unknown key, wrong type or impossible combination.
    """
    path = path or ROOT / "params.yaml"
    return parse_params(read_yaml(path), path)


def parse_params(content: Any, path: Path) -> Params:
    """As `load_params`, of what was read from `path` already."""
    return validated(content, path, Params.model_validate)


def read_yaml(path: Path) -> Any:
    """What a YAML file says.

    Raises:
        ParameterError: it is not there, or not YAML.
    """
    try:
        return YAML(typ="safe").load(path)
    except FileNotFoundError:
        raise ParameterError(f"{path} does not exist; restore it with `git checkout {path.name}`") from None
    except YAMLError as error:
        raise ParameterError(f"{path.name} is not valid YAML: {' '.join(str(error).split())}") from error


def validated(content: Any, path: Path, build: Callable[[Any], T]) -> T:
    """Build from what was read from `path`.

    Raises:
        ParameterError: the first mistake that pydantic finds, in one line.
    """
    if not isinstance(content, dict):
        raise ParameterError(f"{path.name} must be a mapping of sections, not {type(content).__name__}")
    try:
        return build(content)
    except ValidationError as error:
        raise ParameterError(_one_line(path, error)) from error


def _one_line(path: Path, error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"]) or "(whole file)"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        return f"{path.name}: unknown key {key} = {first['input']!r}; remove it or correct its spelling{more}"
    if first["type"] == "missing":
        return f"{path.name}: {key} is missing; add it{more}"
    message = first["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(first["input"], dict) else f" = {first['input']!r}"
    return f"{path.name}: {key}{shown}: {message}{more}"
