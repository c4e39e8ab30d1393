"""Giving back what was charged: for threads and asyncio, with the fake and with a real server."""

from pathlib import Path

import pytest
from headgate_client import RateLimitError
from headgate_client.testing import FakeServer

from tests.client.support import PATIENT_S, Make, MakeBoth
from tests.support.headgate import serve, write_rules

RULES = {
    "domain": "edge",
    "descriptors": [
        {"key": "job", "rate_limit": {"unit": "hour", "requests_per_unit": 10, "refund": True}},
        {"key": "fixed", "rate_limit": {"unit": "hour", "requests_per_unit": 10}},
    ],
}


@pytest.fixture
def server(headgate_server: FakeServer) -> FakeServer:
    headgate_server._rules.load(RULES)
    return headgate_server


def test_what_is_given_back_may_be_used_again(make_fake: Make, server: FakeServer) -> None:
    client = make_fake()
    assert client.check(job="a", cost=10)
    assert not client.check(job="a")
    assert client.refund(job="a", cost=4)
    assert client.check(job="a").remaining == 3
    (asked,) = [one for one in server.requests if one.descriptors[0].is_negative_hits]
    assert (asked.domain, asked.hits_addend) == ("edge", 4)
    assert client.refund([{"job": "a"}], cost=1000), "never more than was charged"
    assert client.check(job="a", cost=0).remaining == 10


def test_where_room_may_come_back_no_denial_is_remembered(make_fake: Make, server: FakeServer) -> None:
    """Whoever gives it back may be another process."""
    client, another = make_fake(), make_fake()
    client.check(job="a", cost=10)
    assert not client.check(job="a")
    another.refund(job="a")
    assert client.check(job="a")


def test_what_is_given_back_is_there_for_keys_that_were_denied_before(make_fake: Make, server: FakeServer) -> None:
    """A limit of one descriptor may be another's too: the client asks again for all that it remembers."""
    client = make_fake()
    client.check(fixed="a", cost=10)
    assert not client.check(fixed="a")
    server.reset()
    assert not client.check(fixed="a"), "remembered"
    client.check(job="a")
    assert client.refund(job="a")
    assert client.check(fixed="a")


def test_a_rule_without_refunds_says_so(make_fake: Make, server: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    client = make_fake()
    client.check(fixed="a", cost=3)
    assert not client.refund(fixed="a")
    assert (client.errors, client.unsettled) == ({"INVALID_ARGUMENT": 1}, 1)
    assert "was not told what is given back: INVALID_ARGUMENT" in caplog.text
    with pytest.raises(RateLimitError, match="rules with `refund: true` only"):
        client.refund(fixed="a", on_error="raise")
    assert client.check(fixed="a", cost=0).remaining == 7


def test_one_that_may_have_arrived_is_not_repeated(make_fake: Make, server: FakeServer) -> None:
    client = make_fake()
    client.check(job="a", cost=5)
    server.fail("DEADLINE_EXCEEDED")
    before = len(server.requests)
    assert not client.refund(job="a")
    assert len(server.requests) == before + 1


def test_nothing_is_not_given_back(make_fake: Make, server: FakeServer) -> None:
    with pytest.raises(ValueError, match="cost: 1 or more is given back, got 0"):
        make_fake().refund(job="a", cost=0)
    with pytest.raises(ValueError, match="cost: 0 to 4294967295, got -1"):
        make_fake().refund(job="a", cost=-1)


@pytest.mark.slow
def test_a_real_server_gives_back_what_it_charged(tmp_path: Path, make_both: MakeBoth) -> None:
    rules = "domain: edge\ndescriptors:\n- key: job\n  rate_limit: {unit: year, requests_per_unit: 5, refund: true}\n"
    with serve(write_rules(tmp_path / "rules", rules)) as server:
        one, another = make_both(server.grpc, "edge", timeout=PATIENT_S, on_error="raise")
        assert one.check(job="a", cost=5)
        assert not one.check(job="a")
        assert another.refund(job="a", cost=2)
        assert one.check(job="a").remaining == 1, "what the other gave back, at once: no denial was remembered"
        assert one.refund(job="a", cost=3)
        assert another.check(job="a", cost=0).remaining == 4
