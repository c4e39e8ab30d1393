"""Frames, and an inspector between two sides, for tests of the guard."""

import struct
from collections.abc import Callable

from headgate.transport.guard.budget import Budget, BudgetShare
from headgate.transport.guard.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    frame,
)
from headgate.transport.guard.inspector import Inspector
from headgate.transport.guard.open_calls import OpenCalls, Places
from headgate.transport.guard.refusals import Refusal, Refusals
from headgate.transport.guard.share import MAX_STEPS, Account, Turns

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


class Loop:
    """A loop whose turns the test begins."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], None]] = []
        self._later: list[Callable[[], None]] = []
        self.turns = Turns(self._soon.append, lambda _, look: self._later.append(look))

    def turn(self) -> bool:
        """Run what is due; False if nothing was."""
        due = self._soon[:]
        self._soon.clear()
        for each in due:
            each()
        return bool(due)

    def pass_time(self) -> bool:
        """Run what is due later; False if nothing was."""
        due, self._later = self._later, []
        for each in due:
            each()
        return bool(due)


class Wire:
    """An inspector with bytes on both sides, in a loop of its own. Its account has plenty unless told otherwise."""

    def __init__(
        self,
        *,
        budget: "int | Budget" = 100_000,
        each: int = 100_000,
        max_message: int = MAX_MESSAGE,
        steps: int = 10_000,
        places: "int | Places" = 1_000,
        streams: int = 10,
        address: str = "",
        loop: "Loop | None" = None,
    ) -> None:
        self.budget = budget if isinstance(budget, Budget) else Budget(budget, each)
        self.places = places if isinstance(places, Places) else Places(places)
        self.loop = loop or Loop()
        self.account = Account(self.loop.turns, address, first=steps, most=max(steps, MAX_STEPS))
        self.inspector = Inspector(
            max_message, streams, REFUSALS, BudgetShare(self.budget), OpenCalls(self.places, address), self.account, NOW
        )

    def up(self, data: bytes) -> bytes:
        """What reaches the front, in as many turns as it takes; all frames are whole."""
        forwarded = b""
        while True:
            passed, data = self.up_in_a_turn(data)
            forwarded += passed
            if not data:
                return forwarded
            assert self.inspector.has_more
            assert not self.account.is_empty
            assert self.loop.turn()

    def up_in_a_turn(self, data: bytes) -> tuple[bytes, bytes]:
        """What reaches the front in this turn, and what is left."""
        done = self.inspector.from_caller(bytearray(data), len(data))
        forwarded = b"".join(self.inspector.to_front) if self.inspector.to_front else data[:done]
        self.inspector.to_front = []
        return forwarded, data[done:]

    def down(self, data: bytes) -> bytes:
        """What reaches the caller."""
        done = self.inspector.from_front(bytearray(data), len(data))
        rewritten, self.inspector.rewritten = self.inspector.rewritten, []
        return b"".join(rewritten) if rewritten else data[:done]

    def told(self) -> bytes:
        """What the guard itself tells the caller."""
        told, self.inspector.to_caller = self.inspector.to_caller, b""
        return told
