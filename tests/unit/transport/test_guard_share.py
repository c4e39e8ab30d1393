"""No connection takes more than its share of the loop, whatever it sends. No socket, no clock."""

import gzip
from collections.abc import Callable

import pytest
from headgate.transport.guard.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    reset,
)
from headgate.transport.guard.share import (
    FIRST_STEPS,
    LEAST_STEPS,
    LOOKED_AT_ONCE,
    MAX_STEPS,
    SLICE_STEPS,
    SLOWED_TICKS,
    STEPS_PER_ANSWER,
    STEPS_PER_TICK,
    TURN_STEPS,
    Account,
)
from headgate.transport.guard.violation import ProtocolViolation

from tests.unit.transport.guard_wire import Loop, Wire, answer, call, message

OPEN = frame(HEADERS, END_HEADERS, 1, b"h")
SMALL = {
    "one byte": frame(DATA, 0, 1, b"x"),
    "padding alone": frame(DATA, PADDED, 1, b"\x04" + b"\0" * 4),
    "one byte and padding": frame(DATA, PADDED, 1, b"\xfax" + b"\0" * 250),
    "nothing": frame(DATA, 0, 1, b""),
    "data of no call": frame(DATA, END_STREAM, 99, message(b"")),
    "ping": frame(PING, 0, 0, b"12345678"),
    "window": frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1"),
    "settings": frame(SETTINGS, 0, 0, b""),
    "priority": frame(PRIORITY, 0, 1, b"12345"),
    "trailers": frame(HEADERS, END_HEADERS, 1, b""),
    "reset": frame(RST_STREAM, 0, 99, b"\0\0\0\7"),
    "unknown": frame(99, 255, 7, b""),
    "unknown and large": frame(99, 255, 7, b"x" * 16_000),
}


def begun(*, steps: int = 10_000) -> Wire:
    """A connection with one call whose message has begun."""
    wire = Wire(steps=steps)
    wire.up(OPEN + frame(DATA, 0, 1, message(b"", length=1_000)))
    return wire


def frames_until_slowed(wire: Wire, small: bytes) -> int:
    """How many of these frames are looked at, in as many turns as it takes, before the account is empty."""
    count, left = 0, small * 1_000
    while not wire.account.is_empty:
        before = len(left)
        _, left = wire.up_in_a_turn(left)
        count += (before - len(left)) // len(small)
        assert left, "all were looked at"
        wire.loop.turn()
    return count


@pytest.mark.parametrize("small", SMALL.values(), ids=SMALL.keys())
def test_frames_of_every_kind_are_paid_for(small: bytes) -> None:
    wire = begun(steps=FIRST_STEPS)
    assert frames_until_slowed(wire, small) < FIRST_STEPS
    # And no more of them until the account is filled.
    assert wire.up_in_a_turn(small * 10)[1] == small * 10
    wire.account.tick(True)
    assert frames_until_slowed(wire, small) <= STEPS_PER_TICK


@pytest.mark.parametrize("small", SMALL.values(), ids=SMALL.keys())
def test_one_connection_has_a_slice_of_each_turn_and_nothing_is_lost(small: bytes) -> None:
    wire = begun()
    turns, left, passed = 0, small * 200, b""
    while left:
        before = len(left)
        forwarded, left = wire.up_in_a_turn(left)
        passed += forwarded
        assert 0 < (before - len(left)) // len(small) <= SLICE_STEPS
        assert wire.inspector.has_more == bool(left)
        turns += 1
        wire.loop.turn()
    assert turns >= 200 // SLICE_STEPS
    assert passed == begun().up(small * 200)


def test_all_connections_together_have_a_part_of_each_turn() -> None:
    loop = Loop()
    wires = [Wire(loop=loop) for _ in range(20)]
    pings = frame(PING, 0, 0, b"12345678") * 100
    counts = [(len(pings) - len(wire.up_in_a_turn(pings)[1])) // 17 for wire in wires]
    full = TURN_STEPS // SLICE_STEPS
    assert counts == [SLICE_STEPS] * full + [0] * (20 - full)
    loop.turn()
    assert (len(pings) - len(wires[-1].up_in_a_turn(pings)[1])) // 17 == SLICE_STEPS


def test_what_goes_along_with_a_call_passes_beside_connections_of_another_address() -> None:
    """However many those are: an address has it once."""
    loop = Loop()
    pings = frame(PING, 0, 0, b"12345678") * 100
    for _ in range(20):
        Wire(loop=loop, address="hostile").up_in_a_turn(pings)
    assert loop.turns.left <= 0
    first, second = (Wire(loop=loop, address="honest") for _ in range(2))
    assert (len(pings) - len(first.up_in_a_turn(pings)[1])) // 17 == LEAST_STEPS
    assert second.up_in_a_turn(pings) == (b"", pings)


def test_usual_calls_pass_however_much_others_take() -> None:
    loop = Loop()
    hostile, honest = Wire(loop=loop), Wire(loop=loop)
    honest.up(call(1, message(b"x")))
    while loop.turns.left > 0:
        hostile.account.charge(10)
    calls = b"".join(call(stream, message(b"x")) for stream in range(3, 15, 2))
    assert honest.up_in_a_turn(calls) == (calls, b"")


def headers(first: int, count: int) -> list[bytes]:
    return [frame(HEADERS, END_HEADERS, stream, b"h") for stream in range(first, first + 2 * count, 2)]


def test_usual_calls_take_no_step_but_for_the_places_of_eight_more() -> None:
    """One after the other they need one place."""
    wire = Wire(streams=100)
    before = wire.account.steps
    for number in range(50):
        wire.up(call(1 + 2 * number, message(b"x")))
        wire.down(answer(1 + 2 * number))
    assert before - wire.account.steps == 1
    wire.up(b"".join(call(101 + 2 * number, message(b"x")) for number in range(40)))
    assert before - wire.account.steps == 40 // 8


def test_headers_without_messages_are_paid_for_and_taken_in_turns() -> None:
    """The front begins a call with its headers: who opens calls and makes none of them keeps it busy for all."""
    loop = Loop()
    full = TURN_STEPS // SLICE_STEPS
    addresses = ["hostile"] * 200 + ["honest"]
    wires = [Wire(loop=loop, steps=FIRST_STEPS, address=address) for address in addresses]
    many = headers(1, 90)
    passed = [90 - wire.up_in_a_turn(b"".join(many))[1].count(many[0][:5]) for wire in wires]
    assert max(passed) == SLICE_STEPS + 1
    assert passed[full:] == [0] * (200 - full) + [LEAST_STEPS + 1]
    assert [FIRST_STEPS - wire.account.steps for wire in wires] == passed


def test_a_call_whose_headers_came_in_the_read_before_is_paid_for_alone() -> None:
    wire = Wire()
    for stream in range(1, 41, 2):
        whole = call(stream, message(b"x"))
        wire.up(whole[:16])
        wire.up(whole[16:])
    assert wire.account.steps == 10_000 - 20


def test_headers_of_many_calls_may_come_before_their_messages() -> None:
    """Some clients send what they have of each kind of frame together."""
    wire = Wire(steps=FIRST_STEPS)
    left = b"".join(headers(1, 60)) + b"".join(
        frame(DATA, END_STREAM, stream, message(b"x")) for stream in range(1, 121, 2)
    )
    whole, passed = left, b""
    while left:
        forwarded, left = wire.up_in_a_turn(left)
        passed += forwarded
        wire.loop.turn()
    assert passed == whole
    assert not wire.account.is_empty


@pytest.mark.parametrize("small", SMALL.values(), ids=SMALL.keys())
def test_answers_fill_the_account(small: bytes) -> None:
    wire = begun(steps=FIRST_STEPS)
    frames_until_slowed(wire, small)
    wire.inspector.open[3] = 1
    wire.down(answer(3))
    wire.inspector.settle_answers()
    assert -STEPS_PER_ANSWER < wire.account.steps <= STEPS_PER_ANSWER
    for stream in range(5, 405, 2):
        wire.inspector.open[stream] = 1
        wire.down(answer(stream))
    wire.inspector.settle_answers()
    assert wire.account.steps == MAX_STEPS


HONEST: dict[str, Callable[[int], bytes]] = {
    "usual": lambda stream: call(stream, message(b"x")),
    "an end by itself": lambda stream: call(stream, message(b"x"), end=False) + frame(DATA, END_STREAM, stream, b""),
    "in two frames": lambda stream: (
        call(stream, message(b"xy")[:6], end=False) + frame(DATA, END_STREAM, stream, message(b"xy")[6:])
    ),
    "gzip": lambda stream: call(stream, message(gzip.compress(b"x" * 900), compressed=True)),
    "headers in two frames": lambda stream: (
        frame(HEADERS, 0, stream, b"a")
        + frame(CONTINUATION, END_HEADERS, stream, b"b")
        + frame(DATA, END_STREAM, stream, message(b"x"))
    ),
    "with windows and a ping": lambda stream: (
        frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1")
        + frame(PING, 0, 0, b"12345678")
        + call(stream, message(b"x"))
        + frame(WINDOW_UPDATE, 0, stream, b"\0\0\0\1")
    ),
    "every other one given up": lambda stream: (
        call(stream, message(b"x")) + call(stream + 2, message(b"x")) + reset(stream + 2, 8)
    ),
    "large": lambda stream: (
        call(stream, message(b"x" * 900)[:600], end=False) + frame(DATA, END_STREAM, stream, message(b"x" * 900)[600:])
    ),
}


@pytest.mark.parametrize("made", HONEST.values(), ids=HONEST.keys())
def test_who_calls_is_never_slowed_in_whatever_form(made: Callable[[int], bytes]) -> None:
    """Ten calls under way at a time, ten thousand in all, and no tick between. What is given up is answered, too."""
    wire = Wire(steps=FIRST_STEPS, streams=20)
    for first in range(1, 40_001, 40):
        wire.up(b"".join(made(stream) for stream in range(first, first + 40, 4)))
        for stream in list(wire.inspector.open):
            wire.down(answer(stream))
    wire.inspector.settle_answers()
    assert wire.account.steps > 0


def test_a_frame_full_of_messages_ends_the_connection() -> None:
    wire = Wire()
    with pytest.raises(ProtocolViolation, match="share"):
        wire.up(OPEN + frame(DATA, 0, 1, message(b"") * 3_000))


def test_gzip_in_many_empty_parts_is_no_message() -> None:
    """Each part has its cost however little is in it."""
    wire = Wire(max_message=64 * 1024, steps=MAX_STEPS)
    body = message(gzip.compress(b"") * 3_000, compressed=True)
    wire.up(OPEN + b"".join(frame(DATA, 0, 1, body[at : at + 16_384]) for at in range(0, len(body), 16_384)))
    assert MAX_STEPS - wire.account.steps < 150


def test_a_bomb_costs_more_steps_than_its_refusal_earns() -> None:
    wire = Wire(max_message=64 * 1024, each=200_000)
    bomb = message(gzip.compress(b"\0" * 10_000_000, 9)[:20_000], compressed=True)
    wire.up(OPEN + b"".join(frame(DATA, 0, 1, bomb[at : at + 10_000]) for at in range(0, len(bomb), 10_000)))
    assert 10_000 - wire.account.steps > STEPS_PER_ANSWER + 1


def test_a_windows_change_costs_as_much_as_there_are_calls() -> None:
    """The front may send a frame for each of them."""
    wire = Wire(places=100)
    wire.up(b"".join(call(stream, message(b"x")) for stream in range(1, 101, 2)))
    before = wire.account.steps
    wire.up(frame(SETTINGS, 0, 0, b"\0\4\0\0\0\1"))
    assert before - wire.account.steps == 51


def test_time_fills_an_account_and_being_slowed_for_too_long_ends_it() -> None:
    account = Account(Loop().turns)
    account.charge(FIRST_STEPS)
    assert account.is_empty
    assert all(account.tick(True) for _ in range(SLOWED_TICKS - 1))
    assert account.steps == (SLOWED_TICKS - 1) * STEPS_PER_TICK
    assert account.tick(False)
    assert all(account.tick(True) for _ in range(SLOWED_TICKS - 1))
    assert not account.tick(True)
    for _ in range(100):
        account.tick(False)
    assert account.steps == MAX_STEPS


def test_whose_calls_are_answered_is_slowed_and_not_cut_off() -> None:
    account = Account(Loop().turns)
    for _ in range(10 * SLOWED_TICKS):
        account.charge(2 * MAX_STEPS)
        account.earn(1)
        assert account.tick(True)
    assert all(account.tick(True) for _ in range(SLOWED_TICKS - 1))
    assert not account.tick(True)


def test_calls_without_a_place_are_paid_for_and_an_answer_pays_for_two() -> None:
    wire = Wire(places=1, steps=FIRST_STEPS)
    wire.up(call(1, message(b"x")))
    before = wire.account.steps
    wire.up(call(3, message(b"x")) + call(5, message(b"x")))
    assert before - wire.account.steps == STEPS_PER_ANSWER


def test_who_waits_for_room_looks_again_one_by_one_and_all_after_a_while() -> None:
    loop, looked = Loop(), list[int]()

    def looking(number: int) -> Callable[[], None]:
        def look() -> None:
            looked.append(number)
            if number == 1:
                loop.turns.wait(look)

        return look

    for number in range(4):
        loop.turns.wait(looking(number))
    loop.turns.wake()
    assert looked == [0]
    assert loop.pass_time()
    assert looked == [0, 1, 2, 3]
    assert loop.pass_time()
    assert looked == [0, 1, 2, 3, 1]


def test_so_many_look_again_at_a_time_and_the_others_later() -> None:
    loop, looked = Loop(), list[int]()
    for number in range(LOOKED_AT_ONCE + 2):
        loop.turns.wait(lambda number=number: looked.append(number))  # type: ignore[misc]
    assert loop.pass_time()
    assert looked == list(range(LOOKED_AT_ONCE))
    assert loop.pass_time()
    assert looked == list(range(LOOKED_AT_ONCE + 2))
    assert not loop.pass_time(), "nobody waits"


def test_who_goes_on_in_vain_has_taken_a_part_of_the_turn() -> None:
    """There is room for one in the front, and a thousand find none: looking at them takes time, too."""
    loop, looked = Loop(), list[int]()
    for number in range(2 * TURN_STEPS):
        loop.turns.stand_in_line(lambda number=number: looked.append(number))  # type: ignore[misc]
    loop.turn()
    assert looked == list(range(TURN_STEPS))
    loop.turn()
    assert looked == list(range(2 * TURN_STEPS))


def test_who_stands_in_line_is_served_in_order_as_far_as_each_turn_goes() -> None:
    loop, served = Loop(), list[int]()

    def standing(number: int) -> Callable[[], None]:
        def go_on() -> None:
            served.append(number)
            loop.turns.take(SLICE_STEPS)
            if number == 0 and len(served) < 10:
                loop.turns.stand_in_line(go_on)

        return go_on

    for number in range(7):
        loop.turns.stand_in_line(standing(number))
    a_turn, order = TURN_STEPS // SLICE_STEPS, [*range(7), 0, 0]
    for end in (*range(a_turn, 8, a_turn), 8, 9):
        loop.turn()
        assert served == order[:end]
    while loop.turn():
        pass
    assert len(served) == 10
