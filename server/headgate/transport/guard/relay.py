"""One connection's traffic: bytes between a caller and the front, in both directions.

Everything happens in callbacks of the event loop, without tasks or streams. What one side does not take is kept, and
the other side is not read until it is gone: no direction ever holds more than one buffer. Nor is a caller read who has
had its share of a turn, until what it sent has been looked at in the next ones, or of the loop's time (share.py).
"""

import contextlib
import socket
from collections.abc import Callable

from headgate.transport.guard.connection import AGAIN, LINGER_S, Connection
from headgate.transport.guard.frames import ENHANCE_YOUR_CALM, MAX_STREAM, NO_ERROR, PREFACE, goaway
from headgate.transport.guard.passing import Frames
from headgate.transport.guard.retirement import Retirement
from headgate.transport.guard.surroundings import BUFFER_BYTES, READ_BYTES, Surroundings
from headgate.transport.guard.violation import ProtocolViolation

MAX_KEPT_BYTES = BUFFER_BYTES + READ_BYTES
"""Kept for a side that does not take it: what was read at once, and what the guard has to add."""


class Relay(Connection):
    """Relays one connection, from an accepted socket to its end."""

    def __init__(
        self, caller: socket.socket, frames: Frames, around: Surroundings, on_end: Callable[[Connection, str], None]
    ) -> None:
        super().__init__(caller, frames, around, on_end)
        self._relieve = around.relieve
        self._from_front = b""
        """A frame of the front's of which the end has not come."""
        self._partial_since = around.now
        self._held = False
        """Bytes of the caller wait for another turn, and no more are read."""
        self._waits = False
        """It waits for its account, too, or for its calls to be answered."""
        self._in_line = False
        self._is_woken = False
        """It is looked whether there is room in the front for the caller's next call."""
        self._retirement = Retirement(around.timeouts, around.now)

    # From the caller to the front

    def _begin(self, first: bytes) -> None:
        try:
            self._front, self.front_name = self._connect()
        except OSError:
            return self.close("front")
        self._loop.add_reader(self._caller, self._on_caller)
        self._loop.add_reader(self._front, self._on_front)
        self._forward(PREFACE)
        self._scratch.buffer[: len(first)] = first
        return self._inspect(len(first))

    def _on_caller(self) -> None:
        kept = self._from_caller
        offset = len(kept)
        if offset:
            self._scratch.buffer[:offset] = kept
        try:
            received = self._receive(offset)
        except AGAIN:
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
            self._cut_off(violation)
            return
        if done == end:
            self._from_caller = b""
        else:
            self._keep_rest(done, end)
        if frames.to_front:
            data, frames.to_front = b"".join(frames.to_front), []
            self._forward(data)
        elif done:
            self._forward(self._scratch.view[:done])
        if frames.to_caller:
            self._tell()

    def _keep_rest(self, done: int, end: int) -> None:
        if done or not self._from_caller:
            self._partial_since = self._now
        self._from_caller = bytes(self._scratch.view[done:end])
        if not done and not self._frames.has_more:
            # A read that completed nothing.
            self._account.charge(1)
        if self._frames.has_more or self._account.is_empty:
            self._hold()

    # The caller's share of the loop

    def _hold(self) -> None:
        """Read no more of the caller until another turn, or until its account is filled, or calls are answered."""
        if self._ended or self._finishing:
            return
        self._held = True
        self._loop.remove_reader(self._caller)
        if self._may_go_on:
            self._stand_in_line()
        elif not self._waits:
            self._waits = True
            self._turns.slowed += self._account.is_empty
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        if self._frames.is_blocked and not self._is_woken:
            self._is_woken = True
            self._turns.wait(self._wake)

    def _wake(self) -> None:
        self._is_woken = False
        if self._waits and not self._ended:
            self._resume()

    @property
    def _may_go_on(self) -> bool:
        return not (self._account.is_empty or self._frames.is_blocked)

    def _stand_in_line(self) -> None:
        if not self._in_line:
            self._in_line = True
            self._turns.stand_in_line(self._go_on)

    def _go_on(self) -> None:
        """Take up what was held; what the front did not take comes first."""
        self._in_line = False
        if self._held and not self._to_front and not self._ended and not self._finishing:
            self._held = False
            self._look_again()
            self._read_again()

    def _look_again(self) -> None:
        kept = self._from_caller
        self._scratch.buffer[: len(kept)] = kept
        self._inspect(len(kept))

    def _read_again(self) -> None:
        if not (self._held or self._to_front or self._ended or self._finishing):
            self._loop.add_reader(self._caller, self._on_caller)

    def _resume(self) -> None:
        """Let a caller go on who waits, if it may by now."""
        self._frames.settle_answers()
        if self._may_go_on:
            self._waits = False
            self._stand_in_line()
        else:
            self._wait_for_room()

    def _cut_off(self, violation: ProtocolViolation) -> None:
        self.finish(goaway(self._frames.last_stream, violation.code), violation.reason)

    def _forward(self, data: "bytes | memoryview") -> None:
        if self._front is None:
            return
        sent = 0
        if not self._to_front:
            try:
                sent = self._front.send(data)
            except AGAIN:
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
        except AGAIN:
            return
        except OSError:
            self._loop.remove_writer(front)
            return
        self._backlog.bytes -= sent
        self._to_front = self._to_front[sent:]
        if not self._to_front:
            self._unless_stalled()
            self._loop.remove_writer(front)
            if self._held and not self._waits:
                self._stand_in_line()
            self._read_again()

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
        except AGAIN:
            return
        except OSError:
            received = 0
        if not received:
            self.finish(b"", "closed")
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
        if self._waits:
            self._resume()
        self._turns.wake()

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
            except AGAIN:
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
        except AGAIN:
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
            if not self._account.tick(self._waits and self._account.is_empty):
                raise ProtocolViolation(ENHANCE_YOUR_CALM, "share")
        except ProtocolViolation as violation:
            self._cut_off(violation)
            return
        if self._waits:
            self._resume()
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
