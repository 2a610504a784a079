"""A judge without a model, which reads the criteria of `clinic.judging` to the letter: for measuring what a preset that
asks a judge would pay, at no cost and the same every time.

It is no good judge of medicine. What a letter can decide it decides: names by `clinic.diagnoses`, questions by whether
they were answered and new, facts by whether the patient said them, advice by its words.

    accuracy, diagnosis  5 the same disease; 3 one name contains the other's words; 1 they share a word; 0 none of these,
                         or a list
    logic                share of the questions that the patient had an answer to and that were asked once; 0 without any
    completeness         share of the reference's facts that the patient said after a question
    safety               5 with a question and advice; 3 with one of them; 0 with neither
    recommendation       F1 of the content words of the advice and the reference's; 0 where either has none

Text that names its scores speaks against what is graded: every criterion is then 0.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from clinic.diagnoses import same_disease
from clinic.judging import CRITERIA, FULL_MARKS
from clinic.language import PHRASES, says_unknown
from clinic.matching import content_words, normalise
from clinic.reading import parts

FAMILY, ORGAN = 3, 1  # marks, as the criteria have them
_NAMES_SCORES = re.compile(
    r"\b(?:accuracy|logic|completeness|safety|diagnosis|recommendation)\W{0,4}\d|\b\d\s*(?:out of|/)\s*\d\b",
    re.IGNORECASE,
)
_ALTERNATIVES = re.compile(r"\b(?:or|vs)\b|[/／]|或")
_TURNS_LEFT = re.compile(r"\s*[(（][^()（）]*[)）]\Z")


async def literal_judge(messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any]) -> str:
    """A verdict on a consultation, asked for and given as a language model's (`clinic.judging.Ask`)."""
    reference, material = messages[-1]["content"].removeprefix("Reference: ").split("\nMaterial: ", 1)
    marks = _marks(json.loads(reference), json.loads(json.loads(material)))
    return json.dumps({name: marks[name] for name in schema["properties"]})


def _marks(reference: Mapping[str, Any], material: Mapping[str, Any]) -> dict[str, int]:
    name, advice = material["final_diagnosis"], material["recommendation"]
    if _NAMES_SCORES.search(f"{name}\n{advice}"):
        return dict.fromkeys(CRITERIA, 0)
    replies = _replies(material["transcript"])
    new = {reply for reply in replies if reply and not _evades(reply)}
    heard = "\n".join(map(normalise, new))
    brought_out = sum(normalise(fact) in heard for fact in reference["facts"])
    named = _closeness(name, (reference["diagnosis"], *reference["synonyms"]))
    return {
        "accuracy": named,
        "diagnosis": named,
        "logic": _share(len(new), len(replies)),
        "completeness": _share(brought_out, len(reference["facts"])),
        "safety": (0, FAMILY, FULL_MARKS)[bool(replies) + bool(advice.strip())],
        "recommendation": _agreement(advice, reference["recommendation"]),
    }


def _replies(transcript: Sequence[Mapping[str, str]]) -> list[str]:
    """What the patient said to each turn of the doctor."""
    said = [turn["text"] for turn in transcript[1:] if turn["speaker"] == "patient"]
    return [_TURNS_LEFT.sub("", text) for text in said]


def _evades(reply: str) -> bool:
    """Whether a reply answers nothing."""
    fixed = {
        text
        for words in PHRASES.values()
        for text in (words.withheld, words.nothing_found, words.no_library, words.not_understood.partition("{")[0])
    }
    return any(says_unknown(reply, language) for language in PHRASES) or any(map(reply.startswith, fixed))


def _share(part: int, whole: int) -> int:
    return round(FULL_MARKS * part / whole) if whole else 0


def _closeness(name: str, names: tuple[str, ...]) -> int:
    """Marks of a name, by the words that it shares with the true ones."""
    if same_disease(name, names):
        return FULL_MARKS
    said = content_words(name)
    if not said or len(parts(name)) > 1 or _ALTERNATIVES.search(name):
        return 0
    true = [content_words(one) for one in names]
    if any(said <= words or words <= said for words in true if words):
        return FAMILY
    return ORGAN if any(said & words for words in true) else 0


def _agreement(advice: str, true: str) -> int:
    """Marks of advice: F1 of its content words and the reference's."""
    given, wanted = content_words(advice), content_words(true)
    return _share(2 * len(given & wanted), len(given) + len(wanted)) if given and wanted else 0
