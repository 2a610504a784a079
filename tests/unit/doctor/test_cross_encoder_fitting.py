"""The cross-encoder learns: its loss, its batches, and that what is written is what was learned."""

from collections import Counter

import numpy as np
import pytest
import torch

from clinic.understanding.comparison import cross_encoder_weights
from doctor import practice_questions
from doctor.cross_encoder_fitting import (
    QUESTIONS,
    _new_and_some,
    _steps,
    fit_cross_encoder_lines,
    learner,
    likelihood_loss,
    save,
    train,
)
from doctor.parameters import ParameterError, load_params
from doctor.patient_calibration import untold_case
from doctor.practice_questions import Practised
from kb.config import DEFAULT_EMBEDDER
from kb.cross_encoder import load_cross_encoder
from kb.embed import load_embedder


@pytest.fixture(scope="module")
def embedder():
    return load_embedder(DEFAULT_EMBEDDER, batch_size=8, device="cpu")


def question(text, facts, answers):
    return Practised(
        question=text,
        texts=[[fact] for fact in facts],
        answers=np.array(answers),
        complaint="A cough",
        headed=[f"History: {fact}" for fact in facts],
    )


FACTS = ["Has never smoked", "Works in a garden", "Fever since Monday"]
SMOKE = question("Do you smoke?", FACTS, [True, False, False])
ABROAD = question("Have you been abroad?", FACTS, [False, False, False])


def test_the_loss_is_that_of_an_answer_and_of_none_where_it_is_away():
    logits, none = torch.tensor([2.0, 0.5, -1.0, 0.25]), torch.tensor(0.1)
    found = likelihood_loss(logits, none, [np.array([True, False, True]), np.array([False])])
    e = np.exp
    first = np.log(e(2) + e(0.5) + e(-1) + e(0.1)) - np.log(e(2) + e(-1)) + 0.5 * (np.log(e(0.5) + e(0.1)) - 0.1)
    second = np.log(e(0.25) + e(0.1)) - 0.1
    assert float(found) == pytest.approx((first + second) / 2, rel=1e-5)


def test_every_question_is_read_once_before_any_comes_again(embedder):
    asked = [
        question(f"Number {i}?", [*FACTS, *map(str, range(6))], [False] * 8 + [True]) for i in range(2 * QUESTIONS)
    ]
    steps = list(_steps(asked, 4, lambda texts: embedder.encode(list(texts))))
    for one, other in (steps[:2], steps[2:]):
        assert len(set(one[0]) | set(other[0])) == 2 * QUESTIONS
    for questions, texts, answers in steps:
        assert len(questions) == len(texts) == sum(map(len, answers))
        assert all(
            right.sum() == 1 and 5 <= len(right) <= 6 for right in answers
        )  # the answer is read wherever it lies
        assert all(text.startswith("A cough ? Number") for text in questions)


@pytest.mark.slow
def test_what_is_written_is_what_was_learned(embedder, tmp_path):
    model = learner(embedder).eval()
    steps = list(_steps([SMOKE, ABROAD] * 8, 12, lambda texts: embedder.encode(list(texts))))
    questions, texts, answers = steps[0]
    with torch.no_grad():
        before = float(likelihood_loss(model(questions, texts), model.none, answers))
    train(model, steps)
    model.eval()
    with torch.no_grad():
        assert float(likelihood_loss(model(questions, texts), model.none, answers)) < before - 0.1
        learned = (model(questions[:3], texts[:3]) - model.none).numpy()
    save(model, tmp_path / "weights.npz")
    weights = cross_encoder_weights(tmp_path / "weights.npz")
    again = load_cross_encoder(embedder, weights)
    assert not [name for name in again.state_dict() if "parametrizations" in name]
    name = "encoder.layer.3.attention.self.value"
    layer = model.transformer.get_submodule(name)
    before, after = layer.parametrizations.weight.original.detach(), layer.weight.detach()
    assert torch.equal(before, embedder.transformer.get_submodule(name).weight)  # only what is beside it has learned
    added = again.transformer.get_submodule(name).weight.detach() - before
    assert float(added.abs().max()) > 1e-4
    assert added.numpy() == pytest.approx((after - before).numpy(), rel=0.01, abs=1e-5)  # halved
    for asked, text, logit in zip(questions[:3], texts[:3], learned, strict=True):
        assert again.compare(asked, [text])[0] == pytest.approx(float(logit), abs=0.05)
    going_on = learner(embedder, weights).eval()
    with torch.no_grad():
        unchanged = (going_on(questions[:3], texts[:3]) - going_on.none).numpy()
    assert unchanged == pytest.approx(learned, abs=0.05)
    save(going_on, tmp_path / "unchanged.npz")
    for name, values in cross_encoder_weights(tmp_path / "unchanged.npz").items():
        assert np.array_equal(values, weights[name])


def test_going_on_takes_the_new_questions_and_some_of_the_others(monkeypatch):
    case = untold_case("c", "records", "CC0-1.0", "A cough", [("History", fact) for fact in FACTS])
    rows = [
        {"case_id": "c", "question": f"{writer} {i}?", "answers": [], "writer": writer}
        for writer, count in (("first 1", 30), ("second 1", 4), ("second 2", 6))
        for i in range(count)
    ]
    monkeypatch.setattr(practice_questions, "read_lines", lambda file: rows)
    whose = Counter(one.question.split()[0] for one in _new_and_some({"c": case}, "second"))
    assert whose == {"second": 10, "first": 1}
    whose = Counter(one.question.split()[0] for one in _new_and_some({"c": case}, "first"))
    assert whose == {"first": 30, "second": 3}
    with pytest.raises(ParameterError, match=r"patient_practice\.jsonl: no writer's name begins with 'fourth'"):
        _new_and_some({"c": case}, "fourth")


def test_without_the_sets_or_beside_another_embedder_nothing_is_written(tmp_path):
    params, file = load_params(), tmp_path / "weights.npz"
    with pytest.raises(ParameterError, match="does not exist; give --cases"):
        fit_cross_encoder_lines(params, tmp_path, file=file)
    other = params.knowledge_base.model_copy(update={"embedder": "some/other"})
    with pytest.raises(ParameterError, match=r"knowledge_base\.embedder is 'some/other'"):
        fit_cross_encoder_lines(params.model_copy(update={"knowledge_base": other}), tmp_path, file=file)
    assert not list(tmp_path.iterdir())
