"""A connection's time, told by the test: sockets are real, the clock is not."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from headgate.transport.guard.budget import Backlog, Budget, BudgetShare
from headgate.transport.guard.frames import DATA, PING, PREFACE, SETTINGS, frame, reset
from headgate.transport.guard.inspector import Inspector
from headgate.transport.guard.open_calls import FRONT_CALLS, OpenCalls, Places
from headgate.transport.guard.relay import Relay
from headgate.transport.guard.retirement import RETIRE_MAX_S, RETIRE_S
from headgate.transport.guard.share import FIRST_STEPS, SLICE_STEPS, SLOWED_TICKS, Account, Turns
from headgate.transport.guard.surroundings import GuardTimeouts, Scratch, Surroundings

from tests.conformance.transport.harness import eventually
from tests.unit.transport.guard_wire import MAX_MESSAGE, NOW, REFUSALS, answer, call, message

HELLO = PREFACE + frame(SETTINGS, 0, 0, b"")
TIMEOUTS = GuardTimeouts(handshake_s=10.0, message_s=10.0, idle_s=100.0, age_s=1_000.0)


class Setup:
    """A relay between a caller and a front that are both the test's."""

    def __init__(self) -> None:
        self.caller, ours = socket.socketpair()
        self._connected, self.front = socket.socketpair()
        for each in (self.caller, ours, self._connected, self.front):
            each.setblocking(False)
        self.ended: list[str] = []
        self.budget = Budget(100_000, 100_000)
        self.backlog = Backlog(1_000_000)
        loop = asyncio.get_running_loop()
        self.turns = Turns(loop.call_soon, loop.call_later)
        self.account = Account(self.turns)
        around = Surroundings(
            turns=self.turns,
            backlog=self.backlog,
            relieve=lambda: None,
            scratch=Scratch(),
            timeouts=TIMEOUTS,
            connect=lambda: (self._connected, "unix:1"),
            now=NOW,
        )
        self.pending = 0
        calls = OpenCalls(Places(10_000, lambda: self.pending))
        inspector = Inspector(MAX_MESSAGE, 10, REFUSALS, BudgetShare(self.budget), calls, self.account, NOW)
        self.relay = Relay(ours, inspector, around, lambda _relay, reason: self.ended.append(reason))
        self.relay.open()
        self.to_front = b""
        self.to_caller = b""

    async def up(self, data: bytes, expected: bytes | None = None) -> None:
        """The caller sends; wait until the front has it."""
        self.caller.send(data)
        self.to_front = await _until(self.front, self.to_front, data if expected is None else expected)

    async def down(self, data: bytes) -> None:
        self.front.send(data)
        self.to_caller = await _until(self.caller, self.to_caller, data)

    def tick(self, after_s: float) -> None:
        self.relay.tick(NOW + after_s)

    def goaways(self) -> int:
        """How many the caller has got by now."""
        self.to_caller += _there(self.caller)
        return self.to_caller.count(b"\x00\x00\x08\x07\x00")

    def close(self) -> None:
        self.relay.close("test")
        for each in (self.caller, self._connected, self.front):
            each.close()


def _there(side: socket.socket) -> bytes:
    try:
        return side.recv(65_536)
    except BlockingIOError:
        return b""


async def _until(side: socket.socket, received: bytes, expected: bytes) -> bytes:
    seen = [received]

    def ends() -> bool:
        seen[0] += _there(side)
        return seen[0].endswith(expected)

    await eventually(ends)
    return seen[0]


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    made = Setup()
    yield made
    made.close()


async def test_the_time_of_a_handshake_ends_with_it(setup: Setup) -> None:
    setup.tick(10.0)
    assert setup.ended == []
    await setup.up(HELLO)
    setup.tick(11.0)
    assert setup.ended == []
    late = Setup()
    late.tick(10.5)
    assert late.ended == ["handshake"]
    late.close()


async def test_the_time_of_a_frame_counts_from_its_first_byte(setup: Setup) -> None:
    """However long the connection was there before, and whatever came before it."""
    await setup.up(HELLO)
    setup.tick(50.0)
    whole = call(1, message(b"x"))
    setup.caller.send(whole[:20])
    await eventually(lambda: bool(setup.relay._from_caller))
    setup.tick(51.0)
    setup.tick(60.0)
    assert setup.goaways() == 0
    await setup.up(whole[20:], whole)
    setup.tick(70.0)
    setup.caller.send(frame(DATA, 0, 1, b"never")[:3])
    await eventually(lambda: bool(setup.relay._from_caller))
    setup.tick(80.0)
    assert setup.goaways() == 0
    setup.tick(80.5)
    assert setup.goaways() == 1


async def test_idleness_counts_from_the_last_call(setup: Setup) -> None:
    await setup.up(HELLO)
    setup.tick(90.0)
    await setup.up(call(1, message(b"x")))
    setup.tick(190.0)
    await setup.down(answer(1))
    setup.tick(280.0)
    assert setup.goaways() == 0
    setup.tick(290.5)
    assert setup.goaways() == 1
    # A call that crossed the message is served, and the connection waits for it.
    await setup.up(call(3, message(b"x")))
    setup.tick(290.5 + RETIRE_S + 1)
    assert setup.goaways() == 1
    await setup.down(answer(3))
    setup.tick(290.5 + RETIRE_S + 2)
    assert setup.goaways() == 2


async def test_an_old_connection_goes_even_with_a_call_that_does_not_end(setup: Setup) -> None:
    await setup.up(HELLO + call(1, message(b"x")))
    setup.tick(1_000.0)
    assert setup.goaways() == 0
    setup.tick(1_000.5)
    setup.tick(1_000.5 + RETIRE_MAX_S)
    assert setup.goaways() == 1
    setup.tick(1_001.0 + RETIRE_MAX_S)
    assert setup.goaways() == 2


async def test_what_is_said_to_the_caller_waits_for_the_end_of_a_frame(setup: Setup) -> None:
    await setup.up(HELLO + call(1, message(b"x")))
    sent = answer(1)
    await setup.down(sent[:25])
    setup.tick(1_000.5)
    assert setup.goaways() == 0
    setup.front.send(sent[25:])
    await eventually(lambda: setup.goaways() == 1)
    assert setup.to_caller.startswith(sent)


async def test_a_side_that_takes_nothing_stops_the_other_and_nothing_is_lost(setup: Setup) -> None:
    await setup.up(HELLO)
    calls = b"".join(call(stream, message(b"x" * 900)) for stream in range(1, 2_001, 2))
    sent = 0
    # The inspector would take so many open calls for a flood, and leave them where they are; here nobody answers.
    setup.relay._frames._max_streams = setup.pending = 10_000  # type: ignore[attr-defined]
    while not setup.relay._to_front:
        with suppress(BlockingIOError):
            sent += setup.caller.send(calls[sent : sent + 8_000])
        assert sent < len(calls), "the front's socket took it all"
        await asyncio.sleep(0)
    assert setup.backlog.bytes == len(setup.relay._to_front) > 0
    received = setup.to_front
    while len(received) < len(HELLO) + sent - len(setup.relay._from_caller):
        received += _there(setup.front)
        await asyncio.sleep(0)
    assert received == HELLO + calls[: len(received) - len(HELLO)]
    assert setup.backlog.bytes == 0


async def test_who_has_had_its_share_is_not_read_and_what_it_sent_passes_in_order(setup: Setup) -> None:
    """Calls among pings: a slice in each turn, then no more until answers fill the account."""
    await setup.up(HELLO)
    ping = frame(PING, 0, 0, b"12345678")
    sent = call(1, message(b"x")) + ping * (FIRST_STEPS + 50) + call(3, message(b"x"))
    setup.caller.send(sent)
    await eventually(lambda: setup.account.is_empty)
    setup.to_front += _there(setup.front)
    passed = len(setup.to_front) - len(HELLO)
    assert setup.turns.number >= FIRST_STEPS // SLICE_STEPS
    assert setup.turns.slowed == 1
    assert sent.startswith(setup.to_front[len(HELLO) :])
    assert passed < len(sent)
    # Nothing more is read meanwhile, and nothing passes.
    setup.caller.send(ping)
    for _ in range(10):
        await asyncio.sleep(0)
    assert _there(setup.front) == b""
    for stream in range(1, 15, 2):
        setup.relay._frames.open[stream] = 1  # type: ignore[attr-defined]
        setup.front.send(answer(stream))
    setup.to_front = await _until(setup.front, setup.to_front, sent + ping)
    assert setup.to_front == HELLO + sent + ping


async def test_who_is_slowed_for_too_long_is_cut_off(setup: Setup) -> None:
    await setup.up(HELLO)
    setup.caller.send(frame(PING, 0, 0, b"12345678") * 1_000)
    await eventually(lambda: setup.account.is_empty)
    for number in range(SLOWED_TICKS):
        await eventually(lambda: setup.account.is_empty)
        assert setup.goaways() == 0
        setup.tick(number * 0.5)
    assert setup.goaways() == 1
    assert setup.to_caller.endswith(b"\0\0\0\x0b")


async def test_who_waits_for_its_calls_to_end_is_not_read_and_goes_on_with_the_first_that_does(setup: Setup) -> None:
    """Ten calls under way, as many as may be; one is given up, and another one comes."""
    await setup.up(HELLO)
    calls = b"".join(call(stream, message(b"x")) for stream in range(1, 21, 2))
    await setup.up(calls)
    following = call(21, message(b"x"))
    setup.caller.send(reset(1, 8) + following)
    await eventually(lambda: bool(setup.relay._from_caller))
    turns = setup.turns.number
    for _ in range(10):
        await asyncio.sleep(0)
    assert setup.turns.number <= turns + 1, "nobody looks at it meanwhile"
    assert _there(setup.front) == b""
    await setup.down(answer(1))
    setup.to_front = await _until(setup.front, setup.to_front, following)
    assert setup.turns.slowed == 0
    await setup.down(answer(3))
    await setup.up(call(23, message(b"x")))


async def test_who_waits_for_room_in_the_front_goes_on_when_there_is_some(setup: Setup) -> None:
    """With the first answer, or once calls have left the front without one."""
    setup.relay._frames._max_streams = 1_000  # type: ignore[attr-defined]
    await setup.up(HELLO)
    calls = [call(stream, message(b"x")) for stream in range(1, 2 * FRONT_CALLS + 7, 2)]
    setup.caller.send(b"".join(calls))
    setup.to_front = await _until(setup.front, setup.to_front, b"".join(calls[:FRONT_CALLS]))
    turns = setup.turns.number
    for _ in range(10):
        await asyncio.sleep(0)
    assert _there(setup.front) == b""
    assert setup.turns.number <= turns + 1, "nobody looks at it meanwhile"
    await setup.down(answer(1))
    setup.to_front = await _until(setup.front, setup.to_front, calls[FRONT_CALLS])
    setup.pending = 2
    await _until(setup.front, setup.to_front, b"".join(calls[FRONT_CALLS + 1 :]))
    assert setup.turns.slowed == 0


async def test_a_byte_at_a_time_is_paid_for(setup: Setup) -> None:
    """A frame of which each read has a byte, and none its end."""
    await setup.up(HELLO)
    steps = setup.account.steps
    for byte in frame(DATA, 0, 1, b"x" * 20)[:20]:
        kept = len(setup.relay._from_caller)
        setup.caller.send(bytes([byte]))
        await eventually(lambda kept=kept: len(setup.relay._from_caller) > kept)  # type: ignore[misc]
    assert steps - setup.account.steps == 20
