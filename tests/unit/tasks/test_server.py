"""A Prefect server that is looked for where none can be."""

import pytest

from tasks.server import healthy


@pytest.mark.parametrize("address", ["http://me:secret@localhost/api", "localhost:4200/api", "http://127.0.0.1:1/api"])
def test_an_address_without_a_server_is_no_error(address: str) -> None:
    assert not healthy(address)
