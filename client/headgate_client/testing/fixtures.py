"""For pytest: `pytest_plugins = ["headgate_client.testing.fixtures"]` in `conftest.py`."""

import pytest

from headgate_client.testing.server import FakeServer


@pytest.fixture
def headgate_server() -> FakeServer:
    """A server without limits yet: `headgate_server.limit("edge", "2/minute", user="*")`, then `.client("edge")`."""
    return FakeServer()
