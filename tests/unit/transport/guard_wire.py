"""Frames, and an inspector between two sides, for tests of the guard."""

import struct

from headgate.transport.guard.budget import Budget, BudgetShare
from headgate.transport.guard.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    frame,
)
from headgate.transport.guard.inspector import Inspector
from headgate.transport.guard.refusals import Refusal, Refusals

MAX_MESSAGE = 1000
NOW = 100.0
REFUSALS = Refusals()


def message(payload: bytes, *, length: int | None = None, compressed: bool = False) -> bytes:
    return struct.pack(">BI", compressed, len(payload) if length is None else length) + payload


def call(stream: int, body: bytes = b"", *, end: bool = True) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, b"headers") + frame(DATA, END_STREAM if end else 0, stream, body)


def answer(stream: int) -> bytes:
    return (
        frame(HEADERS, END_HEADERS, stream, b"\x88")
        + frame(DATA, 0, stream, message(b"answer"))
        + frame(HEADERS, END_HEADERS | END_STREAM, stream, b"\xbe")
    )


def refusal(stream: int, why: Refusal, size: int) -> bytes:
    return frame(DATA, END_STREAM, stream, message(REFUSALS.encode(why, size)))


class Wire:
    """An inspector with bytes on both sides."""

    def __init__(self, *, budget: int = 100_000, each: int = 100_000, max_message: int = MAX_MESSAGE) -> None:
        self.budget = Budget(budget, each)
        self.inspector = Inspector(max_message, 10, REFUSALS, BudgetShare(self.budget), NOW)

    def up(self, data: bytes) -> bytes:
        """What reaches the front; all frames are whole."""
        done = self.inspector.from_caller(bytearray(data), len(data))
        assert done == len(data)
        forwarded = b"".join(self.inspector.to_front) if self.inspector.to_front else data[:done]
        self.inspector.to_front = []
        return forwarded

    def down(self, data: bytes) -> bytes:
        """What reaches the caller."""
        done = self.inspector.from_front(bytearray(data), len(data))
        rewritten, self.inspector.rewritten = self.inspector.rewritten, []
        return b"".join(rewritten) if rewritten else data[:done]

    def told(self) -> bytes:
        """What the guard itself tells the caller."""
        told, self.inspector.to_caller = self.inspector.to_caller, b""
        return told
