"""Connection to one peer over grpc.aio: one channel and one stream, made when they are needed.

Any failure ends both, and the next batch begins with new ones: a connection whose path is dead is not used a second
time. The caller decides when to try again. No call takes longer than its timeout.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import grpc

from headgate import __version__
from headgate.clock import Clock
from headgate.endpoint.dialing import Pings, dial
from headgate.errors import BadRequest
from headgate.exchange import codec
from headgate.exchange.grpc_server import KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS, StreamBounds
from headgate.exchange.hello import OURS, Hello, Regions, Versions, Welcome
from headgate.exchange.identity import Security
from headgate.exchange.messages import Ack, Batch, LinkError, Refused

RENEW_AFTER_S: Final = StreamBounds().age_s / 2
"""Age in seconds at which a stream is renewed: the peer ends those that are twice as old."""

MAX_REPLY_BYTES: Final = 64 * 1024
"""An acknowledgement has a few bytes, a hello those of some names."""

PINGS: Final = Pings(every_ms=KEEPALIVE_MS, timeout_ms=KEEPALIVE_TIMEOUT_MS)

CLOSE_TIMEOUT_S: Final = 1.0
"""Seconds for ending a stream in good order, which a peer that is there does at once."""

FOR_GOOD: Final = frozenset(
    {
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.RESOURCE_EXHAUSTED,  # a message too large
        grpc.StatusCode.UNIMPLEMENTED,  # not Headgate's exchange at all
    }
)
"""Statuses that last until an operator changes something."""

_Call: TypeAlias = "grpc.aio.StreamStreamCall[bytes, bytes]"
_BROKEN = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)
"""Errors that grpc.aio raises for a stream that ended, for any reason. (The last: it had ended before.)"""


@dataclass(slots=True)
class PeerLinkStats:
    """Counts of streams, batches and bytes to one peer, for metrics."""

    connected: bool = False
    streams: int = 0
    """Streams that were begun with a hello on both sides."""
    bytes_sent: int = 0
    """Bytes of batches that were acknowledged."""


@dataclass(slots=True)
class _Stream:
    """One channel with the one call on it."""

    channel: grpc.aio.Channel
    call: _Call
    began_s: float


@dataclass(slots=True, eq=False)
class GrpcPeerLink:
    """Implements `PeerLink`."""

    region: str
    address: str
    regions: Regions
    security: Security
    clock: Clock
    versions: Versions = OURS
    peer: Welcome | None = None
    """Welcome of the peer at the last connection."""
    stats: PeerLinkStats = field(default_factory=PeerLinkStats)
    _stream: _Stream | None = None
    _proof: tuple[grpc.ChannelCredentials | None, str | None] = (None, None)
    """Certificate and token that the last stream was begun with."""

    async def send(self, batch: Batch, timeout_s: float) -> Ack:
        """Connect if need be, send, wait for the acknowledgement. Raises LinkError."""
        data = self._encoded(batch)
        try:
            async with asyncio.timeout(timeout_s):
                call = (await self._connected()).call
                await call.write(data)
                ack = await self._answer(call)
            if not isinstance(ack, Ack) or ack.number != batch.number:
                raise LinkError(f"{self}: answered with {ack}, and not to batch {batch.number}")
        except BaseException as error:
            reason = await self._reason(error, timeout_s)
            await self._drop()
            if reason is None:
                raise
            raise reason from error
        self.stats.bytes_sent += len(data)
        return ack

    @property
    def is_renewed(self) -> bool:
        return self._proof != (self.security.channel_credentials(), self.security.header)

    async def close(self) -> None:
        """Close the connection; nothing is sent after this."""
        await self._end()

    def __str__(self) -> str:
        return f"region {self.region!r} at {self.address}"

    def _encoded(self, batch: Batch) -> bytes:
        try:
            return codec.encode_batch(batch)
        except BadRequest as error:
            raise Refused(f"{self}: not sent: {error}") from error

    # Connecting

    async def _connected(self) -> _Stream:
        if self._stream is not None and self._is_outdated(self._stream):
            await self._end()
        if self._stream is None:
            self._stream = self._begin()
            await self._greet(self._stream.call)
        return self._stream

    def _is_outdated(self, stream: _Stream) -> bool:
        return self.is_renewed or self.clock.monotonic() - stream.began_s > RENEW_AFTER_S

    def _begin(self) -> _Stream:
        credentials, header = self._proof = self.security.channel_credentials(), self.security.header
        # The peer's certificate names its region, not the host of the address.
        channel = dial(self.address, credentials, pings=PINGS, max_reply_bytes=MAX_REPLY_BYTES, server_name=self.region)
        metadata = (("authorization", header),) if header is not None else ()
        call: _Call = channel.stream_stream(codec.METHOD)(metadata=metadata)
        return _Stream(channel, call, self.clock.monotonic())

    async def _greet(self, call: _Call) -> None:
        hello = Hello(self.regions.own, self.region, self.versions, self.regions.all, __version__)
        await call.write(codec.encode_hello(hello))
        welcome = await self._answer(call)
        if not isinstance(welcome, Welcome):
            raise LinkError(f"{self}: answered a hello with {welcome}")
        if welcome.region != self.region:
            raise Refused(f"{self}: is region {welcome.region!r}: correct the address of --peer {self.region}=…")
        if not self.versions.lowest <= welcome.version <= self.versions.highest:
            raise Refused(f"{self}: chose version {welcome.version} of the exchange, of {self.versions}")
        self.peer = welcome
        self.stats.streams += 1
        self.stats.connected = True

    async def _answer(self, call: _Call) -> Welcome | Ack:
        data: Any = await call.read()
        if not isinstance(data, bytes):
            raise LinkError(f"{self}: ended the stream")
        return codec.decode_from_receiver(data)

    # The end

    async def _reason(self, error: BaseException, timeout_s: float) -> LinkError | None:
        """Translate a failure to a LinkError; None for errors that are raised as they are."""
        if isinstance(error, TimeoutError):
            return LinkError(f"{self}: no answer within {timeout_s:g} s")
        if isinstance(error, BadRequest):
            return LinkError(f"{self}: {error}")
        if not isinstance(error, _BROKEN):
            return None
        code, details = await self._status(error)
        kind = Refused if code in FOR_GOOD else LinkError
        return kind(f"{self}: {code.name}: {details}" if code is not None else f"{self}: {error}")

    async def _status(self, error: BaseException) -> tuple[grpc.StatusCode | None, str | None]:
        if isinstance(error, grpc.aio.AioRpcError):
            return error.code(), error.details()
        if self._stream is not None and self._stream.call.done():
            return await self._stream.call.code(), await self._stream.call.details()
        return None, None

    async def _end(self) -> None:
        """End the stream in good order: the peer knows that nothing more will come."""
        if self._stream is not None:
            call = self._stream.call
            with contextlib.suppress(TimeoutError, *_BROKEN):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await call.done_writing()
                    await call.read()
        await self._drop()

    async def _drop(self) -> None:
        stream, self._stream = self._stream, None
        self.stats.connected = False
        if stream is not None:
            stream.call.cancel()
            await stream.channel.close()
