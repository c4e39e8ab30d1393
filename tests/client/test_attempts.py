"""Whom a call goes to when there are several servers, and when it goes to a second one."""

from collections.abc import Callable

import pytest
from grpc import StatusCode
from headgate_client.breaker import Breaker
from headgate_client.core import Core, Link
from headgate_client.testing import FakeClock, FakeServer
from headgate_client.testing.server import FakeRpcError
from headgate_client.values import Decision

from tests.client.support import Make

NOT_SENT = "failed to connect to all addresses; last error: connection refused"


class World:
    """Two servers, and a client's core that asks them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.servers = [FakeServer(clock=self.clock), FakeServer(clock=self.clock)]
        self.links = [self._link(server) for server in self.servers]
        self.call_takes_s = 0.0
        self.core = Core(
            ["a:1", "b:2"],
            "edge",
            timeout=0.03,
            connect_timeout=1.0,
            on_error="open",
            tls=None,
            token=None,
            keep_denials=60,
            backoff=None,
            on_degraded=None,
            clock=self.clock,
        )

    def _link(self, server: FakeServer) -> Link:
        def call(request: bytes, **_: object) -> bytes:
            self.clock.advance(self.call_takes_s)
            return server.answer(request)

        return Link(call, Breaker(self.clock))

    def check(self) -> Decision:
        ask = self.core.ask(None, {"user": "alice"}, 1)
        attempts = self.core.attempts(ask, self.links)
        for attempt in attempts:
            with attempt:
                attempt.response = attempt.link.call(ask.request, timeout=attempt.timeout_s)
        return attempts.decision()

    def asked(self) -> list[int]:
        return [len(server.requests) for server in self.servers]


@pytest.fixture
def world() -> World:
    return World()


def test_servers_take_turns(world: World) -> None:
    for _ in range(10):
        assert not world.check().degraded
    assert world.asked() == [5, 5]


def test_a_call_that_was_never_sent_goes_to_the_next(world: World) -> None:
    world.servers[0].fail("UNAVAILABLE", NOT_SENT)
    assert not any(world.check().degraded for _ in range(40))
    assert world.asked() == [5, 40], "until the breaker of the first has seen enough"
    world.clock.advance(60)
    world.servers[0].recover()
    for _ in range(10):
        world.check()
    assert world.asked() == [10, 45]


def test_a_call_that_may_have_been_charged_is_not_repeated(world: World) -> None:
    world.servers[0].fail("UNAVAILABLE", "Socket closed")
    decisions = [world.check() for _ in range(4)]
    assert [decision.degraded for decision in decisions] == [True, False, True, False]
    assert world.asked() == [2, 2]


def test_a_second_try_has_what_is_left_of_the_deadline(world: World) -> None:
    for server in world.servers:
        server.fail("UNAVAILABLE", NOT_SENT)
    world.call_takes_s = 0.03
    assert world.check().degraded
    assert sum(world.asked()) == 1, "nothing is left"
    world.call_takes_s = 0.02
    assert world.check().degraded
    assert sum(world.asked()) == 3


def test_when_all_are_away_nobody_is_asked_and_it_says_why(world: World) -> None:
    for server in world.servers:
        server.fail("UNAVAILABLE", NOT_SENT)
    for _ in range(20):
        decision = world.check()
    assert world.asked() == [5, 5]
    assert str(decision.error).startswith(f"BREAKER_OPEN: not asked, after: UNAVAILABLE: {NOT_SENT}")


@pytest.mark.parametrize("raised", [KeyboardInterrupt, RuntimeError])
def test_a_probe_that_came_to_nothing_makes_room_for_another(world: World, raised: type[BaseException]) -> None:
    for server in world.servers:
        server.fail("UNAVAILABLE")
    for _ in range(20):
        world.check()
    for server in world.servers:
        server.recover()
    world.clock.advance(60)
    answers: list[Callable[..., bytes]] = [link.call for link in world.links]

    def interrupted(request: bytes, **_: object) -> bytes:
        raise raised

    for link in world.links:
        link.call = interrupted
    for _ in world.links:
        if raised is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                world.check()
        else:
            assert "RuntimeError" in str(world.check().error)
    for link, answer in zip(world.links, answers, strict=True):
        link.call = answer
    assert [world.check().error for _ in range(4)] == [None] * 4


def test_a_token_that_is_missing_is_no_failure_of_the_server(make_fake: Make, headgate_server: FakeServer) -> None:
    tokens: list[str] = ["one"] * 5
    client = make_fake(token=tokens.pop)
    headgate_server.fail()
    for _ in range(6):
        client.check(user="alice")
    assert not client.reachable
    headgate_server.recover()
    headgate_server.clock.advance(1)
    assert "UNAUTHENTICATED" in str(client.check(user="alice").error), "the probe had none"
    tokens.append("two")
    assert client.check(user="alice").error is None


def test_errors_are_as_grpc_raises_them() -> None:
    error = FakeRpcError(StatusCode.ABORTED, "why")
    assert (error.code(), error.details(), str(error)) == (StatusCode.ABORTED, "why", "why")


def test_grpc_is_given_less_by_what_its_timers_are_late() -> None:
    """Never less than half: a deadline that short is the caller's to get wrong, and not ours to take away."""
    world = World()
    timeouts = []
    for timeout in (30.0, 0.03, 0.002):
        ask = world.core.ask(None, {"user": "alice"}, 1, timeout)
        timeouts.append(next(iter(world.core.attempts(ask, world.links))).timeout_s)
    assert timeouts == pytest.approx([29.998, 0.028, 0.001])
