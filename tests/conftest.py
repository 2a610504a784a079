"""What all tests share."""

import pytest

from rl.pace import keep_pace


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--base-seed N`: the learning tests play seeds N, N + 1 and N + 2."""
    parser.addoption("--base-seed", type=int, default=0, help="first seed of the tests in which something is learned")


@pytest.fixture(scope="session")
def base_seed(request: pytest.FixtureRequest) -> int:
    """First seed of what is learned."""
    return int(request.config.getoption("--base-seed"))


@pytest.fixture(scope="session", autouse=True)
def beside_others() -> None:
    """Threads of torch let go of cores that others want: on a busy machine a test would else spin until its time is up."""
    keep_pace()
