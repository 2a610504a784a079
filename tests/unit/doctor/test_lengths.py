"""What patients say first, and what doctors are taught to say, against the tokens that a rollout may have."""

import dataclasses
import logging

import pytest

from clinic.events import FoundPassage
from clinic.starter import draw_cases
from doctor.environments import ConsultationFactory, open_factory
from doctor.lengths import check_openings, warn_of_long_charts, warn_of_long_turns
from doctor.library import Shelf
from doctor.parameters import ROOT, ParameterError, load_params
from doctor.warm_start import examples
from rl.lengths import longest_turn, open_chat

PARAMS = load_params()


@pytest.fixture(scope="module")
def factory(tmp_path_factory):
    return open_factory(PARAMS, tmp_path_factory.mktemp("index"))


class Wordy:
    """A library that says as much as fits."""

    def __init__(self, tokens):
        self.tokens = tokens

    async def search(self, query, results, fits):
        del query, results
        said, longer = [], [passage("pain")]
        while fits(longer):
            said, longer = longer, [passage(f"{longer[0].text} pain")]
        return said


def passage(text):
    return FoundPassage(passage_id="9", title="Gout", text=text, source="s", licence="CC0", score=1.0)


@pytest.fixture(autouse=True)
def wordy(monkeypatch):
    monkeypatch.setattr(ConsultationFactory, "library", lambda _, count: Wordy(count))
    monkeypatch.setattr(Shelf, "find_beforehand", lambda *_: None)


@pytest.fixture(scope="module")
def chat():
    return open_chat(str(ROOT / "models/base"))


@pytest.fixture(scope="module")
def cases(factory):
    return list(draw_cases(factory.clinic, 120, 5, PARAMS.patient_cases.split, keep=["train"]))


def rollout(**changes):
    return PARAMS.rollout.model_copy(update=changes)


def tokens(factory, chat, case, opened=""):
    return len(chat.opening_ids(factory.opening(case, PARAMS.consultation.turn_budget, opened)))


def test_an_opening_is_what_the_consultation_opens_with(factory, cases):
    for opened in ("", "chart"):
        assert factory.opening(cases[0], 7, opened) == factory.consultation(cases[0], 7, opened=opened).opening()


def test_nothing_is_said_of_the_committed_parameters(factory, chat, cases, caplog):
    check_openings(factory, chat, cases, PARAMS.rollout, "training")
    warn_of_long_charts(factory, chat, cases, PARAMS.rollout)
    warn_of_long_turns(examples(chat, factory, cases, PARAMS), PARAMS.rollout)
    assert not caplog.messages


def test_a_few_long_openings_are_warned_about_and_many_end_the_run(factory, chat, cases, caplog):
    longest = max(tokens(factory, chat, case) for case in cases)
    wordy = dataclasses.replace(cases[0], self_report="I feel ill. " * 60)
    with caplog.at_level(logging.WARNING):
        check_openings(factory, chat, [*cases, wordy], rollout(max_episode_tokens=longest + 41), "validation")
    needed = tokens(factory, chat, wordy) + 41
    (told,) = caplog.messages
    assert told.startswith(
        f"params.yaml: of the openings of the validation cases 1 of {len(cases) + 1} take up to {needed - 41}"
    )
    assert told.endswith(f"rollout.max_episode_tokens is {longest + 41}; set it to {needed} or more")
    for changes in ({"max_episode_tokens": 60}, {"response_length": 440}):
        with pytest.raises(
            ParameterError, match=rf"openings of the training cases {len(cases)} of {len(cases)} take up"
        ):
            check_openings(factory, chat, cases, rollout(**changes), "training")


def test_full_instructions_with_long_turns_are_refused_with_a_length_that_would_do(chat, cases, tmp_path):
    rules = PARAMS.consultation.model_copy(update={"instructions": "full"})
    factory = open_factory(PARAMS.model_copy(update={"consultation": rules}), tmp_path)
    tight = rollout(response_length=256)
    with pytest.raises(ParameterError) as refused:
        check_openings(factory, chat, cases, tight, "training")
    needed = int(str(refused.value).split("set it to ")[1].split()[0])
    assert needed == max(tokens(factory, chat, case) for case in cases) + 257
    check_openings(factory, chat, cases, rollout(response_length=256, max_episode_tokens=needed), "training")


def test_long_charts_are_warned_about_only(factory, chat, cases, caplog):
    longest = max(tokens(factory, chat, case, "chart") for case in cases)
    with caplog.at_level(logging.WARNING):
        warn_of_long_charts(factory, chat, cases, rollout(max_episode_tokens=longest + 41))
        assert not caplog.messages
        warn_of_long_charts(factory, chat, cases, rollout(max_episode_tokens=longest + 40))
    (told,) = caplog.messages
    assert "full_information" in told
    assert f"set it to {longest + 41} or more" in told


def test_taught_turns_and_dialogues_that_cannot_be_said(factory, chat, cases, caplog):
    taught = examples(chat, factory, cases[:40], PARAMS)
    turn, dialogue = longest_turn(taught), max(len(example.token_ids) for example in taught)
    with caplog.at_level(logging.WARNING):
        warn_of_long_turns(taught, rollout(response_length=turn - 1, max_episode_tokens=dialogue - 1))
    assert (
        f"response_length is {turn - 1}, but the longest turn of the warm start has {turn} tokens" in caplog.messages[0]
    )
    assert f"set it to {dialogue} or more" in caplog.messages[1]
