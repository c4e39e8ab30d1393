"""That a client fails open is seen: in counters, in the log, by a callback, and in metrics."""

import logging

import pytest
from headgate_client import Decision, RateLimitError
from headgate_client.report import LOG_EVERY_S
from headgate_client.testing import FakeServer
from headgate_client.unmet import Unmet

from tests.client.support import Make


def test_every_call_has_one_outcome(make_fake: Make, headgate_server: FakeServer) -> None:
    client = make_fake()
    for _ in range(7):
        client.check(user="alice")
    headgate_server.fail("INTERNAL")
    client.check(user="bob")
    client.check(user="bob", on_error="closed")
    with pytest.raises(RateLimitError, match="INTERNAL: the test says so"):
        client.check(user="bob", on_error="raise")
    assert client.counters == {
        "allowed": 5,
        "denied": 1,
        "denied_from_memory": 1,
        "failed_open": 1,
        "failed_closed": 1,
        "raised": 1,
    }
    assert client.errors == {"INTERNAL": 3}


def test_what_was_not_the_servers_decision_says_so(make_fake: Make, headgate_server: FakeServer) -> None:
    seen: list[Decision] = []
    client = make_fake(on_degraded=seen.append)
    assert not client.check(user="alice").degraded
    headgate_server.fail("UNAVAILABLE", "away")
    opened, closed = client.check(user="alice"), client.check(user="alice", on_error="closed")
    assert (opened.allowed, opened.degraded, str(opened.error)) == (True, True, "UNAVAILABLE: away")
    assert (closed.allowed, closed.degraded, closed.retry_after) == (False, True, 0.0)
    assert seen == [opened, closed]


def test_a_callback_that_fails_hurts_nobody(
    make_fake: Make, headgate_server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Decision) -> None:
        raise RuntimeError("oops")

    client = make_fake(on_degraded=broken)
    headgate_server.fail()
    assert client.check(user="alice")
    assert "on_degraded failed" in caplog.text


def test_a_line_now_and_then_and_one_when_it_is_over(
    make_fake: Make, headgate_server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headgate_client")
    client = make_fake()
    headgate_server.fail("INTERNAL", "broken")
    for _ in range(100):
        client.check(user="alice")
    headgate_server.clock.advance(LOG_EVERY_S)
    client.check(user="alice")
    headgate_server.recover()
    headgate_server.clock.advance(LOG_EVERY_S)
    for _ in range(3):
        client.check(user="alice")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert "gave no decision: failed open (INTERNAL: broken; 1 such calls" in lines[0]
    assert "100 such calls" in lines[1]
    assert lines[2].endswith("decides again")


def test_who_gets_the_error_needs_no_line(
    make_fake: Make, headgate_server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    headgate_server.fail()
    client = make_fake(on_error="raise")
    with pytest.raises(RateLimitError):
        client.check(user="alice")
    assert caplog.records == []


def test_an_answer_that_is_none_is_an_error(make_fake: Make, headgate_server: FakeServer) -> None:
    headgate_server.answer = lambda payload: b"\xff\xff"  # type: ignore[method-assign]
    decision = make_fake().check(user="alice")
    assert (decision.allowed, str(decision.error)) == (True, "INTERNAL: the answer is no RateLimitResponse")


def test_a_token_that_can_not_be_had_is_an_error_and_not_an_exception(
    make_fake: Make, headgate_server: FakeServer
) -> None:
    def no_token() -> str:
        raise OSError("no such file")

    decision = make_fake(token=no_token).check(user="alice")
    assert decision.allowed
    assert str(decision.error) == "UNAUTHENTICATED: token: the function failed: OSError('no such file')"
    assert headgate_server.requests == []
    multiline = make_fake(token=lambda: "a\nb").check(user="alice")
    assert multiline.error is not None


@pytest.mark.parametrize("status", ["INVALID_ARGUMENT", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"])
def test_a_server_that_refuses_is_there(make_fake: Make, headgate_server: FakeServer, status: str) -> None:
    """The breaker is for servers that are away: one that can't read this request may read the next."""
    client = make_fake()
    headgate_server.fail(status)
    for _ in range(20):
        assert client.check(user="alice").degraded
    assert client.errors == {status: 20}
    assert client.reachable


def test_a_server_that_is_away_is_left_alone(make_fake: Make, headgate_server: FakeServer) -> None:
    client = make_fake()
    headgate_server.fail()
    for _ in range(100):
        assert client.check(user="alice").degraded
    assert len(headgate_server.requests) == 5
    assert client.errors == {"UNAVAILABLE": 5, "BREAKER_OPEN": 95}
    assert not client.reachable
    headgate_server.recover()
    headgate_server.clock.advance(1)
    assert not client.check(user="alice").degraded
    assert client.reachable


def test_an_exception_of_anything_else_is_an_error_too(make_fake: Make, headgate_server: FakeServer) -> None:
    def broken(payload: bytes) -> bytes:
        raise ValueError("Cannot invoke RPC on closed channel!")

    headgate_server.answer = broken  # type: ignore[method-assign]
    decision = make_fake().check(user="alice")
    assert decision.allowed
    assert "closed channel" in str(decision.error)


def test_a_call_that_no_rule_applies_to_is_said_once_and_counted(
    make_fake: Make, headgate_server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A typo in the domain or in a key leaves a service without limits, and nobody would know."""
    client, other = make_fake(), make_fake("edgee")
    for _ in range(3):
        assert client.check(usr="alice").no_rule
    assert other.check(user="alice").no_rule
    assert [record.message for record in caplog.records] == [
        "headgate at dns:///fake.headgate.test:8081 has no rule of domain 'edge' for descriptors of 'usr': such calls "
        "are not limited",
        "headgate at dns:///fake.headgate.test:8081 has no rules for domain 'edgee': such calls are not limited",
    ]
    assert client.check([{"user": "alice"}, {"ip": "x"}]).no_rule is False, "one rule applied"
    headgate_server.clock.advance(LOG_EVERY_S)
    client.check(usr="bob")
    headgate_server.clock.advance(LOG_EVERY_S)
    client.check(user="alice", path="/login")
    assert [record.message.partition(" for ")[2] for record in caplog.records[2:]] == [
        "descriptors of 'user>path': such calls are not limited"
    ], "a kind is said once, whatever its values"
    assert (client.no_rule, other.no_rule) == (5, 1)


def test_rules_that_exempt_or_are_replaced_are_no_mistakes(
    make_fake: Make, headgate_server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    limit = {"unit": "minute", "requests_per_unit": 5}
    gold = {"key": "plan", "value": "gold", "rate_limit": {**limit, "name": "gold"}}
    trial = {"key": "trial", "rate_limit": {**limit, "replaces": [{"name": "gold"}]}}
    rules = {"domain": "more", "descriptors": [{"key": "health"}, gold, trial]}
    server = FakeServer(rules, clock=headgate_server.clock)
    client = server.client("more")
    assert client.check(health="x").statuses[0].unmet is Unmet.EXEMPT
    replaced, counted = client.check([{"plan": "gold"}, {"trial": "t1"}]).statuses
    assert (replaced.unmet, counted.unmet) == (Unmet.REPLACED, None)
    assert client.no_rule == 0
    assert not caplog.records
