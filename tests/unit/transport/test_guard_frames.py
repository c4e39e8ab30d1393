"""What the guard lets pass, frame by frame, and what it keeps back. No socket, no clock."""

import gzip
import random
import zlib

import pytest
from headgate.transport.guard.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    HEADERS,
    MAX_FRAME_BYTES,
    NO_ERROR,
    PADDED,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    data_frames,
    frame,
    reset,
    window_update,
)
from headgate.transport.guard.open_calls import FRONT_CALLS, Places
from headgate.transport.guard.refusals import Refusal
from headgate.transport.guard.violation import ProtocolViolation

from tests.unit.transport.guard_wire import MAX_MESSAGE, NOW, REFUSALS, Loop, Wire, answer, call, message, refusal


def violation_of(wire: Wire, data: bytes) -> str:
    with pytest.raises(ProtocolViolation) as caught:
        wire.up(data)
    return caught.value.reason


PASSING = {
    "the usual call": call(1, message(b"hello")),
    "an empty message": call(1, message(b"")),
    "the largest message": call(1, message(b"x" * MAX_MESSAGE)),
    "no message": frame(HEADERS, END_HEADERS | END_STREAM, 1, b"headers"),
    "an end by itself": call(1, message(b"hello"), end=False) + frame(DATA, END_STREAM, 1, b""),
    "a message in two frames": call(1, message(b"hello")[:7], end=False)
    + frame(DATA, END_STREAM, 1, message(b"hello")[7:]),
    "two messages": call(1, message(b"one") + message(b"two")),
    "a message that ends too early": call(1, message(b"x", length=100)),
    "compressed": call(1, message(gzip.compress(b"hello"), compressed=True)),
    "compressed, but not by gzip": call(1, message(zlib.compress(b"\0" * 100_000), compressed=True)),
    "compressed, but empty": call(1, message(b"", compressed=True)),
    "a flag that is none": call(1, b"\x07" + message(b"x")[1:]),
    "headers in three frames": frame(HEADERS, 0, 1, b"a")
    + frame(CONTINUATION, 0, 1, b"b")
    + frame(CONTINUATION, END_HEADERS, 1, b"c"),
    "everything else": frame(SETTINGS, 0, 0, b"") + frame(PING, 0, 0, b"12345678") + frame(PRIORITY, 0, 1, b"12345"),
    "an unknown frame": frame(250, 255, 1, b"unknown"),
}


@pytest.mark.parametrize("frames", PASSING.values(), ids=PASSING.keys())
def test_what_is_within_the_bounds_passes_as_it_is(frames: bytes) -> None:
    wire = Wire()
    assert wire.up(frames) == frames
    assert wire.told() == b""


@pytest.mark.parametrize("frames", PASSING.values(), ids=PASSING.keys())
def test_it_passes_however_the_bytes_arrive(frames: bytes) -> None:
    source = random.Random(1)
    for _ in range(20):
        wire, kept, passed = Wire(), b"", b""
        position = 0
        while position < len(frames):
            size = source.randint(1, 12)
            data = kept + frames[position : position + size]
            position += size
            done = wire.inspector.from_caller(bytearray(data), len(data))
            passed += b"".join(wire.inspector.to_front) or data[:done]
            wire.inspector.to_front = []
            kept = data[done:]
        assert (passed, kept) == (frames, b"")


def test_a_split_prefix_is_put_together() -> None:
    wire, body = Wire(), message(b"hello")
    passed = wire.up(call(1, body[:1], end=False)) + wire.up(frame(DATA, 0, 1, body[1:4]))
    assert passed == frame(HEADERS, END_HEADERS, 1, b"headers")
    assert wire.up(frame(DATA, END_STREAM, 1, body[4:])) == frame(DATA, END_STREAM, 1, body)


@pytest.mark.parametrize("length", [MAX_MESSAGE + 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize("sent", [0, 100])
def test_a_message_that_is_too_large_is_kept_back(length: int, end: bool, sent: int) -> None:
    wire = Wire()
    passed = wire.up(call(1, message(b"x" * sent, length=length), end=end))
    assert passed == frame(HEADERS, END_HEADERS, 1, b"headers") + refusal(1, Refusal.TOO_LARGE, length)
    assert wire.budget.used_bytes == 0


def test_one_that_fits_a_frame_is_kept_back_too() -> None:
    wire = Wire()
    passed = wire.up(call(1, message(b"x" * (MAX_MESSAGE + 1))))
    assert passed.endswith(refusal(1, Refusal.TOO_LARGE, MAX_MESSAGE + 1))


def test_the_second_message_is_looked_at_like_the_first() -> None:
    passed = Wire().up(call(1, message(b"one") + message(b"x", length=MAX_MESSAGE + 1)))
    kept_back = message(REFUSALS.encode(Refusal.TOO_LARGE, MAX_MESSAGE + 1))
    assert passed.endswith(frame(DATA, END_STREAM, 1, message(b"one") + kept_back))


def test_what_follows_a_refusal_is_dropped_and_its_window_given_back() -> None:
    wire = Wire()
    wire.up(call(1, message(b"x" * 900, length=5000), end=False))
    marker = len(message(REFUSALS.encode(Refusal.TOO_LARGE, 0)))
    assert wire.told() == window_update(0, 905 - marker)
    assert wire.up(frame(DATA, 0, 1, b"x" * 500)) == b""
    assert wire.told() == window_update(0, 500)
    # The front answers; the caller, who has not ended, is told to stop.
    failed = frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x88")
    assert wire.down(failed) == failed
    assert wire.told() == reset(1, NO_ERROR)
    # What was on its way is dropped as well.
    assert wire.up(frame(DATA, END_STREAM, 1, b"x" * 100)) == b""
    assert wire.told() == window_update(0, 100)
    assert not wire.inspector.busy


def test_a_refusal_larger_than_what_it_replaces_is_taken_off_the_fronts_window() -> None:
    wire = Wire()
    wire.up(call(1, message(b"", length=5000)))
    debt = len(message(REFUSALS.encode(Refusal.TOO_LARGE, 0))) - 5
    assert wire.told() == b""
    assert wire.down(window_update(0, 10_000)) == window_update(0, 10_000 - debt)
    assert wire.down(window_update(0, 10_000)) == window_update(0, 10_000)


def test_padding_is_taken_off_and_given_back() -> None:
    wire = Wire()
    padded = bytes([4]) + message(b"hello") + b"\0" * 4
    passed = wire.up(frame(HEADERS, END_HEADERS, 1, b"h") + frame(DATA, END_STREAM | PADDED, 1, padded))
    assert passed.endswith(frame(DATA, END_STREAM, 1, message(b"hello")))
    assert wire.told() == window_update(0, 5) + window_update(1, 5)
    assert violation_of(Wire(), frame(HEADERS, END_HEADERS, 1, b"h") + frame(DATA, PADDED, 1, b"\x05abc")) == "protocol"


@pytest.mark.parametrize("parts", [1, 3])
def test_what_expands_beyond_the_bound_is_kept_back(parts: int) -> None:
    """In one part, or in several that are each within it."""
    packed = b"".join(gzip.compress(b"\0" * (MAX_MESSAGE // parts + 1)) for _ in range(parts))
    assert len(packed) < MAX_MESSAGE
    passed = Wire().up(call(1, message(packed, compressed=True)))
    assert passed.endswith(refusal(1, Refusal.EXPANDS, len(packed)))
    fits = gzip.compress(b"\0" * MAX_MESSAGE)
    assert Wire().up(call(1, message(fits, compressed=True))).endswith(message(fits, compressed=True))


def test_what_is_compressed_waits_until_it_is_whole() -> None:
    wire, body = Wire(), message(gzip.compress(b"\0" * (MAX_MESSAGE + 1)), compressed=True)
    assert wire.up(call(1, body[:-1], end=False)) == frame(HEADERS, END_HEADERS, 1, b"headers")
    assert wire.up(frame(DATA, END_STREAM, 1, body[-1:])) == refusal(1, Refusal.EXPANDS, len(body) - 5)


def test_a_large_message_is_passed_on_frame_by_frame() -> None:
    wire = Wire(max_message=100_000)
    body = message(b"x" * 60_000)
    assert wire.up(frame(HEADERS, END_HEADERS, 1, b"h") + data_frames(1, body, end=True)).endswith(
        data_frames(1, body, end=True)
    )
    assert wire.budget.used_bytes == 0


def test_unfinished_messages_are_bounded_on_a_connection() -> None:
    wire = Wire(each=1_600)
    for stream in (1, 3, 5):
        wire.up(call(stream, message(b"x", length=500), end=False))
    assert wire.budget.used_bytes == 3 * 505
    assert wire.up(call(7, message(b"x", length=500), end=False)).endswith(refusal(7, Refusal.UNFINISHED, 500))
    # Whole ones pass meanwhile.
    assert wire.up(call(9, message(b"x" * 500))) == call(9, message(b"x" * 500))
    wire.up(frame(DATA, END_STREAM, 1, b"x" * 499))
    assert wire.budget.used_bytes == 2 * 505
    wire.up(reset(3, 8))
    for second in (1, 2):
        wire.inspector.tick(NOW + second, 10.0)
    wire.down(answer(5))
    assert wire.budget.used_bytes == 0


def test_unfinished_messages_are_bounded_altogether() -> None:
    one = Wire(budget=800)
    two = Wire(budget=one.budget)
    one.up(call(1, message(b"x", length=500), end=False))
    assert two.up(call(1, message(b"x", length=500), end=False)).endswith(refusal(1, Refusal.UNFINISHED, 500))
    one.inspector.close()
    assert one.budget.used_bytes == 0
    two.up(call(3, message(b"x", length=500), end=False))
    assert one.budget.used_bytes == 505


def test_a_call_without_an_end_holds_what_it_sent_until_it_is_answered() -> None:
    wire = Wire(each=1_600)
    wire.up(call(1, message(b"x" * 500) * 3, end=False))
    assert wire.up(frame(DATA, 0, 1, message(b"x" * 500))) == refusal(1, Refusal.UNFINISHED, 500)
    streaming = Wire(each=1_600)
    streaming.up(call(1, message(b"x" * 500), end=False))
    for _ in range(10):
        streaming.down(frame(DATA, 0, 1, message(b"answer")))
        assert streaming.up(frame(DATA, 0, 1, message(b"x" * 500))) == frame(DATA, 0, 1, message(b"x" * 500))


def test_a_message_that_does_not_end_is_reset_and_others_are_not() -> None:
    wire = Wire()
    wire.up(call(1, message(b"x", length=500), end=False))
    wire.up(call(3, message(b"whole")))
    wire.up(call(5, message(b"answered"), end=False))
    wire.down(frame(DATA, 0, 5, message(b"answer")))
    assert wire.inspector.tick(NOW + 10.0, 10.0) == b""
    assert wire.inspector.tick(NOW + 10.5, 10.0) == reset(1, ENHANCE_YOUR_CALM)
    assert wire.told() == reset(1, ENHANCE_YOUR_CALM)
    assert list(wire.inspector.open) == [3, 5]
    # From the next message on its time counts anew.
    wire.up(frame(DATA, 0, 5, message(b"x", length=500)))
    assert wire.inspector.tick(NOW + 20.0, 10.0) == b""
    assert wire.inspector.tick(NOW + 21.0, 10.0) == reset(5, ENHANCE_YOUR_CALM)
    assert wire.budget.used_bytes == 0


HEADERS_ALONE = frame(HEADERS, END_HEADERS, 1, b"h")
SILENT = {
    "headers alone": HEADERS_ALONE,
    "in two frames": frame(HEADERS, 0, 1, b"h") + frame(CONTINUATION, END_HEADERS, 1, b"h"),
    "data without a byte": HEADERS_ALONE + frame(DATA, 0, 1, b""),
}
NOT_SILENT = {
    "a message": HEADERS_ALONE + frame(DATA, END_STREAM, 1, message(b"x")),
    "a message and no end, answered": HEADERS_ALONE + frame(DATA, 0, 1, message(b"x")),
    "no message": frame(HEADERS, END_HEADERS | END_STREAM, 1, b"h"),
    "no message, in two frames": frame(HEADERS, END_STREAM, 1, b"h") + frame(CONTINUATION, END_HEADERS, 1, b"h"),
    "an end by itself": HEADERS_ALONE + frame(DATA, END_STREAM, 1, b""),
    "trailers": HEADERS_ALONE + frame(HEADERS, END_HEADERS | END_STREAM, 1, b"h"),
    "refused": HEADERS_ALONE + frame(DATA, 0, 1, message(b"x", length=MAX_MESSAGE + 1)),
}


@pytest.mark.parametrize("frames", SILENT.values(), ids=SILENT.keys())
def test_a_call_of_headers_alone_is_reset(frames: bytes) -> None:
    wire = Wire()
    wire.up(frames)
    assert wire.inspector.tick(NOW + 1.0, 10.0) == b""
    assert wire.inspector.tick(NOW + 11.0, 10.0) == b""
    assert wire.inspector.tick(NOW + 11.5, 10.0) == reset(1, ENHANCE_YOUR_CALM)
    assert wire.told() == reset(1, ENHANCE_YOUR_CALM)
    assert not wire.inspector.busy
    assert wire.inspector.tick(NOW + 30.0, 10.0) == b""


@pytest.mark.parametrize("frames", NOT_SILENT.values(), ids=NOT_SILENT.keys())
def test_a_call_that_waits_for_its_answer_is_not(frames: bytes) -> None:
    wire = Wire()
    wire.up(frames)
    wire.down(frame(DATA, 0, 1, message(b"answer")))
    wire.told()
    for second in (1.0, 11.5, 30.0):
        assert wire.inspector.tick(NOW + second, 10.0) == b""
    assert list(wire.inspector.open) == [1]


def test_an_answer_that_comes_before_the_end_of_the_question_stays_begun() -> None:
    """Else its trailers would be taken for the front's answer to too large metadata."""
    wire = Wire()
    wire.up(HEADERS_ALONE)
    wire.down(frame(HEADERS, END_HEADERS, 1, b"\x88"))
    wire.up(frame(DATA, END_STREAM, 1, message(b"x")))
    trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\xbe")
    assert wire.down(trailers) == trailers


def test_headers_that_do_not_end_end_the_connection() -> None:
    wire = Wire()
    wire.up(frame(HEADERS, 0, 1, b"a"))
    assert wire.budget.used_bytes == 1
    wire.inspector.tick(NOW + 10.0, 10.0)
    with pytest.raises(ProtocolViolation, match="unfinished"):
        wire.inspector.tick(NOW + 10.5, 10.0)
    wire.inspector.close()
    assert wire.budget.used_bytes == 0


def _headers(*sizes: int) -> bytes:
    return frame(HEADERS, 0, 1, b"") + b"".join(frame(CONTINUATION, 0, 1, b"x" * size) for size in sizes)


FORBIDDEN = {
    "header_block": [_headers(*[16_384] * 5), _headers(*[0] * 16)],
    "protocol": [
        frame(HEADERS, 0, 1, b"") + frame(PING, 0, 0, b"12345678"),
        frame(HEADERS, 0, 1, b"") + frame(CONTINUATION, END_HEADERS, 3, b""),
        frame(HEADERS, 0, 1, b"") + call(3, message(b"x")),
        frame(CONTINUATION, END_HEADERS, 1, b""),
        frame(HEADERS, END_HEADERS, 2**31 + 1, b"h"),
    ],
    "frame_size": [frame(DATA, 0, 1, b"x" * (MAX_FRAME_BYTES + 1))[:size] for size in (None, -1, 9)],
    "streams": [b"".join(frame(HEADERS, END_HEADERS, stream, b"h") for stream in range(1, 203, 2))],
}


@pytest.mark.parametrize(("reason", "frames"), [(reason, each) for reason, all_ in FORBIDDEN.items() for each in all_])
def test_what_ends_a_connection(reason: str, frames: bytes) -> None:
    wire = Wire()
    assert violation_of(wire, frames) == reason


def test_calls_beyond_what_the_front_has_room_for_stay_where_they_are() -> None:
    loop, places = Loop(), Places(1_000)
    flood, other = (Wire(places=places, streams=1_000, loop=loop, address=name) for name in ("flood", "other"))
    sent = [call(stream, message(b"x")) for stream in range(1, 2 * FRONT_CALLS + 21, 2)]
    passed, left = flood.up_in_a_turn(b"".join(sent))
    assert (passed, left) == (b"".join(sent[:FRONT_CALLS]), b"".join(sent[FRONT_CALLS:]))
    assert flood.inspector.is_blocked
    steps = flood.account.steps
    assert flood.up_in_a_turn(left) == (b"", left)
    assert flood.account.steps == steps, "who waits pays nothing for it"
    assert other.up_in_a_turn(call(1, message(b"x"))) == (call(1, message(b"x")), b"")
    flood.down(answer(1) + answer(3) + answer(5))
    assert not flood.inspector.is_blocked
    passed, left = flood.up_in_a_turn(left)
    assert passed == b"".join(sent[FRONT_CALLS : FRONT_CALLS + 2]), "one of the three is the other's"


def test_calls_without_a_place_are_as_many_in_the_front_as_others_are() -> None:
    """The front answers them like all others, and who has a place would wait behind a thousand of them."""
    places, loop = Places(8), Loop()
    flood, other = (
        Wire(places=places, streams=4 * FRONT_CALLS, address=name, loop=loop) for name in ("flood", "other")
    )
    left = b"".join(call(stream, message(b"x")) for stream in range(1, 6 * FRONT_CALLS, 2))
    while not flood.inspector.is_blocked:
        _, left = flood.up_in_a_turn(left)
        loop.turn()
    assert places.asked == FRONT_CALLS
    assert flood.up_in_a_turn(left)[0] == b""
    # It refuses one after the other: headers alone, with another status than 0.
    refused = next(iter(flood.inspector._refused))
    flood.down(frame(HEADERS, END_HEADERS | END_STREAM, refused, b"\x88"))
    assert flood.inspector._calls.room == 1
    assert not flood.inspector.is_blocked
    assert other.up(call(1, message(b"x"))), "who has less than its share does not wait"


def test_calls_under_way_are_known() -> None:
    wire = Wire()
    wire.up(call(1, message(b"x")) + call(3, message(b"x")) + call(5, message(b"x")))
    assert wire.up(reset(3, 8)) == b""
    assert wire.inspector.tick(NOW + 1.0, 10.0) == b""
    assert wire.inspector.tick(NOW + 2.0, 10.0) == reset(3, 8)
    # It crossed the reset; the front says no more of it.
    wire.down(frame(HEADERS, END_HEADERS, 3, b"\x88"))
    assert list(wire.inspector.open) == [1, 5]
    wire.down(frame(RST_STREAM, 0, 5, b"\0\0\0\7"))
    assert wire.inspector.busy
    wire.down(answer(1))
    assert not wire.inspector.busy
    assert wire.inspector.last_stream == 5


FAILED = frame(HEADERS, END_HEADERS | END_STREAM, 3, b"\x88")


@pytest.mark.parametrize("end", [True, False])
def test_a_call_for_which_there_is_no_place_is_answered_by_the_front(end: bool) -> None:
    """It is not reset there: the front closes a connection of which too many calls are before it has begun them."""
    wire = Wire(places=1)
    wire.up(call(1, message(b"x")))
    passed = wire.up(call(3, message(b"x" * 500), end=end))
    assert passed == frame(HEADERS, END_HEADERS, 3, b"headers") + refusal(3, Refusal.NO_PLACE, 0)
    marker = len(message(REFUSALS.encode(Refusal.NO_PLACE, 0)))
    assert wire.told() == window_update(0, 505 - marker)
    assert wire.down(FAILED) == FAILED
    assert wire.told() == (b"" if end else reset(3, NO_ERROR))
    assert wire.up(frame(DATA, END_STREAM, 3, b"")) == b""
    assert list(wire.inspector.open) == [1]


def test_a_call_without_a_message_needs_no_place() -> None:
    """The front answers it by itself."""
    wire = Wire(places=1)
    wire.up(call(1, message(b"x")))
    alone = frame(HEADERS, END_HEADERS | END_STREAM, 3, b"headers")
    assert wire.up(alone) == alone
    assert wire.down(FAILED) == FAILED
    assert wire.told() == b""


def test_the_front_is_told_of_a_given_up_call_once_it_has_begun_it_and_if_it_has_not_answered() -> None:
    wire = Wire()
    wire.up(call(1, message(b"x")) + call(3, message(b"x")))
    assert wire.up(reset(1, 8) + reset(3, 8)) == b""
    assert wire.down(answer(1)) == answer(1)
    assert wire.inspector.tick(NOW + 0.5, 10.0) == b""
    assert wire.inspector.tick(NOW + 1.0, 10.0) == reset(3, 8)
    assert wire.inspector.tick(NOW + 1.5, 10.0) == b""
    assert wire.told() == b""
    assert not wire.inspector.busy


@pytest.mark.parametrize("ends", ["answered", "told"])
def test_calls_that_were_given_up_count_among_those_that_the_front_has(ends: str) -> None:
    """Their caller does not count them: its next call waits until there is room for it."""
    wire = Wire(streams=2)
    wire.up(call(1, message(b"x")) + call(3, message(b"x")))
    following = call(5, message(b"x"))
    passed, left = wire.up_in_a_turn(reset(1, 8) + following)
    assert (passed, left) == (b"", following)
    assert wire.inspector.has_more
    assert wire.inspector.is_blocked
    if ends == "answered":
        wire.down(answer(1))
    else:
        wire.inspector.tick(NOW + 0.5, 10.0)
        assert wire.inspector.is_blocked
        wire.inspector.tick(NOW + 1.0, 10.0)
    assert not wire.inspector.is_blocked
    assert wire.up(left) == following


def test_refused_calls_count_among_those_that_the_front_has() -> None:
    wire = Wire(streams=2, places=1)
    wire.up(call(1, message(b"x")) + call(3, message(b"x")))
    following = call(5, message(b"x"))
    assert wire.up_in_a_turn(following) == (b"", following)
    wire.down(FAILED)
    assert wire.up(following).endswith(refusal(5, Refusal.NO_PLACE, 0))


def test_who_opens_more_than_the_front_allows_is_refused_by_the_front() -> None:
    """As a caller does that has not read its settings yet."""
    calls = b"".join(call(stream, message(b"x")) for stream in range(1, 11, 2))
    assert Wire(streams=2).up(calls) == calls
