"""Listener of a plane: grpc.aio, streams for followers and calls for operators, all of them known.

Everything that a caller could make this process hold is bounded: streams, connections, messages, and the time for a
hello. Nothing is queued for a follower: it is sent what is behind its place in the log as fast as it reads.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import grpc

from headgate.address import parse_address
from headgate.endpoint.admins import AdminMethod, Admins, Operator
from headgate.endpoint.listening import listen_by_grpcio
from headgate.endpoint.methods import CODES, MethodHandlers, Methods, parsed, sendable
from headgate.endpoint.socketfile import OWNER_ONLY, binding_at
from headgate.endpoint.tls import TlsFiles, server_credentials
from headgate.errors import BadRequest, NotReady, RequestError, status_of
from headgate.plane import codec
from headgate.plane.entry import FollowerHello, FromPlane, LogEntry, Position, Report, RulesPart
from headgate.plane.plane import Plane
from headgate.plane.rights import may_read
from headgate.plane.service import RulesService
from headgate.plane.watching import BEAT_S, Watching
from headgate.telemetry.bounded import BoundedLogger
from headgate.v1 import rules_pb2 as pb

MOST_STREAMS: Final = 5_000
"""Followers of one plane; more of them are what relays are for."""
MOST_CONNECTIONS: Final = MOST_STREAMS + 200
MOST_STREAMS_PER_CONNECTION: Final = 64
HELLO_S: Final = 5.0
"""Seconds from a stream's beginning to its hello."""
STREAM_AGE_S: Final = 3_600.0
"""Seconds after which a stream has to be begun again, with the proofs that are valid then."""
HANDSHAKE_TIMEOUT_MS: Final = 5_000
IDLE_TIMEOUT_MS: Final = 60_000
KEEPALIVE_MS: Final = 10_000
KEEPALIVE_TIMEOUT_MS: Final = 5_000
KEPT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of encoded entries that are kept: all followers are sent the same."""
STOPPING: Final = "this plane is stopping"

_Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


class EncodedEntries:
    """Entries as bytes, the latest of them, so that a thousand followers have one encoded once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Position, bytes] = OrderedDict()
        self._size = 0

    def encode(self, said: FromPlane) -> bytes:
        """Encode a message, or find it. Several threads may call it."""
        if not isinstance(said, LogEntry):
            return codec.encode_from_plane(said)
        found = self._kept.get(said.position)
        if found is None:
            found = codec.encode_from_plane(said)
            self._keep(said.position, found)
        return found

    def _keep(self, position: Position, data: bytes) -> None:
        if self._kept.setdefault(position, data) is data:
            self._size += len(data)
        while self._size > KEPT_BYTES:
            self._size -= len(self._kept.popitem(last=False)[1])


@dataclass(slots=True, eq=False)
class PlaneServer:
    """Serves a plane, from `start` to `stop`."""

    address: str
    """Address on which it listens; from `start` on with the real port."""
    plane: Plane
    service: RulesService
    admins: Admins
    logger: BoundedLogger
    tls: TlsFiles | None = None
    socket_mode: int = OWNER_ONLY
    _encoded: EncodedEntries = field(default_factory=EncodedEntries)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _server: grpc.aio.Server | None = None
    _cleanup: AsyncExitStack = field(default_factory=AsyncExitStack)

    # Lifecycle

    async def start(self) -> None:
        """Bind and accept. Raises ConfigError when the address can't be had, or a certificate can't be used."""
        credentials = server_credentials(self.tls, self.service.logger) if self.tls else None
        address = parse_address(self.address)
        async with AsyncExitStack() as cleanup:
            with binding_at(address, self.socket_mode, cleanup):
                server = grpc.aio.server(handlers=[Methods(self._handlers())], options=self._options())
                self.address = str(listen_by_grpcio(server, address, credentials))
            await server.start()
            self._server = server
            self._cleanup = cleanup.pop_all()

    async def stop(self, timeout_s: float) -> None:
        """End every stream with a reason, finish calls for at most `timeout_s`, and close."""
        self._stopping.set()
        if self._server is not None:
            await self._server.stop(timeout_s)
        await self._cleanup.aclose()

    def _options(self) -> list[tuple[str, int]]:
        return [
            ("grpc.max_receive_message_length", codec.MAX_MESSAGE_BYTES),
            ("grpc.max_concurrent_streams", MOST_STREAMS_PER_CONNECTION),
            ("grpc.max_allowed_incoming_connections", MOST_CONNECTIONS),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
            ("grpc.max_connection_idle_ms", IDLE_TIMEOUT_MS),
            ("grpc.so_reuseport", 0),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
        ]

    def _handlers(self) -> MethodHandlers:
        # Streams read and write by themselves, which the stubs don't know.
        watch: Any = self._watch
        read: Any = self._read
        handlers: MethodHandlers = {
            path: grpc.unary_unary_rpc_method_handler(self._call(method))
            for path, method in self.service.methods().items()
        }
        handlers[codec.WATCH] = grpc.stream_stream_rpc_method_handler(watch)
        handlers[f"/{codec.SERVICE}/Read"] = grpc.unary_stream_rpc_method_handler(read)
        return handlers

    # Calls

    def _call(self, method: AdminMethod) -> Callable[[bytes, _Context], Awaitable[bytes]]:
        async def serve(payload: bytes, context: _Context) -> bytes:
            try:
                return await method(payload, self.admins.identify(context))
            except Exception as error:
                return await self._abort(context, error)

        return serve

    async def _read(self, payload: bytes, context: _Context) -> AsyncIterator[bytes]:
        try:
            request = parsed(pb.ReadRequest, payload)
            async for part in self.service.read(request, self.admins.identify(context)):
                yield part
        except Exception as error:
            await self._abort(context, error)

    async def _abort(self, context: _Context, error: Exception) -> bytes:
        status, message = status_of(error)
        fields: dict[str, Any] = {"status": status.name, "reason": message}
        if not isinstance(error, RequestError):
            fields["exc_info"] = error
        level = "warning" if isinstance(error, RequestError) else "error"
        self.logger.emit(level, f"plane_call_refused {status.name}", "plane_call_refused", fields)
        await context.abort(CODES[int(status)], sendable(message))

    # Streams

    async def _watch(self, _requests: AsyncIterator[bytes], context: _Context) -> None:
        try:
            operator = self._known(context)
            with self._room():
                await self._converse(context, operator)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await self._abort(context, error)

    def _known(self, context: _Context) -> Operator:
        operator = self.admins.identify(context)
        may_read(self.service.rights, operator)
        return operator

    @contextlib.contextmanager
    def _room(self) -> Iterator[None]:
        stats = self.plane.stats
        if stats.streams >= MOST_STREAMS:
            raise NotReady(f"{MOST_STREAMS} streams are open, and there may be no more: let followers use a relay")
        stats.streams += 1
        try:
            yield
        finally:
            stats.streams -= 1

    async def _converse(self, context: _Context, operator: Operator) -> None:
        hello = await self._hear_hello(context)
        name = hello.follower.name
        self.logger.info("follower_connected", follower=name, who=operator.who, peer=operator.peer)
        self.plane.reported([hello.follower])
        asked = [hello.follower.has]
        hearing = asyncio.ensure_future(self._hear(context, asked))
        try:
            await self._tell(context, asked, hearing)
        finally:
            self.plane.left(name)
            hearing.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await hearing

    async def _hear_hello(self, context: _Context) -> FollowerHello:
        try:
            data: Any = await asyncio.wait_for(context.read(), HELLO_S)
        except TimeoutError:
            raise NotReady(f"no hello within {HELLO_S:g} s") from None
        said = codec.decode_from_follower(data) if isinstance(data, bytes) else None
        if not isinstance(said, FollowerHello):
            raise BadRequest("a stream begins with a hello")
        return said

    async def _hear(self, context: _Context, asked: list[Position]) -> None:
        """Take in what the follower says, until it ends the stream; hellos are left in `asked`."""
        while isinstance(data := await context.read(), bytes):
            said = codec.decode_from_follower(data)
            if isinstance(said, Report):
                self.plane.reported(said.followers)
            else:
                # One is enough: the last one says what the follower has.
                asked[:] = [said.follower.has]

    async def _tell(self, context: _Context, asked: list[Position], hearing: "asyncio.Future[None]") -> None:
        """Send what the follower lacks, until it has had enough."""
        clock, watching = self.plane.clock, Watching(self.plane.log, self.plane.age_ms)
        began_s = clock.monotonic()
        while not hearing.done():
            moved = self.plane.moved
            if asked:
                watching.hello(asked.pop())
            if watching.is_due(clock.monotonic()):
                # Again: a token may have been taken back, a certificate be no longer valid.
                self._known(context)
                await self._send(context, watching.outgoing(clock.monotonic()))
            if self._stopping.is_set():
                raise NotReady(STOPPING)
            if clock.monotonic() - began_s > STREAM_AGE_S:
                raise NotReady("the stream is old: begin another")
            await self._pause(moved, hearing)
        hearing.result()

    async def _send(self, context: _Context, outgoing: Iterator[FromPlane]) -> None:
        while (data := await self.plane.read(partial(self._next, outgoing))) is not None:
            await context.write(data)

    def _next(self, outgoing: Iterator[FromPlane]) -> bytes | None:
        said = next(outgoing, None)
        if isinstance(said, RulesPart):
            self.plane.stats.snapshots += said.number == 0
        return None if said is None else self._encoded.encode(said)

    async def _pause(self, moved: asyncio.Event, hearing: "asyncio.Future[None]") -> None:
        """Wait for the head to move, the next beat, the end of the stream or of the process."""
        waits: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(moved.wait()),
            asyncio.ensure_future(self._stopping.wait()),
        ]
        try:
            await asyncio.wait([*waits, hearing], timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
