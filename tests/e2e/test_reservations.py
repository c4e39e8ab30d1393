"""Reserve and settle, with real processes: over both transports, at any node of a region, once."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from headgate_client import Headgate
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from headgate_client.wire.headgate.v1.limits_pb2 import ReserveRequest, ReserveResponse, SettleRequest, SettleResponse
from headgate_client.wire.headgate.v1.limits_pb2_grpc import LimitsStub

from tests.support.headgate import serve, write_rules
from tests.support.redis_servers import RedisServer
from tests.support.waiting import PATIENCE_S, wait_until

RULES = """\
domain: edge
descriptors:
- key: tokens
  rate_limit: {unit: year, requests_per_unit: 1000}
- key: late
  rate_limit: {unit: year, requests_per_unit: 1000, overdraft: true}
- key: back
  rate_limit: {unit: year, requests_per_unit: 1000, precision: 0, refund: true}
"""
OK, OVER = RateLimitResponse.OK, RateLimitResponse.OVER_LIMIT


class Caller:
    """One who reserves and settles at one node."""

    def __init__(self, channel: grpc.Channel, address: str, token: str = "") -> None:
        self._stub: Any = LimitsStub(channel)
        self._address = address
        self._metadata = [("authorization", f"Bearer {token}")] if token else []

    def reserve(self, estimate: int, key: str = "tokens", ttl_ms: int = 0) -> ReserveResponse:
        entry = RateLimitDescriptor.Entry(key=key, value="a")
        request = RateLimitRequest(
            domain="edge", descriptors=[RateLimitDescriptor(entries=[entry])], hits_addend=estimate
        )
        call: ReserveResponse = self._stub.Reserve(
            ReserveRequest(request=request, ttl_ms=ttl_ms), timeout=PATIENCE_S, metadata=self._metadata
        )
        return call

    def settle(self, reservation: str, actual: int) -> SettleResponse:
        call: SettleResponse = self._stub.Settle(
            SettleRequest(id=reservation, actual=actual), timeout=PATIENCE_S, metadata=self._metadata
        )
        return call

    def remaining(self, key: str = "tokens") -> int | None:
        with Headgate(self._address, "edge", timeout=PATIENCE_S, on_error="raise") as client:
            return client.check([{key: "a"}], cost=0).remaining


@contextlib.contextmanager
def caller(address: str, token: str = "") -> Iterator[Caller]:
    with grpc.insecure_channel(address) as channel:
        yield Caller(channel, address, token)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(tmp_path / "rules", RULES)


@pytest.mark.parametrize("transport", ["native", "grpcio"])
def test_the_difference_is_given_back_or_charged_once(rules: Path, transport: str) -> None:
    with serve(rules, "--transport", transport) as headgate, caller(headgate.grpc) as here:
        less, more = here.reserve(400), here.reserve(500)
        assert (less.decision.overall_code, more.decision.overall_code) == (OK, OK)
        assert here.remaining() == 100
        denied = here.reserve(200)
        assert (denied.decision.overall_code, denied.id) == (OVER, "")
        for attempt in range(3):
            answer = here.settle(less.id, 50)
            assert (answer.settled, answer.actual) == (attempt == 0, 50)
        assert here.remaining() == 450
        assert here.settle(less.id, 0).actual == 50, "the first one stands"
        assert here.settle(more.id, 1_200).settled
        assert here.remaining() == 0
        assert here.reserve(1).decision.overall_code == OVER


def test_under_overdraft_an_estimate_that_does_not_fit_is_not_charged(rules: Path) -> None:
    with serve(rules) as headgate, caller(headgate.grpc) as here:
        assert here.reserve(900, "late").id
        assert here.reserve(200, "late").decision.overall_code == OVER
        assert here.remaining("late") == 100


def test_any_node_of_the_region_settles_and_only_one_does(rules: Path) -> None:
    with RedisServer() as redis, contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(serve(rules, "--origin", redis.url, "--origin-deadline-ms", "1000", "--node-id", name))
            for name in ("a", "b")
        ]
        one, two = [stack.enter_context(caller(node.grpc)) for node in nodes]
        first, second = one.reserve(100), one.reserve(100)
        assert two.settle(first.id, 300).settled
        assert not one.settle(first.id, 300).settled
        wait_until(lambda: one.remaining() == two.remaining() == 600, "both to know")
        assert one.settle(second.id, 0).settled
        assert not two.settle(second.id, 0).settled
        # What the node gave back, its next admissions have.
        assert one.reserve(700).decision.overall_code == OK
        redis.stop()
        third = one.reserve(1)
        if third.id:
            with pytest.raises(grpc.RpcError) as refused:
                two.settle(third.id, 5)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_on_a_rule_with_refunds_every_node_has_what_was_given_back(rules: Path) -> None:
    with RedisServer() as redis, contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(serve(rules, "--origin", redis.url, "--origin-deadline-ms", "1000", "--node-id", name))
            for name in ("a", "b")
        ]
        one, two = [stack.enter_context(caller(node.grpc)) for node in nodes]
        reserved = one.reserve(1000, "back")
        assert two.reserve(1, "back").decision.overall_code == OVER
        wait_until(lambda: one.remaining("back") == 0, "the charge to be known")
        assert two.settle(reserved.id, 400).settled
        wait_until(lambda: one.reserve(600, "back").decision.overall_code == OK, "the room at the other node")
        assert two.reserve(1, "back").decision.overall_code == OVER, "and no more than that"


def test_an_unsettled_reservation_counts_as_its_estimate_and_can_not_be_settled_later(rules: Path) -> None:
    with serve(rules) as headgate, caller(headgate.grpc) as here:
        short = here.reserve(400, ttl_ms=100)
        time.sleep(0.2)  # what the test is about
        with pytest.raises(grpc.RpcError, match="expired") as refused:
            here.settle(short.id, 0)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert here.remaining() == 600


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not one that Reserve gave"),
        ("nonsense!", "not one"),
        ("AAAA" * 20, "newer version"),
        ("A" * 5000, "characters"),
    ],
)
def test_what_is_no_id_is_refused(rules: Path, text: str, said: str) -> None:
    with serve(rules) as headgate, caller(headgate.grpc) as here, pytest.raises(grpc.RpcError, match=said):
        here.settle(text, 1)


def test_nobody_can_change_an_id(rules: Path) -> None:
    with serve(rules) as headgate, caller(headgate.grpc) as here:
        real = here.reserve(400).id
        for position in range(0, len(real) - 1, 7):
            forged = real[:position] + ("A" if real[position] != "A" else "B") + real[position + 1 :]
            with pytest.raises(grpc.RpcError) as refused:
                here.settle(forged, 0)
            assert refused.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
        assert here.remaining() == 600


@pytest.mark.parametrize("transport", ["native", "grpcio"])
def test_it_is_guarded_as_decisions_are(rules: Path, tmp_path: Path, transport: str) -> None:
    (tmp_path / "tokens").write_text("secret\n")
    flags = ("--transport", transport, "--token-file", str(tmp_path / "tokens"))
    with serve(rules, *flags) as headgate:
        with caller(headgate.grpc) as stranger, pytest.raises(grpc.RpcError) as refused:
            stranger.reserve(1)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with caller(headgate.grpc, "secret") as known:
            assert known.reserve(1).id
