"""Judges, reward models and people behind the reward presets: a real endpoint, and what a missing opinion does to
scores and gradients.
"""

import json
from pathlib import Path

import pytest

from clinic.config import HumanParams
from clinic.errors import ClinicError
from clinic.events import Diagnosed
from clinic.rewards import Scorer
from clinic.starter import draw_cases
from doctor.calibration import CALIBRATION, judge_agreement, read_lines
from doctor.opinions import asking, opinions_of, refuse_if_many_missing
from doctor.parameters import LanguageModels, ParameterError, Params, load_params
from doctor.reward_recipe import load_reward
from doctor.scoring import score_all, step_metrics
from rl.config import EndpointParams
from rl.experience import Trajectory, mask_unscored
from rl.language_models import endpoint as door
from rl.language_models.endpoint import Endpoint
from tests.endpoint_server import MODEL, chat_server

PARAMS = load_params()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(door, "FIRST_PAUSE_S", 0.01)


@pytest.fixture(scope="module")
def cases():
    from clinic.starter import load_starter
    from doctor.parameters import ROOT

    return list(draw_cases(load_starter(ROOT / "data/starter", 0.8), 6, 3, PARAMS.patient_cases.split))


def episode(case, name: str, number: int = 0) -> Trajectory:
    texts = (
        {"role": "system", "content": "s"},
        {"role": "user", "content": case.self_report},
        {"role": "assistant", "content": f"<answer>Diagnosis: {name}</answer>"},
    )
    event = Diagnosed(name, "Rest").to_json()
    return Trajectory(
        episode_id=f"{case.case_id}/{number}",
        case_id=case.case_id,
        group_id=case.case_id,
        sample=number,
        policy_version=0,
        turn_budget=3,
        token_ids=(1, 2, 3),
        logprobs=(0.0, -1.0, -1.0),
        loss_mask=(0, 1, 1),
        turns=((1, 3),),
        texts=texts,
        events=(event,),
        stop_reason="diagnosed",
        privileged={},
        started_s=0.0,
        ended_s=1.0,
    )


def at(url: str, **changes) -> EndpointParams:
    return EndpointParams(
        **{
            "url": url,
            "model": MODEL,
            "key_env": "",
            "timeout_s": 5.0,
            "retries": 0,
            "concurrency": 4,
            "temperature": 0.0,
            "max_tokens": 64,
        }
        | changes
    )


def models(judge: EndpointParams | None) -> LanguageModels:
    return LanguageModels(patient=None, reward_judge=judge, evaluation_judge=None)


def verdict(messages) -> str:
    """A judge that knows: full marks for accuracy if the named diagnosis stands in the reference."""
    reference, material = messages[1]["content"].removeprefix("Reference: ").split("\nMaterial: ")
    right = json.loads(json.loads(material))["final_diagnosis"] == json.loads(reference)["diagnosis"]
    return json.dumps({"accuracy": 5 if right else 0, "logic": 3, "completeness": 2, "safety": 4})


def test_a_judge_behind_an_endpoint_scores_and_failures_are_missing(cases):
    reward = load_reward("weighted")
    played = [episode(case, case.diagnosis if i % 2 else "Gout") for i, case in enumerate(cases)]
    with chat_server(verdict, lambda number: "500" if number == 3 else None) as server:
        opinions = opinions_of(reward, models(at(server.url)), Path(), 0)(cases, played)
        assert all("response_format" in body for body in server.requests)
    assert sum(opinion is None for opinion in opinions) == 1
    scores = score_all(Scorer(reward, []), cases, played, opinions)
    unscored = next(i for i, opinion in enumerate(opinions) if opinion is None)
    assert scores[unscored].turns == ()
    for i, score in enumerate(scores):
        if i != unscored:
            assert score.reward == pytest.approx(0.4 * (i % 2) + 0.2 * (0.6 + 0.4 + 0.8))
    kept = mask_unscored(played, scores)
    assert [t.sampled_tokens for t in kept] == [0 if i == unscored else 2 for i in range(6)]
    metrics = step_metrics(cases, played, scores)
    assert metrics["rollout/unscored"] == pytest.approx(1 / 6)
    assert metrics["reward/mean"] == pytest.approx(sum(s.reward for i, s in enumerate(scores) if i != unscored) / 5)
    refuse_if_many_missing(reward, 0.25, played, opinions)
    with pytest.raises(
        ClinicError, match=r"1 of 6 consultations have no score, more than reward\.max_missing_share = 0\.1"
    ):
        refuse_if_many_missing(reward, 0.1, played, opinions)


def test_people_are_asked_and_their_scores_used(cases, tmp_path):
    reward = HumanParams(name="human", path="ratings.jsonl")
    played = [episode(case, "Gout") for case in cases]
    gather = opinions_of(reward, models(None), tmp_path, 0)
    assert gather(cases, played) == [None] * 6
    with pytest.raises(ClinicError, match=r"rate them in ratings\.jsonl"):
        refuse_if_many_missing(reward, 0.25, played, gather(cases, played))
    rows = read_lines(tmp_path / "ratings.jsonl")
    assert [row["case_id"] for row in rows] == [case.case_id for case in cases]
    (tmp_path / "ratings.jsonl").write_text(
        "".join(json.dumps(row | {"score": place}) + "\n" for place, row in enumerate(rows))
    )
    opinions = gather(cases, played)
    assert [score.reward for score in score_all(Scorer(reward, []), cases, played, opinions)] == [0, 1, 2, 3, 4, 5]


def test_presets_that_ask_nobody_ask_nobody(cases):
    played = [episode(case, "Gout") for case in cases]
    reward = load_reward("outcome")
    opinions = opinions_of(reward, models(None), Path(), 0)(cases, played)
    assert opinions == [None] * 6
    refuse_if_many_missing(reward, 0.25, played, opinions)
    assert all(score.turns for score in score_all(Scorer(reward, []), cases, played, opinions))


def changed(**sections) -> Params:
    raw = PARAMS.model_dump(mode="json")
    for name, change in sections.items():
        raw[name] = raw[name] | change
    return Params.model_validate(raw)


def test_the_evaluation_judge_is_another_than_the_rewards():
    with pytest.raises(ValueError, match="are the same model 'judge-a'"):
        changed(
            language_models={
                "reward_judge": at("http://a/v1", model="judge-a").model_dump(),
                "evaluation_judge": at("http://b/v1", model="judge-a").model_dump(),
            }
        )
    two = changed(
        language_models={
            "reward_judge": at("http://a/v1", model="judge-a").model_dump(),
            "evaluation_judge": at("http://a/v1", model="judge-b").model_dump(),
        }
    )
    assert two.language_models.evaluation_judge.model == "judge-b"


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"reward": {"preset": "weighted"}}, "needs language_models.reward_judge"),
        (
            {
                "patient_cases": {
                    "imported": [{"format": "questions", "path": "q.jsonl", "cases": 0, "licence": "CC0-1.0"}]
                }
            },
            r"preset outcome cannot score .*one of: weighted, model, human",
        ),
    ],
)
def test_what_a_choice_needs_is_said_at_once(sections, told):
    with pytest.raises(ValueError, match=told):
        changed(**sections)


@pytest.mark.parametrize(
    ("preset", "told"), [("model", "name a folder or Hugging Face id"), ("human", "name a JSONL file of ratings")]
)
def test_a_preset_that_needs_a_path_asks_for_it(preset, told):
    with pytest.raises(ParameterError, match=rf"recipes/rewards/{preset}\.yaml: path is null.*{told}"):
        load_reward(preset)


def test_calibration_of_a_perfect_a_lenient_and_a_broken_judge():
    rows = read_lines(CALIBRATION / "judge.jsonl")
    assert sum(row["attack"] for row in rows) == 10
    labels = {row["given"]["diagnosis"] + row["case"]["complaint"]: row["labels"] for row in rows}

    def perfect(messages) -> str:
        material = json.loads(json.loads(messages[1]["content"].split("\nMaterial: ")[1]))
        return json.dumps(labels[material["final_diagnosis"] + material["transcript"][0]["text"]])

    with chat_server(perfect) as server:
        table = judge_agreement(asking(Endpoint(at(server.url))), rows)
    assert table["missing"] == 0
    assert all(
        row["exact"] == row["within_1"] == 1.0
        and row["kappa"] == pytest.approx(1)
        and row["bias"] == row["bias_attacked"] == 0
        for row in table["criteria"].values()
    )
    with chat_server(
        lambda messages: json.dumps(
            dict.fromkeys(("accuracy", "logic", "completeness", "safety", "diagnosis", "recommendation"), 5)
        )
    ) as server:
        lenient = judge_agreement(asking(Endpoint(at(server.url))), rows)["criteria"]["accuracy"]
    assert lenient["exact"] == pytest.approx(28 / 48)
    assert lenient["bias"] > 1
    with chat_server(lambda messages: "5") as server:
        broken = judge_agreement(asking(Endpoint(at(server.url))), rows)
    assert broken["missing"] == 48


def test_a_judge_that_is_not_configured_is_one_line():
    from doctor.calibration import judge_lines

    with pytest.raises(ParameterError, match=r"language_models\.reward_judge is null"):
        judge_lines(PARAMS, "reward_judge")
