"""Lessons in looking things up, as examples, and how well a policy copies what it reads.

They go from the part to the whole: names alone, which teach to copy; lines and charts, which teach to choose; whole
consultations with a search. The first two are for a base model, the last for the warm start too.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from clinic.cases import Case
from clinic.consultation import Message
from clinic.doctors import resident
from clinic.generative import GenerativeClinic
from clinic.invented import invented_clinic, invented_name, name_words
from clinic.language import Phrases
from clinic.lookups import lookup_dialogue, reading_exercise
from clinic.starter import draw_cases
from doctor.environments import ConsultationFactory
from doctor.parameters import LookupParams, Params
from rl.branches import Branch
from rl.chat import ChatFormat
from rl.ranking import Rank
from rl.sft import Example

PIECES = 6  # of the tokenizer, as long as a name
PIECES_SHARE = 0.5  # of the lists: of pieces at random in place of names


def name_lists(
    chat: ChatFormat, clinic: GenerativeClinic, count: int, names: int, tokens: int, rng: np.random.Generator
) -> Iterator[Example]:
    """Lists of one to `names` invented names, written again until they are about `tokens` long; what is learned is to
    write them again. Half of them are lists of pieces at random: nothing but copying tells what comes next, so that a
    small model finds it out in thousands of steps instead of not at all, and of every piece alike.
    """
    taken, words = reserved(clinic), name_words(clinic)
    control = set(chat.tokenizer.all_special_ids)
    pieces = [piece for piece in range(len(chat.tokenizer)) if piece not in control]
    for _ in range(count):
        listed = range(int(rng.integers(1, names + 1)))
        if rng.random() < PIECES_SHARE:
            ids = rng.choice(pieces, PIECES * len(listed)).tolist()
        else:
            ids = chat.content_ids("".join(f" {invented_name(rng, words, taken)}," for _ in listed))
        again = max(tokens // len(ids) - 1, 1)
        yield Example(ids * (1 + again), [0] * len(ids) + [1] * (len(ids) * again))


def exercises(
    chat: ChatFormat,
    factory: ConsultationFactory,
    count: int,
    lines: int,
    charts: int,
    invented: int,
    rng: np.random.Generator,
) -> Iterator[Example]:
    """One to `lines` lines of a library of `invented` conditions, then charts, and the line that each fits."""
    stocked = invented_clinic(factory.clinic.common, invented, reserved(factory.clinic), rng)
    for _ in range(count):
        shown = int(rng.integers(1, lines + 1))
        yield Example(*chat.dialogue_ids(reading_exercise(stocked, factory.rules, shown, charts, rng)))


def lookup_examples(
    chat: ChatFormat,
    factory: ConsultationFactory,
    cases: Sequence[Case],
    lookups: LookupParams,
    params: Params,
    seed: int,
) -> Iterator[Example]:
    """Consultations with a search: of invented conditions and, `known_share` of them, of these cases."""
    rng = np.random.default_rng([seed, 5])
    invented = _invented(factory, lookups, seed, 5)
    known = round(lookups.known_share * lookups.dialogues)
    drawn = draw_cases(invented, lookups.dialogues - known, seed, params.patient_cases.split, keep=["train"])
    section = params.warm_start
    ask = resident(
        section.random_share,
        aloud=section.think_aloud,
        typicality=section.typicality,
        unrelated_share=section.unrelated_share,
    )
    for case in [*drawn, *(cases[int(i)] for i in rng.integers(len(cases), size=known))]:
        lookup = lookup_dialogue(
            factory.clinic.common, invented.conditions, case, factory.topics.match, factory.rules, ask, chat.count, rng
        )
        yield _with_searches(chat, factory.clinic.words, *lookup)


def _with_searches(chat: ChatFormat, words: Phrases, dialogue: Sequence[Message], searches: Sequence[str]) -> Example:
    """A dialogue with a branch before each question, what could be searched for there; that it is searched carries no
    loss, only for what.
    """
    ids, mask = chat.dialogue_ids(dialogue)
    starts = [i for i in range(1, len(mask)) if mask[i] and not mask[i - 1]]
    branches = []
    for cut, turn in zip(starts, searches, strict=False):
        keyword = f"<answer>{words.search.rstrip()}"
        before, after = chat.content_ids(keyword), chat.content_ids(turn.removeprefix(keyword))
        branches.append(Branch(cut, (*before, *after), (0.0,) * len(before) + (1.0,) * len(after)))
    return Example(ids, mask, tuple(branches))


def copying_accuracy(
    rank: Rank, chat: ChatFormat, factory: ConsultationFactory, lookups: LookupParams, seed: int, count: int
) -> dict[str, float]:
    """How often the policy would name the line that fits, of two lines of conditions that no lesson had.

    Returns:
        right_line: share in which the fitting line's name is likelier than the other line's; copied: share in which it
        is likelier than that of a condition which is not shown.
    """
    rng = np.random.default_rng([seed, 6])
    invented = _invented(factory, lookups, seed, 6)
    right, copied = [], []
    for _ in range(count):
        dialogue = reading_exercise(invented, factory.rules, 2, 1, rng)
        names = [line.split("] ", 1)[1].split(",")[0] for line in dialogue[1]["content"].splitlines() if line[0] == "["]
        named = dialogue[-1]["content"].split(factory.clinic.words.diagnosis)[1].splitlines()[0]
        other = next(name for name in names if name != named)
        unseen = invented.conditions[int(rng.integers(len(invented.conditions)))].name
        prefix = chat.dialogue_ids([*dialogue[:-1], {"role": "assistant", "content": ""}])[0][:-1]
        turns = [
            chat.content_ids(f"<answer>{factory.clinic.words.diagnosis}{name}\n") for name in (named, other, unseen)
        ]
        score_3 = rank([prefix], turns)[0].tolist()
        right.append(score_3[0] > score_3[1])
        copied.append(score_3[0] > score_3[2])
    return {"right_line": round(float(np.mean(right)), 4), "copied": round(float(np.mean(copied)), 4)}


def reserved(clinic: GenerativeClinic) -> frozenset[str]:
    """Names of a clinic's conditions, the rare ones too, which no invented one may have; in small letters."""
    return frozenset(name.lower() for condition in clinic.conditions for name in (condition.name, *condition.synonyms))


def _invented(factory: ConsultationFactory, lookups: LookupParams, seed: int, lesson: int) -> GenerativeClinic:
    rng = np.random.default_rng([seed, 100 + lesson])
    return invented_clinic(factory.clinic.common, lookups.invented, reserved(factory.clinic), rng)
