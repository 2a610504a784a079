"""What the bundled base model reads: articles, charts and the resident's dialogues.

The model stands in for a pretrained one where no hub is reachable. Its cases are drawn afresh with a seed of its own,
training split only. Every dialogue and every chart excerpt also carries, as branches after each answer or fact, the
diagnoses that come to mind there (draws from Bayes' posterior, merged and weighted by their number), so that one text
teaches what can be known at each of its lengths. Only some of the resident's dialogues teach asking
too: questions drawn half at random are mostly noise to a loss, and a model that is spared it learns to weigh evidence
sooner. Half of the texts are hurried notes (words left out or shuffled), so that words count more than the wording:
patients will say the same in sentences that no training text contains.

Rounds of `asking` go on with the questions of all its dialogues, the resident now naming in its thoughts the illness it
chases: without them nothing in the text predicts what is asked next, and 168,000 questions taught only which questions
are common (.0675 nats each). In place of every question there is one more
branch: the question that the chart's diagnosis would suggest. In half of these dialogues the resident has a fixed idea
and chases it to its end; its idea is no evidence, so its thoughts carry no loss there. Later ones add checklists, the
questions for one illness, each once: from these the model learns to go on to what has not been asked, which it did not
from 140,000 questions of dialogues (repeats stayed at .43). The last one asks for the most typical finding first.

In rounds of its `own` it holds the dialogues itself. They are harder to read than the resident's, since what it misread
decides what it asks next; what should come to mind at each of its turns is learned, and none of its own words.

The `reader` goes on from there: it learns to copy names that it has never seen and to read lines of a library, beside
dialogues of an asking round, without which it forgets what it knows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from clinic.cases import Case
from clinic.consultation import Message
from clinic.dialogues import (
    Aside,
    asides,
    chart_dialogue,
    chart_excerpt,
    chart_interview,
    checklist,
    final_turn,
    hasty,
    hurried,
    minds,
    resident_dialogue,
    shorter,
    topic_matcher,
)
from clinic.doctors import Ask, anchored, resident
from clinic.generative import GenerativeClinic
from clinic.language import Phrases
from clinic.matching import TopicMatcher
from clinic.starter import draw_cases, load_starter
from doctor.base_model_recipe import BaseModelParams, OwnRoundParams, ResidentParams
from doctor.environments import ConsultationFactory
from doctor.lookups import exercises, lookup_examples, name_lists
from doctor.parameters import ROOT, LookupParams
from rl.branches import Branch
from rl.chat import ChatFormat
from rl.experience import Trajectory
from rl.models import new_tokenizer
from rl.sft import Example

Hold = Callable[[Sequence[Case]], Sequence[Trajectory]]
ARTICLE_TOKENS = 200
TOKENIZER_DIALOGUES = 8000


def first_texts(params: BaseModelParams) -> tuple[ChatFormat, list[Example]]:
    """The chat format of a new tokenizer, and what the first phase reads in it."""
    section = params.base_model
    starter = params.patient_cases.starter
    clinic = load_starter(ROOT / starter.directory, starter.second_complaint, starter.language)
    articles = [
        path.read_text(encoding="utf-8") for path in sorted((ROOT / starter.directory / "articles").glob("*.md"))
    ]
    cases = list(draw_cases(clinic, section.cases, section.seed, params.patient_cases.split, keep=["train"]))
    rng = np.random.default_rng(section.seed)
    matcher, rules, ask = (
        topic_matcher(clinic),
        params.consultation,
        resident(params.warm_start.random_share, aloud=False, typicality=section.first_phase_typicality),
    )
    aloud = resident(params.warm_start.random_share, aloud=True)
    sample = [
        resident_dialogue(clinic, case, matcher, rules, aloud, rng, to_the_end=True)
        for case in cases[:TOKENIZER_DIALOGUES]
    ]
    tokenizer = new_tokenizer(
        [*articles, *(message["content"] for dialogue in sample for message in dialogue)], section.vocabulary
    )
    chat = ChatFormat(tokenizer)
    return chat, [
        *_article_pieces(chat, articles * section.article_repeats),
        *_charts(chat, cases, params),
        *_dialogues(chat, clinic, cases, params, matcher, ask, rng),
        *_interviews(chat, clinic, cases, params, section.posterior_weight, rng),
        *_excerpts(chat, clinic, cases, params, section.posterior_weight, rng),
    ]


def round_texts(
    params: BaseModelParams, number: int, factory: ConsultationFactory, chat: ChatFormat, hold: Hold
) -> list[Example]:
    """What round `number` (from 1) reads, on fresh training cases; `hold` lets the model hold dialogues itself."""
    section = params.base_model
    lesson = section.rounds[number - 1]
    rng = np.random.default_rng([section.seed, 1 + number])
    count = lesson.dialogues + lesson.charts if lesson.kind == "asking" else lesson.dialogues
    cases = list(draw_cases(factory.clinic, count, section.seed + number, params.patient_cases.split, keep=["train"]))
    if lesson.kind == "own":
        return list(_own_dialogues(chat, factory, cases, hold(cases), params, lesson, rng))
    dialogues, charts = cases[: lesson.dialogues], cases[lesson.dialogues :]
    return [
        *_asking_dialogues(chat, factory.clinic, dialogues, params, lesson, rng),
        *_checklists(chat, factory.clinic, lesson, params, rng),
        *_interviews(chat, factory.clinic, charts, params, lesson.posterior_weight, rng),
        *_excerpts(chat, factory.clinic, charts, params, lesson.posterior_weight, rng),
    ]


def reading_texts(
    params: BaseModelParams, number: int, factory: ConsultationFactory, chat: ChatFormat
) -> list[Example]:
    """What round `number` (from 1) of the reader reads, on fresh training cases.

    Args:
        params: with the recipe.
        number: of the round.
        factory: of the whole clinic, whose rare names no invented condition may have.
        chat: of the model.
    """
    section, clinic, split = params.base_model, factory.common.clinic, params.patient_cases.split
    reader = section.reader
    lesson, seed = reader.rounds[number - 1], section.seed + len(section.rounds) + number
    rng = np.random.default_rng([section.seed, 101, number])
    cases = list(draw_cases(clinic, lesson.dialogues, seed, split, keep=["train"]))
    texts = [
        *name_lists(chat, factory.clinic, lesson.lists, reader.names, reader.tokens, rng),
        *exercises(chat, factory, lesson.exercises, reader.lines, reader.charts, reader.invented, rng),
        *_asking_dialogues(chat, clinic, cases, params, lesson, rng),
        *_checklists(chat, clinic, lesson, params, rng),
    ]
    if lesson.searches:
        drawn = LookupParams(invented=reader.invented, dialogues=lesson.searches, known_share=reader.known_share)
        texts += lookup_examples(chat, factory, cases, drawn, params, seed)
    return texts


def _own_dialogues(
    chat: ChatFormat,
    factory: ConsultationFactory,
    cases: list[Case],
    played: Sequence[Trajectory],
    params: BaseModelParams,
    lesson: OwnRoundParams,
    rng: np.random.Generator,
) -> Iterator[Example]:
    """Dialogues that the model held itself: what should come to mind at each of its turns, and none of its own words.

    Source: dataset aggregation (DAgger), arXiv:1011.0686.
    """
    for case, trajectory in zip(cases, played, strict=True):
        if trajectory.turns:  # a failed episode has none
            dialogue = [*_before_the_last_turn(trajectory.texts), final_turn(case)]
            said = asides(factory.clinic, case, factory.topics, dialogue, params.base_model.posterior_draws, rng)
            yield _example(chat, factory.clinic.words, dialogue, said, lesson.posterior_weight, asking=False)


def _before_the_last_turn(messages: Sequence[Message]) -> Sequence[Message]:
    return messages[: max(place for place, message in enumerate(messages) if message["role"] == "assistant")]


def _asking_dialogues(
    chat: ChatFormat,
    clinic: GenerativeClinic,
    cases: list[Case],
    params: BaseModelParams,
    lesson: ResidentParams,
    rng: np.random.Generator,
) -> Iterator[Example]:
    section, warm, matcher = params.base_model, params.warm_start, topic_matcher(clinic)
    free = resident(
        section.asking_random_share,
        aloud=warm.think_aloud,
        typicality=lesson.typicality,
        unrelated_share=warm.unrelated_share,
    )
    for case in cases:
        short = lesson.short_share > 0 and rng.random() < lesson.short_share
        rules = shorter(params.consultation, rng) if short else params.consultation
        fixed = rng.random() < section.anchored_share
        ask = (
            anchored(
                clinic,
                [clinic.finding_index[topic] for topic in case.opening],
                lesson.typicality,
                warm.unrelated_share,
                rng,
            )
            if fixed
            else free
        )
        dialogue = resident_dialogue(clinic, case, matcher, rules, ask, rng, to_the_end=True)
        said = asides(clinic, case, matcher, dialogue, section.posterior_draws, rng, typicality=lesson.typicality)
        example = _example(
            chat,
            clinic.words,
            _some_hurried(clinic.words, dialogue, params, rng),
            said,
            lesson.posterior_weight,
            asking=True,
            chase=True,
        )
        yield _without_thoughts(chat, example) if fixed else example


def _checklists(
    chat: ChatFormat,
    clinic: GenerativeClinic,
    lesson: ResidentParams,
    params: BaseModelParams,
    rng: np.random.Generator,
) -> Iterator[Example]:
    for _ in range(lesson.checklists):
        condition = clinic.conditions[int(rng.integers(len(clinic.conditions)))]
        yield _without_thoughts(
            chat,
            Example(
                *chat.dialogue_ids(checklist(clinic, condition, params.consultation, lesson.checklist_typicality, rng))
            ),
        )


def _article_pieces(chat: ChatFormat, articles: list[str]) -> Iterator[Example]:
    for article in articles:
        ids = chat.content_ids(article)
        for start in range(0, len(ids) - 1, ARTICLE_TOKENS):
            piece = ids[start : start + ARTICLE_TOKENS]
            yield Example(piece, [0] + [1] * (len(piece) - 1))


def _charts(chat: ChatFormat, cases: list[Case], params: BaseModelParams) -> Iterator[Example]:
    for case in cases[::10]:
        yield Example(*chat.dialogue_ids(chart_dialogue(case, params.consultation)))


def _naming_branches(  # noqa: PLR0913  the parts of one branch
    chat: ChatFormat,
    words: Phrases,
    minds: Mapping[str, float],
    weight: float,
    cut: int,
    number: int,
    *,
    aloud: bool = False,
    before: Sequence[int] = (),
) -> list[Branch]:
    """The words before a diagnosis or, `aloud`, before a thought, as branch `number` of its text; then the name of each
    condition that comes to mind, learned by its share.
    """
    keyword = words.diagnosis.rstrip()
    head = (*before, *chat.content_ids(f"{'<think>' if aloud else '<answer>'}{keyword}"))
    names = [(tuple(chat.content_ids(words.diagnosis[len(keyword) :] + name)), share) for name, share in minds.items()]
    return [
        Branch(cut, head, (0.0,) * len(head)),
        *(Branch(cut, ids, (weight * share,) * len(ids), after=number) for ids, share in names),
    ]


def _dialogues(
    chat: ChatFormat,
    clinic: GenerativeClinic,
    cases: list[Case],
    params: BaseModelParams,
    matcher: TopicMatcher,
    ask: Ask,
    rng: np.random.Generator,
) -> Iterator[Example]:
    for place, case in enumerate(cases):
        dialogue = resident_dialogue(clinic, case, matcher, params.consultation, ask, rng, to_the_end=True)
        said = asides(clinic, case, matcher, dialogue, params.base_model.posterior_draws, rng)
        asking = place % params.base_model.asking_every == 0
        yield _example(
            chat,
            clinic.words,
            _some_hurried(clinic.words, dialogue, params, rng),
            said,
            params.base_model.posterior_weight,
            asking=asking,
        )


def _interviews(
    chat: ChatFormat,
    clinic: GenerativeClinic,
    cases: list[Case],
    params: BaseModelParams,
    weight: float,
    rng: np.random.Generator,
) -> Iterator[Example]:
    section, matcher = params.base_model, topic_matcher(clinic)
    for case in cases:
        for _ in range(section.interviews_per_case):
            dialogue = chart_interview(clinic, case, matcher, params.consultation, section.interview_repeats, rng)
            said = asides(clinic, case, matcher, dialogue, section.posterior_draws, rng)
            yield _example(
                chat, clinic.words, _some_hurried(clinic.words, dialogue, params, rng), said, weight, asking=False
            )


def _some_hurried(
    words: Phrases, dialogue: list[Message], params: BaseModelParams, rng: np.random.Generator
) -> list[Message]:
    section = params.base_model
    return hurried(dialogue, section.hasty_left_out, rng, words) if rng.random() < section.hasty_share else dialogue


def _example(
    chat: ChatFormat,
    words: Phrases,
    dialogue: list[Message],
    said: Sequence[Aside],
    weight: float,
    *,
    asking: bool,
    chase: bool = False,
) -> Example:
    """A dialogue with branches in place of every question: what comes to mind, as diagnoses or as thoughts in turn, and
    with `chase` the chart's chase.

    The diagnosis at its end is always learned, the questions only with `asking`.
    """
    ids, mask = chat.dialogue_ids(dialogue)
    starts = _turn_starts(mask)
    branches: list[Branch] = []
    # from any place: either comes at every turn
    for place, (cut, aside) in enumerate(zip(starts[:-1], said, strict=True), len(ids)):
        branches += _naming_branches(chat, words, aside.minds, weight, cut, len(branches), aloud=place % 2 == 1)
        if chase:
            text = chat.content_ids(aside.chase)
            branches.append(Branch(cut, tuple(text), (1.0,) * len(text)))
    return Example(ids, mask if asking else [*[0] * starts[-1], *mask[starts[-1] :]], tuple(branches))


def _without_thoughts(chat: ChatFormat, example: Example) -> Example:
    """The same with no loss on the thoughts of the dialogue itself; those among the branches stay."""
    (start,), (end,) = chat.content_ids("<think>"), chat.content_ids("</think>")
    thinking, mask = False, []
    for token, learned in zip(example.token_ids, example.loss_mask, strict=True):
        thinking = thinking or (token == start and learned == 1)
        mask.append(0 if thinking else learned)
        thinking = thinking and token != end
    return replace(example, loss_mask=mask)


def _turn_starts(mask: Sequence[int]) -> list[int]:
    return [i for i in range(1, len(mask)) if mask[i] and not mask[i - 1]]


def _excerpts(
    chat: ChatFormat,
    clinic: GenerativeClinic,
    cases: list[Case],
    params: BaseModelParams,
    weight: float,
    rng: np.random.Generator,
) -> Iterator[Example]:
    words = clinic.words
    chart, end = words.chart.split("{}")
    system = [
        {"role": "system", "content": words.instructions[params.consultation.instructions]},
        {"role": "user", "content": chart.rstrip()},
    ]
    opening = chat.opening_ids(system)
    after = chat.after_reply_ids
    head = opening[: len(opening) - len(after)]
    close = [*chat.content_ids(words.turns_left.format(end, 1)), *after]
    section = params.base_model
    for case in cases:
        for _ in range(section.excerpts_per_case):
            ids, branches = list(head), list[Branch]()
            told: dict[int, bool] = {}
            complaints = [clinic.finding_index[topic] for topic in case.opening]
            hurry = rng.random() < section.hasty_share
            for place, fact in enumerate(chart_excerpt(case, section.excerpt_facts, rng)):
                text = hasty(fact.text, section.hasty_left_out, rng, words.space) if hurry else fact.text
                ids += chat.content_ids((words.list_comma if place else chart[len(chart.rstrip()) :]) + text)
                if fact.topic not in case.opening:
                    told[clinic.finding_index[fact.topic]] = fact.present
                if place + 1 >= len(complaints):
                    branches += _naming_branches(
                        chat,
                        words,
                        minds(clinic, complaints, told, section.posterior_draws, rng),
                        weight,
                        len(ids),
                        len(branches),
                        before=close,
                    )
            yield Example(ids, [0] * len(ids), tuple(branches))
