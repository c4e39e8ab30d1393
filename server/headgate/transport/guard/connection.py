"""One caller's connection, from its accepted socket to its end. What passes in between is relay.py's.

Nothing reaches the front before the caller has said that it speaks HTTP/2. The caller's side ends in order: what the
front said last is delivered, and its end is told before the socket goes.
"""

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable

from headgate.transport.guard.frames import NO_ERROR, PREFACE, goaway
from headgate.transport.guard.passing import Frames
from headgate.transport.guard.surroundings import READ_BYTES, Surroundings

LINGER_S = 2.0
"""Time that a caller may take to read the end and close its side."""
LINGER_READS = 32
"""Reads of what such a caller goes on sending, up to 3 MiB."""

AGAIN = (BlockingIOError, InterruptedError)


class Connection(ABC):
    """A caller's socket, and the front's once it is needed."""

    def __init__(
        self, caller: socket.socket, frames: Frames, around: Surroundings, on_end: Callable[["Connection", str], None]
    ) -> None:
        """`on_end` is called once, with the reason."""
        self._loop = asyncio.get_running_loop()
        self._caller = caller
        self._front: socket.socket | None = None
        self.front_name = ""
        """Name that the front gives the connection, once there is one."""
        self._frames = frames
        self._account = frames.account
        self._turns = around.turns
        self._backlog = around.backlog
        self._scratch = around.scratch
        self._timeouts = around.timeouts
        self._connect = around.connect
        self._on_end = on_end
        # Frames of which the end has not come, or whose turn has not.
        self._from_caller = b""
        # What a socket did not take yet.
        self._to_front = b""
        self._to_caller = b""
        self._reason = "closed"
        self._ended = False
        self._finishing = False
        self._now = self._opened_at = around.now
        self._finished_at = 0.0
        self._linger_reads = 0
        self.stalled_since = 0.0
        """Since when one side does not take what is kept for it; 0 while there is nothing."""

    def open(self) -> None:
        self._loop.add_reader(self._caller, self._on_opening)

    @property
    def is_delivering(self) -> bool:
        """The caller may still be told something that the front has said."""
        return self._front is not None or self._finishing

    def last_use(self) -> tuple[float, float]:
        """Return the time of the last answer, 0 if there was none, and of the beginning."""
        self._frames.settle_answers()
        return self._frames.answered_at, self._opened_at

    def make_room(self) -> None:
        """Close it for somebody else. The caller is told if it takes it at once."""
        if self._front is not None and self._frames.at_boundary and not self._to_caller:
            with contextlib.suppress(OSError):
                self._caller.send(self._encode(goaway(self._frames.last_stream, NO_ERROR)))
        self.close("room")

    # The caller's socket; with TLS it is another one (see tls_relay.py)

    def _receive(self, offset: int) -> int:
        """Bytes read to `offset` of the buffer; 0 at the end. Raises OSError, BlockingIOError among them."""
        return self._caller.recv_into(self._scratch.view[offset : offset + READ_BYTES])

    def _encode(self, data: "bytes | memoryview") -> "bytes | memoryview":
        """Return the bytes that go over the wire for it."""
        return data

    def _farewell(self) -> bytes:
        """Return the bytes that go over the wire last."""
        return b""

    @abstractmethod
    def _begin(self, first: bytes) -> None:
        """Connect to the front, and relay: the caller speaks HTTP/2, and `first` is what it sent after saying so."""

    @abstractmethod
    def _write(self, data: "bytes | memoryview") -> None:
        """Send to the caller, now or when it takes it."""

    @abstractmethod
    def tick(self, now: float) -> None:
        """Look, once in a while, whose time is over."""

    # Opening

    def _on_opening(self) -> None:
        kept = self._from_caller
        self._scratch.buffer[: len(kept)] = kept
        try:
            received = self._receive(len(kept))
        except AGAIN:
            return self._charge_opening()
        except OSError:
            return self.close("caller_gone")
        end = len(kept) + received
        begun = bytes(self._scratch.view[: min(end, len(PREFACE))])
        if not received or not PREFACE.startswith(begun):
            return self.close("handshake")
        if len(begun) < len(PREFACE):
            self._from_caller = begun
            return self._charge_opening()
        self._from_caller = b""
        return self._begin(bytes(self._scratch.view[len(PREFACE) : end]))

    def _charge_opening(self) -> None:
        """Charge a read that got the caller no further than it was; who has had too many of them goes."""
        self._account.charge(1)
        if self._account.is_empty:
            self.close("handshake")

    # The end

    def finish(self, last: bytes, reason: str) -> None:
        """Close the front's side, say `last` to the caller where that is possible, and end in order."""
        if self._ended or self._finishing:
            return
        self._finished_at = self._now
        self._reason = reason
        self._loop.remove_reader(self._caller)
        self._drop_front()
        if last and self._frames.at_boundary:
            self._write(last)
        self._finishing = True
        if not self._to_caller and not self._ended:
            self._shut()

    def _shut(self) -> None:
        try:
            if farewell := self._farewell():
                self._caller.send(farewell)
            self._caller.shutdown(socket.SHUT_WR)
        except OSError:
            self.close(self._reason)
            return
        # A socket that is closed with bytes unread takes back what its peer has not read yet.
        self._loop.add_reader(self._caller, self._on_linger)

    def _on_linger(self) -> None:
        self._linger_reads += 1
        try:
            if self._linger_reads <= LINGER_READS and self._caller.recv_into(self._scratch.buffer):
                return
        except AGAIN:
            return
        except OSError:
            pass
        self.close(self._reason)

    def close(self, reason: str) -> None:
        """At once."""
        if self._ended:
            return
        self._ended = True
        self._drop_front()
        self._loop.remove_reader(self._caller)
        self._loop.remove_writer(self._caller)
        self._caller.close()
        self._backlog.bytes -= len(self._to_caller) + len(self._to_front)
        self._to_caller = self._to_front = b""
        self._frames.close()
        self._on_end(self, reason)

    def _drop_front(self) -> None:
        if self._front is not None:
            self._loop.remove_reader(self._front)
            self._loop.remove_writer(self._front)
            self._front.close()
            self._front = None
