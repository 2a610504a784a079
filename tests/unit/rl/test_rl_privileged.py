"""A session with a teacher and a student: who plays, what is saved, that a run goes on bit for bit, and that the student
never sees a chart.
"""

import asyncio
import dataclasses
import json
import math
import pickle
from contextlib import ExitStack
from functools import partial

import pytest
import torch
from safetensors import safe_open

from rl import features
from rl.algorithms import make_algorithm
from rl.algorithms.adaptation import FoldParams
from rl.chat import ChatFormat
from rl.checkpoint import check_checkpoint
from rl.config import LoraParams, RolloutParams
from rl.environment import EpisodeSpec
from rl.errors import TrainingError
from rl.experience import Scores
from rl.features import AdaptModule, Predicted, dialogue_of, soft_places
from rl.machine import Place
from rl.models import average_folders, load_model, load_tokenizer, save_model
from rl.parts import ADAPT, EMA, ENCODER
from rl.workers.base import Session
from rl.workers.group import LocalGroup, _Done
from rl.workers.grouped import GroupSession
from rl.workers.local import LocalSession
from rl.workers.roles import Opening, open_player
from rl.workers.trainer import open_trainer
from tests.recipes import recipe

M, SWITCH = 2, 2
LORA = LoraParams(rank=2, alpha=16.0, target_modules=("q_proj", "v_proj", "down_proj"))
CHARTS = ("you said", "hello hello")
FOLD = FoldParams(
    rollouts=1, num_epochs=2, mini_batch_size=4, learning_rate=1e-3, max_grad_norm=1.0, micro_batch_tokens=256
)


class Unread(dict):
    """What only the simulator knows, and nobody may read who is not a teacher."""

    def __getitem__(self, key):
        raise AssertionError("the chart was read")

    def __reduce__(self):  # it may travel
        return Unread, ()

    get = keys = items = values = __iter__ = __contains__ = __len__ = __getitem__


class Reply:
    stop_reason = "ended"

    def __init__(self, text):
        self.text, self.event = text, self

    def to_json(self):
        return {"outcome": 1.0}


class TwoTurns:
    """Hears two turns."""

    def __init__(self):
        self.left = 2

    def opening(self):
        return [{"role": "user", "content": "you said hello"}]

    async def step(self, turn):
        self.left -= 1
        return Reply("hello" if self.left else None)


def specs(told=CHARTS, step=1):
    return [
        EpisodeSpec(
            case_id=f"c{case}", group_id=f"{step}/c{case}", sample=sample, turn_budget=2, noise=(0, step), case=None,
            privileged=Unread() if told is None else {"chart": {"facts": told[case]}},
        )
        for case in range(2) for sample in range(4)
    ]  # fmt: skip


@pytest.fixture(autouse=True, params=[None, LORA], ids=["all weights", "adapters"])
def beside(request):
    """All weights learn, or an adapter each of teacher, student and critic."""
    opened.lora = request.param
    yield request.param
    del opened.lora


@pytest.fixture(autouse=True)
def same_torch_after():
    before = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(before)


def opened(folder, learns=True, compute="float32") -> Opening:
    content = recipe(
        "ppo_roa", group_size=4, train_steps=SWITCH, critic={"warmup_rollout_steps": 0},
        feature={"tokens": M, "chart": "facts"}, adaptation={"layers": 1, "mini_batch_size": 4},
    )  # fmt: skip
    content["optimizer"] = content["optimizer"] | {"mini_batch_size": 4, "learning_rate": 1e-2}
    rollout = RolloutParams(
        prompts=2, response_length=4, max_episode_tokens=48, slots=4, max_failed_share=0.5, ahead=0,
        engine={"kind": "transformers", "compile": False},
    )  # fmt: skip
    algorithm = make_algorithm(content) if learns else None
    lora = opened.lora if learns else None
    place = Place(compute=compute)
    return Opening(
        model=str(folder), place=place, rollout=rollout, algorithm=algorithm, seed=5, lora=lora, temperature=1.0
    )


def open_seat(_=None):
    return lambda *_: TwoTurns()


def open_session(folder, learns=True, compute="float32") -> LocalSession:
    one = opened(folder, learns, compute)
    return LocalSession(
        one.model, one.place, one.rollout, one.algorithm, one.seed, one.lora, one.temperature, open_seat()
    )


def travelled(something):
    return pickle.loads(pickle.dumps(something))  # noqa: S301  our own


class Elsewhere(LocalGroup):
    """Workers that are told, and tell, only what can travel."""

    def start(self, worker, method, *arguments):
        found = super().start(worker, method, *travelled(arguments)).result()
        return _Done(travelled(found))


def open_workers(folder, players=1, learns=True) -> GroupSession:
    """A trainer and rollout workers, all of them here."""
    one = opened(folder, learns)
    return GroupSession(
        Elsewhere(players, partial(open_player, one, open_seat, None)),
        lambda exact: Elsewhere(1, partial(open_trainer, opened(folder, learns), exact, "replicate", 60.0)),
        ChatFormat(load_tokenizer(one.model)),
        ExitStack(),
        one.acting,
    )


def step(session: Session) -> dict[str, float]:
    number = session.policy_version + 1
    played = session.rollout(specs(step=number), 1.0, to_learn=True)
    scores = [Scores(t.episode_id, tuple({"a": float(t.token_ids[turn[0]] % 7)} for turn in t.turns)) for t in played]
    return session.learn(played, scores, number)


@pytest.fixture
def base(tmp_path, model, tokenizer):
    save_model(model, tokenizer, tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def trained(base):
    """After the switch."""
    session = open_session(base)
    for _ in range(SWITCH + 1):
        step(session)
    return session


def untied(folder, tmp_path):
    """The same with a head of its own."""
    model, tokenizer = load_model(str(folder), "float32")
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.config.tie_word_embeddings = False
    save_model(model, tokenizer, tmp_path / "untied")
    return tmp_path / "untied"


def bits(session: LocalSession) -> dict[str, torch.Tensor]:
    return {
        f"{part}.{n}": v.clone() for part, m in session.learner.policy.parts.items() for n, v in m.state_dict().items()
    }


def test_what_is_played_has_its_placeholders_where_they_belong(base):
    session = open_session(base)
    for to_learn in (True, False):
        for t in session.rollout(specs(), 1.0, to_learn=to_learn):
            places = soft_places(t, M)
            assert len(places) == M * len(t.turns) == 2 * M
            assert places[:M] == [0, 1]
            assert places[M] == t.turns[0][1]
            assert all(t.loss_mask[p] == 0 and t.logprobs[p] == 0.0 for p in places)
            ids, starts = dialogue_of(t, M)
            assert len(ids) == len(t.token_ids) - 2 * M
            for (start, end), begin in zip(t.turns, starts, strict=True):
                assert ids[begin : begin + end - start] == list(t.token_ids[start:end])


def test_the_teacher_plays_what_is_learned_from_until_the_switch(base):
    """By its chart: another one, other tokens. The trainer finds the log-probabilities that the engine recorded."""
    session = open_session(base)
    with torch.no_grad():
        session.learner.policy.encoder_priv.head.linear.weight *= 100
    for version in range(SWITCH + 1):
        one, other = (session.rollout(specs(told, 9), 1.0, to_learn=True) for told in (CHARTS, CHARTS[::-1]))
        assert ([t.token_ids for t in one] != [t.token_ids for t in other]) == (version < SWITCH)
        metrics = step(session)
        assert metrics["sampler_mismatch_max"] < 1e-4
        assert ("adaptation/kl" in metrics) == (version < SWITCH)
        assert metrics["adaptation/variance"] > 0


def test_what_charts_differ_from_are_those_of_the_first_rollout_that_is_learned_from(base):
    session = open_session(base)
    encoders = [session.learner.policy.encoder_priv, session.learner.policy.critic.encoder]
    session.rollout(specs(None), 1.0)
    assert not any(encoder.centre_W.any() for encoder in encoders)
    table = session.model.get_input_embeddings().weight
    means = [table[session.chat.content_ids(chart)].mean(0) for chart in CHARTS]
    session.rollout(specs(), 1.0, to_learn=True)
    session.rollout(specs(("hello", "said")), 1.0, to_learn=True)
    for encoder in encoders:
        torch.testing.assert_close(encoder.centre_W, sum(means) / 2)


def test_what_was_played_before_a_restart_has_the_same_centre(base):
    session, again = open_session(base), open_session(base)
    played = session.rollout(specs(), 1.0, to_learn=True)
    scores = [Scores(t.episode_id, ({"a": 1.0},) * len(t.turns)) for t in played]
    assert session.learn(played, scores, 1) == again.learn(played, scores, 1)
    one, other = bits(session), bits(again)
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_charts_that_differ_in_one_word_of_a_hundred_are_told_apart(base):
    session = open_session(base)
    encoder = session.learner.policy.encoder_priv
    charts = [tuple(session.chat.content_ids("you said hello " * 33 + word)) for word in ("you", "said", "hello")]

    @torch.no_grad()
    def spread():
        vector_CMW = encoder(charts) / encoder.head.scale
        return float((vector_CMW - vector_CMW.mean(0)).square().mean())

    alike = spread()
    encoder.centre(charts)
    assert spread() > 100 * alike


@pytest.mark.parametrize("phases", range(SWITCH + 2))
def test_a_run_goes_on_bit_for_bit(base, tmp_path, phases):
    """From every step: before, at and after the switch."""
    session = open_session(base)
    for _ in range(phases):
        step(session)
    directory = session.save(tmp_path / "run", phases)
    check_checkpoint(directory)
    again = open_session(base)
    again.restore(directory)
    for _ in range(2):
        one, other = bits(session), bits(again)
        assert all(torch.equal(value, other[name]) for name, value in one.items())
        assert session.learner.optimizers.updates == again.learner.optimizers.updates
        assert step(session) == step(again)


def test_reset_begins_anew(base):
    session = open_session(base)
    before, first = bits(session), step(session)
    session.reset()
    after = bits(session)
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert step(session) == first


def test_the_student_never_reads_a_chart(trained, tmp_path):
    """Validation, evaluation of the saved student, and the rollouts that are learned from after the switch."""
    played = [trained.rollout(specs(told), 0.7) for told in (CHARTS, CHARTS[::-1], None)]
    assert [t.token_ids for t in played[0]] == [t.token_ids for t in played[1]] == [t.token_ids for t in played[2]]
    assert trained.rollout(specs(None), 0.7, to_learn=True)[0].token_ids == played[0][0].token_ids
    directory = trained.save(tmp_path / "run", 3)
    saved = open_session(directory, learns=False)
    assert [t.token_ids for t in saved.rollout(specs(None), 0.7)] == [t.token_ids for t in played[0]]
    assert not saved.can_rank


def test_no_tensor_of_the_teacher_is_in_the_students_folder(trained, base, tmp_path):
    directory = trained.save(tmp_path / "run", 3)
    sealed = json.loads((directory / "complete.json").read_text())["files"]
    assert {"adaptation/config.json", "adaptation/model.safetensors", "model.safetensors"} <= sealed.keys()
    parts = trained.learner.policy.parts
    with safe_open(directory / "adaptation" / "model.safetensors", "pt") as file:
        assert set(file.keys()) == set(parts[EMA].alone(torch.device("cpu")).state_dict())
        for name in file.keys():  # noqa: SIM118  not a dict
            assert torch.equal(file.get_tensor(name), parts[EMA].alone(torch.device("cpu")).state_dict()[name])
    with safe_open(directory / "model.safetensors", "pt") as file, safe_open(base / "model.safetensors", "pt") as was:
        assert set(file.keys()) == set(was.keys())
    assert not any(torch.equal(a, b) for a, b in zip(parts[ADAPT].parameters(), parts[EMA].parameters(), strict=True))
    assert ENCODER not in " ".join(sealed)


def test_a_damaged_adaptation_is_one_line(trained, tmp_path):
    directory = trained.save(tmp_path / "run", 3)
    (directory / "adaptation" / "config.json").write_text("{}")
    with pytest.raises(TrainingError, match=r"adaptation is damaged or of another model \('placeholder'\); restore it"):
        open_session(directory, learns=False)


def test_a_student_with_soft_tokens_is_not_trained_further(trained, tmp_path):
    with pytest.raises(TrainingError, match="cannot be trained further; export it with `fold`"):
        open_session(trained.save(tmp_path / "run", 3))


def test_an_average_keeps_the_last_adaptation(trained, base, tmp_path):
    directory = trained.save(tmp_path / "run", 3)
    average_folders([base, directory], tmp_path / "mean")
    assert (tmp_path / "mean/adaptation/model.safetensors").read_bytes() == (
        directory / "adaptation/model.safetensors"
    ).read_bytes()
    trained.load(tmp_path / "mean")
    assert trained.rollout(specs(None), 0.7)[0].turns


def test_folding_teaches_an_ordinary_model_to_act_as_the_student(trained, tmp_path):
    directory = trained.save(tmp_path / "run", 3)
    trained.load(directory)
    metrics = trained.fold(trained.rollout(specs(), 1.0), FOLD, 1.0, tmp_path / "folded")
    assert 0 < metrics["fold/kl_after"] < metrics["fold/kl_before"]
    assert not (tmp_path / "folded" / "adaptation").exists()
    trained.load(tmp_path / "folded")
    (first, *_) = trained.rollout(specs(None), 1.0)
    assert first.loss_mask.index(1) == len(trained.chat.opening_ids(TwoTurns().opening()))  # no placeholder before it
    assert trained.can_rank
    alone = open_session(tmp_path / "folded", learns=False)
    assert alone.rollout(specs(None), 1.0)[0].token_ids == first.token_ids


def test_a_copy_that_is_no_number_any_more_is_not_written(trained, tmp_path):
    trained.load(trained.save(tmp_path / "run", 3))
    played = trained.rollout(specs(), 1.0)
    with pytest.raises(
        TrainingError, match=r"KL of the folded copy to the student became nan; lower fold\.learning_rate"
    ):
        trained.fold(played, FOLD.model_copy(update={"learning_rate": math.inf}), 1.0, tmp_path / "folded")
    assert not (tmp_path / "folded").exists()


def told(trajectories):
    return [(t.episode_id, t.token_ids, t.turns, t.policy_version) for t in trajectories]


@pytest.mark.parametrize("players", [1, 2])
def test_workers_play_and_learn_what_one_process_does(base, tmp_path, beside, players):
    """Teacher and student, before and after the switch, from a checkpoint, and folded; with all weights bit for bit."""
    one, many = open_session(base), open_workers(base, players)
    for number in range(1, SWITCH + 2):
        assert told(one.rollout(specs(step=number), 1.0, to_learn=True)) == told(
            many.rollout(specs(step=number), 1.0, to_learn=True)
        )
        assert not many.can_rank
        metrics, found = step(one), step(many)
        if beside is None and players == 1:
            assert metrics == found
        assert found["policy_loss"] == pytest.approx(metrics["policy_loss"], rel=1e-3, abs=1e-5)
        assert found["adaptation/variance"] == pytest.approx(metrics["adaptation/variance"], rel=1e-3)
        assert told(one.rollout(specs(None), 0.7)) == told(many.rollout(specs(None), 0.7))
        one.save(tmp_path / "one", number), many.save(tmp_path / "many", number)
    before, saved = step(many), tmp_path / "many" / f"global_step_{SWITCH + 1}"
    many.restore(saved)
    assert step(many) == before
    many.load(saved)
    one.load(saved)
    played = many.rollout(specs(), 1.0)
    assert told(played) == [(*first, many.policy_version) for *first, _ in told(one.rollout(specs(), 1.0))]
    assert many.fold(played, FOLD, 1.0, tmp_path / "folded") == one.fold(played, FOLD, 1.0, tmp_path / "of one")
    many.load(tmp_path / "folded")
    assert many.can_rank
    alone = open_workers(saved, learns=False)
    assert [t.token_ids for t in alone.rollout(specs(None), 1.0)] == [t.token_ids for t in played]


def test_a_run_goes_on_though_a_saved_student_was_played_in_between(trained, tmp_path):
    directory = trained.save(tmp_path / "run", 3)
    expected = step(trained)
    trained.load(directory)
    trained.rollout(specs(None), 1.0)
    trained.restore(directory)
    assert step(trained) == expected


def test_lower_precision_needs_adapters_and_they_leave_the_head_alone(base, tmp_path):
    algorithm, params = make_algorithm(recipe("ppo_roa", group_size=4)), open_session(base).params
    with pytest.raises(TrainingError, match=r"set machines.compute: float32 \(or train_doctor.lora\)"):
        LocalSession(str(base), Place(compute="bfloat16"), params, algorithm, 5, temperature=1.0)
    lora = LORA.model_copy(update={"target_modules": ("lm_head",)})
    with pytest.raises(TrainingError, match="share one head"):
        LocalSession(str(untied(base, tmp_path)), Place(), params, algorithm, 5, lora=lora, temperature=1.0)


def test_beside_adapters_the_base_stays_and_is_there_once(base, beside):
    """Three adapters and three heads are learned, each in its own pass, and nothing else is kept."""
    if beside is None:
        pytest.skip("all weights learn")
    session = open_session(base)
    policy = session.learner.policy
    frozen = {name: value.clone() for name, value in session.model.state_dict().items() if ".lora_" not in name}
    first = bits(session)
    for _ in range(SWITCH + 1):
        step(session)
    now = session.model.state_dict()
    assert all(torch.equal(value, now[name]) for name, value in frozen.items())
    for part in policy.parts:
        assert any(
            not torch.equal(value, first[name]) for name, value in bits(session).items() if name.startswith(part)
        )
    learned = sum(p.numel() for module in policy.parts.values() for p in module.parameters())
    everything = {id(p): p.numel() for p in policy.parameters()}
    assert sum(everything.values()) == learned + sum(
        p.numel() for p in session.model.parameters() if not p.requires_grad
    )


def test_adapters_learn_in_float32_beside_a_base_in_bfloat16(base, beside, tmp_path):
    if beside is None:
        pytest.skip("all weights learn")
    session = open_session(base, compute="bfloat16")
    policy = session.learner.policy
    for _ in range(SWITCH + 1):
        assert step(session)["sampler_mismatch_max"] < 0.05
    learned = [p for part in policy.parts.values() for p in part.parameters()]
    assert {p.dtype for p in learned} == {torch.float32}
    assert {p.dtype for p in session.model.parameters() if all(p is not one for one in learned)} == {torch.bfloat16}
    session.load(session.save(tmp_path / "run", SWITCH + 1))
    assert session.fold(session.rollout(specs(), 1.0), FOLD, 1.0, tmp_path / "folded")["fold/kl_after"] >= 0
    assert open_session(tmp_path / "folded", learns=False).rollout(specs(None), 1.0)[0].turns


def test_episodes_without_room_say_how_long_they_are_with_their_soft_tokens(base):
    session = open_session(base)
    opening = len(session.chat.opening_ids(TwoTurns().opening()))
    session.params = session.params.model_copy(update={"max_episode_tokens": opening + 4})
    played = session.rollout(specs(), 1.0, to_learn=True)
    assert {len(t.token_ids) for t in played} == {opening + M}
    assert {dataclasses.replace(t).turns for t in played} == {()}


@pytest.fixture
def adapt(model):
    module = AdaptModule(model, 3, M, 1).eval().requires_grad_(False)
    module.head.linear.weight *= 30  # that dialogues differ
    return module


def ask(feature, dialogues):
    async def all_of_them():
        return await asyncio.gather(*(feature(None, said) for said in dialogues), return_exceptions=True)

    return asyncio.run(all_of_them())


def test_turns_that_begin_together_are_predicted_together_and_siblings_once(adapt, monkeypatch):
    dialogues = [[5, 6], [7, 8, 9, 10, 5], [5, 6], [9]]
    alone = [ask(Predicted(adapt), [said])[0] for said in dialogues]
    assert float((alone[0] - alone[1]).abs().max()) > 1e-2
    feature, seen = Predicted(adapt), []
    adapt.register_forward_pre_hook(lambda _, given: seen.append(len(given[0].index)))
    for _ in range(2):  # it is not for once
        together = ask(feature, dialogues)
        assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(alone, together, strict=True))
        assert torch.equal(together[0], together[2])
    assert seen == [3, 3]
    monkeypatch.setattr(features, "TOKENS_AT_ONCE", 6)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(alone, ask(feature, dialogues), strict=True))
    assert seen[2:] == [2, 1]


def test_a_prediction_that_fails_reaches_all_who_wait(adapt):
    found = ask(Predicted(adapt), [[5], [6], [10**6]])
    assert [type(one) for one in found] == [IndexError] * 3
