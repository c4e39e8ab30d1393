"""What a decision says, and what is remembered of denials; on a server within the process."""

import pickle

import pytest
from headgate_client import Code, Decision, DescriptorStatus, Limit, RateLimited, RateLimitError
from headgate_client.denials import MAX_REQUEST_BYTES, Denials
from headgate_client.testing import FakeServer

from tests.client.support import Make


def status(
    code: Code = Code.OK, limit: int | None = 10, remaining: int = 0, reset_ms: int | None = 1500
) -> DescriptorStatus:
    return DescriptorStatus(code, None if limit is None else Limit(limit, "MINUTE", ""), remaining, reset_ms)


def test_a_decision_shows_the_descriptor_that_is_nearest_to_its_limit() -> None:
    decision = Decision(Code.OK, (status(remaining=7), status(limit=20, remaining=3, reset_ms=250), status(limit=None)))
    assert decision
    assert (decision.allowed, decision.limit, decision.remaining) == (True, 20, 3)
    assert (decision.reset_after, decision.retry_after, decision.degraded) == (0.25, 0.0, False)


def test_a_denial_says_when_all_that_deny_would_admit() -> None:
    over = (
        status(Code.OVER_LIMIT, reset_ms=1500),
        status(Code.OVER_LIMIT, limit=5, reset_ms=9000),
        status(remaining=0),
    )
    decision = Decision(Code.OVER_LIMIT, over)
    assert not decision
    assert (decision.allowed, decision.limit, decision.retry_after, decision.reset_after) == (False, 5, 9.0, 9.0)


def test_a_shadow_rule_that_is_over_makes_nobody_wait() -> None:
    assert Decision(Code.OK, (status(Code.OK, remaining=0),)).retry_after == 0.0


def test_without_a_limit_there_is_nothing_to_say() -> None:
    for decision in (
        Decision(Code.OK, (status(limit=None, reset_ms=None),)),
        Decision(Code.OK, error=RateLimitError("X", "")),
    ):
        assert decision.allowed
        assert (decision.limit, decision.remaining, decision.reset_after) == (None, None, None)


def test_five_are_allowed_and_the_sixth_is_told_when_to_come_back(make_fake: Make, headgate_server: FakeServer) -> None:
    client = make_fake()
    seen = [client.check(user="alice") for _ in range(6)]
    assert [bool(decision) for decision in seen] == [True] * 5 + [False]
    assert [decision.remaining for decision in seen] == [4, 3, 2, 1, 0, 0]
    assert {decision.limit for decision in seen} == {5}
    headgate_server.clock.advance(seen[5].retry_after - 0.001)
    assert not client.check(user="alice")
    headgate_server.clock.advance(0.001)
    assert client.check(user="alice")


def test_a_denial_is_known_until_its_time_and_for_the_same_call_alone(
    make_fake: Make, headgate_server: FakeServer
) -> None:
    client = make_fake()
    assert client.check(user="alice", cost=3)
    denied = client.check(user="alice", cost=3)
    asked = len(headgate_server.requests)
    headgate_server.clock.advance(1)
    again = client.check(user="alice", cost=3)
    assert not again
    assert len(headgate_server.requests) == asked, "answered from memory"
    assert again.retry_after == pytest.approx(denied.retry_after - 1)
    assert client.counters["denied_from_memory"] == 1
    assert client.check(user="alice", cost=2), "a smaller cost may fit"
    assert client.check(user="bob", cost=3)
    headgate_server.clock.advance(again.retry_after)
    client.check(user="alice", cost=3)
    assert len(headgate_server.requests) == asked + 3, "its time is up"


def test_a_denial_is_asked_for_again_when_its_server_may_have_meant_it(
    make_fake: Make, headgate_server: FakeServer
) -> None:
    """The server told a fifth more than it meant: the room that there is by then is not denied from memory."""
    client = make_fake()
    client.check(user="alice", cost=5)
    told_s = client.check(user="alice").retry_after
    asked = len(headgate_server.requests)
    headgate_server.clock.advance(told_s / 1.2 - 0.001)
    client.check(user="alice")
    assert len(headgate_server.requests) == asked, "answered from memory"
    headgate_server.clock.advance(0.002)
    client.check(user="alice")
    assert len(headgate_server.requests) == asked + 1


def test_a_denial_is_kept_no_longer_than_keep_denials(make_fake: Make, headgate_server: FakeServer) -> None:
    headgate_server.limit("edge", "1/day", org="*")
    client = make_fake(keep_denials=10)
    client.check(org="acme")
    assert not client.check(org="acme")
    headgate_server.reset()  # somebody resets the key
    headgate_server.clock.advance(9.9)
    assert not client.check(org="acme")
    headgate_server.clock.advance(0.1)
    assert client.check(org="acme")


def test_without_keep_denials_the_server_is_asked_every_time(make_fake: Make, headgate_server: FakeServer) -> None:
    client = make_fake(keep_denials=0)
    for _ in range(8):
        client.check(user="alice")
    assert len(headgate_server.requests) == 8


OVERDRAFT = {"unit": "minute", "requests_per_unit": 10, "overdraft": True}


def test_a_late_cost_is_told_to_the_server_each_time_denied_or_not(
    make_fake: Make, headgate_server: FakeServer
) -> None:
    """Under `overdraft` it is charged although it is denied: a denial from memory would swallow it."""
    headgate_server._rules.load({"domain": "edge", "descriptors": [{"key": "tokens", "rate_limit": OVERDRAFT}]})
    client = make_fake()
    assert client.check(tokens="a", cost=8)
    assert [bool(client.check(tokens="a", cost=8)) for _ in range(3)] == [False] * 3
    assert len(headgate_server.requests) == 4
    headgate_server.clock.advance(60 + 40)
    assert not client.check(tokens="a", cost=0), "32 were charged: two thirds of a minute later 11 still count"
    assert not client.check(tokens="a", cost=0)
    assert len(headgate_server.requests) == 5, "a look charges nothing: its denial is remembered"
    # Beside another limit that denies, a late cost that fits is charged all the same.
    both = [{"tokens": "b"}, {"user": "bob"}]
    assert client.check(user="bob", cost=5)
    assert [bool(client.check(both, cost=3)) for _ in range(2)] == [False] * 2
    assert client.check(tokens="b", cost=0).remaining == 4


def test_no_more_denials_are_kept_than_there_is_room_for() -> None:
    denials = Denials(60, max_denials=3)
    over = Decision(Code.OVER_LIMIT, (status(Code.OVER_LIMIT, reset_ms=5000),))
    for number in range(5):
        denials.keep(b"%d" % number, over, 0)
    assert (len(denials), denials.dropped) == (3, 2)
    assert [denials.find(b"%d" % number, 1) is not None for number in range(5)] == [False, False, True, True, True]
    denials.keep(b"x" * (MAX_REQUEST_BYTES + 1), over, 0)
    denials.keep(b"allowed", Decision(Code.OK), 0)
    denials.keep(b"no time", Decision(Code.OVER_LIMIT), 0)
    assert len(denials) == 3
    assert denials.find(b"4", 5) is None
    assert len(denials) == 2, "what is over goes when it is met"


def test_errors_survive_the_way_to_another_process() -> None:
    denied = Decision(Code.OVER_LIMIT, (status(Code.OVER_LIMIT),), error=RateLimitError("X", "y"))
    sent = pickle.loads(pickle.dumps(RateLimited(denied)))  # noqa: S301  our own
    assert (type(sent), sent.retry_after, str(sent.decision.error)) == (RateLimited, 1.5, "X: y")
