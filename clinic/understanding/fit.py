"""How well a fact fits what a question asks for: the concepts that it names, their place, and the aspects of them."""

from collections.abc import Set as AbstractSet

from clinic.understanding.lexicon import ANYWHERE, QUALIFIERS, Lexicon, Reading
from clinic.understanding.record import Typed, TypedRecord

# aspects that a fact must tell where they are asked of a complaint; the others only choose among facts
_REQUIRED = """onset manner severity location radiation character aggravate
relieve frequency trigger treatment course pattern timing previous"""
REQUIRED = frozenset(_REQUIRED.split())
# of these, those that a fact about a habit or the family tells of that habit, not of the complaint
_OF_COMPLAINT = """onset manner severity location radiation
character frequency course pattern timing previous"""
OF_COMPLAINT = frozenset(_OF_COMPLAINT.split())
# topics about which "when" asks for a date, and not only whether
DATED = frozenset({"menstruation", "surgery", "hospital", "menopause"})  # where no is no answer
# aspects that a fact must tell of whatever is asked for
SHOWN = frozenset({"side", "colour"})
# of these, those that a fact which only denies does not tell: "denies headache, abdominal pain" of where it hurts
DESCRIBED = frozenset({"location", "side", "colour", "character", "severity", "manner", "onset", "timing", "frequency"})
# a bowel habit that is normal says nothing of blood
NOT_BY_GROUP = frozenset({"blood_in_stool", "haematuria", "stool_mucus", "stool_shape", "night_stool", "tenesmus"})
PASSING = frozenset({"recurrent_infections", "covid", "appendix"})  # of which "no past illness" says nothing
HABITS = frozenset({"smoking", "alcohol", "drugs", "exercise", "diet", "occupation", "sexual", "travel"})
ALLERGY = frozenset({"allergies", "food_allergy"})
DESCRIBES = frozenset({"character", "severity", "location", "radiation", "pattern", "aggravate"})
TISSUES = frozenset({"skin", "joint", "muscle"})
REGULAR = 0.6  # of a medicine that is taken anyway, where one for the complaint is asked for
ENDED = 0.9  # of a medicine that was taken for a while, where those taken now are asked for
# cost of an unknown word of a question that names nothing the lexicon knows: it may be its subject
UNKNOWN_SUBJECT = 0.4
BESIDE = 0.85  # a disease named beside the topic that is asked for
GENERIC = frozenset({"past_illness", "other_symptoms", "reason"})


class Fit:
    """How well the facts of one record fit questions."""

    def __init__(self, record: TypedRecord) -> None:
        """Args: the typed record."""
        self._lexicon: Lexicon = record.lexicon
        self._complaint = record.complaint
        self._places = record.places
        self.complaint_and_wider = self._with_wider(record.complaint)
        self._near = record.complaint | (  # a kind of what is complained of: colic in the flank, of a pain in the back
            {c for c, wider in self._lexicon.broader.items() if wider & record.complaint}
            if self._lexicon.strict
            else set()
        )
        told = {c for t in record.facts if t.kind == "history" and not t.empty for c in t.reading.concepts}
        self._known = self._with_wider(told | self.complaint_and_wider)

    def concepts(self, asked: Reading, typed: Typed) -> float:
        """How well the fact tells of what is asked, 0 if it does not."""
        if not self._of_place(asked, typed):
            return 0.0
        if not asked.concepts:
            return self._about_complaint(asked, typed)
        wanted, named = self._wanted(asked)
        if "treatment" in asked.aspects or self._is_a("medicines", wanted):
            none = typed.denies and self._is_a("medicines", typed.own.concepts | typed.heading)
            if named and not none and not named & self._known:  # "malaria tablets" without malaria
                return 0.0
            if wanted == named:
                return self._treated(named, typed)
        fit = self._best(wanted, typed)
        if fit == 0.0 and wanted != named:  # "anything for your asthma?", "anyone around you with covid?"
            diseases = {c for c in named & typed.reading.concepts if self._lexicon.kinds[c] == "diseases"}
            fit = BESIDE * self._best(diseases, typed)
        if fit == 0.0:
            fit = max(self._composed(c, asked, typed) for c in wanted)
        if fit > 0.0 and wanted != asked.concepts and not typed.nothing:
            fit += 0.1 * self._best(asked.concepts - wanted, typed)
        fit *= self._taken_now(asked, wanted, named, typed)
        return fit or self._of_complaint_named(asked, wanted, typed)

    def _wanted(self, asked: Reading) -> tuple[AbstractSet[str], AbstractSet[str]]:
        """What kind of answer a question wants, and the symptoms and diseases that it names."""
        topics = {c for c in asked.concepts if self._lexicon.kinds[c] == "topics"}
        named = asked.concepts - topics
        wanted = (topics - GENERIC) or named or topics
        diseases = {c for c in named if self._lexicon.kinds[c] == "diseases"}
        if wanted == {"tests_done"} and diseases:  # "were you tested for syphilis?"
            return diseases, named
        if ALLERGY & wanted:
            return ALLERGY & wanted, named
        if len(wanted) > 1 and wanted <= named:  # "any nausea with the pain?" asks for nausea
            return (wanted - self.complaint_and_wider) or wanted, named
        return wanted, named

    def _treated(self, named: AbstractSet[str], typed: Typed) -> float:
        """Whether a fact tells how what is named was treated."""
        treats = self._is_a("medicines", typed.reading.concepts) or (
            "treatment" in typed.own.aspects and bool(named & self._complaint)
        )
        tells = "treatment" in typed.reading.aspects or typed.asked is None
        return max(self._best(named, typed) if tells else 0.0, 0.8 if treats else 0.0)

    def _taken_now(self, asked: Reading, wanted: AbstractSet[str], named: AbstractSet[str], typed: Typed) -> float:
        """Less than 1 where something for the complaint is asked for and the fact tells of what is taken anyway, or the
        other way round.
        """
        for_complaint = "treatment" in asked.aspects or bool(named and self._is_a("medicines", wanted))
        if (
            for_complaint
            and not named & typed.reading.concepts
            and typed.heading & {"medicines", "past_illness"}
            and "treatment" not in typed.own.aspects
        ):
            return REGULAR
        if "ended" in typed.own.aspects and "medicines" in wanted and not asked.aspects & REQUIRED:
            return REGULAR if "regular" in asked.aspects else ENDED
        return 1.0

    def _of_complaint_named(self, asked: Reading, wanted: AbstractSet[str], typed: Typed) -> float:
        """For a question about the complaint by its name: whether a fact that names nothing may be about it."""
        of_complaint = any((self._lexicon.broader[c] | {c}) & self._complaint for c in wanted)
        if not asked.aspects & REQUIRED or not (of_complaint or wanted & self.complaint_and_wider):
            return 0.0
        stray = (  # an answer to the same kind of question, whatever it names: "three days, my bowels are normal"
            typed.asked is not None
            and not self._lexicon.strict
            and bool(not typed.own.concepts or asked.aspects & typed.asked.aspects)
        )
        if typed.heading - GENERIC or (typed.reading.concepts and not stray):
            return 0.0
        return 0.6 - 0.05 * len(typed.own.rest - self._lexicon.common - asked.stems)

    def family(self, asked: Reading, typed: Typed, words: float, missing: int) -> float:
        """How well a fact about the family answers a question about it."""
        named = {c for c in asked.concepts if self._lexicon.kinds[c] != "topics"}
        if self._lexicon.strict and named == {"genetic"}:
            named = set()
        if not named or typed.nothing:
            cost = UNKNOWN_SUBJECT if self._lexicon.strict else 0.05
            return 1.0 + 0.3 * words - cost * missing
        return max((self._relation(c, typed) for c in named), default=0.0)

    def _is_a(self, wider: str, concepts: AbstractSet[str]) -> bool:
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

    def _best(self, wanted: AbstractSet[str], typed: Typed) -> float:
        found = sorted((self._relation(c, typed) for c in wanted), reverse=True)
        return found[0] + 0.05 * sum(x > 0 for x in found[1:]) if found else 0.0

    def _relation(self, concept: str, typed: Typed) -> float:
        """How near what a fact tells of is to a concept."""
        told = typed.reading.concepts
        if concept in told or concept in typed.heading:
            if concept in typed.heading and self._lexicon.kinds[concept] == "topics":
                return _under_heading(concept, typed)
            return 1.0 if concept in typed.own.concepts or concept in typed.heading else 0.9
        narrower = {c for c in told if concept in self._lexicon.broader[c]}
        if (
            narrower
            and (concept not in self.complaint_and_wider or narrower & self._near)
            and (not typed.denies or _is_group(concept) or concept == "medicines")
        ):
            return 0.9 if narrower & self._near else 0.8
        wider = (self._lexicon.broader[concept] & told) if concept not in NOT_BY_GROUP else frozenset()
        if self._lexicon.strict and typed.nothing and self._lexicon.broader[concept] & typed.heading:
            return 0.8  # "none" under allergies, of food
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
        if told & self.complaint_and_wider:
            return 0.0 if asked.aspects & OF_COMPLAINT and typed.only_denies else 0.8
        if any(self._lexicon.kinds[c] == "topics" for c in told - GENERIC) or typed.heading - GENERIC:
            return 0.0 if asked.aspects & OF_COMPLAINT else 0.5
        if "previous" in asked.aspects and any(
            c == "past_illness" or self._lexicon.kinds[c] == "diseases" for c in told
        ):
            return 0.4  # tells of another illness
        if any(self._lexicon.kinds[c] == "symptoms" for c in told) and asked.aspects & OF_COMPLAINT:
            pains = self._is_a("pain", told) and self._is_a("pain", self._complaint)
            return 0.7 if pains else 0.45  # tells of another symptom
        return 0.7

    def aspects(self, asked: Reading, typed: Typed) -> float:
        """Share of the aspects asked for that the fact tells; negative where a required one is missing."""
        wanted = asked.aspects - QUALIFIERS
        if not wanted:
            return 0.0
        told = _told(typed, asked)
        topics = {c for c in asked.concepts if self._lexicon.kinds[c] != "symptoms"}
        if wanted & SHOWN - told.keys():
            return -1.0
        if not topics and typed.only_denies and typed.asked is None and wanted <= DESCRIBED - typed.own.aspects:
            return -1.0
        required = (
            (wanted & REQUIRED) if not topics else (wanted & {"onset"} if "time" in asked.aspects else frozenset())
        )
        if topics and not topics & DATED and typed.denies:  # "how long have you smoked?" - "I do not"
            required = frozenset()
        if required and not required & told.keys():
            return -1.0
        return sum(told.get(name, 0.0) for name in wanted) / len(wanted)

    def _with_wider(self, concepts: AbstractSet[str]) -> AbstractSet[str]:
        return set(concepts).union(*(self._lexicon.broader[c] for c in concepts))


def _is_group(concept: str) -> bool:
    return concept.endswith("_symptoms") or concept in ("bowels", "vomiting_group", "vision", "contraception")


def _under_heading(topic: str, typed: Typed) -> float:
    """How near a fact is to the topic of its heading: under "past medical history" not all is an illness."""
    own = typed.own.concepts
    if topic != "past_illness" or topic in own:
        return 1.1
    if own and own <= HABITS:
        return 0.7
    return 0.8 if "previous" in typed.own.aspects and typed.only_denies else 1.0


def _told(typed: Typed, asked: Reading) -> dict[str, float]:
    """The aspects that a fact tells, each with how plainly."""
    told = dict.fromkeys(typed.reading.aspects, 1.0) | dict.fromkeys(typed.own.aspects, 1.2)
    if typed.asked is not None:
        told |= dict.fromkeys(typed.asked.aspects & typed.own.aspects, 1.4)
    if typed.own.places - TISSUES - asked.places:
        told.setdefault("location", 0.4)
    if "time" in typed.own.aspects & asked.aspects and "onset" in told:  # a time, and not only that it began
        told["onset"] += 0.6
    if typed.reading.aspects & {"severity", "pattern"}:
        told.setdefault("character", 0.5)
    if "aggravate" in told:
        told["occasion"] = told["aggravate"]
    if {"aggravate", "trigger"} <= asked.aspects and {"aggravate", "trigger"} & told.keys():
        told |= {"aggravate": 1.2, "trigger": 1.2}  # "anything that set it off?"
    if told.keys() & DESCRIBES:
        told["description"] = max(told[name] for name in told.keys() & DESCRIBES)
    return told
