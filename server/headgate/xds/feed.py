"""Follows an xDS server over grpc.aio, one stream after the other, and hands its sets over.

What is said and decided is `XdsStream`'s; here are the connection, its certificates, and the waits between streams. No
failure ends the feed, and none takes a rule out of force.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import grpc

from headgate.clock import Clock
from headgate.errors import BadRequest
from headgate.xds.messages import METHODS, Messages
from headgate.xds.stream import Protocol as XdsProtocol
from headgate.xds.stream import Resources, XdsStream

KEEPALIVE_MS: Final = 300_000
"""Go's gRPC servers answer pings that come more often with GOAWAY."""
KEEPALIVE_TIMEOUT_MS: Final = 20_000
LOOK_S: Final = 10.0
"""Seconds after which a silent stream is known to be still there, for the age that operators see."""
STEADY_S: Final = 10.0
"""A stream that was answered and lived so long is no failure: the next wait is the first one again."""
LEAST_SHARE: Final = 0.5
"""Waits are between this share and all of the delay: nodes that lost one server do not come back together."""

_Call: TypeAlias = "grpc.aio.StreamStreamCall[bytes, bytes]"
_BROKEN = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError, OSError, BadRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class XdsServer:
    """Where the server is and how it is spoken to."""

    address: str
    protocol: XdsProtocol
    headers: tuple[tuple[str, str], ...] = ()
    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None
    max_message_bytes: int = 64 * 1024 * 1024
    retry_s: float = 1.0
    retry_max_s: float = 30.0


class RulesSink(Protocol):
    """Who takes the sets, and shows operators how the source does."""

    async def put(self, resources: Resources) -> Sequence[str]:
        """Put a set into force as far as it can be used; the problems of the rest."""

    def looked(self, trouble: str) -> None:
        """Hear that the server was there just now, or, with a reason, that it was not."""


class XdsFeed:
    """Runs until it is cancelled."""

    def __init__(
        self,
        server: XdsServer,
        messages: Messages,
        sink: RulesSink,
        clock: Clock,
        rng: random.Random,
        logger: Any,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._server = server
        self._messages = messages
        self._sink = sink
        self._clock = clock
        self._random = rng
        self._log = logger
        self._sleep = sleep
        self._stream = XdsStream(server.protocol)
        self._answered = False

    async def run(self) -> None:
        """Follow the server."""
        delay_s = self._server.retry_s
        while True:
            began_s = self._clock.monotonic()
            self._answered = False
            try:
                await self._follow()
                reason = "the server ended the stream"
            except _BROKEN as error:
                reason = _reason(error)
            if self._answered and self._clock.monotonic() - began_s >= STEADY_S:
                delay_s = self._server.retry_s
            wait_s = delay_s * self._random.uniform(LEAST_SHARE, 1)
            delay_s = min(self._server.retry_max_s, 2 * delay_s)
            self._sink.looked(f"{self._server.address}: {reason}")
            self._log.warning("xds_stream_ended", server=self._server.address, reason=reason, retry_s=round(wait_s, 3))
            await self._sleep(wait_s)

    async def _follow(self) -> None:
        """Run one stream to its end."""
        channel = self._channel()
        try:
            call: _Call = channel.stream_stream(METHODS[self._server.protocol])(metadata=self._server.headers)
            self._stream.connected(self._clock.monotonic())
            await self._converse(call)
        finally:
            await channel.close()

    async def _converse(self, call: _Call) -> None:
        reading: asyncio.Task[Any] | None = None
        try:
            while True:
                await self._act(call)
                reading = reading or asyncio.ensure_future(call.read())
                await asyncio.wait([reading], timeout=self._pause_s())
                if not reading.done():
                    if self._answered:
                        self._sink.looked("")
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

    async def _take(self, data: bytes) -> None:
        # In a thread: a set of many rules takes long to turn into text.
        response = await asyncio.to_thread(self._messages.decode, data)
        if not self._answered:
            self._log.info("xds_stream_began", server=self._server.address)
        self._answered = True
        self._sink.looked("")
        if response is not None:
            self._stream.received(response, self._clock.monotonic())

    async def _act(self, call: _Call) -> None:
        """Do what the machine says: hand over a set, send what is due."""
        offered = self._stream.offered(self._clock.monotonic())
        if offered is not None:
            problems = await self._sink.put(offered)
            self._stream.judged(problems, self._clock.monotonic())
        for request in self._stream.requests(self._clock.monotonic()):
            if request.reason:
                self._log.error("xds_refusal_sent", server=self._server.address, nonce=request.nonce)
            await call.write(self._messages.encode(request))

    # The channel

    def _channel(self) -> grpc.aio.Channel:
        server = self._server
        target = server.address if server.address.startswith("unix:") else f"dns:///{server.address}"
        if not server.tls:
            return grpc.aio.insecure_channel(target, options=self._options())
        # Read for each stream: certificates are rotated in place.
        credentials = grpc.ssl_channel_credentials(*map(_content, (server.ca, server.key, server.cert)))
        return grpc.aio.secure_channel(target, credentials, options=self._options())

    def _options(self) -> list[tuple[str, Any]]:
        options: list[tuple[str, Any]] = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.max_receive_message_length", self._server.max_message_bytes),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.http2.max_pings_without_data", 0),
        ]
        if self._server.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self._server.server_name))
        return options


def _content(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()


def _reason(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return f"{type(error).__name__}: {error}" if not isinstance(error, BadRequest) else str(error)
