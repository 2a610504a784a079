"""Beside other work: who decides how many threads there are and how they wait, when it is crowded, and that nothing of
it changes a bit.
"""

import hashlib
import threading
import time
from pathlib import Path

import pytest
import torch

from rl import machine, pace
from rl.machine import available_cores, give_large_blocks_back, thread_count
from rl.models import new_model, new_tokenizer
from rl.pace import Pace, SecondTeam, busy_seconds, crowded, keep_pace, openmp_of_torch

LIBRARY = openmp_of_torch()
needs_libgomp = pytest.mark.skipif(LIBRARY is None, reason="torch computes with another OpenMP library here")


def threads_here() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def until(true, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


def test_the_environment_decides_before_the_parameters() -> None:
    assert thread_count("auto", {}, 6) == 6
    assert thread_count(3, {}, 6) == 3
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        assert thread_count("auto", {name: "2"}, 6) is None
        assert thread_count(3, {name: "2"}, 6) is None


def test_cores_are_what_the_control_group_gives(tmp_path: Path) -> None:
    allowed = available_cores(tmp_path / "none")
    assert allowed >= 1
    quota = tmp_path / "cpu.max"
    for text, cores in (
        ("max 100000", allowed),
        ("150000 100000", 1),
        ("50000 100000", 1),
        ("99900000 100000", allowed),
    ):
        quota.write_text(text + "\n")
        assert available_cores(quota) == cores


def test_a_heap_that_the_user_has_set_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda _: asked.append(1))
    for name in machine.HEAP:
        assert not give_large_blocks_back({name: "1"})
    monkeypatch.setattr(machine.sys, "platform", "darwin")
    assert not give_large_blocks_back({})
    assert asked == []


@pytest.mark.parametrize(
    ("threads", "cores", "others", "is_crowded"),
    [
        (4, 4, 0.1, False),
        (4, 4, 0.9, True),
        (4, 4, 1.7, True),
        (2, 4, 2.0, False),
        (2, 4, 3.0, True),
        (1, 4, 4.0, False),
        (4, 16, 11.0, False),
        (4, 16, 13.0, True),
    ],
)
def test_crowded_is_when_fewer_cores_are_left_than_threads_spin(
    threads: int, cores: int, others: float, is_crowded: bool
) -> None:
    assert crowded(threads, cores, others) == is_crowded


def test_it_stays_crowded_until_others_take_clearly_less() -> None:
    assert [crowded(4, 4, others, already=True) for others in (0.6, 0.4, 0.2)] == [True, True, False]


def test_busy_seconds_are_of_the_given_cores_and_without_idling() -> None:
    stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 10 20 5000 7 1 2 3 0 0\ncpu1 200 0 0 9000 0 0 0 0 50 0\ncpu12 1 0 0 0 0 0 0 0 0 0\nintr 1 2 3\n"
    assert busy_seconds(stat, frozenset({0}), 100) == pytest.approx(1.36)
    assert busy_seconds(stat, frozenset({0, 1}), 100) == pytest.approx(3.36)


def test_who_says_how_threads_wait_is_not_overruled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_KEPT", [])
    for name in pace.SAYS:
        assert keep_pace({name: "1"}) is None


@needs_libgomp
def test_a_second_team_sleeps_and_goes_when_it_is_dismissed() -> None:
    before = threads_here()
    team = SecondTeam(LIBRARY, 5)
    assert until(lambda: threads_here() == before + 5)
    began = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - began < 0.25
    team.dismiss()
    assert until(lambda: threads_here() == before)


@needs_libgomp
def test_a_pace_follows_what_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace.torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    kept = Pace(LIBRARY, frozenset(range(4)))
    for others, careful in ((0.1, False), (2.0, True), (2.5, True), (0.2, False)):
        kept.adapt(others)
        assert kept.careful == careful


@needs_libgomp
def test_how_threads_wait_changes_no_bit() -> None:
    """Shapes that are cut into pieces for several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        alone = trained()
        team = SecondTeam(LIBRARY, 5)
        beside = trained()
        team.dismiss()
    finally:
        torch.set_num_threads(before)
    assert alone == beside


def trained() -> str:
    """sha256 of a small model after two updates."""
    model = new_model(new_tokenizer(["a"], 300), width=64, layers=2, heads=4, context=128, seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens_BT = torch.randint(5, 250, (9, 83), generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        optimizer.zero_grad()
        model(tokens_BT, labels=tokens_BT).loss.backward()
        optimizer.step()
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()
