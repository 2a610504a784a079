"""The bundled base model's training, tiny."""

import numpy as np
import pytest

from clinic.dialogues import asides, resident_dialogue, topic_matcher
from clinic.doctors import resident
from clinic.starter import draw_cases, load_starter
from rl.chat import ChatFormat
from rl.models import load_model
from tasks.base_model import _asking_example, _reading_example, make_base_model, teach_asking
from tasks.parameters import ROOT, Params, load_params


@pytest.fixture(scope="module")
def params() -> Params:
    raw = load_params().model_dump()
    tiny = {"cases": 30, "asking_cases": 12, "article_repeats": 1, "vocabulary": 600, "width": 32, "layers": 1, "heads": 2}
    raw["base_model"] |= tiny
    return Params.model_validate(raw)


@pytest.fixture(scope="module")
def made(params, tmp_path_factory):
    out = tmp_path_factory.mktemp("base") / "model"
    return out, make_base_model.fn(params, out)


def test_both_phases_train_and_save_a_model_that_loads(params, made):
    out, reading = made
    before, _ = load_model(str(out), "float32")
    asking = teach_asking.fn(params, out)
    after, tokenizer = load_model(str(out), "float32")
    assert all(0 < loss < np.log(len(tokenizer)) for loss in (*reading.values(), *asking.values()))
    assert any((a != b).any() for a, b in zip(before.parameters(), after.parameters(), strict=True))


def test_branches_are_the_diagnosis_the_thought_and_the_chase(params, made):
    chat = ChatFormat(load_model(str(made[0]), "float32")[1])
    starter = params.patient_cases.starter
    clinic = load_starter(ROOT / starter.directory, starter.second_complaint)
    matcher, ask = topic_matcher(clinic), resident(0.5, aloud=True)
    seen = set()
    for case in draw_cases(clinic, 8, 5, params.patient_cases.split, keep=["train"]):
        rng = np.random.default_rng(1)
        dialogue = resident_dialogue(clinic, case, matcher, params.consultation, ask, rng, to_the_end=True)
        turns = [m["content"] for m in dialogue if m["role"] == "assistant"]
        aside = asides(clinic, case, matcher, dialogue, 2, rng)
        diagnosis, thought = f"<answer>Diagnosis: {case.diagnosis}\n", f"<think>{case.diagnosis}?</think>"
        for example, expected in (
            (_asking_example(chat, case, dialogue, aside), [{diagnosis, a.chase, f"<answer>Diagnosis: {a.minds[0]}\n", f"<think>{a.minds[1]}?</think>"} for a in aside]),
            (_reading_example(chat, case, dialogue, asking=False), [{diagnosis, thought}] * (len(turns) - 1)),
        ):
            ids, mask = example.token_ids, example.loss_mask
            starts = [i for i in range(1, len(ids)) if ids[i - 1] == chat.after_reply_ids[-1]]
            assert {b.cut for b in example.branches} == set(starts[:-1])
            for branch in example.branches:
                text = chat.tokenizer.decode(branch.token_ids)
                assert text in expected[starts.index(branch.cut)]
                assert all(branch.loss_mask)
                seen.add((text.startswith("<think>"), starts.index(branch.cut)))
            learned = chat.tokenizer.decode([t for t, m in zip(ids, mask, strict=True) if m])
            assert (turns[0] in learned) == (example.branches[0].cut == example.branches[1].cut)
            assert turns[-1] in learned
    assert seen == {(kind, turn) for kind in (True, False) for turn in range(params.consultation.turn_budget - 1)}
