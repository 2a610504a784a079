"""The clinic's sections of `params.yaml`, parsed once at the edge. No defaults: every number is in the file."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
JUDGED = frozenset({"doctoragent_judge", "weighted"})  # presets for which a language model reads the consultation
SINGLE_TURN = ("weighted", "model", "human")  # presets that can score a question with one answer


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SplitParams(_Section):
    """How cases are divided; see `clinic.splits`."""

    salt: str
    validation: Probability
    test: Probability

    @model_validator(mode="after")
    def _leaves_training_cases(self) -> "SplitParams":
        if self.validation + self.test >= 1.0:
            raise ValueError(
                f"validation + test = {self.validation + self.test:g} leaves no training cases; "
                "lower one of them"
            )
        return self


class StarterParams(_Section):
    """The bundled generative clinic: where it is and how many cases to draw from it."""

    directory: str
    language: str  # en, or that of an overlay: `directory`/<language>/ holds the texts of some of the conditions and findings
    cases: Annotated[int, Field(ge=0)]
    seed: int
    second_complaint: Probability


class CaseSource(_Section):
    """An imported case set: `format` names the loader, `path` the file."""

    format: Literal[
        "agentclinic", "mtmeddialog_cases", "mtmeddialog_turns", "ddxplus", "questions"
    ]
    path: str
    cases: Annotated[int, Field(ge=0)]  # ddxplus: how many to draw; others: 0 = all
    licence: str


class PatientCasesParams(_Section):
    """Section `patient_cases`."""

    starter: StarterParams
    imported: tuple[CaseSource, ...]
    vocabulary: str | None  # a CSV of disease names for imported cases; see `clinic.vocabulary`
    personas: Annotated[tuple[Literal["plain", "terse", "talkative", "worried", "reluctant"], ...], Field(min_length=1)]  # dealt out by case id
    near_duplicate: Annotated[float, Field(gt=0, le=1)]  # Jaccard similarity of authored and imported texts that makes two cases one group
    split: SplitParams


class PatientParams(_Section):
    """Who plays the patients, and how their records are matched to questions."""

    backend: Literal["scripted", "llm"]
    matching: Literal["lexical", "hybrid"]  # hybrid: by sentence embeddings too


class ConsultationParams(_Section):
    """Section `consultation`: the rules that doctor and patient play by."""

    turn_budget: int  # doctor turns, the diagnosis included; -1 = random 2 to 10, once per group
    instructions: Literal["short", "full"]
    search_results: Annotated[int, Field(ge=1, le=10)]
    patient: PatientParams

    @model_validator(mode="after")
    def _budget_is_playable(self) -> "ConsultationParams":
        if self.turn_budget != -1 and self.turn_budget < 1:
            raise ValueError(
                f"turn_budget {self.turn_budget} is impossible; use a positive number of turns or -1 (random 2 to 10)"
            )
        return self


class OutcomeParams(_Section):
    """Constants of the reward preset `outcome`; formulas in `clinic.rewards.outcome`."""

    diagnosis_by: Literal["label", "posterior"]
    information_by: Literal["expected", "realised"]
    correct: Annotated[float, Field(gt=0)]
    accepted_parent: Annotated[float, Field(ge=0)]
    information: Annotated[float, Field(ge=0)]
    turn_cost: Annotated[float, Field(ge=0)]
    repeat_cost: Annotated[float, Field(ge=0)]
    invalid_cost: Annotated[float, Field(ge=0)]
    no_diagnosis_cost: Annotated[float, Field(ge=0)]
    missed_red_flag_cost: Annotated[float, Field(ge=0)]

    @model_validator(mode="after")
    def _outcome_dominates(self) -> "OutcomeParams":
        if self.information >= self.correct:
            raise ValueError(
                f"information ({self.information:g}) must stay below correct ({self.correct:g}), "
                "or asking pays more than diagnosing"
            )
        return self


class DoctorAgentParams(_Section):
    """Constants of the reward preset `doctoragent`."""

    correct: float
    valid_question: float
    invalid_question: float
    turn: float


class ReleasedParams(_Section):
    """Constants of the presets `doctoragent_f1` and `doctoragent_judge`: those of DoctorAgent-RL's released code."""

    diagnosis: float  # times the agreement in [0, 1]
    recommendation: float
    answered: float
    unanswerable: float
    repeated: float
    format: float
    out_of_turns: float


class WeightedParams(_Section):
    """Weights of the judge's four criteria in the preset `weighted`, and the price of a breach of grammar."""

    accuracy: Annotated[float, Field(ge=0)]
    logic: Annotated[float, Field(ge=0)]
    completeness: Annotated[float, Field(ge=0)]
    safety: Annotated[float, Field(ge=0)]
    invalid_cost: Annotated[float, Field(ge=0)]

    @model_validator(mode="after")
    def _sums_to_one(self) -> "WeightedParams":
        total = self.accuracy + self.logic + self.completeness + self.safety
        if abs(total - 1) > 1e-6:
            raise ValueError(f"the weights accuracy, logic, completeness and safety sum to {total:g}; make it 1")
        return self


class RewardModelParams(_Section):
    """The preset `model`: a sequence-classification model with one output."""

    path: str | None  # folder or Hugging Face id; needed by this preset alone
    dtype: Literal["float32", "bfloat16"]
    batch_size: Annotated[int, Field(ge=1)]
    max_tokens: Annotated[int, Field(ge=8)]
    scale: float
    offset: float


class HumanParams(_Section):
    """The preset `human`: a JSONL file of transcript and score; see `clinic.ratings`."""

    path: str | None


PresetName = Literal["outcome", "doctoragent", "doctoragent_f1", "doctoragent_judge", "weighted", "model", "human"]


class RewardParams(_Section):
    """Section `reward`: the preset in force and the constants of every preset."""

    preset: PresetName
    max_missing_share: Probability  # of a rollout's scores that a judge, a model or people may owe, before the run stops
    outcome: OutcomeParams
    doctoragent: DoctorAgentParams
    doctoragent_f1: ReleasedParams
    doctoragent_judge: ReleasedParams
    weighted: WeightedParams
    model: RewardModelParams
    human: HumanParams

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> "RewardParams":
        if self.preset == "model" and self.model.path is None:
            raise ValueError("preset model needs reward.model.path: a folder or Hugging Face id of a sequence-classification model")
        if self.preset == "human" and self.human.path is None:
            raise ValueError("preset human needs reward.human.path: a JSONL file of ratings")
        return self
