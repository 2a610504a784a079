"""What all tests share."""

import gc
import os
import signal
from collections.abc import Iterator

import pytest
import torch

from rl.pace import keep_pace

gc.set_threshold(50_000)  # a twelfth of the time of these tests went into collections that found nothing


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--base-seed N`: the learning tests play seeds N, N + 1 and N + 2."""
    parser.addoption("--base-seed", type=int, default=0, help="first seed of the tests in which something is learned")


def pytest_configure() -> None:
    """Processes of tests side by side share the cores among them."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    torch.set_num_threads(max(1, torch.get_num_threads() // workers))


def pytest_collection_finish() -> None:
    """What was imported lasts, so no collection has to go through it."""
    gc.freeze()


@pytest.fixture(scope="session")
def base_seed(request: pytest.FixtureRequest) -> int:
    """First seed of what is learned."""
    return int(request.config.getoption("--base-seed"))


@pytest.fixture(scope="session", autouse=True)
def beside_others() -> None:
    """Threads of torch let go of cores that others want: on a busy machine a test would else spin until its time is up."""
    keep_pace()


@pytest.fixture(autouse=True)
def no_server_of_another_test() -> Iterator[None]:
    """MLflow keeps the address of its server in the environment, where the next test's processes would find it."""
    name = "MLFLOW_TRACKING_URI"
    before = os.environ.get(name)
    yield
    if before is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = before


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Signals that end a program do so in this test, also where pytest was started by `nohup` or in a script's background,
    which ignore them.
    """
    defaults = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in defaults.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
