"""What speaks for a fact as the answer to a question, and for none, in numbers: what the rules say, what the embeddings
say, and what kind of fact it is. `decision` weighs them.

Shape suffixes: F facts, N texts, D dimensions of a vector.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from clinic.matching import Embed
from clinic.understanding.answering import Answering
from clinic.understanding.asking import Asking, embedded
from clinic.understanding.lexicon import Lexicon, Reading
from clinic.understanding.record import Typed

Numbers = NDArray[np.float64]
HIGHEST = 1.7  # score of the rules, above which more says nothing
_SENTENCE = re.compile(r"(?<=[.?!;])\s+")
_NUMBERED = re.compile(r"\s*\(\d+\)\Z")


@dataclass(frozen=True)
class Evidence:
    """Of one question to one record; names as in `decision.yaml`."""

    facts: Mapping[str, Numbers]  # each (F,)
    none: Mapping[str, float]


@dataclass(frozen=True)
class RuleView:
    """What the rules make of a question."""

    asked: Reading
    scores: Numbers  # (F,)
    choice: str | None  # topic


def evidence(
    question: str,
    rules: RuleView,
    facts: Sequence[Typed],
    complaint: frozenset[str],
    known: Asking,
    learned: Answering,
    lexicon: Lexicon,
) -> Evidence:
    """All numbers of a question.

    Args:
        question: as asked.
        rules: what the rules make of it.
        facts: those that the patient knows, one at least.
        complaint: the concepts of what the patient came for.
        known: ways of asking, and the embedder.
        learned: the map of answers for that embedder.
        lexicon: that by which question and facts were read.
    """
    cosines = known.cosines(question)
    nearest = {name: float(cosines[rows].max()) for name, rows in known.rows.items()}
    concepts = {name: cosine for name, cosine in nearest.items() if name not in known.aspects}
    top, concept_top = max(nearest.values()), max(concepts.values(), default=0.0)
    told = [typed.reading.concepts | typed.heading for typed in facts]
    wide = [_with_wider(names, lexicon) for names in told]
    choice = np.array([float(typed.fact.topic == rules.choice) for typed in facts])
    meant = [max((concepts.get(name, 0.0) for name in names), default=0.0) for names in wide]
    asked = rules.asked
    near = nearness(question, [texts(typed) for typed in facts], known.embed, learned)
    return Evidence(
        {
            "score": np.clip(rules.scores, 0.0, HIGHEST),
            "choice": choice,
            "concepts": np.array([_share(asked.concepts, names) for names in wide]),
            "aspects": np.array([_share(asked.aspects, typed.reading.aspects) for typed in facts]),
            **near,
            "meaning": np.array(meant) - concept_top,
            "choice_near": choice * near["nearest"],
            "choice_known": choice * top,
            "complaint": np.array([float(bool(typed.reading.concepts & complaint)) for typed in facts]),
            "words": np.array([math.log1p(len(typed.fact.text.split())) for typed in facts]),
            "things": np.array([float(min(len(typed.reading.concepts), 10)) for typed in facts]),
        },
        {
            "always": 1.0,
            "facts": math.log(len(facts)),
            "chosen": float(choice.any()),
            "concepts": float(min(len(asked.concepts), 4)),
            "silent": float(asked.silent),
            "on_record": float(bool(asked.concepts & frozenset().union(*told))),
            "words": float(min(len(question.split()), 30)),
            "known": top,
            "known_concept": concept_top,
        },
    )


def nearness(question: str, texts_F: Sequence[Sequence[str]], embed: Embed, learned: Answering) -> dict[str, Numbers]:
    """Cosine of a question to the nearest of each fact's texts, and how far it lies before those of the other facts; and
    how near the nearest is as an answer.

    Args:
        question: as asked.
        texts_F: of each fact, as `texts` gives them.
        embed: of questions and texts.
        learned: the map of answers for that embedder.

    Returns:
        numbers by name, each float64 (F,).
    """
    question_D, texts_ND = embedded(question, embed), _embedded(tuple(chain.from_iterable(texts_F)), embed)
    starts_F = np.cumsum([0, *map(len, texts_F[:-1])])
    nearest, answer = (
        np.maximum.reduceat(near_N.astype(np.float64), starts_F)
        for near_N in (texts_ND @ question_D, learned.nearness(question_D, texts_ND))
    )
    return {
        "nearest": nearest,
        "lead": lead(nearest),
        "deviation": (nearest - nearest.mean()) / (nearest.std() + 0.03),
        "answer": answer,
    }


def lead(values_F: Numbers) -> Numbers:
    """By how much each value is before the best of the others; itself where there is no other."""
    if len(values_F) == 1:
        return values_F
    second, best = np.sort(values_F)[-2:]
    return np.asarray(values_F - np.where(values_F == best, second, best))


def headed(typed: Typed) -> str:
    """The text of a fact under its heading."""
    return f"{_NUMBERED.sub('', typed.fact.topic)}: {typed.fact.text}"


def texts(typed: Typed) -> list[str]:
    """The text of a fact, its sentences, and those of the question under which it was recorded."""
    recorded = _sentences(_NUMBERED.sub("", typed.fact.topic)) if typed.asked is not None else []
    return [typed.fact.text, *_sentences(typed.fact.text), *recorded]


def _sentences(text: str) -> list[str]:
    return [part for part in _SENTENCE.split(text) if part.strip()] or [text]


@lru_cache(maxsize=256)
def _embedded(texts: tuple[str, ...], embed: Embed) -> NDArray[np.float32]:
    """Vectors of the texts of one record, (N, D)."""
    return embed(texts)


def _with_wider(concepts: frozenset[str], lexicon: Lexicon) -> frozenset[str]:
    return concepts.union(*(lexicon.broader.get(name, frozenset()) for name in concepts))


def _share(asked: frozenset[str], told: frozenset[str]) -> float:
    return len(asked & told) / max(len(asked), 1)
