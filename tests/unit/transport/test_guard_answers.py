"""What the front answers passes the guard; and whatever is sent, the guard stands. No socket, no clock."""

import gzip
import random

from headgate.transport.guard.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    reset,
    window_update,
)
from headgate.transport.guard.refusals import Refusal, Refusals
from headgate.transport.guard.violation import ProtocolViolation

from tests.unit.transport.guard_wire import NOW, REFUSALS, Wire, answer, call, message


def test_answers_pass_however_the_bytes_arrive() -> None:
    source = random.Random(1)
    frames = answer(1) + frame(DATA, 0, 3, b"x" * 100) + answer(5)
    for _ in range(50):
        wire, kept, passed = Wire(), b"", b""
        wire.up(call(1, message(b"x")) + call(5, message(b"x")))
        position = 0
        while position < len(frames):
            size = source.randint(1, 30)
            data = kept + frames[position : position + size]
            position += size
            done = wire.inspector.from_front(bytearray(data), len(data))
            passed += data[:done]
            kept = data[done:]
        assert (passed, kept) == (frames, b"")
        assert wire.inspector.at_boundary
        assert not wire.inspector.busy


def test_between_frames_is_known() -> None:
    wire = Wire()
    sent = frame(DATA, 0, 1, b"x" * 100)
    assert wire.down(sent[:50]) == sent[:50]
    assert not wire.inspector.at_boundary
    assert wire.down(sent[50:]) == sent[50:]
    assert wire.inspector.at_boundary


def test_an_answer_of_plain_http_becomes_one_of_grpc() -> None:
    """Whatever byte stands for its status in the compressed headers: that of a normal answer is the same each time."""
    wire = Wire()
    for stream, block in ((1, b"\x48\x83\x69\x90\xff"), (3, b"\xbe")):
        wire.up(call(stream, message(b"x")))
        refused = frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
        rewritten = wire.down(answer(99) + refused + reset(stream, 1))
        assert rewritten.startswith(answer(99))
        assert rewritten.endswith(reset(stream, 1))
        assert block + b"\x00\x0ccontent-type\x10application/grpc\x00\x0bgrpc-status\x018" in rewritten
    wire.up(call(5, message(b"x")))
    assert wire.down(answer(5)) == answer(5)


def test_a_callers_message_of_that_size_is_no_refusal() -> None:
    payload = b"x" * REFUSALS.size
    assert not REFUSALS.matches(payload)
    assert not Refusals().matches(REFUSALS.encode(Refusal.TOO_LARGE, 1))
    assert REFUSALS.decode(REFUSALS.encode(Refusal.EXPANDS, 2**32 - 1)) == (Refusal.EXPANDS, 2**32 - 1)


KINDS = [DATA] * 4 + [HEADERS] * 2 + [RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION, 77]


def test_whatever_is_sent_is_passed_on_or_ends_the_connection() -> None:
    """And what is counted comes to nothing when the connection is gone."""
    source = random.Random(1)
    pieces = [
        message(b"x" * 10),
        message(b"x", length=2_000),
        message(gzip.compress(b"x"), compressed=True),
        b"",
        b"\0",
        b"\1\0",
    ]
    ended = 0
    for _ in range(500):
        wire = Wire(budget=3_000, each=2_000)
        try:
            for _ in range(source.randint(1, 40)):
                stream = source.choice([0, 1, 1, 3, 5, 7, 2**31 + 1])
                body = b"".join(source.choices(pieces, k=source.randint(0, 3)))[: source.randint(0, 60)]
                kind, flags = source.choice(KINDS), source.choice([0, 1, 4, 5, 5, 8, 13])
                sent = frame(kind, flags, stream, body)
                wire.up(sent)
                if source.random() < 0.2:
                    wire.down(source.choice([answer(stream), reset(stream, 1), window_update(0, 1_000)]))
                if source.random() < 0.1:
                    wire.inspector.tick(NOW + source.randint(0, 30), 10.0)
        except ProtocolViolation:
            ended += 1
        wire.inspector.close()
        assert wire.budget.used_bytes == 0
    assert 0 < ended < 500
