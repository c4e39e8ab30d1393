"""Whatever frames come, however they are cut and in whichever turns they are looked at. No socket, no clock."""

import gzip
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from headgate.transport.guard.frames import (
    DATA,
    END_HEADERS,
    HEADER,
    HEADER_BYTES,
    HEADERS,
    PADDED,
    PREFIX,
    frame,
    reset,
    window_update,
)
from headgate.transport.guard.refusals import Refusal
from headgate.transport.guard.share import FIRST_STEPS, MAX_STEPS, SLICE_STEPS
from headgate.transport.guard.violation import ProtocolViolation
from hypothesis import strategies as st

from tests.support.properties import check, examples_of
from tests.unit.transport.guard_wire import MAX_MESSAGE, NOW, REFUSALS, Wire, answer, message

BUDGET_BYTES = 3_000
MOST_STEPS_OF_A_FRAME = 64
"""No frame here costs more: it is looked at as a whole, whatever is left of the turn."""

STREAMS = st.sampled_from([0, 1, 1, 3, 5, 7, 9, 2**31 + 1])
PIECES = st.sampled_from(
    [
        message(b"x" * 10),
        message(b"x" * 600),
        message(b"x", length=2_000),
        message(b"", length=2**32 - 1),
        message(gzip.compress(b"x" * 50), compressed=True),
        message(gzip.compress(b"") * 20, compressed=True),
        message(b"") * 30,
        b"\0",
        b"\1\0",
        b"\xff" * 9,
    ]
)
BODIES = st.one_of(st.binary(max_size=20), st.lists(PIECES, max_size=3).map(b"".join))
KINDS = st.one_of(st.sampled_from([0, 0, 0, 1, 1, 3, 4, 6, 8, 9]), st.integers(0, 255))
FLAGS = st.one_of(st.sampled_from([0, 1, 4, 5, 8, 13]), st.integers(0, 255))
FRAMES = st.builds(frame, KINDS, FLAGS, STREAMS, BODIES)
CALLS = st.builds(lambda stream, body: frame(HEADERS, 4, stream, b"h") + frame(0, 1, stream, body), STREAMS, BODIES)
FROM_CALLERS = st.lists(st.one_of(FRAMES, CALLS), max_size=40)


budgets = examples_of(300, 3_000)


@dataclass
class Passed:
    """What came of it: for the front, for the caller, and the reason if the connection ended."""

    front: bytes = b""
    caller: bytes = b""
    ended: str = ""


def send(wire: Wire, chunks: list[bytes]) -> Passed:
    """Send these, one by one, each in as many turns and ticks as it takes."""
    passed, kept = Passed(), b""
    try:
        for chunk in chunks:
            kept += chunk
            while True:
                before = wire.account.steps
                forwarded, kept = wire.up_in_a_turn(kept)
                assert before - wire.account.steps <= SLICE_STEPS + MOST_STEPS_OF_A_FRAME
                passed.front += forwarded
                wire.loop.turn()
                if not wire.inspector.has_more:
                    break
                if wire.account.is_empty:
                    wire.account.tick(False)
    except ProtocolViolation as violation:
        passed.front += b"".join(wire.inspector.to_front)
        passed.ended = violation.reason
    passed.caller = wire.told()
    return passed


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(edge % (len(data) + 1) for edge in at)})
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@budgets
def test_neither_turns_nor_shares_change_what_passes(count: int) -> None:
    def same(frames: list[bytes], at: list[int]) -> None:
        data = b"".join(frames)
        whole = send(Wire(budget=BUDGET_BYTES, each=2_000, steps=100_000), [data])
        in_parts = send(Wire(budget=BUDGET_BYTES, each=2_000, steps=1), cut(data, at))
        assert in_parts.ended == whole.ended
        if not whole.ended:
            assert in_parts == whole

    check(count, same, frames=FROM_CALLERS, at=st.lists(st.integers(0, 2**16), max_size=20))


@budgets
def test_what_is_counted_comes_to_nothing_with_the_end(count: int) -> None:
    """Answers, resets and ticks between; nothing but a violation of the protocol is raised."""

    def counted(steps: list[tuple[list[bytes], int, int]]) -> None:
        wire, now = Wire(budget=BUDGET_BYTES, each=2_000, steps=FIRST_STEPS, places=4), NOW
        try:
            for frames, stream, what in steps:
                if send(wire, frames).ended:
                    break
                if what < 3:
                    wire.down([answer(stream), reset(stream, 1), window_update(0, 1_000)][what])
                elif what < 6:
                    now += what
                    wire.account.tick(False)
                    wire.inspector.tick(now, 10.0)
                assert wire.account.steps <= MAX_STEPS
                assert wire.places.taken == wire.inspector._calls.places >= len(wire.inspector.open)
        except ProtocolViolation:
            pass
        wire.inspector.close()
        assert (wire.budget.used_bytes, wire.places.taken, wire.places._connections) == (0, 0, {})

    check(count, counted, steps=st.lists(st.tuples(FROM_CALLERS, STREAMS, st.integers(0, 9)), max_size=6))


@budgets
def test_answers_pass_as_they_are_however_they_are_cut(count: int) -> None:
    """Whatever their sizes: frames of the front are rewritten only where their caller could not read them."""

    def same(frames: list[bytes], at: list[int]) -> None:
        wire, kept, passed = Wire(), b"", b""
        wire.up(b"".join(frame(HEADERS, 4, stream, b"h") for stream in (1, 3, 5)))
        data = b"".join(frames)
        for chunk in cut(data, at):
            kept += chunk
            done = wire.inspector.from_front(bytearray(kept), len(kept))
            passed += kept[:done]
            kept = kept[done:]
            assert not wire.inspector.rewritten
        assert (passed, kept) == (data, b"")

    # As the front begins an answer, so that none is one of plain HTTP.
    kinds = st.builds(
        frame, st.sampled_from([0, 3, 4, 6]), st.sampled_from([0, 0, 1]), st.sampled_from([1, 3, 5]), BODIES
    )
    check(count, same, frames=st.lists(kinds, max_size=20), at=st.lists(st.integers(0, 2**16), max_size=20))


@dataclass
class Sent:
    """What a caller sends as one call's messages, in pieces of any size, padded or not."""

    messages: list[bytes]
    pieces: list[int]
    padding: list[int]

    def frames(self, stream: int) -> list[bytes]:
        content, sent = b"".join(self.messages), [frame(HEADERS, END_HEADERS, stream, b"h")]
        for number, piece in enumerate(cut(content, self.pieces)):
            pad = self.padding[number % len(self.padding)] if self.padding else 0
            padded = bytes((pad,)) + piece + b"\0" * pad if pad else piece
            sent.append(frame(DATA, PADDED if pad else 0, stream, padded))
        return sent

    def expected(self) -> bytes:
        """What the front is to see: each message within the bounds, and a refusal of the first that is not."""
        seen = b""
        for each in self.messages:
            compressed, length = PREFIX.unpack_from(each)
            size = len(gzip.decompress(each[PREFIX.size :])) if compressed and length <= MAX_MESSAGE else 0
            if max(length, size) > MAX_MESSAGE:
                why, said = (Refusal.TOO_LARGE, length) if length > MAX_MESSAGE else (Refusal.EXPANDS, length)
                return seen + message(REFUSALS.encode(why, said))
            seen += each
        return seen


MESSAGES = st.sampled_from(
    [
        message(b""),
        message(b"x" * 7),
        message(b"x" * MAX_MESSAGE),
        message(b"x" * (MAX_MESSAGE + 1)),
        message(b"y" * 20, length=2**32 - 1),
        message(gzip.compress(b"z" * 300), compressed=True),
        message(gzip.compress(b"z" * MAX_MESSAGE), compressed=True),
        message(gzip.compress(b"z" * (MAX_MESSAGE + 1)), compressed=True),
    ]
)
SENT = st.builds(
    Sent,
    st.lists(MESSAGES, min_size=1, max_size=3),
    st.lists(st.integers(0, 2**16), max_size=8),
    st.lists(st.integers(0, 255), max_size=4),
)


@budgets
def test_each_message_within_the_bounds_passes_whole_and_no_other_does(count: int) -> None:
    """In whichever frames, padded or not, beside those of other calls, and cut anywhere."""

    def within(calls: list[Sent], at: list[int]) -> None:
        streams = range(1, 2 * len(calls), 2)
        together = itertools.zip_longest(*[sent.frames(stream) for stream, sent in zip(streams, calls, strict=True)])
        data = b"".join(each for row in together for each in row if each)
        passed = send(Wire(steps=100_000), cut(data, at))
        assert not passed.ended
        seen: dict[int, bytes] = dict.fromkeys(streams, b"")
        for kind, _, stream, payload in frames_of(passed.front):
            seen[stream] += payload if kind == DATA else b""
        for stream, sent in zip(streams, calls, strict=True):
            assert seen[stream] == sent.expected()

    cuts = st.lists(st.integers(0, 2**16), max_size=10)
    check(count, within, calls=st.lists(SENT, min_size=1, max_size=4), at=cuts)


def frames_of(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, flags, stream and payload of each."""
    while data:
        head, flags, stream = HEADER.unpack_from(data)
        end = HEADER_BYTES + (head >> 8)
        yield head & 0xFF, flags, stream, data[HEADER_BYTES:end]
        data = data[end:]
