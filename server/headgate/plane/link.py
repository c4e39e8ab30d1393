"""A follower's streams over grpc.aio, one after the other, to one of several addresses.

What is said and decided is `Following`'s; here are the connection, its proofs, and the waits between streams. No
failure ends it. Waits have full jitter: a thousand nodes that lost one plane do not come back together.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import grpc

from headgate.clock import Clock
from headgate.endpoint.dialing import Pings, ServerTls, dial_with
from headgate.endpoint.tokens import token_lines
from headgate.errors import BadRequest, ConfigError
from headgate.plane import codec
from headgate.plane.entry import FollowerState, FromPlane
from headgate.plane.following import Following

FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 10.0
SILENCE_S: Final = 5.0
"""Seconds without a word after which a stream is given up: a plane says something each second."""
WAKE_S: Final = 0.25
"""Seconds after which a silent stream is looked after: a report may be due."""
PINGS: Final = Pings(every_ms=10_000, timeout_ms=5_000)

_Call: TypeAlias = "grpc.aio.StreamStreamCall[bytes, bytes]"
_BROKEN = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError, OSError, BadRequest, ConfigError)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneAddress:
    """Addresses of a plane, the first that answers, and the proofs that are shown there."""

    addresses: tuple[str, ...]
    token_file: Path | None = None
    tls: ServerTls | None = None
    """None: in plain text."""

    def __str__(self) -> str:
        return ",".join(self.addresses)


@dataclass(slots=True)
class LinkState:
    """State of the streams, for operators."""

    connected: bool = False
    """True once the plane has said something on the present stream."""
    address: str = ""
    """Address of the present or the last stream."""
    streams: int = 0
    reason: str = ""
    """Reason why the last stream ended."""


@dataclass(slots=True, eq=False)
class PlaneLink:
    """Follows a plane. `receive` takes a message in, and says whether the copy moved."""

    plane: PlaneAddress
    following: Following
    clock: Clock
    rng: random.Random
    receive: Callable[[FromPlane], Awaitable[bool]]
    """Hands a message to the machine, in whichever thread its copy needs."""
    moved: Callable[[], None]
    """Called after the copy has moved."""
    heard: Callable[[], None]
    """Called after any message."""
    lost: Callable[[str], None]
    """Called with the reason when a stream has ended."""
    states: Callable[[], Sequence[FollowerState]]
    """States to report."""
    state: LinkState = field(default_factory=LinkState)
    _heard_s: float = 0.0
    """Time of the last word on the present stream."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a message is taken in, which may last, and while something is said: never both at once."""

    async def follow(self) -> None:
        """Follow until cancelled."""
        turn, wait_s = 0, FIRST_WAIT_S
        while True:
            self.state.address = self.plane.addresses[turn % len(self.plane.addresses)]
            try:
                await self._stream()
                self.state.reason = "the plane ended the stream"
            except _BROKEN as error:
                self.state.reason = _reason(error)
            if self.state.connected:
                wait_s = FIRST_WAIT_S
            else:
                turn += 1
            self.state.connected = False
            self.lost(self.state.reason)
            await asyncio.sleep(self.rng.uniform(0, wait_s))
            wait_s = min(LONGEST_WAIT_S, 2 * wait_s)

    async def _stream(self) -> None:
        """Run one stream to its end."""
        plane = self.plane
        channel = dial_with(self.state.address, plane.tls, pings=PINGS, max_reply_bytes=codec.MAX_MESSAGE_BYTES)
        try:
            call: _Call = channel.stream_stream(codec.WATCH)(metadata=self._metadata())
            self.following.connected(self.clock.monotonic())
            self.state.streams += 1
            await self._converse(call)
        finally:
            await channel.close()

    async def _converse(self, call: _Call) -> None:
        self._heard_s = self.clock.monotonic()
        # Both for as long as the stream lasts: a task and a timer for each message cost more than all else about it.
        tasks = [asyncio.ensure_future(self._listen(call)), asyncio.ensure_future(self._keep_saying(call))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            call.cancel()
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, *_BROKEN):
                    await task

    async def _listen(self, call: _Call) -> None:
        while isinstance(data := await call.read(), bytes):
            async with self._turn:
                await self._take(data)
                self._heard_s = self.clock.monotonic()

    async def _keep_saying(self, call: _Call) -> None:
        while True:
            async with self._turn:
                if self.clock.monotonic() - self._heard_s > SILENCE_S:
                    raise BadRequest(f"nothing was heard for {SILENCE_S:g} s")
                await self._say(call)
            await asyncio.sleep(WAKE_S)

    async def _say(self, call: _Call) -> None:
        now_s = self.clock.monotonic()
        if self.following.is_due(now_s):
            for said in self.following.requests(self.states(), now_s):
                await call.write(codec.encode_from_follower(said))

    async def _take(self, data: bytes) -> None:
        self.state.connected = True
        if await self.receive(codec.decode_from_plane(data)):
            self.moved()
        self.heard()

    # Proof

    def _metadata(self) -> list[tuple[str, str]]:
        """Proof of who follows; the file is read for each stream, because tokens are rotated in place."""
        if self.plane.token_file is None:
            return []
        _, line = next(token_lines("plane_token_file", str(self.plane.token_file)))
        # A line of the plane's file, `NAME=TOKEN`, or the token alone.
        name, _, token = line.partition("=")
        return [("authorization", f"Bearer {token if name and token.strip('=') else line}")]


def _reason(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) if isinstance(error, BadRequest | ConfigError) else f"{type(error).__name__}: {error}"
