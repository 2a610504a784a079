"""The facts of a case, typed once: what each tells of, and whether the patient or an examination tells it."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from clinic.cases import ORDERED, Case, Fact
from clinic.language import EN, ZH
from clinic.simplified import simplified
from clinic.understanding.chinese import ChineseLexicon, chinese, typed_parts
from clinic.understanding.lexicon import Lexicon, Reading, english, plain_text

Kind = Literal["history", "test"]
_NUMBERED = re.compile(r"\s*\(\d+\)\Z")
_HISTORY_HEADING = re.compile(
    r"histor|symptom|complaint|demographic|review of systems|social|patient|\bnotes?\b|\bros\b|\b(?:pc|hpc|hpi|cc|pmhx?|pmh|dhx?|fhx?|shx?|sh|ice|hx)\b"
    r"|medication|allerg|famil|habits|lifestyle|presentation|narrative|vignette|\bfacts?\b|opening|background|statement|story",
    re.IGNORECASE,
)
_TEST_HEADING = re.compile(
    r"vital|examin|exam\b|\A(?:ex|oe)\Z|o/e|\bcbc\b|\bcounts?\b|panel|chemistr|serum|urinalysis|urine:|x-?ray|radiograph|imaging|\bct\b|\bmri\b"
    r"|(?<!high )blood (?:test|work|count|pressure|gas|sugar|glucose|culture|smear|chemistr|film|panel|level)|bloods\b"
    r"|urine (?:test|culture|dip|analys|microscop|drug|beta|stud)|scan|ultrasound|biops|culture|\bec[gk]\b|electro|laborator|\blabs?\b"
    r"|findings|result|investigation|spirometry|microscop|smear|cytometry|endoscop|temperature|pulse|heart rate|respiratory rate|saturation"
    r"|inspection|palpation|auscultation|percussion|screen|level|electrolyte|ha?ematolog|coagul|intervention|monitoring|assay|antibod"
    r"|serolog|toxicolog|\besr\b|\bcrp\b|\btsh\b|hormone|sedimentation|dehydrogenase|puncture|\bcsf\b|factor|appearance|doppler"
    r"|arthrocentesis|aldosterone|renin|plasma|binding|lacerations|observation|scores?\b|\btest|evaluation|parameters|extremities:",
    re.IGNORECASE,
)
_TEST_TEXT = re.compile(
    r"\bon (?:physical )?examination\b|\bphysical exam|\bvital signs\b|\bmm ?hg\b|\bx-ray (?:shows|reveals)|\bshows?\b.{0,40}\b(?:opacit|lesion|mass)"
    r"|\b(?:temperature|pulse|respirations?|blood pressure|heart rate|oxygen saturation) (?:is|of|was|are)\b.{0,12}\d|\blaboratory\b|\bstudies show|\bserum\b"
    r"|\b(?:mg|g)/d?l\b|\bmeq/l\b|\bauscultation\b|\bpalpation\b",
    re.IGNORECASE,
)
_CHINESE_TEST = re.compile(r"检查|辅检|化验|体征|查体|血常规|尿常规|影像|超声|心电|X线|结果")
# a laboratory value or what a test showed, under a heading of the history
_CHINESE_RESULT = re.compile(
    r"(?:常规|白细胞|血红蛋白|血小板|反应蛋白|肌酐|转氨酶|尿酸|血糖|血脂|甲功|抗体|因子)[^，。；]{0,8}"
    r"(?:示|阳性|阴性|\+|[0-9]+\.[0-9]|[0-9]+(?:×|%|mmol|g/l|mg|u/l|μmol|umol))",
    re.IGNORECASE,
)
_NO = re.compile(
    r"\b(?:no|not|nil|none|never|denie[sd]|deny|denying|without|negative|normal|okay|ok|fine|non|nothing|nkda|neither|unaffected|intact)\b|\bn't\b",
    re.IGNORECASE,
)
_NONE_AT_ALL = re.compile(
    r"\A\W*(?:nil\b|none\b|no\W*\Z|nothing\b|nad\b|unremarkable|non-?contributory|negative\W*\Z|nil significant)",
    re.IGNORECASE,
)
_ONLY_DENIES = re.compile(
    r"\W*(?:(?:the )?(?:patient|pt|he|she) (?:also )?)?(?:no|nil|denies|denied|negative for)\b(?!.*\b(?:but|except|although|however)\b)",
    re.IGNORECASE,
)
_OTHERS = re.compile(r"\bother\b", re.IGNORECASE)
_BARE_HEADING = re.compile(
    r"\W*(?:[psfd]m?hx?|[hp]+cx?|hpi|o/?ex?|ros|note|meds|medications?|allergies|family|social|occ)?\W*\Z",
    re.IGNORECASE,
)
_NOT_KNOWN = re.compile(
    r"\A\W*unknown\b|\bno (?:\w+ ){0,4}information\b"
    r"|\bunable to (?:obtain|complete|provide|assess)|\b(?:not|nothing|no (?:\w+ ){0,4}(?:information|details|history|specifics)) (?:was |were )?"
    r"(?:provided|specified|applicable|obtained|available|given)|\b(?:does not|doesn't) provide\b|\A\W*n/?a\b",
    re.IGNORECASE,
)
# what the clinician means to do
_PLAN = re.compile(
    r"\W*(?:expect(?:ed)? to|if (?:no|not|worse\w*)|safety ?net\w*|advi[sc]e\w*|review\b|refer\w*|discuss\w*|follow ?up|looks\b)",
    re.IGNORECASE,
)
_REPORTS = re.compile(
    r"\b(?:mother|father|parents?|mom|dad|wife|husband|son|daughter|sister|brother|children|siblings?|guardian)(?:'s)?(?: (?:who|also|has|had|have|he|she))*"
    r" (?:report|not(?:ic|e)|brought|stat|say|said|believ|mention|describ|took|take|tak|worri|concern|observ|prenatal|think|deni|find|found|recall|add)\w*"
    r"|\b(?:brought|accompanied)\b[^.]{0,40}\bby (?:his|her|their|the) (?:\w+ )?(?:mother|father|parents?|wife|husband|son|daughter|family|sister|brother)",
    re.IGNORECASE,
)
_RELATIVE_IS_PATIENT = re.compile(
    r"\W*(?:my|our) (?:mother|mom|mum|father|dad|parent|wife|husband|son|daughter|child|kid|baby|brother|sister|grand\w+|\w+-old)\b",
    re.IGNORECASE,
)
_EMPTY = re.compile(
    r"\A\W*(?:ok(?:ay)?|thank(?:s| you)[^.]*|hello|hi|got it|sure|alright|mhm|i see)\W*\Z", re.IGNORECASE
)
_YES_OR_NO = re.compile(
    r"\W*(?:yes|yeah|yep|no|nope|not|never|neither|i do|i don['’]t|maybe|it['’]s|it (?:is|was|has)|they(?:['’]re| are| were)|sometimes|a little|occasional)\b",
    re.IGNORECASE,
)
# from where a sentence begins alone, or it takes the square of its length; a lone "?" is a clinician's doubt ("took ? what")
_COUNTER_QUESTION = re.compile(r"(?<![^.?!—])[^.?!—]*\w\?(?=\W*\Z|\s+[A-Z])")
_EXCEPTION = re.compile(r"\((?:except|other than|apart from)\b[^)]*\)", re.IGNORECASE)
_TO_ALL = re.compile(r"\b(?:neither|both|none of|all of|everything|all normal)\b", re.IGNORECASE)
SHORT_ANSWER = 8  # words
SHORT_SENTENCE = 6
SHOWN = frozenset({"onset", "frequency"})  # aspects that an answer to them shows, as a time or a number
_SENTENCE = re.compile(r"(?<=[.?!;])\s+")


@dataclass(frozen=True, kw_only=True)
class Typed:
    """A fact and what it tells of."""

    fact: Fact
    kind: Kind
    own: Reading  # of its text
    reading: Reading  # of its text, and of what its heading or question says of it
    asked: Reading | None  # by the question under which it was recorded
    heading: frozenset[str]  # concepts and aspects of which everything under its heading tells
    denies: bool  # whether it says no to something
    nothing: bool  # whether it says no to everything under its heading
    only_denies: bool  # whether no is all that it says
    others: bool  # whether it is about the others, beside what was told ("no other symptoms")
    mixed: bool = False  # whether a relative's illness and the patient's own stand in it beside each other
    empty: bool  # a heading without a word under it ("FHx -")


@dataclass(frozen=True)
class TypedRecord:
    """The facts of a case, and what the patient came for."""

    facts: tuple[Typed, ...]
    complaint: frozenset[str]
    lexicon: Lexicon  # of the language of the case
    places: frozenset[str]  # of the complaint
    report: str  # what the patient came for, in words


def kind_of(fact: Fact) -> Kind:
    """Whether the patient knows a fact, or an examination or test must be ordered for it: by its heading, where that is
    of neither sort by its text.
    """
    heading = _NUMBERED.sub("", fact.topic).replace("_", " ")
    if heading.startswith(tuple(ORDERED.values())):
        return "test"
    if _CHINESE_TEST.search(simplified(heading)) and len(heading) <= 12 and "？" not in heading:
        return "test"
    if "？" not in heading and _CHINESE_RESULT.search(simplified(fact.text)):
        return "test"
    if "?" in heading or "？" in heading or (len(heading.split()) > 8 and ":" not in heading):
        return "history"
    if _HISTORY_HEADING.search(heading) and not re.match(r"(?:physical|vital)", heading, re.IGNORECASE):
        return (
            "test"
            if re.search(r"note|narrative|vignette|fact|presentation|statement", heading, re.I)
            and _TEST_TEXT.search(fact.text)
            else "history"
        )
    if _TEST_HEADING.search(heading):
        return "test"
    return "test" if _TEST_TEXT.search(fact.text) else "history"


@lru_cache(maxsize=512)
def typed_record(
    facts: tuple[Fact, ...], self_report: str, opening: tuple[str, ...], language: str = EN.code
) -> TypedRecord:
    """Type the facts of a case."""
    return typed_by(chinese() if language == ZH.code else english(), facts, self_report, opening)


def typed_by(lexicon: Lexicon, facts: tuple[Fact, ...], self_report: str, opening: tuple[str, ...]) -> TypedRecord:
    """Type the facts of a case as a lexicon reads them."""
    about_relative = _RELATIVE_IS_PATIENT.match(self_report) is not None
    typed = tuple(_typed(fact, lexicon, about_relative) for fact in facts)
    told = [self_report, *(fact.text for fact in facts if fact.topic in opening)]
    complaint = frozenset(
        c for text in told for c in lexicon.read(text, "tell").concepts if lexicon.kinds[c] != "topics"
    )
    if not complaint:
        first = next((t for t in typed if t.kind == "history"), None)
        complaint = (
            frozenset(c for c in first.reading.concepts if lexicon.kinds[c] != "topics") if first else frozenset()
        )
    places = frozenset(place for text in told for place in lexicon.read(text, "tell").places)
    return TypedRecord(typed, complaint, lexicon, places, self_report)


def record_of(case: Case) -> TypedRecord:
    """The typed facts of a case."""
    return typed_record(case.facts, case.self_report, case.opening, case.language)


def _typed(fact: Fact, lexicon: Lexicon, about_relative: bool) -> Typed:
    if isinstance(lexicon, ChineseLexicon):
        return Typed(kind=kind_of(fact), **typed_parts(fact, lexicon))
    own = lexicon.read(_EXCEPTION.sub(" ", _COUNTER_QUESTION.sub(" ", fact.text)), "tell")
    if "family" in own.aspects and _REPORTS.search(fact.text):  # a relative who tells it, not one who has it
        own = replace(own, aspects=own.aspects - {"family"})
    heading = plain_text(_NUMBERED.sub("", fact.topic))
    asked = _answered(heading, fact.text, own, lexicon) if _is_question(heading) else None
    under: set[str] = set()
    if asked is None:
        last = heading.rsplit(":", 1)[-1].strip()
        under = {name for name, words in lexicon.headings.items() if heading in words or last in words}
        if re.search(r"\bf(?:amily )?h(?:istory|x)?\b", heading) and "family" not in under:
            under.add("family")
        if not under:
            read = lexicon.read(heading, "tell")
            under = set(read.concepts) if len(heading.split()) <= 4 else set()
    reading = own
    if asked is not None:
        reading = Reading(
            own.concepts | asked.concepts,
            own.aspects | asked.aspects,
            own.places | asked.places,
            own.rest,
            own.stems | asked.stems,
        )
    if about_relative and not re.search(r"\bfamily|\brelatives|\bhereditary", heading + fact.text.lower()):
        reading = replace(reading, aspects=reading.aspects - {"family"})
    if "family" in under:
        reading = Reading(reading.concepts, reading.aspects | {"family"}, reading.places, reading.rest, reading.stems)
    return Typed(
        fact=fact,
        kind=kind_of(fact),
        own=own,
        reading=reading,
        asked=asked,
        heading=frozenset(under),
        denies=_NO.search(fact.text) is not None or "n't" in fact.text or "n’t" in fact.text,
        nothing=_NONE_AT_ALL.search(fact.text) is not None,
        only_denies=_ONLY_DENIES.match(fact.text) is not None,
        others=_OTHERS.search(fact.text) is not None,
        empty=any(words.match(fact.text) for words in (_BARE_HEADING, _PLAN))
        or _NOT_KNOWN.search(fact.text) is not None,
    )


def _is_question(heading: str) -> bool:
    return "?" in heading or len(heading.split()) > 5


def _answered(heading: str, text: str, own: Reading, lexicon: Lexicon) -> Reading | None:
    """What the recorded question asked for, as far as the answer goes into it."""
    if _EMPTY.match(text):
        return Reading(frozenset(), frozenset(), frozenset(), frozenset(), frozenset())
    parts = [lexicon.read(part, "ask") for part in _SENTENCE.split(heading) if "?" in part] or [
        lexicon.read(heading, "ask")
    ]
    parts = [part for part in parts if not part.silent or part.rest]
    parts = [part for part in parts if not part.aspects & SHOWN - own.aspects]
    chosen = [part for part in parts if _touches(part, own, lexicon)]
    # an answer that names nothing and is short says yes or no to all that was asked, and so does one of as many short
    # sentences, or one that says so
    sentences = _SENTENCE.split(text)
    each = len(sentences) >= len(parts) > 1 and all(len(sentence.split()) <= SHORT_SENTENCE for sentence in sentences)
    short = len(text.split()) <= SHORT_ANSWER and not own.concepts
    only = len(parts) == 1 and _YES_OR_NO.match(text)
    if each or _TO_ALL.search(text) or (not chosen and (short or only)):
        chosen = parts
    return Reading(
        frozenset().union(*(p.concepts for p in chosen)),
        frozenset().union(*(p.aspects for p in chosen)),
        frozenset().union(*(p.places for p in chosen)),
        frozenset().union(*(p.rest for p in chosen)),
        frozenset().union(*(p.stems for p in chosen)),
    )


def _touches(part: Reading, own: Reading, lexicon: Lexicon) -> bool:
    return bool(
        part.concepts & own.concepts
        or any(part.concepts & lexicon.broader[c] for c in own.concepts)
        or any(own.concepts & lexicon.broader[c] for c in part.concepts)
        or (part.aspects & own.aspects)
        or (part.rest & own.stems)
    )
