"""Wires the rooms together: a case of the clinic becomes an episode of the school.

Pure construction, no file is written here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from clinic.cases import QUESTIONS, Case, read_cases
from clinic.config import ConsultationParams
from clinic.consultation import Consultation, Message, draw_turn_budget, privileged
from clinic.dialogues import topic_matcher
from clinic.generative import GenerativeClinic
from clinic.leaks import without_diagnosis
from clinic.library import Library
from clinic.matching import Embed, HybridMatcher, TopicMatcher
from clinic.openings import OPENED, Opening, opening_query
from clinic.patients.base import Generate, Matcher
from clinic.patients.llm import LanguageModelPatient
from clinic.patients.scripted import ScriptedPatient
from clinic.questions import SingleTurn
from clinic.starter import load_clinic, read_asking
from clinic.understanding.comparison import Compare, cross_encoder_weights
from doctor.library import Reader, Shelf
from doctor.parameters import ROOT, ParameterError, Params
from kb.config import DEFAULT_EMBEDDER, KnowledgeBaseParams
from kb.embed import SentenceTransformerEmbedder, load_embedder
from kb.search import open_index
from rl.config import LanguageModelParams
from rl.environment import Count, EpisodeSpec, Seat
from rl.language_models import open_model

if TYPE_CHECKING:
    from kb.cross_encoder import CrossEncoder


def refuse_other_embedders(base: KnowledgeBaseParams) -> None:
    """The cross-encoder is the bundled embedder's transformer, and no other.

    Raises:
        ParameterError: another embedder is chosen.
    """
    if base.embedder != DEFAULT_EMBEDDER:
        raise ParameterError(
            f"params.yaml: the cross-encoder reads with {DEFAULT_EMBEDDER}, and knowledge_base.embedder is {base.embedder!r}; choose that one"
        )


@dataclass(frozen=True, kw_only=True)
class ConsultationFactory:
    """Everything needed to seat a case in front of a doctor: it makes consultations."""

    rules: ConsultationParams
    clinic: GenerativeClinic
    starter: Path
    index: Path
    cases: Path | None  # folder of the case table, whose diseases a model that plays a patient may not echo
    knowledge_base: KnowledgeBaseParams
    patient_model: LanguageModelParams | None
    seed: int
    patient: Generate | None = None  # a model that is loaded already, elsewhere

    @cached_property
    def common(self) -> "ConsultationFactory":
        """The same with the common conditions alone: what a base model and a warm start may know of."""
        return replace(self, clinic=self.clinic.common)

    def draws(self, case: Case) -> bool:
        """Whether a case is of its clinic."""
        return case.source == self.clinic.name and case.diagnosis_id in self.clinic.condition_index

    @cached_property
    def topics(self) -> TopicMatcher:
        """The findings of the generative clinic, by their wordings."""
        return topic_matcher(self.clinic)

    @cached_property
    def matcher(self) -> Matcher:
        """Questions to findings of the generative clinic, as `consultation.matching` says."""
        if self.rules.matching == "lexical":
            return self.topics.match
        asking, off_record = read_asking(self.starter, self.clinic)
        if not off_record:
            where = f"asking.yaml for language {self.clinic.language!r} in {self.starter}"
            raise ParameterError(
                f"params.yaml: consultation.matching is {self.rules.matching}, but there is no {where}; use lexical, or write one"
            )
        return HybridMatcher(asking, off_record, self.embed).match

    @cached_property
    def embed(self) -> Embed:
        """The knowledge base's sentence embedder, loaded at the first text; one and the same, for what is kept by it."""
        return lambda texts: self._embedder.encode(list(texts))

    @cached_property
    def compare(self) -> Compare:
        """A cross-encoder for questions and facts of imported cases, loaded at the first question; one and the same.

        Raises:
            ParameterError: at once, where the embedder is not the one whose transformer it was learned on.
        """
        refuse_other_embedders(self.knowledge_base)
        known = lru_cache(maxsize=4096)(lambda question, texts: self._cross_encoder.compare(question, texts))
        return lambda question, texts: known(question, tuple(texts))  # a group asks many of its questions again

    def understanding(self) -> tuple[Embed | None, Compare | None]:
        """What patients of imported cases understand questions by, beside the words, as `consultation.matching` says."""
        match self.rules.matching:
            case "lexical":
                return None, None
            case "hybrid":
                return self.embed, None
            case "cross_encoder":
                return self.embed, self.compare

    @cached_property
    def _embedder(self) -> SentenceTransformerEmbedder:
        return load_embedder(self.knowledge_base.embedder, self.knowledge_base.batch_size)

    @cached_property
    def _cross_encoder(self) -> "CrossEncoder":
        from kb.cross_encoder import load_cross_encoder  # with torch, which takes seconds

        return load_cross_encoder(self._embedder, cross_encoder_weights())

    @property
    def matchers(self) -> dict[str, Matcher]:
        """How questions are matched to findings, by the source of the case; cases of other sources are matched against
        their own record. Nothing is loaded before the first question.
        """
        return {self.clinic.name: lambda question: self.matcher(question)}

    @cached_property
    def generate(self) -> Generate:
        """The language model that plays patients; loaded at the first question, if it is not elsewhere."""
        if self.patient is not None:
            return self.patient
        if self.patient_model is None:
            raise ParameterError("params.yaml: language_models.patient is null; name a model or an endpoint there")
        return open_model(self.patient_model, ROOT, self.seed).generate

    @cached_property
    def diseases(self) -> frozenset[str]:
        """Names of every disease that the run knows."""
        named: list[tuple[str, Sequence[str]]] = [
            (condition.name, condition.synonyms) for condition in self.clinic.conditions
        ]
        if self.cases is not None:
            named += [
                (case.diagnosis, case.synonyms)
                for case in read_cases(self.cases / "cases.parquet")
                if case.source != QUESTIONS
            ]
        return frozenset(name for first, others in named for name in (first, *others))

    @cached_property
    def shelf(self) -> Shelf:
        """Search of the knowledge base; the index, and the embedder if it has vectors, are loaded at the first search."""
        return Shelf(lambda: open_index(self.index), self.rules.search_results)

    def library(self, count: Count) -> Library:
        """The knowledge base, as a doctor reads it who counts tokens so."""
        return Reader(self.shelf, count)

    def consultation(
        self, case: Case, budget: int, count: Count | None = None, opened: Opening = ""
    ) -> Consultation | SingleTurn:
        """A fresh consultation; a single-turn question is its own environment.

        Args:
            case: who is seated.
            budget: doctor turns, the diagnosis included.
            count: tokens of a text, as the doctor reads it; None: for who looks nothing up.
            opened: how it begins.
        """
        if case.source == QUESTIONS:
            return SingleTurn(case)
        imported = case.source != self.clinic.name
        matcher = None if imported else self.matcher
        embed, compare = self.understanding() if imported else (None, None)
        llm = self.patient_model is not None
        known = without_diagnosis(case) if imported else case
        patient = (
            LanguageModelPatient(known, matcher, self.generate, embed, compare)
            if llm
            else ScriptedPatient(known, matcher, embed, compare)
        )
        library = self.library(count) if count is not None and self.rules.search_results else None
        if opened == "search" and library is not None:
            self.shelf.find_beforehand([opening_query(case)])
        return OPENED[opened](case, patient, self.rules, budget, library, self.diseases if llm or imported else ())

    def seat(self, spec: EpisodeSpec, count: Count | None = None) -> Consultation | SingleTurn:
        """The consultation of an episode; see `consultation`."""
        return self.consultation(spec.case, spec.turn_budget, count, spec.opened)

    def opening(self, case: Case, budget: int, opened: Opening = "") -> list[Message]:
        """What the doctor reads before the first turn; nobody has to be there to answer, and nothing is loaded."""
        if case.source == QUESTIONS:
            return SingleTurn(case).opening()
        return OPENED[opened](case, ScriptedPatient(case, lambda _: None), self.rules, budget, None).opening()

    def episodes(
        self,
        cases: Sequence[Case],
        samples: int,
        seed: int,
        step: int,
        first: int = 0,
        *,
        searches_every: int | None = None,
    ) -> list[EpisodeSpec]:
        """Repeat each case `samples` times; the members of a group share case, opening and turn budget, never the
        sampling noise.

        Args:
            cases: one for each group.
            samples: members of a group.
            seed: of the run.
            step: of the run; below 0 outside training.
            first: number of the first group.
            searches_every: of so many groups one begins behind a search for the opening words, over the steps of a run;
                None: none does.
        """
        specs = []
        searched = searches_every if self.rules.search_results else None
        for place, case in enumerate(cases, first):
            budget = draw_turn_budget(self.rules, (seed, step, place))
            specs += [
                EpisodeSpec(
                    case_id=case.case_id,
                    group_id=f"{step}.{place}/{case.case_id}",
                    sample=sample,
                    turn_budget=budget,
                    noise=(seed, step),
                    case=case,
                    privileged=dict(privileged(case)),
                    opened="search" if searched and (step * len(cases) + place) % searched == 0 else "",
                )
                for sample in range(samples)
            ]
        return specs


def open_factory(params: Params, index: Path, cases: Path | None = None) -> ConsultationFactory:
    """Load the starter clinic and the rules of the consultation; `cases` is the folder of the case table, where there
    is one yet.
    """
    starter = params.patient_cases.starter
    clinic = load_clinic(ROOT, starter)
    return ConsultationFactory(
        rules=params.consultation,
        clinic=clinic,
        starter=ROOT / starter.directory,
        index=index,
        cases=cases,
        knowledge_base=params.knowledge_base,
        patient_model=params.language_models.patient,
        seed=params.seed,
    )


def open_seat(params: Params, index: Path, cases: Path, patient: Generate | None) -> Seat:
    """The seat of a process that plays and does nothing else; the model that plays patients may be elsewhere."""
    return replace(open_factory(params, index, cases), patient=patient).seat


def open_patient(params: LanguageModelParams, seed: int) -> Generate:
    """Load the language model that plays patients."""
    return open_model(params, ROOT, seed).generate
