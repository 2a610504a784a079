"""The bundled base model's training, tiny."""

import hashlib
import json

import numpy as np
import pytest

from clinic.dialogues import asides, resident_dialogue, topic_matcher
from clinic.doctors import anchored, resident
from clinic.starter import draw_cases, load_starter
from doctor.base_model import _before_the_last_turn, _example, _excerpts, _without_thoughts, first_texts
from doctor.base_model_recipe import BaseModelParams, load_base_model_params
from doctor.parameters import ROOT, ParameterError
from rl.chat import ChatFormat


@pytest.fixture(scope="module")
def params() -> BaseModelParams:
    raw = load_base_model_params().model_dump()
    tiny = {"cases": 30, "article_repeats": 1, "vocabulary": 600, "width": 32, "layers": 1, "heads": 2}
    raw["base_model"] |= tiny
    for lesson in raw["base_model"]["rounds"]:
        lesson |= {name: min(lesson[name], 6) for name in ("dialogues", "checklists", "charts") if name in lesson}
    return BaseModelParams.model_validate(raw)


def test_every_round_trains_with_the_shared_numbers_but_for_what_it_names():
    recipe = load_base_model_params().base_model
    shared = {"epochs": 1, "optimizer": "muon", "warmup_share": 0.03, "weight_decay": 0.01, "max_grad_norm": 1.0}
    assert recipe.sft.model_dump() == shared | {
        "batch_size": 16,
        "learning_rate": 3e-3,
        "micro_batch_tokens": 2048,
        "seed": 1,
    }
    named = [lesson.sft.model_dump() for lesson in recipe.rounds]
    assert all(numbers.items() >= shared.items() and numbers["micro_batch_tokens"] == 4096 for numbers in named)
    assert [numbers["batch_size"] for numbers in named] == [16, 8, 8, 16, 16, 16, 16, 16, 16]
    assert [numbers["learning_rate"] for numbers in named] == [2e-3, 3e-3, 3e-3, 2e-3, 3e-3, 1e-3, 1e-3, 2e-3, 1e-3]
    assert [numbers["seed"] for numbers in named] == [2, 3, 4, 5, 6, 7, 9, 10, 11]


def test_the_whole_recipe_is_the_one_that_made_the_bundled_models():
    """Rounds written out: a change of how they are written must not change what they say."""
    recipe = load_base_model_params().base_model.model_dump(mode="json")
    reader = recipe.pop("reader")
    assert _digest(recipe) == "0a23a65e1a610704c7587494f706a936b3eec22ccd810b74f3c630e47addab13"
    assert _digest(reader) == "f94a071ba9fe290ee635766c7641cc65fd97c5292fb8d018fb89b8773cbbb8c2"


def _digest(content):
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def test_a_misspelt_number_of_a_round_is_one_line(tmp_path):
    path = tmp_path / "base_model.yaml"
    path.write_text(
        (ROOT / "recipes/base_model.yaml").read_text().replace("sft: {batch_size: 8,", "sft: {batchsize: 8,", 1)
    )
    with pytest.raises(
        ParameterError,
        match=r"base_model\.yaml: unknown key rounds\.1\.sft\.batchsize = 8; did you mean batch_size\?$",
    ):
        load_base_model_params(None, path)


@pytest.fixture(scope="module")
def chat(params) -> ChatFormat:
    """Of the tokenizer that its texts make."""
    return first_texts(params)[0]


def test_the_last_turn_of_its_own_dialogue_makes_room_for_the_chart():
    texts = [
        {"role": role, "content": role[0] + str(place)}
        for place, role in enumerate(["system", "user", "assistant", "user", "assistant", "user"])
    ]
    assert [m["content"] for m in _before_the_last_turn(texts)] == ["s0", "u1", "a2", "u3"]


def test_branches_are_what_comes_to_mind_and_the_chase(params, chat):
    starter = params.patient_cases.starter
    clinic = load_starter(ROOT / starter.directory, starter.second_complaint)
    matcher, ask = topic_matcher(clinic), resident(0.5, aloud=True)
    seen = set()
    for case in draw_cases(clinic, 8, 5, params.patient_cases.split, keep=["train"]):
        rng = np.random.default_rng(1)
        dialogue = resident_dialogue(clinic, case, matcher, params.consultation, ask, rng, to_the_end=True)
        turns = [m["content"] for m in dialogue if m["role"] == "assistant"]
        said = asides(clinic, case, matcher, dialogue, 5, rng)
        for asking, chase in ((True, True), (False, False)):
            example = _example(chat, clinic.words, dialogue, said, 4.0, asking=asking, chase=chase)
            ids, mask = example.token_ids, example.loss_mask
            starts = [i for i in range(1, len(ids)) if ids[i - 1] == chat.after_reply_ids[-1]]
            texts, weights = {}, {}
            for branch in example.branches:
                before = () if branch.after is None else example.branches[branch.after].token_ids
                assert branch.after is None or example.branches[branch.after].cut == branch.cut
                text = chat.tokenizer.decode((*before, *branch.token_ids))
                assert (*before, *branch.token_ids) == tuple(chat.content_ids(text))  # as it would be sampled
                if max(branch.loss_weight):
                    texts.setdefault(starts.index(branch.cut), []).append(text)
                    weights.setdefault(starts.index(branch.cut), []).append(branch.loss_weight)
            assert sorted(texts) == list(range(len(turns) - 1))
            for turn, aside in enumerate(said):
                aloud = texts[turn][0].startswith("<think>")
                seen.add((aloud, turn))
                named = [f"{'<think>' if aloud else '<answer>'}Diagnosis: {name}" for name in aside.minds]
                assert texts[turn] == [*named, *[aside.chase] * chase]
                shares = [4.0 * share for share in aside.minds.values()]
                assert [w[0] for w in weights[turn]] == pytest.approx([*shares, *[1.0] * chase])
                assert all(len(set(w)) == 1 for w in weights[turn])
            learned = chat.tokenizer.decode([t for t, m in zip(ids, mask, strict=True) if m])
            assert (turns[0] in learned) == asking
            assert turns[-1] in learned
    assert seen == {(kind, turn) for kind in (True, False) for turn in range(params.consultation.turn_budget - 1)}


def test_an_excerpt_is_read_after_each_of_its_facts(params, chat):
    starter = params.patient_cases.starter
    clinic = load_starter(ROOT / starter.directory, starter.second_complaint)
    cases = list(draw_cases(clinic, 6, 5, params.patient_cases.split, keep=["train"]))
    examples = list(
        _excerpts(chat, clinic, cases, params, params.base_model.posterior_weight, np.random.default_rng(0))
    )
    assert len(examples) == len(cases) * params.base_model.excerpts_per_case
    for example in examples:
        heads = [b for b in example.branches if b.after is None]
        assert [b.cut for b in heads] == sorted({b.cut for b in heads})
        assert heads[-1].cut == len(example.token_ids)
        for place, head in enumerate(example.branches):
            if head.after is None:
                assert chat.tokenizer.decode(head.token_ids).endswith("<answer>Diagnosis:")
                total = sum(b.loss_weight[0] for b in example.branches if b.after == place)
                assert total == pytest.approx(params.base_model.posterior_weight)


def test_fixed_ideas_are_not_learned_but_the_questions_after_them_are(params, chat):
    starter = params.patient_cases.starter
    clinic = load_starter(ROOT / starter.directory, starter.second_complaint)
    matcher = topic_matcher(clinic)
    (case,) = draw_cases(clinic, 1, 5, params.patient_cases.split, keep=["train"])
    rng = np.random.default_rng(1)
    dialogue = resident_dialogue(
        clinic, case, matcher, params.consultation, anchored(clinic, [0], 1.0, 1.0, rng), rng, to_the_end=True
    )
    example = _without_thoughts(
        chat, _example(chat, clinic.words, dialogue, asides(clinic, case, matcher, dialogue, 3, rng), 4.0, asking=True)
    )
    turns = [m["content"] for m in dialogue if m["role"] == "assistant"]
    learned = chat.tokenizer.decode([t for t, m in zip(example.token_ids, example.loss_mask, strict=True) if m])
    assert learned == "<|end|>".join([*(turn.partition("</think>")[2] for turn in turns[:-1]), turns[-1], ""])
    assert sum(sum(b.loss_weight) > 0 for b in example.branches) >= len(turns) - 1


def test_a_round_of_searches_without_cases_to_search_for_is_one_line(tmp_path):
    path = tmp_path / "base_model.yaml"
    text = (ROOT / "recipes/base_model.yaml").read_text()
    path.write_text(text.replace("searches: 5000\n      dialogues: 3000", "searches: 5000\n      dialogues: 0"))
    with pytest.raises(ParameterError, match=r"base_model\.yaml: .*reader\.rounds\.2.*set dialogues to 1 or more"):
        load_base_model_params(None, path)
