"""The clinic's sections of `params.yaml`, parsed once at the edge. No defaults: every number is in the file."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Probability = Annotated[float, Field(ge=0.0, le=1.0)]


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
    cases: Annotated[int, Field(ge=0)]
    seed: int
    second_complaint: Probability


class CaseSource(_Section):
    """An imported case set: `format` names the loader, `path` the file."""

    format: Literal[
        "agentclinic", "mtmeddialog_cases", "mtmeddialog_turns", "ddxplus"
    ]
    path: str
    cases: Annotated[int, Field(ge=0)]  # ddxplus: how many to draw; others: 0 = all
    licence: str


class PatientCasesParams(_Section):
    """Section `patient_cases`."""

    starter: StarterParams
    imported: tuple[CaseSource, ...]
    split: SplitParams


class ConsultationParams(_Section):
    """Section `consultation`: the rules that doctor and patient play by."""

    turn_budget: int  # doctor turns, the diagnosis included; -1 = random 2 to 10, once per group
    instructions: Literal["short", "full"]
    search_results: Annotated[int, Field(ge=1, le=10)]

    @model_validator(mode="after")
    def _budget_is_playable(self) -> "ConsultationParams":
        if self.turn_budget != -1 and self.turn_budget < 1:
            raise ValueError(
                f"turn_budget {self.turn_budget} is impossible; use a positive number of turns or -1 (random 2 to 10)"
            )
        return self


class OutcomeParams(_Section):
    """Constants of the reward preset `outcome`; formulas in `clinic.rewards`."""

    diagnosis_by: Literal["label", "posterior"]
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


class RewardParams(_Section):
    """Section `reward`: the preset in force and the constants of every preset."""

    preset: Literal["outcome", "doctoragent"]
    outcome: OutcomeParams
    doctoragent: DoctorAgentParams
