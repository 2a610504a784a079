"""Workers in processes of their own, on Ray: they say and learn what one process does, die by SIGKILL, and are late."""

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rl.errors import TrainingError
from rl.workers.group import WorkerLostError
from rl.workers.local import LocalSession
from rl.workers.opening import open_session
from tests.faults.workers import workers
from tests.learning.at_work import SAMPLES, SEED, TEMPERATURE, local, machines, open_toy, opening, save_school
from tests.learning.mortal import open_patient, opener, seat_that_asks
from tests.learning.toy import HARD, episodes, score

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow
SHORT_S = 30.0  # in which a mistake has to be told


@pytest.fixture(autouse=True, scope="module")
def same_torch_after():
    """A session asks torch for deterministic algorithms, for good; and this process has one thread, as a worker: two
    split sums of this size otherwise.
    """
    before, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.use_deterministic_algorithms(before)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_school(tmp_path_factory.mktemp("school") / "base")


@pytest.fixture(scope="module")
def cluster():
    """Four processors, by its own account; it is not asked for more than they are worth."""
    os.environ.update({"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"})
    context = ray.init(num_cpus=4, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
    yield context.address_info["gcs_address"]
    ray.shutdown()


@pytest.fixture(scope="module")
def mark(tmp_path_factory):
    return tmp_path_factory.mktemp("mark") / "die"


@pytest.fixture(scope="module")
def one(cluster, folder, mark):
    """A trainer and a rollout worker, of which the first died while it was opened."""
    mark.with_name("opening").touch()
    session = open_session(opening(folder), machines(1, 1), open_toy(), opener(mark))
    assert not mark.with_name("opening").exists()
    return session


@pytest.fixture(scope="module")
def two(cluster, folder, mark, one):
    """Two and two, in the places of the others."""
    one.close()
    session = open_session(opening(folder), machines(2, 2), open_toy(), opener(mark))
    yield session
    session.close()


def play(session, number: int):
    return session.rollout(episodes(HARD, SAMPLES, number, SEED), TEMPERATURE)


def told(trajectories):
    return [(t.episode_id, t.token_ids, t.logprobs, t.policy_version) for t in trajectories]


def learn_while(session, played, number: int, happens) -> None:
    """A training phase that waits for a stopped trainer, and what happens meanwhile."""
    pid = ray.get(session._trainers._actors[-1].__ray_call__.remote(lambda _: os.getpid()))
    os.kill(pid, signal.SIGSTOP)
    thread = threading.Timer(1.0, happens, [pid])
    thread.start()
    with pytest.raises(WorkerLostError) as caught:
        session.learn(played, score(played), number)
    assert "\n" not in str(caught.value)
    thread.join()
    raise caught.value


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_one_and_one_are_one_process_bit_for_bit_though_both_die(one, folder, mark, tmp_path):
    here = local(opening(folder))
    for number in (1, 2, 3):
        if number == 2:
            mark.touch()
        played, others = play(here, number), play(one, number)
        assert not mark.exists()
        assert told(played) == told(others)
        if number == 3:
            with pytest.raises(WorkerLostError, match="trainer 0 died in learn"):
                learn_while(one, others, number, kill)
            assert one.policy_version < 0
            one.restore(tmp_path / "there" / "global_step_2")
        assert here.learn(played, score(played), number) == one.learn(others, score(others), number)
        here.save(tmp_path / "here", number), one.save(tmp_path / "there", number)
    files = [tmp_path / place / "global_step_3" / "model.safetensors" for place in ("here", "there")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_an_error_of_a_worker_is_its_own(one):
    with pytest.raises(TrainingError, match=r"missing or damaged"):
        one.restore(Path("/nowhere/global_step_1"))
    with pytest.raises(TrainingError, match=r"^trainer 0 failed in nothing: AttributeError: .*nothing"):
        one._trainers.call("nothing")


def test_who_does_not_come_back_is_named(one, monkeypatch):
    played = play(one, 10)
    monkeypatch.setattr(one._trainers, "timeout_s", 2.0)
    with pytest.raises(WorkerLostError, match=r"trainer 0 has not come back from learn within .*timeout_s = 2 s"):
        learn_while(one, played, 10, lambda pid: None)


def test_a_worker_that_dies_again_ends_the_step(one, mark, monkeypatch):
    mark.touch()
    monkeypatch.setattr(one, "_revived", True)
    with pytest.raises(TrainingError, match=r"rollout worker 0 died in play: .*, after another one in the same step"):
        one.rollout(episodes(HARD, SAMPLES, 10, SEED), TEMPERATURE, held=True)


@pytest.mark.course
def test_a_patient_with_a_worker_of_its_own_says_the_same_to_all_and_after_its_death(cluster, folder, one, tmp_path):
    """In the places of others, which are taken again afterwards."""
    one.close()
    opened = opening(folder)
    with pytest.raises(TrainingError, match=r"a model worker could not be opened: .*nowhere") as caught:
        open_session(
            opened, machines(1, 2, model_workers=1), open_toy(), seat_that_asks, partial(open_patient, Path("/nowhere"))
        )
    assert "\n" not in str(caught.value)
    here = LocalSession(
        opened.model, opened.place, opened.rollout, None, SEED, seat=seat_that_asks(open_patient(folder))
    )
    session = open_session(
        opened, machines(1, 2, model_workers=1), open_toy(), seat_that_asks, partial(open_patient, folder)
    )
    for number in (1, 2, 3):
        if number > 1:
            (patient,) = [pid for pid, name in workers().items() if name.startswith("model worker")]
            threading.Timer(0.0 if number == 2 else 0.3, kill, [patient]).start()
        seen = []
        specs = episodes(HARD, SAMPLES, number, SEED)
        played, others = (
            play(here, number),
            session.rollout(specs, TEMPERATURE, lambda *told, seen=seen: seen.append(told)),
        )
        assert seen == sorted(seen)
        assert seen[-1] == (len(specs), len(specs))
        assert any(0 < done < len(specs) for done, _ in seen)
        assert [t.texts for t in played] == [t.texts for t in others]
        assert [t.token_ids for t in played] == [t.token_ids for t in others]
        assert {message["content"] for t in played for message in t.texts[2:3]} > {"what"}
    session.close()


def test_two_and_two_say_the_same_and_go_on_without_one(two, folder, tmp_path):
    here = local(opening(folder))
    for number in (1, 2):
        played, others = play(here, number), play(two, number)
        assert [t.token_ids for t in played] == [t.token_ids for t in others]
        if number == 2:
            began = time.monotonic()
            with pytest.raises(WorkerLostError, match="trainer 1 died in learn"):
                learn_while(two, others, number, kill)
            assert time.monotonic() - began < SHORT_S
            two.restore(tmp_path / "there" / "global_step_1")
        here.learn(played, score(played), number), two.learn(others, score(others), number)
        here.save(tmp_path / "here", number), two.save(tmp_path / "there", number)
    one, other = (load_file(tmp_path / place / "global_step_2" / "model.safetensors") for place in ("here", "there"))
    assert one.keys() == other.keys()
    assert max(float((value - other[name]).abs().max()) for name, value in one.items()) < 1e-5


@pytest.mark.parametrize(
    ("trainers", "changes", "told"),
    [
        (4, {}, "4 trainers of 1 processor each do not fit beside 1 rollout worker"),
        (1, {"gpus_per_worker": 1}, "a rollout worker takes 1 processor and 1 GPU, and no machine has as much"),
    ],
)
def test_what_fits_nowhere_is_refused_at_once(cluster, folder, trainers, changes, told):
    began = time.monotonic()
    with pytest.raises(TrainingError, match=told) as caught:
        open_session(opening(folder), machines(trainers, 1, **changes), open_toy(), open_toy)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < SHORT_S


def test_places_that_others_have_are_told(two, folder):
    began = time.monotonic()
    with pytest.raises(TrainingError, match="places for the role rollout worker were not free within 20 s"):
        open_session(opening(folder), machines(1, 1), open_toy(), open_toy)
    assert time.monotonic() - began < SHORT_S


@pytest.mark.parametrize("address", ["127.0.0.1:9", "auto"])
def test_a_cluster_that_is_not_there_is_told_in_one_line(monkeypatch, folder, tmp_path, address):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    if address == "auto":
        monkeypatch.setattr(ray, "init", no_cluster)
    began = time.monotonic()
    with pytest.raises(TrainingError, match=f"no Ray cluster answers at machines.ray.address = {address}") as caught:
        open_session(opening(folder), machines(1, 1, address=address), open_toy(), open_toy)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < SHORT_S


def no_cluster(*_, **__):
    raise ConnectionError("Could not find any running Ray instance.\nPlease specify one.")


def test_without_ray_the_backend_is_refused_in_one_line(monkeypatch, folder):
    monkeypatch.setattr("rl.workers.opening.find_spec", lambda _: None)
    with pytest.raises(TrainingError, match=r"Ray is not installed; install it with pip install -e '\.\[ray\]'"):
        open_session(opening(folder), machines(1, 1), open_toy(), open_toy)
