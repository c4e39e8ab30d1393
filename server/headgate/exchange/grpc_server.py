"""Listener for other regions' batches: grpc.aio, one stream per exchanger of a peer.

A stream is its sender's own until it ends: a hello, then batches, each taken in by the
receiver and acknowledged before the next is read. Everything that a peer could make this
process hold is bounded: streams, connections, messages, and the time for a hello. Every
stream that ends early says why, with a status that is never UNKNOWN.
"""

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import grpc

from headgate import __version__
from headgate.address import parse_address
from headgate.clock import Clock
from headgate.endpoint.listening import listen_by_grpcio
from headgate.endpoint.methods import CODES, MethodHandlers, Methods, sendable
from headgate.endpoint.socketfile import OWNER_ONLY, binding_at
from headgate.errors import BadRequest, NotReady, RequestError, status_of
from headgate.exchange import codec
from headgate.exchange.hello import OURS, Hello, Regions, Versions, Welcome, check_direction, choose_version
from headgate.exchange.identity import Proof, Security
from headgate.exchange.messages import Batch, Receiver
from headgate.exchange.pace import PeerPace
from headgate.origin.interface import OriginError
from headgate.telemetry.bounded import BoundedLogger

STREAMS_PER_PEER: Final = 4
"""Streams that a peer may have. One is used; more are exchangers that overlap, and streams whose end was not noticed so
far.
"""

SPARE_CONNECTIONS: Final = 200
"""Connections beside one for each stream that peers may have: for those that are about to end, and for strangers."""

HANDSHAKE_TIMEOUT_MS: Final = 5_000
IDLE_TIMEOUT_MS: Final = 30_000
"""Milliseconds that a connection may stay without a stream: strangers don't keep others out."""

KEEPALIVE_MS: Final = 10_000
KEEPALIVE_TIMEOUT_MS: Final = 5_000
"""A path that is dead is noticed within both together, on either side, whether batches are under way or not."""

MIN_PING_INTERVAL_MS: Final = KEEPALIVE_MS // 2
"""Shortest interval of a peer's pings in ms; grpc-core's own is five minutes, and then it cuts the connection."""

STOPPING = "this region's exchange is stopping"

T = TypeVar("T")
_Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """Bounds on the time that a stream may take, and last."""

    hello_s: float = 5.0
    """Seconds from a stream's beginning to its hello."""
    silence_s: float = 180.0
    """Between batches: three times the longest interval that can be set."""
    age_s: float = 3_600.0
    """Seconds after which a stream has to be begun again, with the certificate that is valid then. Ours take half of
    that.
    """


@dataclass(slots=True)
class ServerStats:
    """Counts of streams, batches and entries from peers, for metrics."""

    streams: int = 0
    """Open now, whether they have said hello or not."""
    accepted: int = 0
    """Streams whose hello was answered."""
    refused: Counter[str] = field(default_factory=Counter)
    """Streams that ended with an error, by the status' name."""
    cut: int = 0
    """Streams that were given up, or whose connection broke, without their sender's word that nothing follows."""
    batches: int = 0
    entries: int = 0
    bytes_from: Counter[str] = field(default_factory=Counter)
    """Bytes of batches, by the region that sent them."""
    slowed_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds for which batches waited for their turn, by the region that sent them: too many entries, or bytes."""


@dataclass(slots=True, eq=False)
class ExchangeServer:
    """Listens for peers, and hands what they say to a `Receiver`."""

    address: str
    """Address on which it listens; from `start` on with the real port."""
    receiver: Receiver
    regions: Regions
    security: Security
    clock: Clock
    logger: BoundedLogger
    """Bounded, because whoever is refused comes again, every few seconds."""
    socket_mode: int = OWNER_ONLY
    reuse_port: bool = False
    most_peers: int = 0
    """Peers that there may be later, if that is more."""
    versions: Versions = OURS
    bounds: StreamBounds = field(default_factory=StreamBounds)
    stats: ServerStats = field(default_factory=ServerStats)
    peers: dict[str, Hello] = field(default_factory=dict)
    """The latest hello of each peer that spoke."""
    _opened_by: Counter[frozenset[str]] = field(default_factory=Counter)
    """Open streams by the peers that can have opened them, as their certificate or token says before any hello."""
    _streams_of: Counter[str] = field(default_factory=Counter)
    _paces: dict[str, PeerPace] = field(default_factory=dict)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _server: grpc.aio.Server | None = None
    _cleanup: AsyncExitStack = field(default_factory=AsyncExitStack)

    # Lifecycle

    async def start(self) -> None:
        """Bind and accept. Raises ConfigError when the address can't be had, or a certificate can't be used."""
        credentials, address = self.security.server_credentials(), parse_address(self.address)
        async with AsyncExitStack() as cleanup:
            with binding_at(address, self.socket_mode, cleanup):
                server = grpc.aio.server(handlers=[Methods(self._methods())], options=self._options())
                self.address = str(listen_by_grpcio(server, address, credentials, what="exchange: "))
            await server.start()
            self._server = server
            self._cleanup = cleanup.pop_all()

    def _methods(self) -> MethodHandlers:
        # It reads and writes by itself, which the stubs don't know.
        sync: Any = self._sync
        return {codec.METHOD: grpc.stream_stream_rpc_method_handler(sync)}

    def _options(self) -> list[tuple[str, int]]:
        peers = max(len(self.regions.peers), self.most_peers)
        return [
            ("grpc.max_receive_message_length", codec.MAX_BATCH_BYTES),
            ("grpc.max_concurrent_streams", STREAMS_PER_PEER * peers),
            ("grpc.max_allowed_incoming_connections", SPARE_CONNECTIONS + STREAMS_PER_PEER * peers),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
            ("grpc.max_connection_idle_ms", IDLE_TIMEOUT_MS),
            ("grpc.so_reuseport", int(self.reuse_port)),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # a minute by default, even with the line above
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
        ]

    def forget(self, region: str) -> None:
        """Forget a peer that is none any more; its streams end with its next batch, or its silence."""
        self.peers.pop(region, None)
        self._paces.pop(region, None)
        self.stats.bytes_from.pop(region, None)
        self.stats.slowed_s.pop(region, None)

    async def stop(self, timeout_s: float) -> None:
        """Acknowledge the batches that are being taken in, for at most `timeout_s`; then end every stream with a
        reason, and close.
        """
        self._stopping.set()
        if self._server is not None:
            await self._server.stop(timeout_s)
        await self._cleanup.aclose()

    # Streams

    async def _sync(self, _requests: AsyncIterator[bytes], context: _Context) -> None:
        try:
            # Before anything is read: who may not speak says nothing, and who may holds no place of others.
            with self._room(self.security.proof_of(context)):
                await self._converse(context)
        except asyncio.CancelledError:
            self.stats.cut += 1
            raise
        except Exception as error:
            await self._abort(context, error)

    @contextlib.contextmanager
    def _room(self, proof: Proof) -> Iterator[None]:
        """Hold a place among the streams of those who can have opened this one."""
        peers = proof.among(self.regions.peers)
        most = STREAMS_PER_PEER * max(1, len(peers))
        if self._opened_by[peers] >= most:
            raise NotReady(f"too many streams of {_named(peers)}: at most {most} are open at once")
        self._opened_by[peers] += 1
        self.stats.streams += 1
        try:
            yield
        finally:
            self.stats.streams -= 1
            self._opened_by[peers] -= 1

    @contextlib.contextmanager
    def _room_of(self, region: str) -> Iterator[None]:
        if self._streams_of[region] >= STREAMS_PER_PEER:
            raise NotReady(f"too many streams of region {region!r}: at most {STREAMS_PER_PEER} are open at once")
        self._streams_of[region] += 1
        try:
            yield
        finally:
            self._streams_of[region] -= 1

    async def _converse(self, context: _Context) -> None:
        began_s = self.clock.monotonic()
        hello = await self._hear_hello(context)
        version = self._check(context, hello)
        await self._from_origin(self.receiver.check(hello.region))
        with self._room_of(hello.region):
            self._welcomed(hello, version)
            await context.write(codec.encode_welcome(Welcome(version, self.regions.own, self.regions.all, __version__)))
            while (data := await self._next(context, self.bounds.silence_s, "batch")) is not None:
                # Again: a token may have been taken back, a certificate be no longer valid.
                self.security.proof_of(context).check(hello.region)
                if self.clock.monotonic() - began_s > self.bounds.age_s:
                    raise NotReady("the stream is old: begin another")
                check_direction(hello, self.regions)
                await self._take_in(context, hello.region, data)

    async def _hear_hello(self, context: _Context) -> Hello:
        data = await self._next(context, self.bounds.hello_s, "hello")
        hello = codec.decode_from_sender(data) if data is not None else None
        if not isinstance(hello, Hello):
            raise BadRequest("a stream begins with a hello")
        return hello

    def _check(self, context: _Context, hello: Hello) -> int:
        """The version to speak with it; raises where it is not to be spoken with."""
        self.security.proof_of(context).check(hello.region)
        check_direction(hello, self.regions)
        return choose_version(hello.versions, self.versions)

    def _welcomed(self, hello: Hello, version: int) -> None:
        self.stats.accepted += 1
        self.peers[hello.region] = hello
        self.logger.info("peer_connected", peer=hello.region, version=version, software=hello.software)
        ours, theirs = set(self.regions.all), set(hello.regions)
        if ours != theirs:
            # As while one is added or removed; for good, it is a mistake.
            self.logger.warning(
                "regions_differ", peer=hello.region, only_here=sorted(ours - theirs), only_there=sorted(theirs - ours)
            )

    async def _take_in(self, context: _Context, region: str, data: bytes) -> None:
        batch = codec.decode_from_sender(data)
        if not isinstance(batch, Batch):
            raise BadRequest("a second hello on one stream")
        self.stats.bytes_from[region] += len(data)
        entries = len(batch.entries) + len(batch.returned)
        async with self._pace_of(region).turn(entries, len(data)) as early_s:
            self._note_slowed(region, early_s)
            ack = await self._from_origin(self.receiver.receive(region, batch))
        self.stats.batches += 1
        self.stats.entries += entries
        await context.write(codec.encode_ack(ack))

    def _note_slowed(self, region: str, early_s: float) -> None:
        if early_s:
            self.stats.slowed_s[region] += early_s
            self.logger.emit("warning", f"peer_slowed {region}", "peer_slowed", {"peer": region, "seconds": early_s})

    def _pace_of(self, region: str) -> PeerPace:
        pace = self._paces.get(region)
        if pace is None:
            pace = self._paces[region] = PeerPace(self.clock)
        return pace

    async def _from_origin(self, answer: Awaitable[T]) -> T:
        """Await what needs the region's origin. Raises NotReady where that fails."""
        try:
            return await answer
        except OriginError as error:
            raise NotReady(f"region {self.regions.own!r} can't write to its origin: {error}") from error

    async def _next(self, context: _Context, timeout_s: float, what: str) -> bytes | None:
        """The next message; None when the sender has ended the stream."""
        reading = asyncio.ensure_future(context.read())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({reading, stopping}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set():
                raise NotReady(STOPPING)
            if not reading.done():
                raise NotReady(f"no {what} within {timeout_s:g} s")
            data: Any = reading.result()
            return data if isinstance(data, bytes) else None
        finally:
            reading.cancel()
            stopping.cancel()
            await asyncio.wait({reading, stopping})

    async def _abort(self, context: _Context, error: Exception) -> None:
        status, message = status_of(error)
        self.stats.refused[status.name.lower()] += 1
        fields: dict[str, Any] = {"status": status.name, "reason": message}
        if not isinstance(error, RequestError):
            fields["exc_info"] = error
        level = "warning" if isinstance(error, RequestError) else "error"
        # Apart from each other: a peer that is refused does not hide another fault.
        self.logger.emit(level, f"exchange_stream_ended {status.name}", "exchange_stream_ended", fields)
        await context.abort(CODES[int(status)], sendable(message))


def _named(peers: frozenset[str]) -> str:
    if not peers:
        return "no peer of this region"
    return ("region " if len(peers) == 1 else "regions ") + ", ".join(map(repr, sorted(peers)))
