"""The client over grpcio-testing's channel: each call is seen and ended by the test."""

import concurrent.futures
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import grpc_testing
import pytest
from headgate_client import Decision, Headgate, channel
from headgate_client.wire.envoy.service.ratelimit.v3 import rls_pb2

OK = rls_pb2.RateLimitResponse(overall_code=rls_pb2.RateLimitResponse.OK).SerializeToString()
PATIENCE_S = 60.0


def method(path: str) -> Any:
    """As grpcio-testing asks for it: a descriptor's two names. (The messages' own have another package.)"""
    service, name = path.strip("/").split("/")
    return SimpleNamespace(name=name, containing_service=SimpleNamespace(full_name=service))


CHECK = method(channel.METHOD)
PROBE = method(channel.PROBE)


class World:
    """A client whose server is the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.channel = grpc_testing.channel([], grpc_testing.strict_real_time())
        monkeypatch.setattr(grpc, "insecure_channel", lambda target, options: self.channel)
        self.client = Headgate("127.0.0.1:1", "edge", token="secret", timeout=0.03)  # noqa: S106  the test's own
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        connecting = self._pool.submit(self.client.__enter__)
        self.end(PROBE, grpc.StatusCode.UNIMPLEMENTED)
        connecting.result(PATIENCE_S)

    def check(self, **options: Any) -> "concurrent.futures.Future[Decision]":
        """A call under way."""
        return self._pool.submit(self.client.check, user="alice", **options)

    def end(self, method: Any, code: grpc.StatusCode, response: bytes = OK) -> tuple[dict[str, Any], bytes]:
        """Take the next call and end it with a status; its metadata and what it asked."""
        metadata, request, rpc = self.channel.take_unary_unary(method)
        rpc.send_initial_metadata(())
        rpc.terminate(response, (), code, "by the test")
        return dict(metadata), request

    def decide(self, code: grpc.StatusCode, response: bytes = OK) -> Decision:
        call = self.check()
        self.end(CHECK, code, response)
        return call.result(PATIENCE_S)

    def close(self) -> None:
        self.client.close()
        self._pool.shutdown()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(monkeypatch)
    yield made
    made.close()


def test_what_a_call_carries(world: World) -> None:
    call = world.check(cost=3)
    metadata, request = world.end(CHECK, grpc.StatusCode.OK)
    asked = rls_pb2.RateLimitRequest.FromString(request)
    assert metadata["authorization"] == "Bearer secret"
    assert (asked.domain, asked.hits_addend) == ("edge", 3)
    assert [(entry.key, entry.value) for entry in asked.descriptors[0].entries] == [("user", "alice")]
    assert call.result(PATIENCE_S).allowed


@pytest.mark.parametrize(
    ("code", "opens"),
    [
        (grpc.StatusCode.UNAVAILABLE, True),
        (grpc.StatusCode.INTERNAL, True),
        (grpc.StatusCode.UNKNOWN, True),
        (grpc.StatusCode.INVALID_ARGUMENT, False),
        (grpc.StatusCode.UNAUTHENTICATED, False),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, False),
    ],
)
def test_five_calls_in_a_row_that_reach_nobody_open_the_breaker(
    world: World, code: grpc.StatusCode, opens: bool
) -> None:
    """A server that refuses is there; one that can't be reached, or breaks, is not."""
    for _ in range(5):
        assert world.client.reachable
        error = world.decide(code).error
        assert error is not None
        assert error.status == code.name
    assert world.client.reachable is not opens


def test_an_answer_that_is_none_is_a_failure_of_the_server(world: World) -> None:
    decision = world.decide(grpc.StatusCode.OK, b"\xff")
    assert decision.allowed
    assert decision.error is not None
    assert decision.error.status == "INTERNAL"


def test_what_on_error_says_goes_for_one_call(world: World) -> None:
    policies: dict[str, Callable[[Any], bool]] = {
        "open": lambda call: call.result(PATIENCE_S).allowed,
        "closed": lambda call: not call.result(PATIENCE_S).allowed,
        "raise": lambda call: call.exception(PATIENCE_S).status == "UNAVAILABLE",
    }
    for on_error, holds in policies.items():
        call = world.check(on_error=on_error)
        world.end(CHECK, grpc.StatusCode.UNAVAILABLE)
        assert holds(call), on_error
