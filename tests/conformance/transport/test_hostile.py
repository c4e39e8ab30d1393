"""Whatever arrives on the socket, the process lives and others are served."""

import asyncio
import gzip
import random
import struct
from collections.abc import AsyncIterator, Iterator

import grpc
import h2.exceptions
import pytest
from headgate.transport.interface import RATE_LIMIT_METHOD, TransportLimits

from tests.conformance.transport.harness import (
    KINDS,
    TIMEOUT_S,
    Kind,
    call,
    dialled,
    eventually,
    serving,
    status_of_call,
)
from tests.conformance.transport.raw import PREFACE, call_headers, frame, message, raw_client, send_bytes
from tests.conformance.transport.server_process import ServerProcess, server_process

SETTINGS = frame(4, 0, 0, b"")
MEBIBYTE = 1024 * 1024
# What a process may keep after an attack: its allocator's slack, and nothing like what was sent.
KEPT_BYTES = 16 * MEBIBYTE


@pytest.fixture(scope="module", params=KINDS)
def process(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """Not in the tests' own process: an abort must not take them with it."""
    with server_process(request.param) as running:
        yield running


@pytest.fixture
async def victim(process: ServerProcess) -> AsyncIterator[ServerProcess]:
    """After each test it is alive and serves."""
    async with dialled(process.address) as channel:
        assert await call(channel, b"before") == b"echo:before"
    yield process
    assert process.alive
    async with dialled(process.address) as channel:
        assert await call(channel, b"after") == b"echo:after"


async def test_random_bytes(victim: ServerProcess) -> None:
    source = random.Random(1)
    noises = [source.randbytes(size) for size in (0, 1, 9, 24, 100, 1000, 10_000)]
    starts = (b"", PREFACE[:10], PREFACE, PREFACE + SETTINGS)
    await asyncio.gather(*(send_bytes(victim.port, start + noise) for start in starts for noise in noises))


MALFORMED = {
    "headers on stream 0": frame(1, 4, 0, b"\x82"),
    "a stream id of the server's": frame(1, 4, 2, b"\x82"),
    "headers that don't decode": frame(1, 4, 1, b"\xff" * 64),
    "data without headers": frame(0, 1, 1, b"data"),
    "a continuation of nothing": frame(9, 4, 1, b"\x82"),
    "a ping of five bytes": frame(6, 0, 0, b"short"),
    "half a setting": frame(4, 0, 0, b"\x00"),
    "a window too large": frame(4, 0, 0, struct.pack(">HI", 4, 2**32 - 1)),
    "a window that doesn't grow": frame(8, 0, 0, struct.pack(">I", 0)),
    "a window that overflows": frame(8, 0, 0, struct.pack(">I", 2**31 - 1)) * 2,
    "reset of a stream that never was": frame(3, 0, 1, struct.pack(">I", 8)),
    "a frame of 16 MB that never comes": b"\xff\xff\xff" + frame(0, 0, 1, b"")[3:],
    "an unknown frame": frame(250, 255, 1, b"unknown"),
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a flood of pings": frame(6, 0, 0, b"pingping") * 20_000,
    "a flood of settings": SETTINGS * 20_000,
}


async def test_malformed_frames(victim: ServerProcess) -> None:
    await asyncio.gather(*(send_bytes(victim.port, PREFACE + SETTINGS + frames) for frames in MALFORMED.values()))
    await send_bytes(victim.port, MALFORMED["HTTP/1.1"])


STRANGE: list[tuple[dict[str, str | None], bytes]] = [
    ({"content_type": "application/json"}, message(b"x")),
    ({"content_type": "text/plain"}, b"hello"),
    ({"content_type": None}, message(b"x")),
    ({"te": None}, message(b"x")),
    ({":method": "GET"}, message(b"x")),
    ({":path": "*"}, message(b"x")),
    ({":path": "/" + "x" * 8000}, message(b"x")),
    ({"grpc_timeout": "nonsense"}, message(b"x")),
    ({"grpc_timeout": "99999999H"}, message(b"x")),
    ({"grpc_encoding": "gzip"}, message(b"not gzip", compressed=True)),
    ({"grpc_encoding": "deflate"}, message(b"not deflate", compressed=True)),
    ({"grpc_encoding": "unheard-of"}, message(b"x", compressed=True)),
    ({"x_big": "y" * 60_000}, message(b"x")),
    ({}, message(b"x", compressed=True)),
    ({}, message(b"one") + message(b"two")),
    ({}, b"\x07" + message(b"x")[1:]),
    # A body that ends too early: grpcio waits for the rest until the caller's deadline.
    ({"grpc_timeout": "200m"}, b""),
    ({"grpc_timeout": "200m"}, b"\x00\x00"),
    ({"grpc_timeout": "200m"}, message(b"x", length=100)),
]


async def test_strange_calls_end_and_never_as_unknown(victim: ServerProcess) -> None:
    """Envoy lets UNKNOWN pass whatever `failure_mode_deny` says."""
    statuses = await asyncio.gather(*(_status(victim, changes, body) for changes, body in STRANGE))
    assert "2" not in statuses
    # Some of them are good enough for an answer, so the statuses are really there.
    assert {"0", "12", "13"} <= set(statuses)


@pytest.mark.parametrize("size", [9_000, 17_000, 60_000, 900_000, 3_000_000])
async def test_metadata_of_no_size_end_as_unknown(victim: ServerProcess, size: int) -> None:
    """Nor as HTTP 431, which gRPC clients take for it."""
    async with dialled(victim.address) as channel:
        caller: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(RATE_LIMIT_METHOD)
        call_of = caller(b"x", metadata=[("x-big", "y" * size)], timeout=TIMEOUT_S)
        # The whole connection goes where it is far too much: as if the server had gone.
        wanted = (grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
        assert await call_of.code() in wanted


async def _status(victim: ServerProcess, changes: dict[str, str | None], body: bytes) -> str | None:
    async with raw_client(victim.port) as client:
        try:
            outcome = await client.outcome(await client.open(call_headers(**changes), body))
        except (h2.exceptions.ProtocolError, ConnectionError):
            return None  # the connection was cut, which is an end too
    return outcome.get("grpc-status")


async def test_a_length_of_4_gib_takes_no_memory(victim: ServerProcess) -> None:
    """Many callers announce a message that never comes."""
    before = victim.rss_bytes()
    body = message(b"x" * 100, length=2**32 - 1)
    async with raw_client(victim.port) as client:
        for _ in range(50):
            await client.open(call_headers(), body, end=False)
        async with dialled(victim.address) as channel:
            assert await call(channel, b"meanwhile") == b"echo:meanwhile"
        assert victim.rss_bytes() - before < KEPT_BYTES


async def test_rapid_reset(victim: ServerProcess) -> None:
    """Open and reset, thousands of times: others are still served, and nothing stays."""
    before = victim.rss_bytes()
    async with raw_client(victim.port) as client:
        try:
            for _ in range(3_000):
                stream = await client.open(call_headers(), message(b"x"))
                client.h2.reset_stream(stream, error_code=8)
            await client.flush()
        except (ConnectionError, h2.exceptions.ProtocolError):
            pass  # cut off, which is fine
        async with dialled(victim.address) as channel:
            assert await call(channel, b"meanwhile") == b"echo:meanwhile"
    await eventually(lambda: victim.rss_bytes() - before < KEPT_BYTES)


async def test_oversized_messages_are_refused_and_cost_no_lasting_memory(victim: ServerProcess) -> None:
    big = b"x" * (30 * MEBIBYTE)
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    before = victim.rss_bytes()
    async with dialled(victim.address, options=options) as channel:
        for _ in range(20):
            code, details = await status_of_call(call(channel, big))
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert details == f"SERVER: Received message larger than max ({len(big)} vs. 65536)"
    # Of twenty the allocator may keep the place of one: now and then something small lies above it.
    await eventually(lambda: victim.rss_bytes() - before < len(big) + KEPT_BYTES)


async def test_gzip_is_understood_and_a_bomb_is_refused(victim: ServerProcess) -> None:
    # As large as fits into a stream's first window: a thousand times that when unpacked.
    bomb = gzip.compress(b"\0" * (60 * MEBIBYTE))
    assert len(bomb) < 65_000
    before = victim.rss_bytes()
    async with raw_client(victim.port) as client:
        small = await client.open(call_headers(grpc_encoding="gzip"), message(gzip.compress(b"hi"), compressed=True))
        assert (await client.outcome(small))["grpc-status"] == "0"
    for _ in range(5):
        async with raw_client(victim.port) as client:
            stream = await client.open(call_headers(grpc_encoding="gzip"), message(bomb, compressed=True))
            assert (await client.outcome(stream))["grpc-status"] == "8"
    await eventually(lambda: victim.rss_bytes() - before < KEPT_BYTES)


async def test_messages_up_to_the_limit_pass(kind: Kind) -> None:
    async with serving(kind, limits=TransportLimits(max_message_bytes=1000)) as server:
        server.script.reply = lambda payload: str(len(payload)).encode()
        async with dialled(server.address) as channel:
            assert await call(channel, b"x" * 1000) == b"1000"
            code, details = await status_of_call(call(channel, b"x" * 1001))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert details == "SERVER: Received message larger than max (1001 vs. 1000)"
        assert len(server.script.payloads) == 1
