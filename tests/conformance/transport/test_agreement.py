"""All transports answer identically, whatever they are sent.

The same requests, well-formed and not, go through all of them in the same order, each in
front of a handler of its own with equal rules and a clock that stands.
"""

import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.engine import Engine
from headgate.rules.directory import load_directory
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest

from tests.conformance.transport.harness import KINDS, call, dialled, make_transport
from tests.support.clock import ManualClock

RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: path
    rate_limit: {unit: second, requests_per_unit: 2}
"""
NOW_MS = 1_700_000_000_000
Outcome = tuple[grpc.StatusCode, str | None, bytes]


def _handler(directory: Path) -> RateLimitHandler:
    rules = load_directory(directory)
    return RateLimitHandler(
        rules=lambda: rules,
        engine=Engine(ManualClock(NOW_MS), max_cells=10_000),
        random=random.Random(1),
        settings=AnswerSettings(response_headers=True),
    )


async def _outcome(channel: grpc.aio.Channel, payload: bytes) -> Outcome:
    try:
        return grpc.StatusCode.OK, "", await call(channel, payload)
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details(), b""


def _valid(source: random.Random) -> RateLimitRequest:
    request = RateLimitRequest(domain=source.choice(["edge", "edge", "elsewhere"]))
    for _ in range(source.randint(1, 4)):
        descriptor = request.descriptors.add()
        for _ in range(source.randint(1, 2)):
            key = source.choice(["user", "path", "unknown"])
            descriptor.entries.add(key=key, value=source.choice(["a", "b", "", "é", "x" * 300]))
        if source.random() < 0.2:
            descriptor.hits_addend.value = source.choice([0, 1, 3, 2**32 - 1, 2**63])
        if source.random() < 0.1:
            descriptor.limit.requests_per_unit = source.randint(0, 9)
            descriptor.limit.unit = source.randint(0, 6)  # type: ignore[assignment]
    request.hits_addend = source.choice([0, 0, 0, 1, 2, 2**32 - 1])
    return request


def _large() -> Iterator[bytes]:
    """At the bound on a message, and far beyond it."""
    request = RateLimitRequest(domain="edge")
    request.descriptors.add().entries.add(key="user", value="x" * 65_000)
    yield request.SerializeToString()
    request.descriptors[0].entries[0].value = "x" * 1_000_000
    yield request.SerializeToString()
    many = RateLimitRequest(domain="edge")
    for number in range(10_000):
        many.descriptors.add().entries.add(key="user", value=str(number))
    yield many.SerializeToString()
    bare = RateLimitRequest(domain="edge")
    for _ in range(10_000):
        bare.descriptors.add()
    yield bare.SerializeToString()


def _broken() -> Iterator[bytes]:
    """Wrong in ways that chance would rarely find."""
    valid = RateLimitRequest(domain="edge")
    valid.descriptors.add().entries.add(key="user", value="a")
    payload = valid.SerializeToString()
    yield from (payload[:length] for length in range(len(payload)))
    yield payload + b"\x98\x06\x01"  # an unknown field
    yield b"\x08\x01" + payload  # the domain as a number
    yield b"\x0a\x02\xff\xfe" + payload  # a domain that is no UTF-8
    yield b"\x12\xff\xff\xff\xff\x0f"  # a length of 4 GiB
    yield b"\x0b" * 200  # groups within groups
    yield b"\x12\x02\x0a\x00" * 1000  # a thousand empty entries
    yield b"\x00"
    yield b"\xff" * 11  # a varint without an end
    yield RateLimitRequest().SerializeToString()
    yield RateLimitRequest(domain="edge").SerializeToString()


def _requests(source: random.Random) -> Iterator[bytes]:
    for _ in range(200):
        payload = _valid(source).SerializeToString()
        yield payload
        if source.random() < 0.5:
            damaged = bytearray(payload)
            damaged[source.randrange(len(damaged))] = source.randrange(256)
            yield bytes(damaged)
    yield from (source.randbytes(source.randint(0, 200)) for _ in range(100))
    yield from _broken()
    yield from _large()


@pytest.mark.parametrize("seed", [1, 2])
async def test_all_transports_give_the_same_answers(tmp_path: Path, seed: int) -> None:
    (tmp_path / "rules.yaml").write_text(RULES, encoding="utf-8")
    seen: set[grpc.StatusCode] = set()
    async with AsyncExitStack() as stack:
        channels = []
        for kind in KINDS:
            transport, _ = make_transport(kind, handler=_handler(tmp_path))
            await transport.start()
            stack.push_async_callback(transport.stop, 0)
            channels.append(await stack.enter_async_context(dialled(transport.address)))
        for payload in _requests(random.Random(seed)):
            first, *others = [await _outcome(channel, payload) for channel in channels]
            assert others == [first] * len(others), payload[:200]
            seen.add(first[0])
    ok, invalid, exhausted = (
        grpc.StatusCode.OK,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    )
    assert seen == {ok, invalid, exhausted}
