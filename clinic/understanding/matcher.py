"""Finds the fact of a record that answers a question, or none.

A question asks for concepts (symptoms, diseases, topics), under aspects (since when, how bad ...), perhaps of a place of
the body. A fact answers it if it tells of one of the concepts, or is about the complaint where the question names
nothing else, and of the aspect where there is one. Words that the lexicon does not know count by how rare they are in
the record. So say the rules; given sentence embeddings, what they say is evidence beside that of the embeddings, and
`decision` weighs it.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from clinic.matching import Embed, normalise
from clinic.understanding.answering import Answering, answering
from clinic.understanding.asking import Asking, asking, embedded
from clinic.understanding.comparison import Compare, compared, with_complaint
from clinic.understanding.decision import CROSS_ENCODER, FILE, decision
from clinic.understanding.evidence import Evidence, RuleView, evidence, headed, texts
from clinic.understanding.fit import TISSUES, UNKNOWN_SUBJECT, Fit
from clinic.understanding.lexicon import Lexicon, Reading
from clinic.understanding.record import Typed, TypedRecord

THRESHOLD = 0.75
NEAR = 0.55  # least cosine of the embeddings that counts where the lexicon names nothing
TIE = 0.3  # weight of the cosine in the choice among several facts that answer
# least share of a question's words, by rarity, that a fact must have where nothing else is understood
KNOWN_WORDS = 0.75
UNKNOWN_WORD = 0.1  # cost of a word of the question that neither lexicon nor fact knows
# concepts that one question may name: no list of symptoms is a question. Of 4,600 questions that people wrote to calibrate
# patients none names more than four
MOST_NAMED = 5
VAGUE = frozenset({"other_symptoms", "reason"})  # what is meant only where a question names nothing else
_EXAMPLES = re.compile(
    r"\b(?:such as|including|for example|for instance|e\.?g\.?|like (?=\w+ or \w+))\b.*", re.IGNORECASE
)
# what a question sets aside: "any illness besides asthma", not "besides that"
_BESIDES = re.compile(
    r"\b(?:besides|apart from|other than|aside from|except(?: for)?|in addition to)\b"
    r"(?! (?:that|this|it|these|those|what)\b)(?P<named>[^,.?!]+)",
    re.IGNORECASE,
)


class QuestionMatcher:
    """Finds the fact of one record that answers a question."""

    def __init__(
        self,
        record: TypedRecord,
        embed: Embed | None = None,
        known: Asking | None = None,
        learned: Answering | None = None,
        compare: Compare | None = None,
    ) -> None:
        """Args: the typed record, of which only what the patient knows is told; sentence embeddings, if there are any; known
        ways of asking, by default those in English where there are embeddings; the map of answers, by default the bundled one;
        a cross-encoder, if there is one beside the embeddings.
        """
        self._lexicon: Lexicon = record.lexicon
        self._fit = Fit(record)
        self._complaint = record.complaint
        self._facts: Sequence[Typed] = [t for t in record.facts if t.kind == "history" and not t.empty]
        self._exact = {normalise(t.fact.topic): t.fact.topic for t in self._facts if t.asked is not None}
        self._report = record.report
        self._embed = embed
        self._compare = compare
        self._asking = asking(embed) if known is None and embed is not None else known
        self._learned = answering(embed) if learned is None and embed is not None else learned
        self._vectors: NDArray[np.float32] | None = None
        count = Counter(word for typed in self._facts for word in typed.reading.stems)
        self._idf = {word: math.log((1 + len(self._facts)) / n) for word, n in count.items()}
        self._rare = math.log(1 + len(self._facts))

    def match(self, question: str) -> str | None:
        """The topic of the fact that answers, or None."""
        exact = self._exact.get(normalise(question))
        if exact is not None:
            return exact
        if not self._facts or len(self._lexicon.read(question, "ask").concepts) > MOST_NAMED:
            return None
        if self._embed is None:
            return self.by_rules(question)
        weights = decision(FILE if self._compare is None else CROSS_ENCODER)
        best = weights.answer(self.evidence(question))
        return None if best is None else self._facts[best].fact.topic

    def evidence(self, question: str) -> Evidence:
        """What speaks for each fact; only with sentence embeddings."""
        if self._asking is None or self._learned is None:
            raise ValueError("without embeddings there is no evidence to weigh")
        scores = self.scores(question)
        rules = RuleView(self._read(question), scores, self._chosen(question, scores))
        found = evidence(question, rules, self._facts, self._complaint, self._asking, self._learned, self._lexicon)
        if self._compare is None:
            return found
        read = compared(
            with_complaint(question, self._report),
            self.headed,
            found.facts["answer"],
            self._compare,
        )
        return replace(found, facts={**found.facts, **read})

    @property
    def topics(self) -> list[str]:
        """Of the facts that the patient knows, in the order of all scores."""
        return [typed.fact.topic for typed in self._facts]

    @property
    def texts(self) -> list[list[str]]:
        """Of those facts, what a question is compared with."""
        return [texts(typed) for typed in self._facts]

    @cached_property
    def headed(self) -> list[str]:
        """Those facts under their headings, as a cross-encoder reads them."""
        return [headed(typed) for typed in self._facts]

    def by_rules(self, question: str) -> str | None:
        """The topic of the fact that answers by the rules alone, or None."""
        return self._chosen(question, self.scores(question))

    def _chosen(self, question: str, scores: NDArray[np.float64]) -> str | None:
        found = self._answer(question, scores)
        if found is None:
            parts = self._lexicon.parts(question)
            told = (self._answer(part, self.scores(part)) for part in parts if len(parts) > 1)
            found = next((topic for topic in told if topic is not None), None)
        return found

    def _answer(self, question: str, scores: NDArray[np.float64]) -> str | None:
        best = int(scores.argmax())
        if scores[best] >= THRESHOLD:
            return self._facts[best].fact.topic
        if self._embed is None or self._read(question).concepts:
            return None  # what the lexicon knows by name is not on record
        cosines = self._cosines(question, self._embed)
        best = int(cosines.argmax())
        return self._facts[best].fact.topic if cosines[best] >= NEAR else None

    def _cosines(self, question: str, embed: Embed) -> NDArray[np.float32]:
        """Cosine of the question to every fact's text; float32 (facts,)."""
        if self._vectors is None:
            self._vectors = embed([typed.fact.text for typed in self._facts])
        return np.asarray(self._vectors @ embedded(question, embed))

    def scores(self, question: str) -> NDArray[np.float64]:
        """How well each fact answers; float64 (facts,)."""
        asked = self._read(question)
        if asked.concepts - VAGUE:
            asked = replace(asked, concepts=asked.concepts - VAGUE)
        asked = self._of_complaint(asked)
        scores = np.array([self._score(asked, typed) for typed in self._facts])
        if asked.aspects & {"aggravate", "relieve"}:
            scores[self._otherwise(question)] = 0.0
        scores[self._set_aside(question)] = 0.0
        if self._embed is not None and (scores >= THRESHOLD).sum() > 1:
            scores += np.where(scores >= THRESHOLD, TIE * self._cosines(question, self._embed), 0.0)
        return scores

    def _otherwise(self, question: str) -> NDArray[np.bool_]:
        """Whether each fact names circumstances, but none of the question's: worse after meals, not lying down."""
        named = self._lexicon.circumstances_of(question)
        told = [self._lexicon.circumstances_of(typed.fact.text) for typed in self._facts]
        return np.array([bool(named and circumstances and not named & circumstances) for circumstances in told])

    def _set_aside(self, question: str) -> NDArray[np.bool_]:
        """Whether each fact tells of nothing but what the question sets aside: "any illness besides asthma"."""
        found = _BESIDES.search(question)
        named = self._lexicon.read(found["named"], "tell").concepts if found else frozenset()
        aside = named.union(*(self._lexicon.broader[c] for c in named))
        return np.array([bool(named and named & t.own.concepts and t.own.concepts <= aside) for t in self._facts])

    def _read(self, question: str) -> Reading:
        kept = _BESIDES.sub("", question)
        if kept != question:
            asked = self._lexicon.read(kept, "ask")
            return asked if asked.concepts else replace(asked, concepts=frozenset({"other_symptoms"}))
        asked = self._lexicon.read(_EXAMPLES.sub("", question), "ask")
        if asked.silent:
            asked = self._lexicon.read(question, "ask")
        return self._asking.understood(question, asked, self._lexicon) if self._asking else asked

    def _of_complaint(self, asked: Reading) -> Reading:
        """The question without what it names beside the complaint: where a pain might go, what might make it worse."""
        if "radiation" in asked.aspects:
            pains = {
                "pain" if "pain" in self._lexicon.broader[c] else c
                for c in asked.concepts
                if self._lexicon.kinds[c] != "topics"
            }
            return replace(asked, concepts=frozenset(pains), places=frozenset())
        if "location" in asked.aspects:  # "where is the rash": the skin is no place
            asked = replace(asked, places=asked.places - TISSUES)
        # "have you ever had a pericarditis": whoever tells of one answers, however he puts it
        if "past_illness" in asked.concepts or (not asked.concepts and asked.rest and asked.aspects == {"previous"}):
            asked = replace(asked, aspects=asked.aspects - {"previous"})
        if "trigger" in asked.aspects and any(
            self._lexicon.kinds[c] == "symptoms" and c not in self._fit.complaint_and_wider for c in asked.concepts
        ):  # "did you have a cold before this began": asks for the cold
            asked = replace(asked, aspects=asked.aspects - {"trigger"})
        if asked.aspects & {"aggravate", "relieve"}:
            kept = {
                c for c in asked.concepts if c in self._fit.complaint_and_wider or "pain" in self._lexicon.broader[c]
            }
            return replace(asked, concepts=frozenset(kept), places=asked.places if kept else frozenset())
        return asked

    def _score(self, asked: Reading, typed: Typed) -> float:
        words = self._words(asked, typed)
        if asked.silent:
            words *= len(asked.rest & typed.reading.stems) / max(len(asked.rest), 1)
            if asked.places and not asked.rest:  # "what about your joints?"
                return 0.8 if asked.places & typed.own.places and typed.own.concepts else 0.0
            return words if words >= KNOWN_WORDS else 0.0
        of_family = "family" in asked.aspects
        if of_family != ("family" in typed.reading.aspects) and (of_family or not typed.mixed):
            return 0.0
        if "family" in asked.aspects:
            return self._fit.family(asked, typed, words, self._missing(asked, typed))
        if not asked.concepts and asked.rest and asked.aspects <= {"character", "amount"}:
            return 0.0  # "what kind of ..." something unknown
        fit = self._fit.concepts(asked, typed)
        if fit <= 0.0:
            return 0.0
        aspect = self._fit.aspects(asked, typed)
        if aspect < 0.0:
            return 0.0
        missing = self._missing(asked, typed)
        shared = sum(self._idf.get(w, 0.0) for w in asked.stems & typed.reading.stems) / (
            sum(self._idf.get(w, self._rare) for w in asked.stems) or 1.0
        )
        return (
            fit
            + 0.25 * aspect
            + 0.3 * words
            + 0.1 * shared
            - (UNKNOWN_WORD if asked.concepts else UNKNOWN_SUBJECT) * missing
            - 0.01 * len(typed.reading.concepts)
        )

    def _words(self, asked: Reading, typed: Typed) -> float:
        """Share of the question's unknown words that the fact has, by rarity."""
        if not asked.rest:
            return 0.0
        told = typed.reading.stems
        weight = {w: self._idf.get(w, self._rare) for w in asked.rest if w in told or w not in self._lexicon.common}
        return sum(w for word, w in weight.items() if word in told) / (sum(weight.values()) or 1.0)

    def _missing(self, asked: Reading, typed: Typed) -> int:
        return min(3, len(asked.rest - typed.reading.stems - self._lexicon.common))
