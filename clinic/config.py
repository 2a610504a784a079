"""The clinic's sections of `params.yaml`, parsed once at the edge. No defaults: every number is in the file."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
JUDGED = frozenset({"doctoragent_judge", "weighted"})  # presets for which a language model reads the consultation
SINGLE_TURN = ("weighted", "model", "human")  # presets that can score a question with one answer


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SplitParams(_Section):
    """How cases are divided; see `clinic.splits`."""

    salt: str = Field(description="hashed with a case's group: another salt, another division")
    validation: Probability = Field(description="share of the groups")
    test: Probability = Field(description="share of the groups")

    @model_validator(mode="after")
    def _leaves_training_cases(self) -> "SplitParams":
        if self.validation + self.test >= 1.0:
            raise ValueError(
                f"validation + test = {self.validation + self.test:g} leaves no training cases; lower one of them"
            )
        return self


class RareParams(_Section):
    """Rare conditions on top of the starter clinic, which a doctor can only learn of from the library."""

    directory: str = Field(description="folder with `conditions/` and `articles/`, of the starter clinic's findings")
    share: float = Field(gt=0, lt=1, description="of the patients: have a rare condition, all of them equally often")


class StarterParams(_Section):
    """The bundled generative clinic: where it is and how many cases to draw from it."""

    directory: str = Field(description="folder of the clinic's texts and probabilities")
    language: str = Field(
        description="en, or that of an overlay, a folder of `directory` with the texts of some conditions and findings (zh: profile chinese)"
    )
    cases: int = Field(ge=0, description="how many to draw")
    seed: int = Field(ge=0, description="of the drawing")
    second_complaint: Probability = Field(description="share of patients who open with two complaints")
    rare: RareParams | None = Field(
        description="null: none; or rare conditions that stand in no text of the warm start, {directory, share} (profile rare)"
    )


class CaseSource(_Section):
    """An imported case set: `format` names the loader, `path` the file."""

    format: Literal["own", "agentclinic", "mtmeddialog_cases", "mtmeddialog_turns", "ddxplus", "questions"] = Field(
        description="own: any table with a mapping file; others: public sets (docs/how-to/use-your-own-cases.md)"
    )
    path: str = Field(
        min_length=1, description="file, relative to the project; own: or a folder, whose tables share the mapping"
    )
    cases: int = Field(
        ge=0, description="ddxplus: how many to draw; others: how many to keep, a sample by the salt of split, 0 = all"
    )
    licence: str = Field(min_length=1, description="kept with the cases")
    mapping: str | None = Field(
        default=None,
        description="own, and no other: the file that says what the columns are (docs/reference/mapping.md)",
    )
    language: Literal["en", "zh"] | None = Field(
        default=None, description="of texts that do not say it themselves; left out: en"
    )

    @model_validator(mode="after")
    def _own_is_mapped(self) -> "CaseSource":
        if (self.format == "own") != (self.mapping is not None):
            wrong = "needs a mapping" if self.format == "own" else "has no mapping; leave it out, or use format own"
            raise ValueError(f"format {self.format} {wrong}")
        return self


class PatientCasesParams(_Section):
    """Section `patient_cases`."""

    imported: tuple[CaseSource, ...] = Field(
        description="case files of your own, {format, path, cases, licence, mapping, language} each (docs/how-to/use-your-own-cases.md)"
    )
    max_rejected_share: Probability = Field(
        description="of a file's or folder's records that may be unusable; with more the stage stops and says why"
    )
    vocabulary: str | None = Field(
        description="CSV of disease names, synonyms and parents for imported cases (Human Disease Ontology), so that any of them counts"
    )
    near_duplicate: float = Field(
        gt=0,
        le=1,
        description="similarity of two imported texts (Jaccard, 5 characters) from which they are one group, and in one split",
    )
    personas: tuple[Literal["plain", "terse", "talkative", "worried", "reluctant"], ...] = Field(
        min_length=1, description="how patients word their answers; dealt out by case id"
    )
    split: SplitParams = Field(description="training, validation and test cases")
    starter: StarterParams = Field(description="the bundled clinic")


class ConsultationParams(_Section):
    """Section `consultation`: the rules that doctor and patient play by."""

    turn_budget: int = Field(description="doctor turns, the diagnosis included; -1 = random 2 to 10, once per group")
    instructions: Literal["short", "full"] = Field(
        description="of the doctor; full: the whole grammar, for models that can read it"
    )
    search_results: int = Field(
        ge=0, le=10, description="passages that a search shows, at most; a line for each; 0: there is no library"
    )
    search_tokens: int = Field(
        ge=16,
        description="of the whole reply to a search, as the doctor's tokenizer counts; what does not fit is left out, one title is always shown",
    )
    max_questions: int = Field(
        ge=1, le=10, description="answered in one turn; 1: a turn with two is invalid, above: each counts as a turn"
    )
    matching: Literal["lexical", "hybrid", "cross_encoder"] = Field(
        description="of questions to a patient's facts: by words; by sentence embeddings too; on imported English cases also by a model that reads question and fact "
        "together. Each is slower than the one before, and understands more"
    )

    @model_validator(mode="after")
    def _budget_is_playable(self) -> "ConsultationParams":
        if self.turn_budget != -1 and self.turn_budget < 1:
            raise ValueError(
                f"turn_budget {self.turn_budget} is impossible; use a positive number of turns or -1 (random 2 to 10)"
            )
        return self


MOST_EVIDENCE = 0.1  # of what a right diagnosis is worth


class OutcomeParams(_Section):
    """Reward preset `outcome`; formulas in `clinic.rewards.outcome`."""

    name: Literal["outcome"] = Field(description="the preset")
    diagnosis_by: Literal["label", "posterior"] = Field(
        description="label: right or wrong by the chart; posterior: by Bayes' probability of the named condition (same mean, less noise)"
    )
    information_by: Literal["expected", "realised"] = Field(
        description="expected: what Bayes expects a question to tell; realised: how much the true condition's log-posterior rose"
    )
    correct: float = Field(gt=0, description="for naming the condition or a synonym")
    accepted_parent: float = Field(ge=0, description="for naming a broader accepted term")
    information: float = Field(ge=0, description="bound on all shaping; below `correct`")
    turn_cost: float = Field(ge=0, description="of each turn")
    repeat_cost: float = Field(
        ge=0, description="of a question asked before, or already answered, or a repeated search"
    )
    search_cost: float = Field(ge=0, description="of each search of the knowledge base")
    evidence: float = Field(
        ge=0,
        description="beside a right diagnosis: times the share of the cited passages that were shown and name the condition",
    )
    test_cost: float = Field(ge=0, description="of each result of an examination or test, on imported cases")
    invalid_cost: float = Field(ge=0, description="of a turn that breaks the grammar")
    no_diagnosis_cost: float = Field(ge=0, description="when the turns run out")
    missed_red_flag_cost: float = Field(
        ge=0,
        description="beside all information earned, for missing an urgent case without having brought up its red flags",
    )
    unheeded: float = Field(
        ge=0,
        le=1,
        description="share of all information earned that is lost by a diagnosis against which the answers speak, or by none",
    )

    @model_validator(mode="after")
    def _outcome_dominates(self) -> "OutcomeParams":
        if self.information >= self.correct:
            raise ValueError(
                f"information ({self.information:g}) must stay below correct ({self.correct:g}), "
                "or asking pays more than diagnosing"
            )
        if self.evidence > MOST_EVIDENCE * self.correct:
            raise ValueError(
                f"evidence ({self.evidence:g}) must stay within a tenth of correct ({self.correct:g}), "
                "or citing is learned before diagnosing"
            )
        return self


class DoctorAgentParams(_Section):
    """Reward preset `doctoragent`."""

    name: Literal["doctoragent"] = Field(description="the preset")
    correct: float = Field(description="for naming the condition")
    valid_question: float = Field(
        description="for a question or test that the patient could answer and had not yet answered"
    )
    invalid_question: float = Field(description="for any other, and for broken grammar")
    turn: float = Field(description="each turn")


class ReleasedParams(_Section):
    """Reward presets `doctoragent_f1` and `doctoragent_judge`: the constants of DoctorAgent-RL's released code."""

    name: Literal["doctoragent_f1", "doctoragent_judge"] = Field(description="the preset")
    diagnosis: float = Field(description="times the agreement in [0, 1]")
    recommendation: float = Field(description="times the agreement in [0, 1]")
    answered: float = Field(description="for a question that was answered")
    unanswerable: float = Field(description="for one that could not be")
    repeated: float = Field(description="for one asked before")
    format: float = Field(description="for a turn that breaks the grammar")
    out_of_turns: float = Field(description="when the turns run out")


class WeightedParams(_Section):
    """Reward preset `weighted`: weights of the judge's four criteria, and the price of a breach of grammar."""

    name: Literal["weighted"] = Field(description="the preset")
    accuracy: float = Field(ge=0, description="weight of the judge's verdict; the four sum to 1")
    logic: float = Field(ge=0, description="weight of the judge's verdict")
    completeness: float = Field(ge=0, description="weight of the judge's verdict")
    safety: float = Field(ge=0, description="weight of the judge's verdict")
    invalid_cost: float = Field(ge=0, description="of a turn that breaks the grammar")

    @model_validator(mode="after")
    def _sums_to_one(self) -> "WeightedParams":
        total = self.accuracy + self.logic + self.completeness + self.safety
        if abs(total - 1) > 1e-6:
            raise ValueError(f"the weights accuracy, logic, completeness and safety sum to {total:g}; make it 1")
        return self


class RewardModelParams(_Section):
    """Reward preset `model`: a sequence-classification model with one output."""

    name: Literal["model"] = Field(description="the preset")
    path: str | None = Field(description="folder or Hugging Face id; this preset needs one")
    device: Literal["auto", "cpu", "cuda"] = Field(description="where it lies; auto: on a GPU if there is one")
    dtype: Literal["float32", "bfloat16"] = Field(description="of its weights")
    batch_size: int = Field(ge=1, description="transcripts at a time")
    max_tokens: int = Field(ge=8, description="of a transcript; of a longer one the end is read")
    scale: float = Field(description="reward = scale x output + offset")
    offset: float = Field(description="reward = scale x output + offset")


class HumanParams(_Section):
    """Reward preset `human`: people's scores; see `clinic.ratings`."""

    name: Literal["human"] = Field(description="the preset")
    path: str | None = Field(
        description="JSONL of transcripts and scores, written to be filled in where scores are missing; this preset needs one"
    )


PresetName = Literal["outcome", "doctoragent", "doctoragent_f1", "doctoragent_judge", "weighted", "model", "human"]
PresetParams = Annotated[
    OutcomeParams | DoctorAgentParams | ReleasedParams | WeightedParams | RewardModelParams | HumanParams,
    Field(discriminator="name"),
]
"""The constants of one reward preset, as `recipes/rewards/<name>.yaml` has them."""


class RewardParams(_Section):
    """Section `reward`."""

    preset: PresetName = Field(description="what a consultation is worth: a file in recipes/rewards (docs/rewards.md)")
    max_missing_share: Probability = Field(
        description="of a rollout's scores that a judge, a model or people may owe; more stops the run"
    )
