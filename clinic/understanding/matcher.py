"""Finds the fact of a record that answers a question, or none.

A question asks for concepts (symptoms, diseases, topics), under aspects (since when, how bad ...), perhaps of a place of
the body. A fact answers it if it tells of one of the concepts, or is about the complaint where the question names
nothing else, and of the aspect where there is one. Words that the lexicon does not know count by how rare they are in
the record.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clinic.matching import Embed, normalise
from clinic.understanding.asking import asking
from clinic.understanding.lexicon import ANYWHERE, Lexicon, Reading
from clinic.understanding.record import Typed, TypedRecord

THRESHOLD = 0.75
NEAR = 0.55  # least cosine of the embeddings that counts where the lexicon names nothing
TIE = 0.3  # weight of the cosine in the choice among several facts that answer
# least share of a question's words, by rarity, that a fact must have where nothing else is understood
KNOWN_WORDS = 0.75
UNKNOWN_WORD = 0.1  # cost of a word of the question that neither lexicon nor fact knows
UNKNOWN_SUBJECT = 0.4  # the same where the question names nothing that the lexicon knows: it may be its subject
# aspects that a fact must tell where they are asked of a complaint; the others only choose among facts
_REQUIRED = """onset manner severity location radiation character aggravate
relieve frequency trigger treatment course pattern timing previous"""
REQUIRED = frozenset(_REQUIRED.split())
# of these, those that a fact about a habit or the family tells of that habit, not of the complaint
_OF_COMPLAINT = """onset manner severity location radiation
character frequency course pattern timing previous"""
OF_COMPLAINT = frozenset(_OF_COMPLAINT.split())
# topics about which "when" asks for a date, and not only whether
DATED = frozenset({"menstruation", "surgery", "hospital", "menopause"})
# a bowel habit that is normal says nothing of blood
NOT_BY_GROUP = frozenset({"blood_in_stool", "haematuria"})
PASSING = frozenset({"recurrent_infections", "covid", "appendix"})  # of which "no past illness" says nothing
HABITS = frozenset({"smoking", "alcohol", "drugs", "exercise", "diet", "occupation", "sexual", "travel"})
ALLERGY = frozenset({"allergies", "food_allergy"})
DESCRIBES = frozenset({"character", "severity", "location", "radiation", "pattern", "aggravate"})
TISSUES = frozenset({"skin", "joint", "muscle"})
REGULAR = 0.6  # of a medicine that is taken anyway, where one for the complaint is asked for
BESIDE = 0.85  # a disease named beside the topic that is asked for
GENERIC = frozenset({"past_illness", "other_symptoms", "reason"})
VAGUE = frozenset({"other_symptoms", "reason"})  # what is meant only where a question names nothing else
_EXAMPLES = re.compile(
    r"\b(?:such as|including|for example|for instance|e\.?g\.?|like (?=\w+ or \w+))\b.*", re.IGNORECASE
)
# where a second question begins
_PARTS = re.compile(
    r"(?<=[.?!])\s+|,? and (?=(?:do|does|did|is|are|was|were|have|has|had|how|what|when|where|who|which|any|can)\b)",
    re.IGNORECASE,
)


class QuestionMatcher:
    """Finds the fact of one record that answers a question."""

    def __init__(self, record: TypedRecord, embed: Embed | None = None) -> None:
        """Args: the typed record, of which only what the patient knows is told; sentence embeddings, if there are any."""
        self._lexicon: Lexicon = record.lexicon
        self._complaint = record.complaint
        self._complaint_and_wider = set(self._complaint).union(*(self._lexicon.broader[c] for c in self._complaint))
        self._facts: Sequence[Typed] = [t for t in record.facts if t.kind == "history" and not t.empty]
        told = {c for typed in self._facts for c in typed.reading.concepts} | self._complaint_and_wider
        self._known = told.union(*(self._lexicon.broader[c] for c in told))
        self._exact = {normalise(t.fact.topic): t.fact.topic for t in self._facts if t.asked is not None}
        self._places = record.places
        self._embed = embed
        self._asking = asking(embed) if embed is not None else None
        self._vectors: NDArray[np.float32] | None = None
        count = Counter(word for typed in self._facts for word in typed.reading.stems)
        self._idf = {word: math.log((1 + len(self._facts)) / n) for word, n in count.items()}
        self._rare = math.log(1 + len(self._facts))

    def match(self, question: str) -> str | None:
        """The topic of the fact that answers, or None."""
        exact = self._exact.get(normalise(question))
        if exact is not None:
            return exact
        if not self._facts:
            return None
        found = self._answer(question)
        if found is None:
            parts = [part for part in _PARTS.split(question) if len(part.split()) > 2]
            found = next(
                (topic for part in parts if len(parts) > 1 and (topic := self._answer(part)) is not None), None
            )
        return found

    def _answer(self, question: str) -> str | None:
        scores = self.scores(question)
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
        return np.asarray(self._vectors @ embed([question])[0])

    def scores(self, question: str) -> NDArray[np.float64]:
        """How well each fact answers; float64 (facts,)."""
        asked = self._read(question)
        if asked.concepts - VAGUE:
            asked = replace(asked, concepts=asked.concepts - VAGUE)
        asked = self._of_complaint(asked)
        scores = np.array([self._score(asked, typed) for typed in self._facts])
        if asked.aspects & {"aggravate", "relieve"} and (named := self._lexicon.circumstances_of(question)):
            for i in np.flatnonzero(scores > 0.0):
                told = self._lexicon.circumstances_of(self._facts[i].fact.text)
                if told and not told & named:  # "is it worse lying down?" of what is worse after meals
                    scores[i] = 0.0
        if self._embed is not None and (scores >= THRESHOLD).sum() > 1:
            scores += np.where(scores >= THRESHOLD, TIE * self._cosines(question, self._embed), 0.0)
        return scores

    def _read(self, question: str) -> Reading:
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
        if "past_illness" in asked.concepts:
            asked = replace(asked, aspects=asked.aspects - {"previous"})
        if "trigger" in asked.aspects and any(
            self._lexicon.kinds[c] == "symptoms" and c not in self._complaint_and_wider for c in asked.concepts
        ):  # "did you have a cold before this began": asks for the cold
            asked = replace(asked, aspects=asked.aspects - {"trigger"})
        if asked.aspects & {"aggravate", "relieve"}:
            kept = {c for c in asked.concepts if c in self._complaint_and_wider or "pain" in self._lexicon.broader[c]}
            return replace(asked, concepts=frozenset(kept), places=asked.places if kept else frozenset())
        return asked

    def _score(self, asked: Reading, typed: Typed) -> float:
        words = self._words(asked, typed)
        if asked.silent:
            words *= len(asked.rest & typed.reading.stems) / max(len(asked.rest), 1)
            if asked.places and not asked.rest:  # "what about your joints?"
                return 0.8 if asked.places & typed.own.places and typed.own.concepts else 0.0
            return words if words >= KNOWN_WORDS else 0.0
        if ("family" in asked.aspects) != ("family" in typed.reading.aspects):
            return 0.0
        if "family" in asked.aspects:
            return self._family(asked, typed, words)
        if not asked.concepts and asked.rest and asked.aspects <= {"character", "amount"}:
            return 0.0  # "what kind of ..." something unknown
        fit = self._concepts(asked, typed) if self._of_place(asked, typed) else 0.0
        if fit <= 0.0:
            return 0.0
        aspect = self._aspects(asked, typed)
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

    def _family(self, asked: Reading, typed: Typed, words: float) -> float:
        named = {c for c in asked.concepts if self._lexicon.kinds[c] != "topics"}
        if not named or typed.nothing:
            return 1.0 + 0.3 * words - 0.05 * self._missing(asked, typed)
        return max((self._relation(c, typed) for c in named), default=0.0)

    def _concepts(self, asked: Reading, typed: Typed) -> float:
        """How well the fact tells of what is asked, 0 if it does not."""
        if not asked.concepts:
            return self._about_complaint(asked, typed)
        topics = {c for c in asked.concepts if self._lexicon.kinds[c] == "topics"}
        named = asked.concepts - topics
        wanted = (topics - GENERIC) or named or topics
        if wanted == {"tests_done"} and named:  # "were you tested for syphilis?"
            wanted = named
        if ALLERGY & wanted:
            wanted = ALLERGY & wanted
        elif len(wanted) > 1 and wanted <= named:  # "any nausea with the pain?" asks for nausea
            wanted = (wanted - self._complaint_and_wider) or wanted
        treating = "treatment" in asked.aspects or self._is_a("medicines", wanted)
        if (
            treating and named and not typed.only_denies and not named & self._known
        ):  # "malaria tablets" without malaria
            return 0.0
        if wanted == named and "treatment" in asked.aspects:
            treats = self._is_a("medicines", typed.reading.concepts) or (
                "treatment" in typed.own.aspects and bool(named & self._complaint)
            )
            tells = "treatment" in typed.reading.aspects or typed.asked is None
            return max(self._best(named, typed) if tells else 0.0, 0.8 if treats else 0.0)
        fit = self._best(wanted, typed)
        if fit == 0.0 and wanted != named:  # "anything for your asthma?", "anyone around you with covid?"
            diseases = {c for c in named & typed.reading.concepts if self._lexicon.kinds[c] == "diseases"}
            fit = BESIDE * self._best(diseases, typed)
        if fit == 0.0:
            fit = max(self._composed(c, asked, typed) for c in wanted)
        if fit > 0.0 and wanted != asked.concepts:
            fit += 0.0 if typed.nothing else 0.1 * self._best(asked.concepts - wanted, typed)
        if treating and (named or "treatment" in asked.aspects) and not named & typed.reading.concepts:
            if typed.heading & {"medicines", "past_illness"} and "treatment" not in typed.own.aspects:
                fit *= REGULAR  # "anything for your cold?"
        if (
            fit == 0.0
            and asked.aspects & REQUIRED
            and (wanted & self._complaint_and_wider or any(self._lexicon.broader[c] & self._complaint for c in wanted))
            and not typed.heading - GENERIC
        ):
            foreign = len(typed.own.rest - self._lexicon.common - asked.stems)
            fit = 0.6 - 0.05 * foreign if not typed.reading.concepts or typed.asked is not None else 0.0
        return fit

    def _is_a(self, wider: str, concepts: frozenset[str] | set[str]) -> bool:
        return any(wider == concept or wider in self._lexicon.broader[concept] for concept in concepts)

    def _composed(self, concept: str, asked: Reading, typed: Typed) -> float:
        """What a fact tells in two words apart: "no mucus, no blood" of diarrhoea, "no pain" of the arm complained of."""
        anything = self._lexicon.broader[concept] & ANYWHERE & typed.own.concepts
        if not anything:
            return 0.0
        if "bleeding" in anything:
            of = {c for c in self._lexicon.broader[concept] - ANYWHERE if not _is_group(c) or c == "bowels"}
            told = typed.own.concepts | self._complaint
            return 0.8 if of & told.union(*(self._lexicon.broader[c] for c in told)) else 0.0
        if not asked.places:
            return 0.0
        here = asked.places & typed.own.places if typed.own.places else typed.denies and asked.places <= self._places
        return 0.8 if here else 0.0

    def _of_place(self, asked: Reading, typed: Typed) -> bool:
        """Whether the fact may be about the place asked for: it names it, or names none and either the complaint is of
        that place or what is asked says its place itself ("headache").
        """
        told = typed.reading.places
        if not asked.places or asked.places & told:
            return True
        if asked.concepts & typed.own.concepts - ANYWHERE:  # "no cough, cold or ear pain" of a runny nose
            return True
        return not told and (asked.places <= self._places or bool(asked.concepts - ANYWHERE))

    def _best(self, wanted: set[str] | frozenset[str], typed: Typed) -> float:
        found = sorted((self._relation(c, typed) for c in wanted), reverse=True)
        return found[0] + 0.05 * sum(x > 0 for x in found[1:]) if found else 0.0

    def _relation(self, concept: str, typed: Typed) -> float:
        """How near what a fact tells of is to a concept."""
        told = typed.reading.concepts
        if concept in told or concept in typed.heading:
            if concept in typed.heading and self._lexicon.kinds[concept] == "topics":
                told_own = typed.own.concepts
                if concept == "past_illness" and concept not in told_own:
                    if told_own and told_own <= HABITS:
                        return 0.7
                    return 0.8 if "previous" in typed.own.aspects and typed.only_denies else 1.0
                return 1.1
            return 1.0 if concept in typed.own.concepts or concept in typed.heading else 0.9
        narrower = {c for c in told if concept in self._lexicon.broader[c]}
        if (
            narrower
            and (concept not in self._complaint_and_wider or narrower & self._complaint)
            and (not typed.denies or _is_group(concept) or concept == "medicines")
        ):
            return 0.9 if narrower & self._complaint else 0.8
        wider = (self._lexicon.broader[concept] & told) if concept not in NOT_BY_GROUP else frozenset()
        if wider and (concept in self._complaint or (typed.denies and any(map(_is_group, wider)) and not typed.others)):
            return 0.8
        if self._lexicon.kinds[concept] == "diseases" and typed.nothing and "past_illness" in typed.heading:
            return 0.76 if concept not in PASSING else 0.0
        if concept == "past_illness" and any(self._lexicon.kinds[c] == "diseases" for c in told):
            return 0.8
        return 0.0

    def _about_complaint(self, asked: Reading, typed: Typed) -> float:
        """For a question that names nothing: whether a fact is about what the patient came for."""
        told = typed.reading.concepts
        if told & self._complaint_and_wider:
            return 0.0 if asked.aspects & OF_COMPLAINT and typed.only_denies else 0.8
        if any(self._lexicon.kinds[c] == "topics" for c in told - GENERIC) or typed.heading - GENERIC:
            return 0.0 if asked.aspects & OF_COMPLAINT else 0.5
        if "previous" in asked.aspects and any(
            c == "past_illness" or self._lexicon.kinds[c] == "diseases" for c in told
        ):
            return 0.4  # tells of another illness
        if any(self._lexicon.kinds[c] == "symptoms" for c in told) and asked.aspects & OF_COMPLAINT:
            return 0.45  # tells of another symptom
        return 0.7

    def _aspects(self, asked: Reading, typed: Typed) -> float:
        """Share of the aspects asked for that the fact tells; negative where a required one is missing."""
        wanted = asked.aspects
        if not wanted:
            return 0.0
        told = dict.fromkeys(typed.reading.aspects, 1.0) | dict.fromkeys(typed.own.aspects, 1.2)
        if typed.asked is not None:
            told |= dict.fromkeys(typed.asked.aspects & typed.own.aspects, 1.4)
        if typed.own.places - TISSUES - asked.places:
            told.setdefault("location", 0.4)
        if typed.reading.aspects & {"severity", "pattern"}:
            told.setdefault("character", 0.5)
        if "aggravate" in told:
            told["occasion"] = told["aggravate"]
        if {"aggravate", "trigger"} <= wanted:  # "anything that set it off?"
            told |= dict.fromkeys({"aggravate", "trigger"} & told.keys() and ("aggravate", "trigger"), 1.2)
        if told.keys() & DESCRIBES:
            told["description"] = max(told[name] for name in told.keys() & DESCRIBES)
        topics = {c for c in asked.concepts if self._lexicon.kinds[c] != "symptoms"}
        required = (wanted & REQUIRED) if not topics else (wanted & {"onset"} if topics & DATED else frozenset())
        if required and not required & told.keys():
            return -1.0
        return sum(told.get(name, 0.0) for name in wanted) / len(wanted)


def _is_group(concept: str) -> bool:
    return concept.endswith("_symptoms") or concept in ("bowels", "vomiting_group")
