"""The arithmetic of a step on many GPUs: by hand, in its limits, and against what others published of their runs."""

import dataclasses

import pytest

from rl.scaling import (
    CARDS,
    Card,
    Decoder,
    Fleet,
    Rates,
    Work,
    cards_of,
    decoding_s,
    learn_s,
    least_trainers,
    rollout_s,
    saying_s,
    steps,
)

SEVEN = Decoder(parameters=7.6e9, cached=28 * 2 * 4 * 128)
ROUND = Card(operations=100e12, memory=100e9, bandwidth=1e12, link=100e9, network=10e9)
ALL = Rates(learn_share=1.0, read_share=1.0, feed_share=1.0, launch_s=0.0, hand_over=10e9)
WORK = Work(
    episodes=64, turns=4, longest_turns=4, opening_tokens=100, turn_tokens=30, reply_tokens=20, slots=256,
    passes=4, gathers=3, reduces=1, micro_batch_tokens=4096,
)  # fmt: skip


def fleet(cards=8, **rates):
    return Fleet(cards=cards, card=ROUND, rates=dataclasses.replace(ALL, **rates))


def test_a_decoding_step_reads_the_weights_or_computes_and_is_launched():
    ten = Decoder(parameters=10e9, cached=0)
    assert decoding_s(ten, fleet(), 1, 0) == pytest.approx(20e9 / 1e12)
    assert decoding_s(ten, fleet(), 5000, 0) == pytest.approx(2 * 10e9 * 5000 / 100e12)
    assert decoding_s(ten, fleet(launch_s=0.004), 1, 0, shared=4) == pytest.approx(20e9 / 4e12 + 0.004)
    assert decoding_s(dataclasses.replace(ten, cached=1000), fleet(), 20, 500) == pytest.approx((20e9 + 20e6) / 1e12)
    assert saying_s(ten, fleet(), 2, 0, said=10, new=50) == pytest.approx(10 * 20e9 / 1e12 + 2 * 2 * 10e9 * 50 / 100e12)


def test_learning_is_its_operations_or_what_is_sent():
    computed, sent = learn_s(WORK, SEVEN, fleet(), 1)
    assert WORK.tokens == 64 * (100 + 4 * 50)
    assert computed == pytest.approx(2 * 7.6e9 * 4 * 19200 / 100e12)
    assert sent == 0
    again, sent = learn_s(WORK, SEVEN, fleet(), 4)
    moved = 19200 / 4 / 4096 * 7.6e9 * (2 * 3 + 4 * 1) * 3 / 4
    assert sent == pytest.approx(moved / (computed / 4))
    assert again == pytest.approx(max(computed / 4, moved / 100e9))
    many, _ = learn_s(WORK, SEVEN, fleet(64), 64)
    assert many == pytest.approx(7.6e9 * 10 * 63 / 64 / 10e9)  # one micro-batch each, over the network


def test_one_wave_is_as_long_as_its_longest_episode_and_more_come_after_it():
    once = rollout_s(WORK, SEVEN, fleet(), 1)
    assert rollout_s(dataclasses.replace(WORK, longest_turns=8), SEVEN, fleet(), 1) == pytest.approx(2 * once)
    short = dataclasses.replace(WORK, slots=16)
    alone = rollout_s(dataclasses.replace(short, episodes=16), SEVEN, fleet(), 1)
    assert rollout_s(short, SEVEN, fleet(), 1) == pytest.approx(4 * alone)
    assert rollout_s(short, SEVEN, fleet(), 4) == pytest.approx(alone)
    waiting = dataclasses.replace(WORK, patient_s=3.0)
    assert rollout_s(waiting, SEVEN, fleet(), 1) == pytest.approx(once + 4 * 3.0)
    assert rollout_s(WORK, SEVEN, fleet(), 1, SEVEN, 1) > rollout_s(WORK, SEVEN, fleet(), 1, SEVEN, 4) > once


def test_what_does_not_fit_one_card_is_shared():
    assert cards_of(SEVEN, CARDS["h100"]) == 1
    assert cards_of(Decoder(parameters=70e9, cached=1), CARDS["h100"]) == 8
    assert cards_of(Decoder(parameters=70e9, cached=1), CARDS["h200"]) == 4
    assert least_trainers(16 * 7.6e9, CARDS["h100"]) == 2


def test_every_division_uses_all_cards_and_what_does_not_fit_is_none():
    state = 16 * SEVEN.parameters
    found = list(steps(WORK, SEVEN, fleet(), state, SEVEN, ahead=True))
    assert {step.trainers + step.rollout_workers + step.patients for step in found} == {8}
    assert min(step.trainers for step in found) == 2
    for step in found:
        assert step.seconds == pytest.approx(max(step.rollout_s, step.learn_s) + step.hand_over_s)
        assert 0 <= step.trainers_wait < 1
        assert 0 <= step.players_wait < 1
    turns = list(steps(WORK, SEVEN, fleet(), state))
    assert all(step.seconds == pytest.approx(step.rollout_s + step.learn_s + 15.2e9 / 10e9) for step in turns)
    assert list(steps(WORK, SEVEN, fleet(2), state)) == []
    assert len(list(steps(WORK, SEVEN, fleet(1024), state))) <= 64


@pytest.mark.parametrize(
    ("longest", "generating", "learning", "published"),
    [(20480, 247, 88 + 286, 520), (8192, 162, 119 + 344, 566)],
    ids=["FSDP2", "Megatron"],
)
def test_verls_step_one_ahead_follows_from_its_step_in_turns(longest, generating, learning, published):
    """Qwen2.5-Math-7B on 16 H20 in turns, then 12 to learn and 4 to play (verl, docs/advance/one_step_off.md): what is
    not the longest answer alone takes four times as long on a quarter of the cards, learning 16/12.
    """
    alone = longest * decoding_s(SEVEN, Fleet(cards=16, card=CARDS["h20"]), 1, longest / 2)
    rollout = alone + (generating - alone) * 16 / 4
    assert max(rollout, learning * 16 / 12) == pytest.approx(published, rel=0.1)


def test_a_published_trainer_waits_as_long_as_its_measured_rates_say():
    """Qwen3-235B, prime-rl: 64 H200 that learn 2.75 samples a second, 192 that play 1.95 (SemiAnalysis, 2026-06-16). It
    waited for 30% of the time.
    """
    work = dataclasses.replace(WORK, episodes=1000, turns=1, longest_turns=1, opening_tokens=0, turn_tokens=1000)
    rates = dataclasses.replace(ALL, learned=2.75 * work.length / 64, sampled=1.95 * 1000 / 192, hand_over=1e15)
    measured = Fleet(cards=256, card=CARDS["h200"], rates=rates)
    found = {step.trainers: step for step in steps(work, SEVEN, measured, 0, ahead=True)}
    assert found[64].trainers_wait == pytest.approx(0.30, abs=0.02)
    assert found[64].seconds == pytest.approx(1000 / 1.95, rel=1e-3)
    assert min(found.values(), key=lambda step: step.seconds).trainers in (48, 52)  # neither waits at 49; by fours
