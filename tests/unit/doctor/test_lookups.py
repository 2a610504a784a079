"""Lessons in looking things up: what they read, and what they must not."""

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

from clinic.lookups import QUERY_FINDINGS
from clinic.starter import draw_cases
from doctor.base_model import reading_texts
from doctor.base_model_recipe import BaseModelParams, load_reader_params
from doctor.environments import ConsultationFactory, open_factory
from doctor.lookups import lookup_examples, name_lists
from doctor.parameters import ROOT, Params, parse_params
from doctor.profiles import rewritten
from doctor.warm_start import examples
from rl.chat import ChatFormat
from rl.lengths import open_chat
from rl.models import load_model

RUN = 8  # words in a row, besides names of findings, that no warm start may share with a rare article


@pytest.fixture(scope="module")
def params() -> Params:
    content = YAML(typ="safe").load(io.StringIO(rewritten("rare")[ROOT / "params.yaml"]))
    lookups = content["warm_start"]["lookups"]
    lookups |= {"invented": 60, "dialogues": 120}
    return parse_params(content, ROOT / "params.yaml")


@pytest.fixture(scope="module")
def reader() -> BaseModelParams:
    """One small round of the model that can read, of everything."""
    whole = load_reader_params()
    few = {"lists": 20, "exercises": 40, "searches": 40, "dialogues": 20, "checklists": 5}
    rounds = [lesson.model_copy(update=few) for lesson in whole.base_model.reader.rounds[:1]]
    section = whole.base_model.reader.model_copy(update={"invented": 60, "rounds": rounds})
    return whole.model_copy(update={"base_model": whole.base_model.model_copy(update={"reader": section})})


@pytest.fixture(scope="module")
def chat() -> ChatFormat:
    return open_chat(str(ROOT / "models/base"))


@pytest.fixture(scope="module")
def factory(params: Params) -> ConsultationFactory:
    return open_factory(params, ROOT / "data/kb_index")


@pytest.fixture(scope="module")
def lessons(params: Params, chat: ChatFormat, factory: ConsultationFactory, reader: BaseModelParams) -> list[list[int]]:
    """Token ids of all that a small reader and a small warm start of the profile read."""
    return _lessons(params, chat, factory, reader)


def _lessons(
    params: Params, chat: ChatFormat, factory: ConsultationFactory, reader: BaseModelParams
) -> list[list[int]]:
    cases = list(draw_cases(factory.clinic, 250, 11, params.patient_cases.split, keep=["train"]))
    common = [case for case in cases if factory.common.draws(case)]
    assert len(common) < len(cases)
    lookups = params.warm_start.lookups
    assert lookups is not None
    searching = lookup_examples(chat, factory, common, lookups, params, params.seed)
    warm_start = [list(example.token_ids) for example in (*searching, *examples(chat, factory.common, common, params))]
    assert max(map(len, warm_start)) <= params.rollout.max_episode_tokens
    return [*(list(example.token_ids) for example in reading_texts(reader, 1, factory, chat)), *warm_start]


def test_no_rare_condition_stands_in_the_warm_start(params, chat, factory, lessons):
    texts = "\n".join(chat.text(ids) for ids in lessons).lower()
    assert "pneumonia" in texts
    for condition in factory.clinic.rare.conditions:
        for name in (condition.name, *condition.synonyms):
            assert f" {name.lower()}" not in texts, name
    names = sorted((finding.name.lower() for finding in factory.clinic.findings), key=len, reverse=True)
    runs = {run for ids in lessons for run in _runs(chat.text(ids), names)}
    for path in sorted((ROOT / "data/rare/articles").glob("*.md")):
        text = re.sub(r"(?m)^#.*", "", path.read_text(encoding="utf-8").split("---", 2)[-1])  # headings are everybody's
        assert not runs & set(_runs(text, names)), path.name


def _runs(text: str, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every few words in a row, without the names of findings, which stand in lists everywhere."""
    said = re.findall(r"\w+", reduce(lambda left, name: left.replace(name, " "), names, text.lower()))
    return (tuple(said[i : i + RUN]) for i in range(len(said) - RUN + 1))


def test_no_rare_condition_stands_in_what_the_base_model_reads(factory):
    texts = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "data/starter").rglob("*.*")).lower()
    for condition in factory.clinic.rare.conditions:
        for name in (condition.name, *condition.synonyms):
            assert f" {name.lower()}" not in texts, name


def test_the_lessons_follow_from_the_seed(params, chat, factory, lessons, reader):
    assert lessons == _lessons(params, chat, factory, reader)
    assert lessons != _lessons(params.model_copy(update={"seed": 1}), chat, factory, reader)


def test_lists_are_said_again_to_the_letter_half_of_them_of_pieces_at_random(chat, factory):
    lists = list(name_lists(chat, factory.clinic, 200, 3, 60, np.random.default_rng(0)))
    taken = {name.lower() for name in (c.name for c in factory.clinic.conditions)}
    names = 0
    for example in lists:
        once = example.loss_mask.index(1)
        ids = example.token_ids
        assert set(example.loss_mask[once:]) == {1}
        assert all(ids[at] == ids[at % once] for at in range(len(ids)))
        assert not set(ids) & set(chat.tokenizer.all_special_ids)
        listed = chat.text(ids[:once]).removesuffix(",").split(", ")
        names += chat.text(ids[:once]).endswith(",")
        assert not {name.strip().lower() for name in listed} & taken
    assert 70 < names < 130


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_bundled_reader_copies_names_that_it_never_met_and_the_base_does_not(factory, chat, seed):
    """Real names of rare conditions, written a second time in lists of four; what is left of each after its first piece."""
    rng, copied = np.random.default_rng(seed), {}
    names = [chat.content_ids(f" {condition.name},") for condition in factory.clinic.rare.conditions]
    lists = [[names[int(row)] for row in rng.choice(len(names), 4, replace=False)] for _ in range(20)]
    for model in ("reader", "base"):
        policy, _ = load_model(str(ROOT / "models" / model), "float32")
        shares = []
        for listed in lists:
            twice = torch.tensor([[piece for name in listed for piece in name] * 2])
            with torch.inference_mode():
                logprobs = policy(input_ids=twice).logits[0].float().log_softmax(-1)
            at = twice.shape[1] // 2
            for name in listed:
                told = [logprobs[at + n - 1, piece] for n, piece in enumerate(name)][1:]
                shares.append(float(torch.stack(told).sum().exp()))
                at += len(name)
        copied[model] = np.mean(shares)
    assert copied["reader"] >= 0.8
    assert copied["base"] <= 0.05


@pytest.mark.parametrize("budget", [2, -1])
def test_a_lesson_fits_any_turn_budget(params, chat, factory, budget):
    lookups = params.warm_start.lookups.model_copy(update={"known_share": 0, "dialogues": 20})
    rules = replace(factory, rules=factory.rules.model_copy(update={"turn_budget": budget}))
    for example in lookup_examples(chat, rules, [], lookups, params, params.seed):
        assert chat.text(example.token_ids).count("<answer>Search: ") == 1


def test_a_lesson_searches_for_what_was_told_and_names_what_was_found(params, chat, factory):
    lookups = params.warm_start.lookups
    assert lookups is not None
    cases = list(draw_cases(factory.common.clinic, 30, 3, params.patient_cases.split, keep=["train"]))
    known = {condition.name for condition in factory.clinic.conditions}
    invented = 0
    for example in lookup_examples(chat, factory, cases, lookups, params, params.seed):
        text = chat.text(example.token_ids)
        assert text.count("<answer>Search: ") == 1
        reply, turn = text.split("Library <<")[1].split("<answer>Diagnosis: ")
        named = turn.splitlines()[0]
        if named not in known:
            invented += 1
            assert reply.split("] ")[1].startswith(f"{named}, ")  # the first line
    assert invented == round(lookups.dialogues * (1 - lookups.known_share))


def test_before_each_question_what_was_told_so_far_could_be_searched_for(params, chat, factory):
    lookups = params.warm_start.lookups
    assert lookups is not None
    names = {finding.name for finding in factory.clinic.findings}
    alone = lookups.model_copy(update={"known_share": 0})
    for example in lookup_examples(chat, factory, [], alone, params, params.seed):
        told: list[str] = []
        for asked, branch in enumerate(example.branches):
            before = chat.text(example.token_ids[: branch.cut])
            assert before.count("<answer>Question: ") == asked
            head = branch.loss_weight.count(0.0)
            assert branch.loss_weight == (0.0,) * head + (1.0,) * (len(branch.token_ids) - head)
            assert chat.text(branch.token_ids[:head]) == "<answer>Search:"
            wanted = chat.text(branch.token_ids).removeprefix("<answer>Search: ").removesuffix("</answer>").split(", ")
            assert set(wanted) <= names
            assert asked == 0 or wanted in (told, [*told, wanted[-1]][-QUERY_FINDINGS:])
            told = wanted
        assert chat.text(example.token_ids).count("<answer>Question: ") == len(example.branches)
