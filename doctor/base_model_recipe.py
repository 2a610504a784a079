"""`recipes/base_model.yaml`: what the bundled base model is made with. Read by `make base-model` alone."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from doctor.mistakes import read_yaml, validated
from doctor.parameters import ROOT, Params, load_params
from doctor.profiles import params_under
from rl.config import SFTParams


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ResidentParams(_Section):
    """What a round reads of the resident."""

    dialogues: int = Field(ge=0, description="resident dialogues, on fresh cases")
    typicality: float = Field(
        ge=0, description="how much the resident prefers what is typical of the illness it chases, as in warm_start"
    )
    checklists: int = Field(ge=0, description="texts that hold the questions for one illness, each once")
    checklist_typicality: float = Field(ge=0, description="as typicality, of the order of a checklist; 0: any order")
    short_share: float = Field(ge=0, le=1, description="of the dialogues: under a smaller turn budget")
    posterior_weight: float = Field(
        gt=0, description="of a turn's draws together in the loss; a token of a dialogue has 1"
    )
    sft: SFTParams = Field(description="what differs from the shared block")


class AskingRoundParams(ResidentParams):
    """A round in which the model learns the resident's questions."""

    kind: Literal["asking"] = Field(description="all questions of the dialogues count, and the resident thinks aloud")
    charts: int = Field(ge=0, description="cases told as interviews and excerpts, as in the first phase")


class OwnRoundParams(_Section):
    """A round in which the model learns to read the dialogues that it holds itself."""

    kind: Literal["own"] = Field(
        description="it learns what should come to mind at each turn of its own dialogues, nothing else"
    )
    dialogues: int = Field(ge=1, description="dialogues that it holds, on fresh cases")
    temperature: float = Field(gt=0, description="of its sampling there")
    posterior_weight: float = Field(
        gt=0, description="of a turn's draws together in the loss; a token of a dialogue has 1"
    )
    sft: SFTParams = Field(description="what differs from the shared block")


class ReadingRoundParams(ResidentParams):
    """A round in which the model learns to copy and to read, beside the resident's dialogues."""

    lists: int = Field(ge=0, description="of invented names, written again and again")
    exercises: int = Field(ge=0, description="lines of a library, then charts, and the name of the line that each fits")
    searches: int = Field(ge=0, description="consultations with a search")

    @model_validator(mode="after")
    def _has_cases_to_search_for(self) -> "ReadingRoundParams":
        if self.searches and not self.dialogues:
            raise ValueError("searches take their common cases from the dialogues; set dialogues to 1 or more")
        return self


class ReaderParams(_Section):
    """The model that can copy and read what a library says, made from the base model."""

    base: str = Field(description="the folder of the model that it is made from")
    profile: str = Field(description="whose params.yaml it is made under, so that it reads what its doctors will")
    invented: int = Field(ge=40, description="conditions that exist nowhere, drawn anew for each kind of text")
    names: int = Field(ge=1, description="of a list, at most; how many is drawn")
    tokens: int = Field(
        ge=16,
        description="of a list with its repetitions, about; it is written at least twice, from then on it is learned",
    )
    lines: int = Field(ge=1, description="of the library in an exercise, at most; how many is drawn")
    charts: int = Field(ge=1, description="of an exercise")
    known_share: float = Field(
        ge=0, le=1, description="of the consultations with a search: with a condition of the clinic"
    )
    rounds: list[ReadingRoundParams] = Field(description="one after the other")


class BaseModelRecipe(_Section):
    """All of `recipes/base_model.yaml`: the bundled stand-in for a pretrained language model."""

    seed: int = Field(description="of cases, texts and weights")
    cases: int = Field(ge=1, description="cases of the first phase, training split only")
    excerpts_per_case: int = Field(ge=0, description="pieces of the case's chart, facts in any order")
    excerpt_facts: int = Field(ge=1, description="facts of an excerpt at most, besides the opening complaints")
    interviews_per_case: int = Field(ge=0, description="charts as questions and answers")
    interview_repeats: float = Field(ge=0, lt=1, description="of an interview's questions: asked before")
    posterior_draws: int = Field(
        ge=1,
        description="conditions that come to mind at every length of a text, drawn from the posterior; equal ones are merged",
    )
    posterior_weight: float = Field(
        gt=0, description="of a turn's draws together in the loss; a token of a dialogue has 1"
    )
    asking_every: int = Field(
        ge=1, description="every so manieth resident dialogue of the first phase teaches its questions too"
    )
    asking_random_share: float = Field(
        ge=0, le=1, description="of the resident's questions in rounds of asking: drawn at random"
    )
    anchored_share: float = Field(
        ge=0,
        le=1,
        description="of these dialogues: held by a resident with a fixed idea, whose thoughts are not learned",
    )
    first_phase_typicality: float = Field(
        ge=0, description="typicality of the first phase's resident; .inf: it chases the most typical finding"
    )
    hasty_share: float = Field(ge=0, le=1, description="of excerpts, interviews and dialogues: hurried notes")
    hasty_left_out: float = Field(ge=0, lt=1, description="of the words of hurried notes")
    article_repeats: int = Field(ge=0, description="how often the articles are read")
    vocabulary: int = Field(ge=512, description="tokens of the tokenizer")
    width: int = Field(ge=8, description="of the model's hidden state")
    layers: int = Field(ge=1, description="of the model")
    heads: int = Field(ge=1, description="of its attention")
    context: int = Field(ge=64, description="tokens that it is made for")
    store_dtype: Literal["float32", "bfloat16"] = Field(description="of the weights that are saved")
    sft: SFTParams = Field(description="the first phase's training; shared with every round, but for what that names")
    rounds: list[Annotated[AskingRoundParams | OwnRoundParams, Field(discriminator="kind")]] = Field(
        description="after the first phase, one after the other"
    )
    reader: ReaderParams = Field(description="what the finished model learns besides, for the profile rare")


class BaseModelParams(Params):
    """`params.yaml`, and the recipe of the base model beside it."""

    base_model: BaseModelRecipe


def load_base_model_params(params_file: Path | None = None, recipe_file: Path | None = None) -> BaseModelParams:
    """Parse `params.yaml` and `recipes/base_model.yaml`, or the files named.

    Raises:
        ParameterError: a mistake in either.
    """
    return BaseModelParams(**dict(load_params(params_file)), base_model=_recipe(recipe_file))


def load_reader_params(params_file: Path | None = None, recipe_file: Path | None = None) -> BaseModelParams:
    """The same with the profile that the reader is made for, unless a file is named.

    Raises:
        ParameterError: a mistake in either, or no such profile.
    """
    recipe = _recipe(recipe_file)
    params = params_under(recipe.reader.profile) if params_file is None else load_params(params_file)
    return BaseModelParams(**dict(params), base_model=recipe)


def _recipe(path: Path | None) -> BaseModelRecipe:
    path = path or ROOT / "recipes" / "base_model.yaml"
    return validated(_written_out(read_yaml(path)), path, BaseModelRecipe.model_validate)


def _written_out(content: Any) -> Any:
    """With every round's `sft` whole: the shared block, and over it what the round names."""
    if not isinstance(content, dict) or not isinstance(content.get("sft"), dict):
        return content  # the mistake is told by whoever parses it
    written = content | _whole_rounds(content, content["sft"])
    reader = content.get("reader")
    return written | {"reader": reader | _whole_rounds(reader, content["sft"])} if isinstance(reader, dict) else written


def _whole_rounds(section: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    rounds = section.get("rounds")
    return {"rounds": [_whole(lesson, shared) for lesson in rounds]} if isinstance(rounds, list) else {}


def _whole(lesson: Any, shared: dict[str, Any]) -> Any:
    named = lesson.get("sft") if isinstance(lesson, dict) else None
    return lesson | {"sft": shared | named} if isinstance(named, dict) else lesson
