"""How a service's own tests use the fake: `pytest test_search.py`, without a server and without waiting."""

import pytest
from headgate_client import Headgate, RateLimited
from headgate_client.testing import FakeServer

pytest_plugins = ["headgate_client.testing.fixtures"]  # in conftest.py, as a rule


def search(limiter: Headgate, user: str) -> str:
    """What is tested."""
    with limiter.limit(user=user):
        return f"found for {user}"


@pytest.fixture
def limiter(headgate_server: FakeServer) -> Headgate:
    headgate_server.limit("edge", "2/minute", user="*")
    return headgate_server.client("edge")


def test_the_third_search_of_a_minute_is_too_many(limiter: Headgate, headgate_server: FakeServer) -> None:
    assert search(limiter, "alice")
    assert search(limiter, "alice")
    with pytest.raises(RateLimited):
        search(limiter, "alice")
    headgate_server.clock.advance(120)
    assert search(limiter, "alice")


def test_searches_go_on_while_headgate_is_away(limiter: Headgate, headgate_server: FakeServer) -> None:
    headgate_server.fail("UNAVAILABLE")
    assert [search(limiter, "alice") for _ in range(5)]
    assert limiter.counters["failed_open"] == 5
