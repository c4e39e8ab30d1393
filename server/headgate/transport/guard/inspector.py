"""One connection's frames, read as they pass: what is allowed, what is open, what is unfinished.

Pure: no socket, no clock (`now` is set from outside). Whole frames of the caller go to the
front as they are; the few that may not pass are replaced or dropped, and whatever the
caller has to be told is left in `to_caller`, to be sent between two frames of the front.
"""

from headgate.errors import Status
from headgate.transport.guard.budget import BudgetShare
from headgate.transport.guard.frames import (
    CANCEL,
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
    PREFIX_BYTES,
    PROTOCOL_ERROR,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    data_frames,
    frame,
    literal,
    reset,
    window_update,
)
from headgate.transport.guard.header_block import HeaderBlock
from headgate.transport.guard.messages import Body, Refuse, TooManyMessages
from headgate.transport.guard.open_calls import ASKED, BEGUN, SILENT, TOLD, OpenCalls
from headgate.transport.guard.passing import Frames
from headgate.transport.guard.refusals import Refusal, Refusals
from headgate.transport.guard.share import Account
from headgate.transport.guard.violation import ProtocolViolation

REFUSED_STEPS = 3
"""Cost of a call for which there is no place, beside that of its headers: the front begins it, and it is answered. In
steps (share.py). An answer pays for two."""
LARGE_BYTES = 512
"""From so much of a message on, a frame costs no step: its bytes take longer to come than to be looked at."""
STREAMS_SLACK = 10
"""A caller who has not read the front's settings yet may open too many streams; the front refuses
them one by one. So many times as allowed is a flood."""

_UNKNOWN_BYTES = 2**40
"""Length of a message whose prefix was cut in two, as by a window of a byte: it never ends."""

_BEGINNING_BYTES = HEADER_BYTES + PREFIX_BYTES
_STATUS_200 = 0x88
_TOO_LARGE_HEADERS = (
    literal(b"content-type", b"application/grpc")
    + literal(b"grpc-status", b"%d" % Status.RESOURCE_EXHAUSTED)
    + literal(b"grpc-message", b"the call's metadata are too large")
)
"""Headers that make an answer of plain HTTP one that gRPC understands. The front has only one such answer."""


class Inspector(Frames):
    """Reads one caller's frames on their way to the front, and keeps back what is over a bound."""

    def __init__(
        self,
        max_message_bytes: int,
        max_streams: int,
        refusals: Refusals,
        share: BudgetShare,
        calls: OpenCalls,
        account: Account,
        now: float,
    ) -> None:
        super().__init__(account)
        self.now = now
        self.answered_at = 0.0
        self.open = calls.states
        self._calls = calls
        self._max_message_bytes = max_message_bytes
        self._longest_frame = max_message_bytes + PREFIX_BYTES
        self._max_streams = max_streams
        self._refusals = refusals
        self._share = share
        self._bodies: dict[int, Body] = {}
        self._missing_bytes: dict[int, int] = {}
        """Bytes that are still to come of the messages, by stream, of which the front has sent a part."""
        self._refused: dict[int, bool] = {}
        """Calls without a place that the front has still to answer; True: their callers have said all."""
        self._given_up: list[int] = []
        """Calls that were given up since the last tick."""
        self._leaving: list[int] = []
        """Calls that were given up in the tick before it."""
        self._call_is_next = False
        """The caller is not read on before there is room for a call."""
        self._block = HeaderBlock(share)
        self._skip = 0
        """Bytes of the front's current frame that are still to come."""
        self._debt_bytes = 0
        """Bytes that the front was sent beyond what the caller spent of its window; it will give them back, too."""
        self._answered = 0
        """Answers, or messages of one, for which the account has nothing yet."""

    # From the caller

    def from_caller(self, buffer: bytearray, end: int) -> int:
        """Return how much of `buffer[:end]` are whole frames: forward these, or `to_front` where it is not empty."""
        position = copied = ahead = 0
        self.has_more = self._call_is_next = False
        unpack, prefix, streams, bodies = HEADER.unpack_from, PREFIX.unpack_from, self.open, self._bodies
        most = len(streams) + len(self._refused) + self._calls.room
        block, places = self._block.stream, self._places(most)
        while end - position >= HEADER_BYTES:
            head, flags, stream = unpack(buffer, position)
            length = head >> 8
            following = position + HEADER_BYTES + length
            if length > MAX_FRAME_BYTES:
                raise ProtocolViolation(FRAME_SIZE_ERROR, "frame_size")
            if following > end:
                break
            kind = head & 0xFF
            # The usual call is one HEADERS, and then one DATA with one message that ends it. Headers without a message
            # are paid for: the front, which all share, begins a call with them, and nothing may ever follow.
            if (
                kind == HEADERS
                and flags & END_HEADERS
                and self.last_stream < stream <= MAX_STREAM
                and len(streams) < places
                and ahead <= 0
                and not block
            ):
                streams[stream] = ASKED if flags & END_STREAM else SILENT
                self.last_stream = stream
                ahead += 1
            elif (
                kind == DATA
                and flags == END_STREAM
                and PREFIX_BYTES <= length <= self._longest_frame
                and prefix(buffer, position + HEADER_BYTES) == (0, length - PREFIX_BYTES)
                and streams.get(stream) == SILENT
                and stream not in bodies
                and not block
            ):
                streams[stream] = ASKED
                ahead -= 1
            elif not self._may_go_on():
                self.has_more = True
                break
            elif kind == HEADERS and stream > self.last_stream and self._is_full(most):
                self.has_more = self._call_is_next = True
                break
            else:
                payload = bytes(buffer[position + HEADER_BYTES : following])
                replaced = self._unusual(kind, flags, stream, payload)
                block, places = self._block.stream, self._places(most)
                if replaced is not None:
                    self.to_front.append(bytes(buffer[copied:position]))
                    self.to_front.append(replaced)
                    copied = following
            position = following
        if ahead > 0:
            self._charge_headers_alone()
        if self.to_front:
            self.to_front.append(bytes(buffer[copied:position]))
        self._calls.count(len(self._refused))
        if len(streams) > self._max_streams * STREAMS_SLACK:
            raise ProtocolViolation(ENHANCE_YOUR_CALM, "streams")
        return position

    def _places(self, most: int) -> int:
        """Return how many calls may be open, beside those that are refused and of at most `most` in all, before
        somebody has to be asked for one more."""
        return min(min(most, self._max_streams) - len(self._refused), self._calls.places)

    def _is_full(self, most: int) -> bool:
        """Say that the front has so many calls, or as many as it takes and some that their caller doesn't count any
        more."""
        calls = len(self.open) + len(self._refused)
        unknown = self._refused or self._given_up or self._leaving
        return calls >= most or (bool(unknown) and calls >= self._max_streams)

    @property
    def is_blocked(self) -> bool:
        return self._call_is_next and self._is_full(len(self.open) + len(self._refused) + self._calls.room)

    def _may_go_on(self) -> bool:
        """Say whether the caller's share allows another frame that is not of a usual call."""
        account = self.account
        if not account.may_go_on and account.is_empty:
            self.settle_answers()
        return account.may_go_on

    def _charge_headers_alone(self) -> None:
        """Charge the first call whose message did not follow; all others were charged as they came."""
        self.account.charge(1)
        if self.account.is_empty:
            self.settle_answers()

    def settle_answers(self) -> None:
        if self._answered:
            self.account.earn(self._answered)
            self.answered_at, self._answered = self.now, 0

    def _unusual(self, kind: int, flags: int, stream: int, payload: bytes) -> bytes | None:
        """Return what to forward in place of the frame; None for the frame itself."""
        if stream > MAX_STREAM:
            raise ProtocolViolation(PROTOCOL_ERROR, "protocol")
        if kind == DATA and not self._block.stream:
            return self._data(flags, stream, payload)
        self.account.charge(self._steps_of(kind))
        if self._block.stream or kind in (HEADERS, CONTINUATION):
            whole = self._block.take(kind, flags, stream, len(payload), self.now)
            if whole and not self._end_headers(stream):
                return frame(kind, flags, stream, payload) + self._refuse(stream)
        elif kind == RST_STREAM:
            self._given_up.append(stream)
            return b""
        return None

    def _steps_of(self, kind: int) -> int:
        # Other windows let the front send a frame for each call.
        return 1 + len(self.open) if kind == SETTINGS else 1

    def _refuse(self, stream: int) -> bytes:
        """Have the front answer that there is no place: it must see the headers, whose compression it shares.

        Without a message to come it answers by itself, as it does to all such calls.
        """
        self.account.charge(REFUSED_STEPS)
        if self._block.ends:
            return b""
        self._refused[stream] = False
        refusal = self._refusal(Refusal.NO_PLACE, 0)
        self._credit(-len(refusal))
        return frame(DATA, END_STREAM, stream, refusal)

    def _refusal(self, refusal: Refusal, size: int) -> bytes:
        """Return the message that has the front refuse a call."""
        message = self._refusals.encode(refusal, size)
        return PREFIX.pack(0, len(message)) + message

    def _end_headers(self, stream: int) -> bool:
        """Take a call with its headers, or with them the end of one that is known. False: there is no place for it."""
        if stream > self.last_stream:
            self.last_stream = stream
            if not self._calls.has_place():
                return False
            self.open[stream] = SILENT
        if self._block.ends:
            self._asked(stream)
        return True

    def _data(self, flags: int, stream: int, payload: bytes) -> bytes:
        ended = bool(flags & END_STREAM)
        body = self._bodies.get(stream)
        if ended and stream in self._refused:
            # It was paid for with the headers.
            self._refused[stream] = True
            self._credit(len(payload))
            return b""
        self.account.charge(1 if len(payload) < LARGE_BYTES else 0)
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
            passed += self._refusal(refuse.refusal, refuse.size)
            self._credit(received - len(passed))
            body.refused = True
        except TooManyMessages:
            raise ProtocolViolation(ENHANCE_YOUR_CALM, "share") from None
        self._charge_messages(body)
        if ended or body.pending or body.refused:
            self._asked(stream)
        forwarded = data_frames(stream, bytes(passed), end=ended or body.refused)
        if ended:
            self._forget(stream)
        return forwarded

    def _charge_messages(self, body: Body) -> None:
        steps, body.steps = body.steps, 0
        if steps:
            self.account.charge(steps)

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
        if self._missing_bytes:
            self._missing_bytes.pop(stream, None)
        body = self._bodies.pop(stream, None)
        if body is not None:
            self._share.give(body.reserved)

    def _close(self, stream: int) -> None:
        self.open.pop(stream, None)
        self._forget(stream)

    # From the front

    def from_front(self, buffer: bytearray, end: int) -> int:
        """Return how much of `buffer[:end]` to forward now: `rewritten` in its place where that is not empty."""
        position, copied, answered = self._skip, 0, 0
        unpack, prefix, streams, bodies = HEADER.unpack_from, PREFIX.unpack_from, self.open, self._bodies
        missing, refused = self._missing_bytes, self._refused
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
                    begun = streams.pop(stream, BEGUN) >= BEGUN
                    if not begun:
                        answered += 1
                    if not begun and buffer[position + HEADER_BYTES] != _STATUS_200:
                        block = bytes(buffer[position + HEADER_BYTES : following]) + _TOO_LARGE_HEADERS
                        self.rewritten.append(bytes(buffer[copied:position]))
                        self.rewritten.append(frame(HEADERS, flags, stream, block))
                        copied = following
                    if bodies or missing or refused:
                        self._ended(stream)
            elif kind == DATA and not flags & END_STREAM:
                length = head >> 8
                if (
                    following <= end
                    and length >= PREFIX_BYTES
                    and stream not in missing
                    and prefix(buffer, position + HEADER_BYTES)[1] == length - PREFIX_BYTES
                ):
                    answered += 1
                    if stream in streams:
                        streams[stream] = TOLD
                elif following > end and end - position < _BEGINNING_BYTES:
                    break  # looked at when its message's length has come
                else:
                    self._part_of_answer(stream, length, buffer, position + HEADER_BYTES)
                if stream in bodies:
                    self._settle(bodies[stream])
            elif kind in (RST_STREAM, DATA):
                streams.pop(stream, None)
                self._ended(stream)
            elif kind == WINDOW_UPDATE and not stream and self._debt_bytes:
                if following > end:
                    break
                increment = int.from_bytes(buffer[position + HEADER_BYTES : following]) - self._debt_bytes
                self._debt_bytes = max(-increment, 0)
                self.rewritten.append(bytes(buffer[copied:position]))
                self.rewritten.append(window_update(0, increment) if increment > 0 else b"")
                copied = following
            position = following
        self._answered += answered
        self._calls.count(len(self._refused))
        self._skip = max(position - end, 0)
        forwarded = min(position, end)
        if self.rewritten:
            self.rewritten.append(bytes(buffer[copied:forwarded]))
        return forwarded

    def _part_of_answer(self, stream: int, length: int, buffer: bytearray, position: int) -> None:
        """Note whether the front's message, of which these are `length` bytes, is whole now."""
        if not length:
            return
        missing = self._missing_bytes.pop(stream, 0)
        if not missing:
            announced = PREFIX.unpack_from(buffer, position)[1] if length >= PREFIX_BYTES else _UNKNOWN_BYTES
            missing = announced + PREFIX_BYTES
        if stream not in self.open:
            return
        if missing > length:
            self._missing_bytes[stream] = missing - length
            self.open[stream] = BEGUN
        else:
            self._answered += 1
            self.open[stream] = TOLD

    def _ended(self, stream: int) -> None:
        body = self._bodies.get(stream)
        if (body is not None and body.refused) or not self._refused.pop(stream, True):
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
        self.settle_answers()
        if self._block.stream and now - self._block.since > timeout_s:
            raise ProtocolViolation(ENHANCE_YOUR_CALM, "unfinished")
        given_up = self._end_given_up()
        late = [stream for stream, body in self._bodies.items() if body.pending and now - body.since > timeout_s]
        late += [stream for stream in self._calls.late(now, timeout_s) if stream not in late]
        for stream in late:
            self._close(stream)
            self.to_caller += reset(stream, ENHANCE_YOUR_CALM)
        self._calls.count(len(self._refused))
        return given_up + b"".join(reset(stream, ENHANCE_YOUR_CALM) for stream in late)

    def _end_given_up(self) -> bytes:
        """Tell the front of the calls that were given up, once it has begun them and if they have not ended since.

        It closes a connection of which more than some twenty are given up before it has begun them, which happens to
        honest callers too: those whose patience a busy moment was too long for.
        """
        ended = [stream for stream in self._leaving if stream in self.open]
        self._leaving, self._given_up = self._given_up, []
        for stream in ended:
            self._close(stream)
        return b"".join(reset(stream, CANCEL) for stream in ended)

    def close(self) -> None:
        for stream in list(self._bodies):
            self._forget(stream)
        self._calls.close()
        self._block.drop()


def _unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise ProtocolViolation(PROTOCOL_ERROR, "protocol")
    return payload[1 : len(payload) - payload[0]]
