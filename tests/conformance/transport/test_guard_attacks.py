"""Attacks on a guarded server in a process of its own: its memory stays bounded, and honest callers are served.

Sizes are small, and so are the bounds that they are set against.
"""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from urllib.parse import unquote

import grpc
import h2.connection
import h2.exceptions
import pytest
from headgate.transport.interface import GuardLimits, TransportLimits

from tests.conformance.transport.harness import TIMEOUT_S, call, dialled, eventually, status_of_call
from tests.conformance.transport.raw import PREFACE, call_headers, frame, message, raw_client
from tests.conformance.transport.server_process import ServerProcess, server_process

MEBIBYTE = 1024 * 1024
LIMITS = TransportLimits(
    guard=GuardLimits(
        max_connections=60,
        max_connections_per_address=50,
        max_new_connections_per_s=1_000.0,
        max_unfinished_bytes=2 * MEBIBYTE,
    )
)
# What a process may grow by in an attack: its bounds and its allocator's slack, and nothing like what was sent.
GROWTH_BYTES = 24 * MEBIBYTE
SETTINGS = frame(4, 0, 0, b"")


@pytest.fixture(scope="module")
def process() -> Iterator[ServerProcess]:
    with server_process("guarded", limits=LIMITS) as running:
        yield running


@pytest.fixture
async def honest(process: ServerProcess) -> AsyncIterator[grpc.aio.Channel]:
    """A caller who was there before the attack, and is served after it."""
    async with dialled(process.address) as channel:
        assert await call(channel, b"before") == b"echo:before"
        yield channel
        assert process.alive
        assert await call(channel, b"after") == b"echo:after"


class Attacker:
    """One connection, without an event loop: it sends all it has, and reads only when told to."""

    def __init__(self, stack: ExitStack, port: int) -> None:
        self.socket = stack.enter_context(socket.create_connection(("127.0.0.1", port), TIMEOUT_S))
        self._h2 = h2.connection.H2Connection()
        self._h2.initiate_connection()
        self._next = 1
        # The front opens its window for the connection, and those for calls when its settings are acknowledged.
        self.socket.sendall(self._h2.data_to_send())
        self._read_until(b"\x7f\xff\x00\x00")
        self.socket.sendall(frame(4, 1, 0, b""))

    def begin(self, body: bytes) -> None:
        """A call that does not end."""
        self._h2.send_headers(self._next, call_headers())
        # Not through h2, which keeps to windows.
        frames = b"".join(frame(0, 0, self._next, body[at : at + 16_384]) for at in range(0, len(body), 16_384))
        self.socket.sendall(self._h2.data_to_send() + frames)
        self._next += 2

    def until_all_was_read(self) -> None:
        """A ping is answered after everything before it."""
        self.socket.sendall(frame(6, 0, 0, b"attacker"))
        self._read_until(b"attacker")

    def _read_until(self, seen: bytes) -> None:
        received = b""
        while seen not in received:
            part = self.socket.recv(65_536)
            assert part, "the connection was closed"
            received += part


async def test_unfinished_messages(process: ServerProcess, honest: grpc.aio.Channel) -> None:
    """Eighty megabytes of them, on many connections; each message is within its bound."""
    before = process.rss_bytes()
    body = message(b"x" * 39_000, length=40_000)

    def attack(stack: ExitStack) -> None:
        attackers = [Attacker(stack, process.port) for _ in range(40)]
        for attacker in attackers:
            for _ in range(50):
                attacker.begin(body)
        for attacker in attackers:
            attacker.until_all_was_read()

    with ExitStack() as stack:
        await asyncio.to_thread(attack, stack)
        assert await call(honest, b"meanwhile") == b"echo:meanwhile"
        assert process.rss_bytes() - before < GROWTH_BYTES


async def test_honest_callers_are_told_when_too_much_is_unfinished(
    process: ServerProcess, honest: grpc.aio.Channel
) -> None:
    """Those whose message needs several frames; the rest don't notice."""

    def attack(stack: ExitStack) -> None:
        for _ in range(20):
            attacker = Attacker(stack, process.port)
            for _ in range(5):
                attacker.begin(message(b"x", length=40_000))
            attacker.until_all_was_read()

    with ExitStack() as stack:
        await asyncio.to_thread(attack, stack)
        code, details = await status_of_call(call(honest, b"x" * 40_000))
        assert code == grpc.StatusCode.UNAVAILABLE
        assert details == "overloaded: more than 2097152 bytes are unfinished, or too many of them here"
        assert await call(honest, b"x" * 10_000) == b"echo:" + b"x" * 10_000


async def test_messages_within_messages_that_never_end(process: ServerProcess, honest: grpc.aio.Channel) -> None:
    """The front keeps what comes before the end of a call, however many messages that is."""
    before = process.rss_bytes()

    def attack(stack: ExitStack) -> None:
        for _ in range(30):
            attacker = Attacker(stack, process.port)
            for _ in range(50):
                attacker.begin(message(b"x" * 10_000) * 5)
            attacker.until_all_was_read()

    with ExitStack() as stack:
        await asyncio.to_thread(attack, stack)
        assert await call(honest, b"meanwhile") == b"echo:meanwhile"
        assert process.rss_bytes() - before < GROWTH_BYTES


async def test_a_length_of_4_gib_where_memory_is_limited() -> None:
    """Whoever believes it asks for memory that there is not."""
    with server_process("guarded", limits=LIMITS, memory_bytes=4_000 * MEBIBYTE) as process, ExitStack() as stack:
        attacker = Attacker(stack, process.port)
        for _ in range(5):
            attacker.begin(message(b"x" * 100, length=2**32 - 1))
        await asyncio.to_thread(attacker.until_all_was_read)
        async with dialled(process.address) as channel:
            assert await call(channel, b"x") == b"echo:x"
        assert process.alive


async def test_gzip_bombs_are_not_unpacked(process: ServerProcess, honest: grpc.aio.Channel) -> None:
    bomb = message(gzip.compress(b"\0" * (60 * MEBIBYTE)), compressed=True)
    before = process.peak_bytes()
    for _ in range(3):
        async with raw_client(process.port) as client:
            stream = await client.open(call_headers(grpc_encoding="gzip"), bomb)
            outcome = await client.outcome(stream)
            assert outcome["grpc-status"] == "8"
            assert "unpack to more than max (65536)" in unquote(outcome["grpc-message"])
    assert process.peak_bytes() - before < GROWTH_BYTES


async def test_a_flood_of_connections(process: ServerProcess, honest: grpc.aio.Channel) -> None:
    """They take the room of their own address, and no more."""
    with ExitStack() as stack:
        before = process.descriptors()
        for _ in range(300):
            flooding = stack.enter_context(socket.create_connection(("127.0.0.1", process.port), TIMEOUT_S))
            flooding.sendall(PREFACE + SETTINGS)
        assert await call(honest, b"meanwhile") == b"echo:meanwhile"
        assert process.descriptors() - before < 3 * 50


async def test_too_large_metadata_are_refused_as_grpc_would(process: ServerProcess, honest: grpc.aio.Channel) -> None:
    """Again and again on one connection, which goes on."""
    async with raw_client(process.port) as client:
        for _ in range(3):
            stream = await client.open(call_headers(x_big="y" * 17_000), message(b"x"))
            outcome = await client.outcome(stream)
            assert (outcome["grpc-status"], outcome["grpc-message"]) == ("8", "the call's metadata are too large")
            stream = await client.open(call_headers(), message(b"x"))
            assert (await client.outcome(stream))["grpc-status"] == "0"
    caller: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = honest.unary_unary("/any/method")
    code, details = await status_of_call(caller(b"x", metadata=[("x-big", "y" * 17_000)], timeout=TIMEOUT_S))
    assert (code, details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "the call's metadata are too large")


async def test_data_after_a_refusal_is_not_held(process: ServerProcess, honest: grpc.aio.Channel) -> None:
    """Callers who go on sending what was refused, as far as the front's window for a call goes."""
    before = process.rss_bytes()

    def attack(stack: ExitStack) -> None:
        for _ in range(20):
            attacker = Attacker(stack, process.port)
            attacker.begin(message(b"x" * 3_900_000, length=20_000_000))
            attacker.until_all_was_read()

    with ExitStack() as stack:
        await asyncio.to_thread(attack, stack)
        assert await call(honest, b"meanwhile") == b"echo:meanwhile"
        assert process.rss_bytes() - before < GROWTH_BYTES


async def test_the_memory_of_calls_that_are_held_comes_back(process: ServerProcess, honest: grpc.aio.Channel) -> None:
    """Thousands of calls of headers alone take some; when they are gone, so is it."""
    before = process.rss_bytes()

    def attack(stack: ExitStack) -> None:
        attackers = [Attacker(stack, process.port) for _ in range(40)]
        for attacker in attackers:
            for _ in range(90):
                attacker.begin(b"")
        for attacker in attackers:
            attacker.until_all_was_read()

    with ExitStack() as stack:
        await asyncio.to_thread(attack, stack)
        assert await call(honest, b"meanwhile") == b"echo:meanwhile"
        assert process.rss_bytes() - before > GROWTH_BYTES
    await eventually(lambda: process.rss_bytes() - before < GROWTH_BYTES)
