"""One connection's frames, read as they pass: what is allowed, what is open, what is unfinished.

Pure: no socket, no clock (`now` is set from outside). Whole frames of the caller go to the
front as they are; the few that may not pass are replaced or dropped, and whatever the
caller has to be told is left in `to_caller`, to be sent between two frames of the front.
"""

from headgate.errors import Status
from headgate.transport.guard.budget import BudgetShare
from headgate.transport.guard.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FRAME_SIZE_ERROR,
    HEADER,
    HEADER_BYTES,
    HEADERS,
    MAX_FRAME_BYTES,
    MAX_STREAM,
    NO_ERROR,
    PADDED,
    PREFIX,
    PROTOCOL_ERROR,
    RST_STREAM,
    WINDOW_UPDATE,
    data_frames,
    frame,
    literal,
    reset,
    window_update,
)
from headgate.transport.guard.messages import Body, Refuse
from headgate.transport.guard.passing import Frames
from headgate.transport.guard.refusals import Refusals

MAX_HEADER_BLOCK_BYTES = 64 * 1024
"""Size as sent, over all its frames. The front refuses the call alone from 16 KiB unpacked."""
MAX_HEADER_BLOCK_FRAMES = 16
"""Frames may be empty, so their number needs a bound of its own."""
MAX_OTHER_FRAMES = 2_000
"""Frames between two ticks that are no part of a call: pings, settings, priorities, unknown ones."""
OTHER_FRAMES_PER_CALL = 4
"""Frames that honest callers send with each call: windows, and pings that measure the way."""
MAX_RESETS = 1_000
"""Calls that a caller gives up between two ticks, beyond those that it waits for."""
STREAMS_SLACK = 10
"""A caller who has not read the front's settings yet may open too many streams; the front refuses
them one by one. So many times as allowed is a flood."""

SILENT, ASKED, BEGUN = range(3)
"""States of a call: its headers came alone; a part of its message, or its end; a part of its answer."""

_STATUS_200 = 0x88
_TOO_LARGE_HEADERS = (
    literal(b"content-type", b"application/grpc")
    + literal(b"grpc-status", b"%d" % Status.RESOURCE_EXHAUSTED)
    + literal(b"grpc-message", b"the call's metadata are too large")
)
"""Headers that make an answer of plain HTTP one that gRPC understands. The front has only one such answer."""


class ProtocolViolation(Exception):
    """The connection must end: a GOAWAY with this code, and why, for the metric."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class Inspector(Frames):
    """Reads one caller's frames on their way to the front, and keeps back what is over a bound."""

    def __init__(
        self, max_message_bytes: int, max_streams: int, refusals: Refusals, share: BudgetShare, now: float
    ) -> None:
        super().__init__()
        self.now = now
        self.open: dict[int, int] = {}
        """Calls under way: SILENT, ASKED or BEGUN."""
        self._max_message_bytes = max_message_bytes
        self._longest_frame = max_message_bytes + PREFIX.size
        self._max_streams = max_streams * STREAMS_SLACK
        self._refusals = refusals
        self._share = share
        self._bodies: dict[int, Body] = {}
        self._silent_since: dict[int, float] = {}
        """Calls that were silent at the last tick, and since which tick."""
        self._block_stream = 0
        self._block_bytes = 0
        self._block_frames = 0
        self._block_since = 0.0
        self._block_ends = False
        self._skip = 0
        """Bytes of the front's current frame that are still to come."""
        self._debt_bytes = 0
        """Bytes that the front was sent beyond what the caller spent of its window; it will give them back, too."""
        self._calls = 0
        self._others = 0
        self._resets = 0
        self._answered = 0

    # From the caller

    def from_caller(self, buffer: bytearray, end: int) -> int:
        """Return how much of `buffer[:end]` are whole frames: forward these, or `to_front` where it is not empty."""
        position = copied = 0
        block = self._block_stream
        unpack, streams, bodies = HEADER.unpack_from, self.open, self._bodies
        while end - position >= HEADER_BYTES:
            head, flags, stream = unpack(buffer, position)
            length = head >> 8
            following = position + HEADER_BYTES + length
            if length > MAX_FRAME_BYTES:
                raise ProtocolViolation(FRAME_SIZE_ERROR, "frame_size")
            if following > end:
                break
            kind = head & 0xFF
            # The usual call is one HEADERS, and one DATA with one message that ends it.
            if kind == HEADERS and flags & END_HEADERS and not block and self.last_stream < stream <= MAX_STREAM:
                streams[stream] = ASKED if flags & END_STREAM else SILENT
                self.last_stream = stream
                self._calls += 1
            elif (
                kind == DATA
                and flags == END_STREAM
                and PREFIX.size <= length <= self._longest_frame
                and PREFIX.unpack_from(buffer, position + HEADER_BYTES) == (0, length - PREFIX.size)
                and stream not in bodies
                and not block
            ):
                if streams.get(stream) == SILENT:
                    streams[stream] = ASKED
            else:
                payload = bytes(buffer[position + HEADER_BYTES : following])
                replaced = self._unusual(kind, flags, stream, payload)
                block = self._block_stream
                if replaced is not None:
                    self.to_front.append(bytes(buffer[copied:position]))
                    self.to_front.append(replaced)
                    copied = following
            position = following
        if self.to_front:
            self.to_front.append(bytes(buffer[copied:position]))
        if len(streams) > self._max_streams:
            raise ProtocolViolation(ENHANCE_YOUR_CALM, "streams")
        return position

    def _unusual(self, kind: int, flags: int, stream: int, payload: bytes) -> bytes | None:
        """Return what to forward in place of the frame; None for the frame itself."""
        if stream > MAX_STREAM:
            raise ProtocolViolation(PROTOCOL_ERROR, "protocol")
        if self._block_stream or kind in (HEADERS, CONTINUATION):
            self._continue_block(kind, flags, stream, len(payload))
            return None
        if kind == DATA:
            if not payload and not flags & END_STREAM:
                self._count_other()
            return self._data(flags, stream, payload)
        if kind == RST_STREAM:
            self._resets += 1
            if self._resets > MAX_RESETS + self._answered:
                raise ProtocolViolation(ENHANCE_YOUR_CALM, "resets")
            self._close(stream)
            return None
        self._count_other()
        return None

    def _count_other(self) -> None:
        self._others += 1
        if self._others > MAX_OTHER_FRAMES + OTHER_FRAMES_PER_CALL * self._calls:
            raise ProtocolViolation(ENHANCE_YOUR_CALM, "other_frames")

    def _continue_block(self, kind: int, flags: int, stream: int, length: int) -> None:
        """A header block in several frames: nothing may come between them."""
        if kind != (CONTINUATION if self._block_stream else HEADERS) or stream != (self._block_stream or stream):
            raise ProtocolViolation(PROTOCOL_ERROR, "protocol")
        if not self._block_stream:
            self._block_since = self.now
            self._block_ends = bool(flags & END_STREAM)
        self._block_frames += 1
        self._block_bytes += length
        if (
            self._block_bytes > MAX_HEADER_BLOCK_BYTES
            or self._block_frames > MAX_HEADER_BLOCK_FRAMES
            or not self._share.take(length)
        ):
            raise ProtocolViolation(ENHANCE_YOUR_CALM, "header_block")
        self._block_stream = stream
        if flags & END_HEADERS:
            # Else it is the end of a call that is known.
            if stream > self.last_stream:
                self.open[stream] = SILENT
                self.last_stream = stream
                self._calls += 1
            if self._block_ends:
                self._asked(stream)
            self._share.give(self._block_bytes)
            self._block_stream = self._block_bytes = self._block_frames = 0

    def _data(self, flags: int, stream: int, payload: bytes) -> bytes:
        ended = bool(flags & END_STREAM)
        body = self._bodies.get(stream)
        if stream not in self.open or (body is not None and body.refused):
            # Answered already; the caller could not know it when it sent this.
            self._credit(len(payload))
            return b""
        if body is None:
            body = self._bodies[stream] = Body(self._max_message_bytes, self._share.take, self.now)
        content = _unpadded(payload) if flags & PADDED else payload
        if len(content) < len(payload):
            self._credit(len(payload) - len(content))
            self.to_caller += window_update(stream, len(payload) - len(content))
        if not body.pending:
            body.since = self.now
        received, passed = len(content) + body.kept_bytes, bytearray()
        try:
            body.feed(content, passed)
        except Refuse as refuse:
            message = self._refusals.encode(refuse.refusal, refuse.size)
            passed += PREFIX.pack(0, len(message)) + message
            self._credit(received - len(passed))
            body.refused = True
        if ended or body.pending or body.refused:
            self._asked(stream)
        forwarded = data_frames(stream, bytes(passed), end=ended or body.refused)
        if ended:
            self._forget(stream)
        return forwarded

    def _asked(self, stream: int) -> None:
        if self.open.get(stream) == SILENT:
            self.open[stream] = ASKED

    def _credit(self, dropped: int) -> None:
        """Give the caller back, on the connection, what the front will never see; negative: a debt."""
        self._debt_bytes -= dropped
        if self._debt_bytes < 0:
            self.to_caller += window_update(0, -self._debt_bytes)
            self._debt_bytes = 0

    def _forget(self, stream: int) -> None:
        body = self._bodies.pop(stream, None)
        if body is not None:
            self._share.give(body.reserved)

    def _close(self, stream: int) -> None:
        self.open.pop(stream, None)
        self._forget(stream)

    # From the front

    def from_front(self, buffer: bytearray, end: int) -> int:
        """Return how much of `buffer[:end]` to forward now: `rewritten` in its place where that is not empty."""
        position, copied = self._skip, 0
        unpack, streams, bodies = HEADER.unpack_from, self.open, self._bodies
        while end - position >= HEADER_BYTES:
            head, flags, stream = unpack(buffer, position)
            kind = head & 0xFF
            following = position + HEADER_BYTES + (head >> 8)
            if kind == HEADERS:
                if not flags & END_STREAM:
                    if stream in streams:
                        streams[stream] = BEGUN
                elif following > end:
                    break  # looked at when it is whole
                else:
                    self._answered += 1
                    begun = streams.pop(stream, BEGUN) == BEGUN
                    if not begun and buffer[position + HEADER_BYTES] != _STATUS_200:
                        block = bytes(buffer[position + HEADER_BYTES : following]) + _TOO_LARGE_HEADERS
                        self.rewritten.append(bytes(buffer[copied:position]))
                        self.rewritten.append(frame(HEADERS, flags, stream, block))
                        copied = following
                    if bodies:
                        self._ended(stream)
            elif kind == RST_STREAM or (kind == DATA and flags & END_STREAM):
                streams.pop(stream, None)
                self._ended(stream)
            elif kind == DATA and stream in bodies:
                self._settle(bodies[stream])
            elif kind == WINDOW_UPDATE and not stream and self._debt_bytes:
                if following > end:
                    break
                increment = int.from_bytes(buffer[position + HEADER_BYTES : following]) - self._debt_bytes
                self._debt_bytes = max(-increment, 0)
                self.rewritten.append(bytes(buffer[copied:position]))
                self.rewritten.append(window_update(0, increment) if increment > 0 else b"")
                copied = following
            position = following
        self._skip = max(position - end, 0)
        forwarded = min(position, end)
        if self.rewritten:
            self.rewritten.append(bytes(buffer[copied:forwarded]))
        return forwarded

    def _ended(self, stream: int) -> None:
        body = self._bodies.get(stream)
        if body is not None and body.refused:
            # The front believes that the caller has ended, and won't tell it to.
            self.to_caller += reset(stream, NO_ERROR)
        self._forget(stream)

    def _settle(self, body: Body) -> None:
        """An answer in a stream of them: what was asked so far is no longer held."""
        self._share.give(body.reserved)
        body.reserved = 0
        body.since = self.now

    @property
    def busy(self) -> bool:
        return bool(self.open)

    @property
    def at_boundary(self) -> bool:
        """The caller has whole frames only, so that one of ours may follow."""
        return self._skip == 0

    # Time

    def tick(self, now: float, timeout_s: float) -> bytes:
        """Once in a while: what to send to the front for calls that took too long to arrive."""
        self.now = now
        self._calls = self._others = self._resets = self._answered = 0
        if self._block_stream and now - self._block_since > timeout_s:
            raise ProtocolViolation(ENHANCE_YOUR_CALM, "unfinished")
        late = [stream for stream, body in self._bodies.items() if body.pending and now - body.since > timeout_s]
        known, silent = self._silent_since, [stream for stream, state in self.open.items() if state == SILENT]
        self._silent_since = {stream: known.get(stream, now) for stream in silent}
        late += [stream for stream, since in self._silent_since.items() if now - since > timeout_s]
        for stream in late:
            self._close(stream)
            self.to_caller += reset(stream, ENHANCE_YOUR_CALM)
        return b"".join(reset(stream, ENHANCE_YOUR_CALM) for stream in late)

    def close(self) -> None:
        for stream in list(self._bodies):
            self._forget(stream)
        self._share.give(self._block_bytes)
        self._block_bytes = 0


def _unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise ProtocolViolation(PROTOCOL_ERROR, "protocol")
    return payload[1 : len(payload) - payload[0]]
