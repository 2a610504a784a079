"""What all tests share."""

import os

import pytest
import torch

from rl.pace import keep_pace


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--base-seed N`: the learning tests play seeds N, N + 1 and N + 2."""
    parser.addoption("--base-seed", type=int, default=0, help="first seed of the tests in which something is learned")


def pytest_configure() -> None:
    """Processes of tests side by side share the cores among them."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    torch.set_num_threads(max(1, torch.get_num_threads() // workers))


@pytest.fixture(scope="session")
def base_seed(request: pytest.FixtureRequest) -> int:
    """First seed of what is learned."""
    return int(request.config.getoption("--base-seed"))


@pytest.fixture(scope="session", autouse=True)
def beside_others() -> None:
    """Threads of torch let go of cores that others want: on a busy machine a test would else spin until its time is up."""
    keep_pace()
