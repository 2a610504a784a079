"""Learns from labelled questions how the patient of imported cases weighs what speaks for a fact: `clinic.understanding.decision`.

The lexicon was widened by reading most of the labelled questions, so its rules look better on them than on another
doctor's words. The weights are therefore fitted to what remains of them when wordings are left out at random (`THINNED`),
beside the whole; and how good they are is read off the questions of a hand that was left out of the fit. Every question
on record is asked once more with its answers withheld: what is near then is no answer, and "I don't know" is right.

The map of answers (`doctor.answer_fitting`) and the cross-encoder (`doctor.cross_encoder_fitting`) give numbers that are
weighed. Both are learned from practice questions, by other writers to other patients: questions to a patient of whom a
practice question asks are left aside, or what is known by heart would be trusted too far. Hands are left out of the weights
in folds of two or three.

Shape suffixes: R rows (facts of all questions), Q questions, K weights.
"""

import io
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ruamel.yaml import YAML
from scipy.optimize import minimize

from clinic.cases import Case
from clinic.matching import Embed
from clinic.understanding.answering import FILE as ANSWERING
from clinic.understanding.answering import Answering, save
from clinic.understanding.asking import Asking, asking
from clinic.understanding.comparison import CROSS, Compare
from clinic.understanding.decision import CROSS_ENCODER, Decision
from clinic.understanding.decision import FILE as DECISION
from clinic.understanding.evidence import Evidence
from clinic.understanding.lexicon import FILE, compiled
from clinic.understanding.matcher import QuestionMatcher
from clinic.understanding.phrases import SECTIONS, parted
from clinic.understanding.record import TypedRecord, typed_by
from doctor.answer_fitting import fit_map
from doctor.calibration import CALIBRATION, read_lines
from doctor.choice import Choices
from doctor.environments import open_factory
from doctor.parameters import ROOT, Params
from doctor.patient_calibration import FITTED, cases_of, digest
from doctor.practice_questions import practised, practised_patients

HANDS = {  # who wrote the questions
    "first": ("open", "sealed"),
    "fresh": ("fresh_open", "fresh_sealed"),
    **{hand: (f"{hand}_sealed",) for hand in FITTED},
}
TUNED = ("first", "fresh")  # on all of whose questions the lexicon was tuned
FOLDS = (TUNED, ("third", "fourth"), ("fifth", "sixth"), ("seventh", "eighth"), ("ninth", "tenth", "eleventh"))
THINNED = (0.0, 0.4, 0.55)  # shares of the wordings of questions that are left out, a pass over the questions each
TOLD = 0.4  # of that share, what is left out of the wordings of facts
OWN = 0.85  # cosine from which a known way of asking is taken to have been written for the question; left out, too
PENALTY = 30.0  # of the squared weights of standardised numbers
# probabilities from which on the likeliest fact is told, that any answers and its own (`Decision`), chosen on hands left
# out and seen blind before; without a cross-encoder the sum says no more than the likeliest
HYBRID_TOLD, CROSS_ENCODER_TOLD = (0.55, 0.55), (0.66, 0.45)
CURVE = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)  # of the first
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A labelled question to one record."""

    hand: str
    share: float  # of the wordings left out
    withheld: bool  # whether the facts that answer it were taken out of the record
    found: Evidence
    answers: NDArray[np.bool_]  # whether each fact answers
    on_record: bool
    ruled: int | None  # the fact that the rules choose


def fit_lines(params: Params, folder: Path, into: Path = DECISION.parent) -> list[str]:
    """Fit the map and the weights of both ways of matching, write them, and say how well each hand's questions are
    understood that was left out of a fit.

    Args:
        params: with the embedder of hybrid matching.
        folder: of the public case sets.
        into: the folder where weights and map go.

    Raises:
        ParameterError: a set is not in the folder.
    """
    cases = cases_of(folder)
    factory = open_factory(params, ROOT / "data/kb_index")
    embed, compare = remembering(factory.embed), remembering_pairs(factory.compare)
    learned = fit_map(practised(cases), embed)
    read = [
        one for seed, share in enumerate(THINNED) for one in _questions(cases, embed, learned, compare, share, seed)
    ]
    lines = []
    for way, asked, told, file in (
        ("hybrid", [_without_cross_encoder(one) for one in read], HYBRID_TOLD, DECISION.name),
        ("cross_encoder", read, CROSS_ENCODER_TOLD, CROSS_ENCODER.name),
    ):
        lines += [f"{way:<13} {line}" for line in _left_out_lines(asked, told)]
        _write(fit(asked, told), into / file)
    save(learned, embed, into / ANSWERING.name)
    return [*lines, f"weights written to {into / DECISION.name} and {CROSS_ENCODER.name}, the map to {ANSWERING.name}"]


def _left_out_lines(asked: Sequence[Asked], told: tuple[float, float]) -> list[str]:
    fold_of = {hand: fold for fold in FOLDS for hand in fold}
    fitted = {fold: fit([one for one in asked if fold_of[one.hand] != fold], told) for fold in FOLDS}
    left_out = [(one, fitted[fold_of[one.hand]]) for one in asked if one.share == 0.0 and not one.withheld]
    lines = [_line(hand, [pair for pair in left_out if pair[0].hand == hand]) for hand in HANDS]
    return [*lines, _line("unread", [pair for pair in left_out if pair[0].hand not in TUNED])]


def _without_cross_encoder(one: Asked) -> Asked:
    facts = {name: values for name, values in one.found.facts.items() if name not in CROSS}
    return replace(one, found=replace(one.found, facts=facts))


def remembering(embed: Embed) -> Embed:
    """The same embeddings, of each text computed once."""
    known: dict[str, NDArray[np.float32]] = {}

    def embedded(texts: Sequence[str]) -> NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(new, embed(new), strict=True) if new else ())
        return np.stack([known[text] for text in texts])

    return embedded


def remembering_pairs(compare: Compare) -> Compare:
    """The same logits, of each question and text computed once."""
    known: dict[tuple[str, str], np.float32] = {}

    def compared(question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if (question, text) not in known]
        known.update(zip([(question, text) for text in new], compare(question, new), strict=True) if new else ())
        return np.array([known[question, text] for text in texts], dtype=np.float32)

    return compared


def _questions(
    cases: Mapping[str, Case], embed: Embed, learned: Answering, compare: Compare, share: float, seed: int
) -> Iterator[Asked]:
    """The evidence of the labelled questions to patients of whom no practice question asks, with this share of the wordings
    left out; of those on record also with the answers withheld.
    """
    chance, known_by_heart = random.Random(seed), practised_patients()
    lexicon, known = compiled(thinned(YAML(typ="safe").load(FILE), share, chance)), asking(embed)
    records: dict[str, TypedRecord] = {}
    for hand, halves in HANDS.items():
        for row in (row for half in halves for row in read_lines(CALIBRATION / f"patient_{half}.jsonl")):
            if row["case_id"] in known_by_heart:
                continue
            case, question = cases[row["case_id"]], row["question"]
            if case.case_id not in records:
                records[case.case_id] = typed_by(lexicon, case.facts, case.self_report, case.opening)
            record = records[case.case_id]
            fewer = _fewer(known, question, share, chance) if share else known
            answers = {fact.topic for fact in case.facts if digest(fact) in row["answers"]}
            others = tuple(typed for typed in record.facts if typed.fact.topic not in answers)
            for asked_of in (record, replace(record, facts=others)) if answers else (record,):
                matcher = QuestionMatcher(asked_of, embed, fewer, learned, compare)
                if matcher.topics:
                    yield _asked(hand, share, matcher, question, answers, withheld=asked_of is not record)


def _asked(
    hand: str, share: float, matcher: QuestionMatcher, question: str, answers: set[str], *, withheld: bool
) -> Asked:
    found = matcher.evidence(question)
    choice = found.facts["choice"]
    return Asked(
        hand=hand,
        share=share,
        withheld=withheld,
        found=found,
        answers=np.array([topic in answers for topic in matcher.topics]),
        on_record=bool(answers) and not withheld,
        ruled=int(choice.argmax()) if choice.any() else None,
    )


def thinned(source: Mapping[str, Any], share: float, chance: random.Random) -> dict[str, Any]:
    """The content of a lexicon's file without this share of its wordings of questions, and `TOLD` of it of those of facts."""
    out_of = {"ask": share, "tell": TOLD * share}
    left = dict(source)
    for section in (*SECTIONS, "aspects", "places", "circumstances"):
        left[section] = {}
        for name, entry in source[section].items():
            left[section][name] = {key: value for key, value in entry.items() if key != "both"} | {
                side: ", ".join(
                    word
                    for key in ("both", side)
                    for word in parted(entry.get(key, ""))
                    if chance.random() >= out_of[side]
                )
                for side in out_of
            }
    return left


def _fewer(known: Asking, question: str, share: float, chance: random.Random) -> Asking:
    """The ways of asking without those that may have been written for this question, and without this share of the others."""
    cosines = known.cosines(question).tolist()
    kept = [i for i, cosine in enumerate(cosines) if cosine < OWN and chance.random() >= share]
    return replace(known, concepts=tuple(known.concepts[i] for i in kept), vectors=known.vectors[kept])


def fit(asked: Sequence[Asked], told: tuple[float, float]) -> Decision:
    """The weights under which the labels are likeliest, large ones punished.

    Args:
        asked: labelled questions, one at least.
        told: from which probabilities on the likeliest fact is told, that any answers and its own.
    """
    names, nones = list(asked[0].found.facts), list(asked[0].found.none)
    facts_RK = np.concatenate([np.column_stack([one.found.facts[name] for name in names]) for one in asked])
    none_QK = np.array([[one.found.none[name] for name in nones] for one in asked])
    mean_K, spread_K, none_spread_K = facts_RK.mean(axis=0), facts_RK.std(axis=0) + 1e-9, none_QK.std(axis=0)
    none_mean_K = np.where(none_spread_K > 0, none_QK.mean(axis=0), 0.0)
    none_spread_K = np.where(none_spread_K > 0, none_spread_K, 1.0)
    likelihood = _Likelihood(
        (facts_RK - mean_K) / spread_K, (none_QK - none_mean_K) / none_spread_K, [one.answers for one in asked]
    )
    free = nones.index("always")
    found = minimize(likelihood.loss, np.zeros(len(names) + len(nones)), args=(len(names) + free,), jac=True, tol=1e-10)
    facts_K, none_K = found.x[: len(names)] / spread_K, found.x[len(names) :] / none_spread_K
    none_K[free] += facts_K @ mean_K - none_K @ none_mean_K
    return Decision(
        answered=told[0],
        likeliest=told[1],
        facts=dict(zip(names, facts_K.tolist(), strict=True)),
        none=dict(zip(nones, none_K.tolist(), strict=True)),
    )


class _Likelihood:
    """Of the labels, under weights of standardised numbers."""

    def __init__(self, facts_RK: Array, none_QK: Array, answers: Sequence[NDArray[np.bool_]]) -> None:
        self._facts_RK, self._none_QK, self._choices = facts_RK, none_QK, Choices(answers)

    def loss(self, weights_K: Array, free: int) -> tuple[float, Array]:
        """Negative log-likelihood with the penalty on all weights but that at `free`, and its gradient."""
        k = self._facts_RK.shape[1]
        loss, slope_R, slope_Q = self._choices.loss(self._facts_RK @ weights_K[:k], self._none_QK @ weights_K[k:])
        punished_K = weights_K * (np.arange(len(weights_K)) != free)
        slope_K = np.concatenate([self._facts_RK.T @ slope_R, self._none_QK.T @ slope_Q])
        return loss + PENALTY / 2 * float((punished_K**2).sum()), slope_K + PENALTY * punished_K


def shares(pairs: Sequence[tuple[Asked, Decision]], answered: float) -> tuple[float, float, float]:
    """Right and wrong of the questions on record, invented of those off it, where the likeliest fact is told from this
    probability of any on.
    """
    return _counted([(one, replace(decision, answered=answered).answer(one.found)) for one, decision in pairs])


def _counted(told: Sequence[tuple[Asked, int | None]]) -> tuple[float, float, float]:
    on = [(one, best) for one, best in told if one.on_record]
    right = sum(best is not None and bool(one.answers[best]) for one, best in on)
    wrong = sum(best is not None and not one.answers[best] for one, best in on)
    invented = sum(best is not None for one, best in told if not one.on_record)
    return right / max(len(on), 1), wrong / max(len(on), 1), invented / max(len(told) - len(on), 1)


def _line(hand: str, pairs: Sequence[tuple[Asked, Decision]]) -> str:
    rules = _counted([(one, one.ruled) for one, _ in pairs])
    points = [("rules", rules), *((f"{answered:.2f}", shares(pairs, answered)) for answered in CURVE)]
    figures = " | ".join(f"{name} " + " ".join(f"{share:.3f}" for share in found) for name, found in points)
    return f"{hand:<7} right, wrong, invented: {figures}"


def _write(decision: Decision, file: Path) -> None:
    text = io.StringIO()
    text.write(
        "# Written by `python -m commands.calibration fit_patient`: what each number of clinic.understanding.evidence weighs\n"
        "# for a fact and for none, and the probabilities from which on the likeliest fact is told.\n"
    )
    content: dict[str, Any] = {"answered": decision.answered, "likeliest": decision.likeliest}
    for part, weights in (("facts", decision.facts), ("none", decision.none)):
        content[part] = {name: round(weight, 3) for name, weight in weights.items()}
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.dump(content, text)
    file.write_text(text.getvalue(), encoding="utf-8")
