"""Two regions on one loop: `us` listens, `eu` sends; over real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import structlog
from headgate.clock import Clock, SystemClock
from headgate.exchange import codec
from headgate.exchange.grpc_link import GrpcPeerLink
from headgate.exchange.grpc_server import ExchangeServer, StreamBounds
from headgate.exchange.hello import OURS, Hello, Regions, Versions
from headgate.exchange.identity import Security
from headgate.exchange.messages import Ack, Batch, Entry, LinkError
from headgate.telemetry.bounded import BoundedLogger

from tests.support.waiting import PATIENCE_S, until

CORE_ATTEMPTS = 5
"""Attempts at a batch: of a hundred streams that are refused before their first message is sent, gRPC's client says
INTERNAL of about one, instead of what the server said. The link dials anew, and so does a test."""

US = Regions("us", frozenset({"eu"}))
EU = Regions("eu", frozenset({"us"}))
LOG = structlog.get_logger()
SHORT_S = 0.3
"""For what never comes."""


def entries(count: int, size: int = 35) -> tuple[Entry, ...]:
    return tuple(
        Entry(f"{number}".encode().rjust(size, b"k"), 60_000, 29_000_000, number, 7) for number in range(count)
    )


class Recorder:
    """Acknowledges everything, unless told what to do instead."""

    def __init__(self, act: Callable[[Batch], Any] | None = None) -> None:
        self.received: list[tuple[str, Batch]] = []
        self._act = act

    async def check(self, region: str) -> None: ...

    async def receive(self, region: str, batch: Batch) -> Ack:
        self.received.append((region, batch))
        if self._act is not None:
            await self._act(batch)
        return Ack(batch.number, 2)


@asynccontextmanager
async def listening(
    receiver: Recorder | None = None,
    *,
    address: str = "127.0.0.1:0",
    regions: Regions = US,
    security: Security | None = None,
    versions: Versions = OURS,
    bounds: StreamBounds | None = None,
    clock: Clock | None = None,
    reuse_port: bool = False,
) -> AsyncIterator[ExchangeServer]:
    server = ExchangeServer(
        address,
        receiver or Recorder(),
        regions=regions,
        security=security or Security(LOG),
        clock=clock or SystemClock(),
        logger=BoundedLogger(LOG, clock or SystemClock()),
        versions=versions,
        bounds=bounds or StreamBounds(),
        reuse_port=reuse_port,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop(PATIENCE_S)


@asynccontextmanager
async def linked(
    address: str,
    *,
    to: str = "us",
    regions: Regions = EU,
    security: Security | None = None,
    versions: Versions = OURS,
    clock: Clock | None = None,
) -> AsyncIterator[GrpcPeerLink]:
    """And whatever became of it, it leaves no task behind, if it is the last one open."""
    link = GrpcPeerLink(
        to,
        address,
        regions=regions,
        security=security or Security(LOG),
        clock=clock or SystemClock(),
        versions=versions,
    )
    _open.add(link)
    try:
        yield link
    finally:
        _open.remove(link)
        await link.close()
    if not _open:
        await until(lambda: not any(map(_is_clients, asyncio.all_tasks())), "the link's tasks to end")


_open: set[GrpcPeerLink] = set()


def _is_clients(task: asyncio.Task[Any]) -> bool:
    """Of a call that grpc.aio makes. The server of a test has tasks of its own on this loop."""
    name = getattr(task.get_coro(), "__qualname__", "")
    return "Call." in name


@asynccontextmanager
async def raw_stream(server: ExchangeServer) -> AsyncIterator[Any]:
    """A call that sends and gets bytes as they are."""
    async with grpc.aio.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel.stream_stream(codec.METHOD)()


def hello(region: str = "eu", to: str = "us", versions: Versions = OURS) -> bytes:
    return codec.encode_hello(Hello(region, to, versions, ("eu", "us"), "test"))


async def outcome(call: Any) -> tuple[str, str]:
    """With which status and message the server ends a call."""
    async with asyncio.timeout(PATIENCE_S):
        # The status comes behind all messages, and not before they are read.
        with contextlib.suppress(grpc.aio.AioRpcError):
            while isinstance(await call.read(), bytes):
                pass
        return (await call.code()).name, await call.details()


async def send(link: GrpcPeerLink, number: int = 1, **fields: Any) -> Ack:
    for _ in range(CORE_ATTEMPTS - 1):
        try:
            return await link.send(Batch(number, 1, **fields), PATIENCE_S)
        except LinkError as error:
            if "INTERNAL: Internal error from Core" not in str(error):
                raise
    return await link.send(Batch(number, 1, **fields), PATIENCE_S)
