"""Follows an xDS server over grpc.aio, one stream after the other, and hands its sets over.

What is said and decided is `XdsStream`'s; here are the connection, its certificates, and the waits between streams. No
failure ends the feed, and none takes a rule out of force.
"""

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import grpc

from headgate.clock import Clock
from headgate.endpoint.dialing import Pings, ServerTls, dial_with
from headgate.errors import BadRequest
from headgate.rules.feed import Feed, FeedKind, Taker
from headgate.rules.problems import Problem, RulesError
from headgate.rules.source import RulesSource, SourceFile, source_of
from headgate.xds.messages import METHODS, Messages
from headgate.xds.stream import Protocol, Resources, XdsStream
from headgate.xds.text import shown_name

PINGS: Final = Pings(every_ms=300_000, timeout_ms=20_000)
"""Go's gRPC servers answer pings that come more often with GOAWAY."""
LOOK_S: Final = 10.0
"""Seconds after which a silent stream is known to be still there, for the age that operators see."""
STEADY_S: Final = 10.0
"""A stream that was answered and lived so long is no failure: the next wait is the first one again."""
LEAST_SHARE: Final = 0.5
"""Waits are between this share and all of the delay: nodes that lost one server do not come back together."""
MAX_HELD_SHOWN: Final = 100
_FOLDER: Final = "xds/"
"""Beginning of the names of files that are resources."""

_Call: TypeAlias = "grpc.aio.StreamStreamCall[bytes, bytes]"
_BROKEN = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError, OSError, BadRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class XdsServer:
    """Address of the server, and how it is spoken to."""

    address: str
    protocol: Protocol
    headers: tuple[tuple[str, str], ...] = ()
    tls: ServerTls | None = None
    """None: in plain text."""
    max_message_bytes: int = 64 * 1024 * 1024
    retry_s: float = 1.0
    retry_max_s: float = 30.0


@dataclass(slots=True)
class XdsState:
    """State of the stream, for operators."""

    connected: bool = False
    """True once the present stream was answered."""
    streams: int = 0
    responses: int = 0
    refusals: int = 0
    """Refusals that were sent."""


class XdsFeed(Feed):
    """Rules from an xDS server, each resource as the file `xds/<name>`."""

    kind: FeedKind = "xds"

    def __init__(self, server: XdsServer, messages: Messages, *, clock: Clock, rng: random.Random) -> None:
        super().__init__(clock.now_ms() / 1000)
        self._server = server
        self._messages = messages
        self._clock = clock
        self._random = rng
        self._stream = XdsStream(server.protocol)
        self._source: RulesSource | None = None
        self._lost = False
        """True from the end of a stream until the store has heard that the server is there again."""
        self.state = XdsState()

    def first(self) -> RulesSource | None:
        return None

    def restored(self, files: Sequence[SourceFile]) -> None:
        own = (file for file in files if file.name.startswith(_FOLDER))
        self._stream.restored({file.name.removeprefix(_FOLDER): file.data for file in own})

    def describe(self) -> Mapping[str, Any]:
        return {
            "kind": self.kind,
            "from": f"xds://{self._server.address}",
            "protocol": self._server.protocol,
            **dataclasses.asdict(self.state),
            "held": self.names_held[:MAX_HELD_SHOWN],
        }

    @property
    def names_held(self) -> list[str]:
        """Resources of former streams that are in force, and that the present one has not shown."""
        return self._stream.names_held

    async def watch(self, taker: Taker) -> None:
        delay_s = self._server.retry_s
        while True:
            began_s = self._clock.monotonic()
            try:
                await self._follow(taker)
                reason = "the server ended the stream"
            except _BROKEN as error:
                reason = _reason(error)
            if self.state.connected and self._clock.monotonic() - began_s >= STEADY_S:
                delay_s = self._server.retry_s
            self.state.connected, self._lost = False, True
            taker.cannot_read(RulesError([Problem(f"xds://{self._server.address}", 1, reason)], transient=True))
            await asyncio.sleep(delay_s * self._random.uniform(LEAST_SHARE, 1))
            delay_s = min(self._server.retry_max_s, 2 * delay_s)

    async def _follow(self, taker: Taker) -> None:
        """Run one stream to its end."""
        server = self._server
        channel = dial_with(server.address, server.tls, pings=PINGS, max_reply_bytes=server.max_message_bytes)
        try:
            call: _Call = channel.stream_stream(METHODS[server.protocol])(metadata=server.headers)
            self._stream.connected(self._clock.monotonic())
            self.state.streams += 1
            await self._converse(call, taker)
        finally:
            await channel.close()

    async def _converse(self, call: _Call, taker: Taker) -> None:
        reading: asyncio.Task[Any] | None = None
        try:
            while True:
                await self._act(call, taker)
                reading = reading or asyncio.ensure_future(call.read())
                await asyncio.wait([reading], timeout=self._pause_s())
                if not reading.done():
                    self._look()
                    continue
                data, reading = reading.result(), None
                if not isinstance(data, bytes):
                    return
                await self._take(data)
        finally:
            if reading is not None:
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError, *_BROKEN):
                    await reading
            call.cancel()

    def _pause_s(self) -> float:
        due_s = self._stream.wakes_at()
        return LOOK_S if due_s is None else min(LOOK_S, max(0.0, due_s - self._clock.monotonic()))

    def _look(self) -> None:
        """Take note of when the server was last known to be there."""
        if self.state.connected:
            self.looked_at = self._clock.now_ms() / 1000

    async def _take(self, data: bytes) -> None:
        # In a thread: a set of many rules takes long to turn into text.
        response = await asyncio.to_thread(self._messages.decode, data)
        self.state.connected = True
        self.state.responses += 1
        self._look()
        if response is not None:
            self._stream.received(response, self._clock.monotonic())

    async def _act(self, call: _Call, taker: Taker) -> None:
        """Do what the machine says: hand over a set, send what is due."""
        offered = self._stream.offered(self._clock.monotonic())
        if offered is not None:
            self._stream.judged(await self._hand_over(offered, taker), self._clock.monotonic())
        elif self._lost and self.state.connected and self._source is not None:
            # The same set on a new stream: the store hears that the server is there again.
            await taker.take(self._source)
        self._lost = self._lost and not self.state.connected
        for request in self._stream.requests(self._clock.monotonic()):
            self.state.refusals += bool(request.reason)
            await call.write(self._messages.encode(request))

    async def _hand_over(self, offered: Resources, taker: Taker) -> list[str]:
        """Put a set into force as far as it can be used; the problems of the rest."""
        named = {_FOLDER + shown_name(name): text for name, text in offered.items()}
        files = [SourceFile(path, text, path) for path, text in named.items()]
        source = source_of(files)
        outcome = await taker.take(source)
        self._source = source if not outcome.refused else None
        return [str(problem) for refusal in outcome.refused for problem in refusal.problems]

    # The channel


def _reason(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return f"{type(error).__name__}: {error}" if not isinstance(error, BadRequest) else str(error)
