"""Wires the rooms together: a case of the clinic becomes an episode of the school.

Pure construction, no file is written here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from clinic.cases import Case
from clinic.config import ConsultationParams
from clinic.consultation import Consultation, draw_turn_budget, privileged
from clinic.dialogues import topic_matcher
from clinic.generative import GenerativeClinic
from clinic.matching import TopicMatcher
from clinic.patient import Matcher, ScriptedPatient
from clinic.starter import load_starter
from kb.embed import load_embedder
from kb.index import KnowledgeIndex
from kb.search import Searcher
from rl.rollout import EpisodeSpec


@dataclass(frozen=True)
class Waiting:
    """The waiting room: everything needed to seat a case in front of a doctor."""

    rules: ConsultationParams
    clinic: GenerativeClinic
    index: Path

    @cached_property
    def topics(self) -> TopicMatcher:
        """The findings of the generative clinic, by their wordings."""
        return topic_matcher(self.clinic)

    @property
    def matcher(self) -> Matcher:
        """Questions to findings of the generative clinic."""
        return self.topics.match

    @cached_property
    def retrieve(self) -> Callable[[str, int], Sequence[str]]:
        """Search of the knowledge base; embedder and index are loaded at the first search."""
        loaded: list[Searcher] = []

        def search(query: str, k: int) -> list[str]:
            if not loaded:
                index = KnowledgeIndex.load(self.index)
                loaded.append(Searcher(index, load_embedder(index.manifest.embedder, batch_size=32)))
            return [f"{hit.passage.title}: {hit.passage.text}" for hit in loaded[0].search(query, k)]

        return search

    def consultation(self, case: Case, budget: int) -> Consultation:
        """A fresh consultation with the scripted patient."""
        patient = ScriptedPatient(case, self.matcher if case.source == self.clinic.name else None)
        return Consultation(case, patient, self.rules, budget, self.retrieve)

    def episodes(self, cases: Sequence[Case], samples: int, seed: int, step: int, first: int = 0) -> list[EpisodeSpec]:
        """Repeat each case `samples` times; the members of a group share case and turn budget, never the sampling noise. `first` numbers the first group."""
        specs = []
        for place, case in enumerate(cases, first):
            budget = draw_turn_budget(self.rules, (seed, step, place))
            specs += [
                EpisodeSpec(case.case_id, f"{step}.{place}/{case.case_id}", sample, budget, (seed, step), partial(self.consultation, case, budget), dict(privileged(case)))
                for sample in range(samples)
            ]
        return specs


def open_waiting_room(starter: Path, second_complaint: float, rules: ConsultationParams, index: Path) -> Waiting:
    """Load the starter clinic and the rules of the consultation."""
    return Waiting(rules, load_starter(starter, second_complaint), index)


def cases_of_draw(cases: Sequence[Case], prompts: int, number: int, seed: int) -> list[Case]:
    """The cases of draw `number` (from 0) of a run: consecutive pieces of endless reshuffles, a function of seed and number alone."""
    chosen: list[Case] = []
    first = number * prompts
    for place in range(first, first + prompts):
        epoch, offset = divmod(place, len(cases))
        order = np.random.default_rng([seed, epoch]).permutation(len(cases))
        chosen.append(cases[int(order[offset])])
    return chosen
