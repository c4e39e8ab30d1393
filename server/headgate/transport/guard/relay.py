"""One connection: bytes between a caller and the front, in both directions.

Everything happens in callbacks of the event loop, without tasks or streams. What one side
does not take is kept, and the other side is not read until it is gone: no direction ever
holds more than one buffer. The caller's side ends in order: what the front said last is
delivered, and its end is told before the socket goes.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from headgate.transport.guard.frames import MAX_STREAM, NO_ERROR, PREFACE, goaway
from headgate.transport.guard.inspector import ProtocolViolation
from headgate.transport.guard.passing import Frames
from headgate.transport.guard.retirement import Retirement
from headgate.transport.guard.surroundings import BUFFER_BYTES, READ_BYTES, Surroundings

MAX_KEPT_BYTES = BUFFER_BYTES + READ_BYTES
"""Kept for a side that does not take it: what was read at once, and what the guard has to add."""
LINGER_S = 2.0
"""Time that a caller may take to read the end and close its side."""

_AGAIN = (BlockingIOError, InterruptedError)


class Relay:
    """Relays one connection, from an accepted socket to its end."""

    def __init__(
        self, caller: socket.socket, frames: Frames, around: Surroundings, on_end: Callable[["Relay", str], None]
    ) -> None:
        """`on_end` is called once, with the reason."""
        self._loop = asyncio.get_running_loop()
        self._caller = caller
        self._front: socket.socket | None = None
        self._frames = frames
        self._backlog = around.backlog
        self._relieve = around.relieve
        self._scratch = around.scratch
        self._timeouts = around.timeouts
        self._connect = around.connect
        self._on_end = on_end
        # Frames of which the end has not come: from the caller, from the front.
        self._from_caller = b""
        self._from_front = b""
        # What a socket did not take yet.
        self._to_front = b""
        self._to_caller = b""
        self._reason = "closed"
        self._ended = False
        self._finishing = False
        self._now = self._opened_at = self._partial_since = around.now
        self._retirement = Retirement(around.timeouts, around.now)
        self._finished_at = 0.0
        self.stalled_since = 0.0
        """Since when one side does not take what is kept for it; 0 while there is nothing."""

    def open(self) -> None:
        self._loop.add_reader(self._caller, self._on_opening)

    @property
    def is_delivering(self) -> bool:
        """The caller may still be told something that the front has said."""
        return self._front is not None or self._finishing

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

    # Opening: nothing reaches the front before the caller has said that it speaks HTTP/2.

    def _on_opening(self) -> None:
        kept = self._from_caller
        self._scratch.buffer[: len(kept)] = kept
        try:
            received = self._receive(len(kept))
        except _AGAIN:
            return None
        except OSError:
            return self.close("caller_gone")
        end = len(kept) + received
        begun = bytes(self._scratch.view[: min(end, len(PREFACE))])
        if not received or not PREFACE.startswith(begun):
            return self.close("handshake")
        if len(begun) < len(PREFACE):
            self._from_caller = begun
            return None
        return self._begin(bytes(self._scratch.view[len(PREFACE) : end]))

    def _begin(self, first: bytes) -> None:
        try:
            self._front = self._connect()
        except OSError:
            return self.close("front")
        self._from_caller = b""
        self._loop.add_reader(self._caller, self._on_caller)
        self._loop.add_reader(self._front, self._on_front)
        self._forward(PREFACE)
        self._scratch.buffer[: len(first)] = first
        return self._inspect(len(first))

    # From the caller to the front

    def _on_caller(self) -> None:
        kept = self._from_caller
        offset = len(kept)
        if offset:
            self._scratch.buffer[:offset] = kept
        try:
            received = self._receive(offset)
        except _AGAIN:
            return
        except OSError:
            self.close("caller_gone")
            return
        if received:
            self._inspect(offset + received)
        else:
            self._caller_ended()

    def _inspect(self, end: int) -> None:
        frames = self._frames
        try:
            done = frames.from_caller(self._scratch.buffer, end)
        except ProtocolViolation as violation:
            self.finish(goaway(frames.last_stream, violation.code), violation.reason)
            return
        if done == end:
            self._from_caller = b""
        else:
            if done or not self._from_caller:
                self._partial_since = self._now
            self._from_caller = bytes(self._scratch.view[done:end])
        if frames.to_front:
            data, frames.to_front = b"".join(frames.to_front), []
            self._forward(data)
        elif done:
            self._forward(self._scratch.view[:done])
        if frames.to_caller:
            self._tell()

    def _forward(self, data: "bytes | memoryview") -> None:
        if self._front is None:
            return
        sent = 0
        if not self._to_front:
            try:
                sent = self._front.send(data)
            except _AGAIN:
                pass
            except OSError:
                # It is closing. What it said before is still to be read, and then its end.
                self._loop.remove_reader(self._caller)
                return
        if sent < len(data):
            self._to_front = self._keep(self._to_front, data[sent:])
            self._wait_for(self._front, self._flush_front, instead_of=self._caller)

    def _flush_front(self) -> None:
        front = self._front
        if front is None:
            return
        try:
            sent = front.send(self._to_front)
        except _AGAIN:
            return
        except OSError:
            self._loop.remove_writer(front)
            return
        self._backlog.bytes -= sent
        self._to_front = self._to_front[sent:]
        if not self._to_front:
            self._unless_stalled()
            self._loop.remove_writer(front)
            self._loop.add_reader(self._caller, self._on_caller)

    def _caller_ended(self) -> None:
        """It may still read what it asked for; the front is told, and ends its side in turn."""
        self._loop.remove_reader(self._caller)
        self._finished_at = self._now
        if self._front is not None:
            with contextlib.suppress(OSError):
                self._front.shutdown(socket.SHUT_WR)

    # From the front to the caller

    def _on_front(self) -> None:
        front = self._front
        if front is None:
            return
        kept = self._from_front
        offset = len(kept)
        scratch = self._scratch
        if offset:
            scratch.buffer[:offset] = kept
        try:
            received = front.recv_into(scratch.view[offset : offset + READ_BYTES])
        except _AGAIN:
            return
        except OSError:
            received = 0
        if not received:
            self._front_ended()
            return
        frames, end = self._frames, offset + received
        done = frames.from_front(scratch.buffer, end)
        self._from_front = b"" if done == end else bytes(scratch.view[done:end])
        if frames.rewritten:
            data, frames.rewritten = b"".join(frames.rewritten), []
            self._write(data)
        elif done:
            self._write(scratch.view[:done])
        if frames.to_caller:
            self._tell()

    def _tell(self) -> None:
        """The caller, what the guard has to say; between two frames of the front."""
        frames = self._frames
        if self._ended or self._finishing:
            return
        if frames.at_boundary:
            told, frames.to_caller = frames.to_caller, b""
            self._write(told)
        elif len(frames.to_caller) > READ_BYTES:
            self.close("stalled")

    def _write(self, data: "bytes | memoryview") -> None:
        data = self._encode(data)
        sent = 0
        if not self._to_caller:
            try:
                sent = self._caller.send(data)
            except _AGAIN:
                pass
            except OSError:
                self.close("caller_gone")
                return
        if sent < len(data):
            self._to_caller = self._keep(self._to_caller, data[sent:])
            self._wait_for(self._caller, self._flush_caller, instead_of=self._front)

    def _flush_caller(self) -> None:
        try:
            sent = self._caller.send(self._to_caller)
        except _AGAIN:
            return
        except OSError:
            self.close("caller_gone")
            return
        self._backlog.bytes -= sent
        self._to_caller = self._to_caller[sent:]
        if self._to_caller:
            return
        self._unless_stalled()
        self._loop.remove_writer(self._caller)
        if self._finishing:
            self._shut()
        elif self._front is not None:
            self._loop.add_reader(self._front, self._on_front)

    # A side that takes no more

    def _keep(self, before: bytes, data: "bytes | memoryview") -> bytes:
        if not self.stalled_since:
            self.stalled_since = self._now
        if len(before) + len(data) > MAX_KEPT_BYTES:
            self.close("stalled")
            return before
        self._backlog.bytes += len(data)
        return before + data

    def _wait_for(self, slow: socket.socket, flush: Callable[[], None], instead_of: socket.socket | None) -> None:
        """Stop reading the other side until the slow one takes what is kept for it."""
        if self._ended:
            return
        if instead_of is not None:
            self._loop.remove_reader(instead_of)
        self._loop.add_writer(slow, flush)
        if self._backlog.is_over:
            self._relieve()

    def _unless_stalled(self) -> None:
        if not self._to_caller and not self._to_front:
            self.stalled_since = 0.0

    # The end

    def _front_ended(self) -> None:
        self.finish(b"", "closed")

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
        try:
            if self._caller.recv_into(self._scratch.buffer):
                return
        except _AGAIN:
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

    # Time

    def tick(self, now: float) -> None:
        self._now = now
        timeouts = self._timeouts
        if self._finished_at:
            if now - self._finished_at > LINGER_S:
                self.close(self._reason)
        elif self._front is None:
            if now - self._opened_at > timeouts.handshake_s:
                self.close("handshake")
        elif self.stalled_since and now - self.stalled_since > timeouts.message_s:
            self.close("stalled")
        elif self._from_caller and now - self._partial_since > timeouts.message_s:
            self.finish(goaway(self._frames.last_stream, NO_ERROR), "unfinished")
        else:
            self._tick_frames(now)

    def _tick_frames(self, now: float) -> None:
        frames = self._frames
        try:
            late = frames.tick(now, self._timeouts.message_s)
        except ProtocolViolation as violation:
            self.finish(goaway(frames.last_stream, violation.code), violation.reason)
            return
        if late:
            self._forward(late)
        if frames.to_caller:
            self._tell()
        if not self._ended and not self._finishing:
            self._retire_if_due(now)

    def _retire_if_due(self, now: float) -> None:
        frames = self._frames
        reason = self._retirement.begin(now, busy=frames.busy, last_stream=frames.last_stream)
        if reason is not None:
            # Ask the caller to go elsewhere with its next call.
            self._reason = reason
            frames.to_caller += goaway(MAX_STREAM, NO_ERROR)
            self._tell()
        elif self._retirement.is_over(now, busy=frames.busy):
            self.finish(goaway(frames.last_stream, NO_ERROR), self._reason)
