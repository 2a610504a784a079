"""The rollout phase: what is recorded is what was sampled, and nothing else happens."""

import asyncio
import dataclasses
import hashlib
from dataclasses import dataclass, field

import pytest
import torch

from rl.batching import micro_batches, token_logprobs
from rl.config import RolloutParams
from rl.engines.base import Completion, Finish
from rl.engines.transformers import TransformersEngine
from rl.environment import EpisodeSpec
from rl.errors import TrainingError
from rl.rollout import Episode, play, refuse_if_many_unplayed

PARAMS = RolloutParams(
    prompts=1,
    response_length=5,
    max_episode_tokens=128,
    slots=4,
    max_failed_share=0.5,
    ahead=0,
    engine={"kind": "transformers", "compile": False},
)


class Event(dict):
    def to_json(self):
        return dict(self)


@dataclass
class Reply:
    text: str | None
    event: Event
    stop_reason: str | None = None


@dataclass
class Echo:
    """Says back what it heard, a given number of times; may answer late; may break."""

    turns: int = 3
    patience: int = 0
    breaks_at: int = -1
    heard: list[str] = field(default_factory=list)

    def opening(self):
        return [{"role": "user", "content": "hello"}]

    async def step(self, turn: str) -> Reply:
        for _ in range(self.patience):
            await asyncio.sleep(0)
        self.heard.append(turn)
        if len(self.heard) == self.breaks_at:
            raise ConnectionError("the line is dead")
        over = len(self.heard) == self.turns
        return Reply(
            None if over else f"you said {len(turn)}", Event(turn=len(self.heard)), "hung up" if over else None
        )


@dataclass
class CannedEngine:
    """Samples the given turns to everybody, in order."""

    turns: list[tuple[int, ...]]
    stop_id: int
    breaks_at: int = -1
    policy_version: int = 3
    requests: list = field(default_factory=list)
    released: list = field(default_factory=list)

    async def generate(self, request):
        self.requests.append(request)
        if len(self.requests) == self.breaks_at:
            raise TrainingError("out of memory")
        await asyncio.sleep(0)
        ids = self.turns[sum(r.session == request.session for r in self.requests) - 1]
        return Completion(
            ids,
            tuple(-float(i) for i in ids),
            Finish.STOP if ids[-1] == self.stop_id else Finish.LENGTH,
            self.policy_version,
        )

    def release(self, session):
        self.released.append(session)

    async def close(self):
        pass


def specs(count: int, make=Echo) -> list[EpisodeSpec]:
    return [
        EpisodeSpec(
            case_id=f"case{i // 2}",
            group_id=f"1/case{i // 2}",
            sample=i % 2,
            turn_budget=3,
            noise=(0, 1),
            case=make,
            privileged={"secret": i},
        )
        for i in range(count)
    ]


def seat(spec: EpisodeSpec, count=len) -> Echo:
    return spec.case()


def run(episodes, engine, chat, params=PARAMS, temperature=1.0, progress=None):
    return asyncio.run(asyncio.wait_for(play(episodes, seat, engine, chat, params, temperature, progress), timeout=60))


def weights_hash(model) -> str:
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.state_dict().values())).hexdigest()


@pytest.fixture
def played(model, chat):
    """Ten episodes of unequal length and patience in four slots."""
    environments = []

    def make(i):
        def build():
            environments.append(Echo(turns=1 + i % 4, patience=7 * i % 11))
            return environments[-1]

        return build

    episodes = [
        EpisodeSpec(
            case_id=f"case{i}",
            group_id=f"1/case{i}",
            sample=0,
            turn_budget=3,
            noise=(0, 1),
            case=make(i),
            privileged={"secret": i},
        )
        for i in range(10)
    ]
    engine = TransformersEngine(model, PARAMS.slots, PARAMS.max_episode_tokens)
    engine.policy_version = 5
    steps = []
    return (
        run(episodes, engine, chat, progress=lambda done, total: steps.append((done, total))),
        environments,
        steps,
        episodes,
    )


def test_the_record_of_an_episode_is_consistent(played, chat):
    trajectories, environments, steps, _ = played
    assert steps == [(i + 1, 10) for i in range(10)]
    assert [t.episode_id for t in trajectories] == [f"1/case{i}/0" for i in range(10)]
    heard = [turn for environment in environments for turn in environment.heard]
    assert sorted(heard) == sorted(m["content"] for t in trajectories for m in t.texts if m["role"] == "assistant")
    for i, t in enumerate(trajectories):
        assert len(t.token_ids) == len(t.logprobs) == len(t.loss_mask)
        assert (len(t.turns), len(t.events), t.stop_reason) == (1 + i % 4, 1 + i % 4, "hung up")
        assert [place for place, one in enumerate(t.loss_mask) if one] == [
            place for start, end in t.turns for place in range(start, end)
        ]
        assert t.sampled_tokens == sum(end - start for start, end in t.turns)
        assert all(logprob == 0 for logprob, one in zip(t.logprobs, t.loss_mask, strict=True) if not one)
        assert all(logprob < 0 for logprob, one in zip(t.logprobs, t.loss_mask, strict=True) if one)
        spoken = [m["content"] for m in t.texts if m["role"] == "assistant"]
        assert spoken == [chat.text(t.token_ids[start:end]) for start, end in t.turns]
        assert (t.policy_version, t.turn_budget, t.group_id, t.privileged) == (5, 3, f"1/case{i}", {"secret": i})
        assert 0 <= t.started_s <= t.ended_s


def test_all_but_the_sampled_tokens_are_the_templates(played, chat):
    """Between the turns stand the reply's tokens, and before them an end of turn where the limit cut one."""
    for t in played[0]:
        replies = [m["content"] for m in t.texts if m["role"] == "user"]
        assert t.token_ids[: t.turns[0][0]] == tuple(chat.opening_ids(t.texts[:1]))
        for k, reply in enumerate(replies[1:]):
            end, start = t.turns[k][1], t.turns[k + 1][0]
            cut = t.token_ids[end - 1] != chat.end_id
            assert t.token_ids[end:start] == (chat.end_id,) * cut + tuple(chat.reply_ids(reply))


def test_the_recorded_logprobs_are_the_learners(played, model):
    """Engine with cache and slots, learner with one padded forward: the same numbers."""
    trajectories = played[0]
    for batch in micro_batches([t.token_ids for t in trajectories], [t.loss_mask for t in trajectories], 400):
        with torch.no_grad():
            logprob_N, _ = token_logprobs(model, batch, 1.0)
        recorded = [
            trajectories[batch.index[row]].logprobs[place]
            for row, place in zip(batch.row_N.tolist(), (batch.source_N + 1).tolist(), strict=True)
        ]
        torch.testing.assert_close(logprob_N, torch.tensor(recorded), atol=1e-4, rtol=0)


def test_the_number_of_slots_changes_nothing(played, model, chat):
    few, _, _, episodes = played
    many = run(episodes, TransformersEngine(model, 10, 128), chat, PARAMS.model_copy(update={"slots": 10}))
    one = run(episodes, TransformersEngine(model, 1, 128), chat, PARAMS.model_copy(update={"slots": 1}))
    assert [t.token_ids for t in few] == [t.token_ids for t in many] == [t.token_ids for t in one]


def test_the_same_rollout_again_has_the_same_bits(played, model, chat):
    again = run(played[3], TransformersEngine(model, PARAMS.slots, 128), chat)
    assert [(t.token_ids, t.logprobs) for t in played[0]] == [(t.token_ids, t.logprobs) for t in again]


def test_samples_of_a_group_differ_and_greedy_ones_do_not(model, chat):
    first, second = run(specs(2), TransformersEngine(model, 4, 128), chat)
    assert first.group_id == second.group_id
    assert first.token_ids != second.token_ids
    first, second = run(specs(2), TransformersEngine(model, 4, 128), chat, temperature=0.0)
    assert first.token_ids == second.token_ids


def test_no_parameter_changes_and_no_graph_is_built(model, chat):
    needs_gradient = []
    hook = model.get_decoder().register_forward_hook(
        lambda module, args, output: needs_gradient.append(output.last_hidden_state.requires_grad)
    )
    before = weights_hash(model)
    run(specs(6), TransformersEngine(model, 4, 128), chat)
    hook.remove()
    assert weights_hash(model) == before
    assert needs_gradient
    assert not any(needs_gradient)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert not model.training


def test_a_failed_environment_ends_its_own_episode(model, chat, caplog):
    episodes = specs(6)
    episodes[2] = EpisodeSpec(
        case_id="case1",
        group_id="1/case1",
        sample=0,
        turn_budget=3,
        noise=(0, 1),
        case=lambda: Echo(breaks_at=2),
        privileged={},
    )
    trajectories = run(episodes, TransformersEngine(model, 4, 128), chat)
    assert [t.stop_reason for t in trajectories] == ["hung up"] * 2 + ["failed"] + ["hung up"] * 3
    failed = trajectories[2]
    assert failed.sampled_tokens == 0
    assert (len(failed.turns), len(failed.events)) == (2, 1)
    assert len(failed.token_ids) == len(failed.logprobs) == len(failed.loss_mask) == failed.turns[-1][1]
    assert "case1/0: the environment failed: the line is dead" in caplog.text
    healthy = run(specs(6), TransformersEngine(model, 4, 128), chat)
    assert [t.token_ids for t in healthy[3:]] == [t.token_ids for t in trajectories[3:]]


def test_a_turn_cut_by_the_limit_is_closed_by_an_unsampled_end(chat):
    engine = CannedEngine([(9, 8, 7, 6, 5), (9, chat.end_id), (9, 8, 7, 6, 5)], chat.end_id)
    (t,) = run(specs(1), engine, chat)
    opening = chat.opening_ids([{"role": "user", "content": "hello"}])
    after_cut = [chat.end_id, *chat.reply_ids(t.texts[2]["content"])]
    after_stop = chat.reply_ids(t.texts[4]["content"])
    assert list(t.token_ids) == [*opening, 9, 8, 7, 6, 5, *after_cut, 9, chat.end_id, *after_stop, 9, 8, 7, 6, 5]
    assert (
        list(t.loss_mask)
        == [0] * len(opening) + [1] * 5 + [0] * len(after_cut) + [1] * 2 + [0] * len(after_stop) + [1] * 5
    )
    assert [list(request.token_ids) for request in engine.requests] == [opening, after_cut, after_stop]
    assert t.texts[1]["content"] == chat.text((9, 8, 7, 6, 5))
    assert t.texts[3]["content"] == chat.text((9,))
    assert t.policy_version == 3


def test_every_turn_has_a_noise_key_of_its_own(chat):
    engine = CannedEngine([(9, chat.end_id)] * 3, chat.end_id)
    run(specs(6), engine, chat)
    keys = [request.noise_key for request in engine.requests]
    assert len(set(keys)) == len(keys) == 18
    assert all(0 <= key < 2**64 for key in keys)
    other_step = CannedEngine([(9, chat.end_id)] * 3, chat.end_id)
    run(
        [
            EpisodeSpec(
                case_id=s.case_id,
                group_id=s.group_id,
                sample=s.sample,
                turn_budget=3,
                noise=(0, 2),
                case=Echo,
                privileged={},
            )
            for s in specs(6)
        ],
        other_step,
        chat,
    )
    assert not set(keys) & {request.noise_key for request in other_step.requests}


@pytest.mark.parametrize("breaks_at", [1, 4, 9])
def test_an_engines_error_ends_the_phase(chat, breaks_at):
    engine = CannedEngine([(9, chat.end_id)] * 3, chat.end_id, breaks_at)
    with pytest.raises(TrainingError, match="out of memory"):
        run(specs(6), engine, chat)
    assert {request.session for request in engine.requests} == set(engine.released)


def test_a_rollout_works_after_one_that_broke(model, chat):
    """A forward that fails reaches the caller; the same engine then plays on."""
    engine = TransformersEngine(model, 4, 128)
    hook = model.get_decoder().register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(specs(6), engine, chat)
    hook.remove()
    after, fresh = run(specs(6), engine, chat), run(specs(6), TransformersEngine(model, 4, 128), chat)
    assert [t.token_ids for t in after] == [t.token_ids for t in fresh]


def test_an_episode_that_outgrows_its_slot_ends_the_phase(model, chat):
    with pytest.raises(TrainingError, match=r"rollout\.max_episode_tokens is 16"):
        run(specs(2), TransformersEngine(model, 4, 16), chat)


def test_two_episodes_of_one_name_are_refused(chat):
    with pytest.raises(TrainingError, match=r"1/case0/0 .*twice"):
        run([*specs(2), specs(1)[0]], CannedEngine([(chat.end_id,)] * 3, chat.end_id), chat)


def test_one_case_may_come_in_two_groups(model, chat):
    """Where a rollout step crosses the end of the data a case may come again: other noise, other name."""
    again = [
        EpisodeSpec(
            case_id=s.case_id,
            group_id="1/again",
            sample=s.sample,
            turn_budget=3,
            noise=s.noise,
            case=Echo,
            privileged={},
        )
        for s in specs(2)
    ]
    trajectories = run([*specs(2), *again], TransformersEngine(model, 4, 128), chat)
    assert len({t.episode_id for t in trajectories}) == 4
    assert len({t.token_ids for t in trajectories}) == 4


def test_no_episodes_are_a_rollout_too(chat):
    assert run([], CannedEngine([], chat.end_id), chat) == []


def test_a_turn_must_fit_into_an_episode():
    with pytest.raises(
        ValueError, match=r"response_length 16 leaves no room in max_episode_tokens 16; raise the latter"
    ):
        RolloutParams(
            prompts=1,
            response_length=16,
            max_episode_tokens=16,
            slots=1,
            max_failed_share=0.5,
            ahead=0,
            engine={"kind": "transformers", "compile": False},
        )


@dataclass
class Reader(Echo):
    """Begins with so many words."""

    words: int = 1

    def opening(self):
        return [{"role": "user", "content": "hello " * self.words}]


def test_an_opening_without_room_for_a_turn_is_kept_and_counted(model, chat, caplog):
    """What its record says would do is just enough, and one token less is not."""
    long = chat.opening_ids(Reader(words=90).opening())
    enough = len(long) + PARAMS.response_length + 1
    tight = PARAMS.model_copy(update={"max_episode_tokens": enough - 1})
    episodes = [*specs(3), *(dataclasses.replace(s, group_id="long") for s in specs(1, lambda: Reader(words=90)))]
    engine = TransformersEngine(model, tight.slots, tight.max_episode_tokens)
    played = run(episodes, engine, chat, tight)
    assert [bool(t.turns) for t in played] == [True, True, True, False]
    assert (played[3].token_ids, played[3].sampled_tokens, played[3].events) == (tuple(long), 0, ())
    assert played[3].stop_reason == "out_of_tokens"
    assert not played[3].played
    refuse_if_many_unplayed(played, tight)
    (told,) = caplog.messages
    assert f"1 of 4 episodes had no room for a turn: an opening takes up to {len(long)} tokens" in told
    assert f"rollout.max_episode_tokens is {enough - 1}; set it to {enough} or more" in told
    strict = tight.model_copy(update={"max_failed_share": 0.2})
    with pytest.raises(TrainingError, match=rf"1 of 4 episodes had no room.*set it to {enough} or more"):
        refuse_if_many_unplayed(played, strict)
    failed = dataclasses.replace(played[0], stop_reason="failed")
    with pytest.raises(TrainingError, match="1 of 4 episodes had no room"):
        refuse_if_many_unplayed([failed, *played[1:]], tight.model_copy(update={"max_failed_share": 0.25}))
    roomy = PARAMS.model_copy(update={"max_episode_tokens": enough})
    (again,) = run(episodes[3:], TransformersEngine(model, 1, enough), chat, roomy)
    assert len(again.turns) == 1
    assert again.token_ids[: len(long)] == tuple(long)


def test_episodes_that_failed_alone_are_told_as_before(model, chat):
    broken = run(specs(2, lambda: Echo(breaks_at=1)), TransformersEngine(model, 4, 128), chat)
    refuse_if_many_unplayed(broken, PARAMS.model_copy(update={"max_failed_share": 1.0}))
    with pytest.raises(TrainingError, match="2 of 2 episodes failed"):
        refuse_if_many_unplayed(broken, PARAMS)


def test_an_episode_that_is_stepped_is_the_one_that_is_played(model, chat):
    """Turn by turn, as a server holds it, and with something else between the turns."""
    (spec,) = specs(1)
    (played,) = run([spec], TransformersEngine(model, 4, 128), chat)

    async def hold() -> tuple[Episode, list[int]]:
        engine = TransformersEngine(model, 4, 128)
        episode = Episode(spec, seat(spec), engine, chat, PARAMS, 1.0)
        turns = []
        while episode.stop_reason is None:
            await episode.turn()
            turns.append(len(episode.turns))
            await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="is over"):
            await episode.turn()
        episode.leave()
        await engine.close()
        return episode, turns

    episode, turns = asyncio.run(hold())
    assert turns == list(range(1, len(played.turns) + 1))
    assert dataclasses.replace(episode.trajectory(), started_s=played.started_s, ended_s=played.ended_s) == played


def test_an_episode_that_is_not_over_is_no_trajectory(chat):
    (spec,) = specs(1)
    episode = Episode(spec, seat(spec), CannedEngine([(chat.end_id,)], chat.end_id), chat, PARAMS, 1.0)
    with pytest.raises(RuntimeError, match="not over"):
        episode.trajectory()
