"""One key's record concerns one key: whatever stands under it in Redis, the other keys of a call are untouched."""

import asyncio
from collections.abc import AsyncIterator, Callable

import msgpack
import pytest
import redis
from headgate.origin.exchange_protocol import ForeignCount
from headgate.origin.operations.heartbeat import Heartbeat
from headgate.origin.operations.import_counts import ImportCounts
from headgate.origin.protocol import PLENTY, UNREADABLE, BucketReport, Report, WindowReport
from headgate.origin.redis_origin.scripts import Scripts
from hypothesis import strategies as st

from tests.conformance.origin.cases import (
    SEQUENCE,
    START_MS,
    WINDOW_MS,
    bucket,
    cell,
    counts,
    said,
    window,
)
from tests.conformance.origin.conftest import TEST_CLOCK, RedisHarness, RedisSetup
from tests.conformance.origin.refund_cases import bucket_demanding, demanding
from tests.support.properties import check, examples_of

TIMEOUT_S = 5.0
Spoil = Callable[["redis.Redis", bytes, bytes], None]


def _another_type(client: "redis.Redis", key: bytes, field: bytes) -> None:
    client.delete(key)
    client.set(key, "mine")


def _garbled_totals(client: "redis.Redis", key: bytes, field: bytes) -> None:
    client.hset(key, field, b"\xc1\x00garbage")


def _no_numbers(client: "redis.Redis", key: bytes, field: bytes) -> None:
    client.hset(key, field, msgpack.packb(1) + b"".join([msgpack.packb("x")] * 11))


def _too_few_numbers(client: "redis.Redis", key: bytes, field: bytes) -> None:
    client.hset(key, field, msgpack.packb(1) + msgpack.packb(5))


def _negative_numbers(client: "redis.Redis", key: bytes, field: bytes) -> None:
    client.hset(key, field, msgpack.packb(1) + b"".join([msgpack.packb(-5)] * 11))


def _no_format(client: "redis.Redis", key: bytes, field: bytes) -> None:
    client.hset(key, field, b"".join(msgpack.packb(number) for number in (SEQUENCE, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0)))


def _garbled_component(client: "redis.Redis", key: bytes, field: bytes) -> None:
    kind = b"c" if field == b"w" else b"d"
    client.hset(key, kind + b"a", b"\xc1")


SPOILT: list[Spoil] = [
    _another_type,
    _garbled_totals,
    _no_numbers,
    _too_few_numbers,
    _negative_numbers,
    _no_format,
    _garbled_component,
]


@pytest.fixture
async def harness(one_redis: RedisSetup) -> AsyncIterator[RedisHarness]:
    redis = RedisHarness(one_redis)
    await redis.wipe(restart=False)
    yield redis
    await redis.origin.close()


def _window(key: str, number: int, total: int) -> WindowReport:
    return window("a", number, cell(total, seen=total, sent=total), key=key)


def _bucket(key: str, number: int, total: int) -> BucketReport:
    return bucket("a", number, total, acked=total)


def _stored(harness: RedisHarness, key: str) -> bytes:
    client = harness.setup.first.client
    found = [name for name in client.keys("*") if isinstance(name, bytes)]
    (name,) = [name for name in found if name.endswith(b"k:" + key.encode())]
    return name


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda spoil: spoil.__name__.strip("_"))
@pytest.mark.parametrize("kind", ["window", "bucket"])
async def test_what_cant_be_read_costs_its_own_key_alone_and_begins_anew(
    harness: RedisHarness, spoil: Spoil, kind: str
) -> None:
    """Answered UNREADABLE once; the next report restores it from what the node knows."""
    report: Callable[[int, int], Report] = (
        (lambda number, total: _window("bad", number, total))
        if kind == "window"
        else (lambda number, total: _bucket("b", number, total))
    )
    key, field = ("bad", b"w") if kind == "window" else ("b", b"b")
    await harness.origin.run(0, said(report(1, 3), _window("good", 1, 4)), TIMEOUT_S)
    spoil(harness.setup.first.client, _stored(harness, key), field)
    call = said(_window("good", 2, 5), report(2, 3), wants=((1, -1), (-1, 1), (1, 1)))
    reply = await harness.origin.run(0, call, TIMEOUT_S)
    assert reply.answers[0] == counts((6, 6), left=PLENTY)
    assert reply.answers[1].more == UNREADABLE
    assert reply.charged == (True, False, False), "a request with an unreadable key is not charged anywhere"
    again = await harness.origin.run(0, said(report(3, 3), wants=((1,),)), TIMEOUT_S)
    assert again.charged == (True,)
    assert again.answers[0].more != UNREADABLE


FIELD_NAMES = st.sampled_from([b"w", b"b", b"ca", b"da", b"cb", b"p", b"a", b"", b"\xff"])
NUMBERS = st.sampled_from([0, 1, 2, 3, 5, SEQUENCE, START_MS, 2**31, 2**44, 2**53, 2**53 + 1, 2**63, -1, -(2**53)])
VALUES = NUMBERS | st.floats() | st.none() | st.booleans() | st.binary(max_size=8) | st.lists(NUMBERS, max_size=3)
PACKED = st.lists(VALUES, max_size=14).map(lambda values: b"".join(map(msgpack.packb, values)))
FIELDS = st.dictionaries(FIELD_NAMES, PACKED | st.binary(max_size=40), max_size=4)
CHANGES = st.tuples(st.integers(0, 63), st.binary(max_size=3))


@examples_of(200, 3_000)
@pytest.mark.parametrize("kind", ["window", "bucket"])
def test_whatever_stands_in_a_record_costs_its_own_key_alone(one_redis: RedisSetup, kind: str, count: int) -> None:
    """Fields of any content, or those that were there with some bytes changed: the other key's answer is the same."""
    client, key, field = one_redis.first.client, *(("bad", b"w") if kind == "window" else ("b", b"b"))

    async def answered(harness: RedisHarness, fields: dict[bytes, bytes], change: tuple[int, bytes]) -> None:
        await harness.wipe(restart=False)
        bad = _window(key, 1, 3) if kind == "window" else _bucket(key, 1, 3)
        await harness.origin.run(0, said(bad, _window("good", 1, 4)), TIMEOUT_S)
        name, (at, changed) = _stored(harness, key), change
        stored = client.hget(name, field)
        assert isinstance(stored, bytes)
        client.hset(name, field, stored[: at % len(stored)] + changed + stored[at % len(stored) + len(changed) :])
        for other, value in fields.items():
            client.hset(name, other, value)
        again = _window(key, 2, 3) if kind == "window" else _bucket(key, 2, 3)
        call = said(_window("good", 2, 5), again, wants=((1, -1),))
        reply = await harness.origin.run(0, call, TIMEOUT_S)
        assert reply.answers[0] == counts((6, 6), left=PLENTY)
        assert reply.charged == (True,)

    with asyncio.Runner() as runner:
        harness = runner.run(_open(one_redis))
        check(
            count,
            lambda fields, change: runner.run(answered(harness, fields, change)),
            fields=FIELDS,
            change=CHANGES,
        )
        runner.run(harness.origin.close())


async def _open(setup: RedisSetup) -> RedisHarness:
    """Without the checks of tests, which hold for records that nobody has spoilt."""
    return RedisHarness(setup, Scripts(time=TEST_CLOCK))


@pytest.mark.parametrize("kind", ["window", "bucket"])
async def test_a_record_of_a_newer_format_is_left_to_those_who_can_read_it(harness: RedisHarness, kind: str) -> None:
    report = _window("new", 1, 3) if kind == "window" else _bucket("b", 1, 3)
    key, field = ("new", "w") if kind == "window" else ("b", "b")
    await harness.origin.run(0, said(report), TIMEOUT_S)
    client, name = harness.setup.first.client, _stored(harness, key)
    newer = msgpack.packb(5) + msgpack.packb({"whatever": "it is"})
    client.hset(name, field, newer)
    for _ in range(2):
        reply = await harness.origin.run(0, said(report, _window("good", 1, 4)), TIMEOUT_S)
        assert reply.answers[0].more == UNREADABLE
        assert reply.answers[1].more != UNREADABLE
    assert client.hget(name, field) == newer


async def test_two_runs_that_report_one_unreadable_key_in_one_call_are_both_told(harness: RedisHarness) -> None:
    await harness.origin.run(0, said(_window("bad", 1, 3)), TIMEOUT_S)
    _another_type(harness.setup.first.client, _stored(harness, "bad"), b"w")
    reports = (window("a", 2, cell(3), key="bad"), window("b", 1, cell(2), key="bad"))
    reply = await harness.origin.run(0, said(*reports), TIMEOUT_S)
    assert [answer.more for answer in reply.answers] == [UNREADABLE, UNREADABLE]


async def test_what_comes_from_a_peer_passes_over_what_cant_be_read(harness: RedisHarness) -> None:
    await harness.origin.run(0, said(_window("bad", 1, 3), _window("good", 1, 4)), TIMEOUT_S)
    _another_type(harness.setup.first.client, _stored(harness, "bad"), b"w")
    brought = [ForeignCount(key, WINDOW_MS, SEQUENCE, b"eu", 2) for key in (b"bad", b"good")]
    await harness.origin.run(0, ImportCounts(brought), TIMEOUT_S)
    answer = (await harness.origin.run(0, said(_window("good", 2, 4)), TIMEOUT_S)).answers[0]
    assert answer == counts((4, 4), left=PLENTY)._replace(foreign=2)


async def test_other_runs_garbled_parts_are_forgotten_with_the_gone(harness: RedisHarness) -> None:
    """A rollover looks through everybody's parts: one that makes no sense must not end the call."""
    reports = [window(f"run{number}", 1, cell(1)) for number in range(12)]
    await harness.origin.run(0, said(*reports), TIMEOUT_S)
    client, name = harness.setup.first.client, _stored(harness, "k")
    client.hset(name, "crun3", b"\xc1")
    client.hset(name, "feu", msgpack.packb("x"))
    await harness.set_time(START_MS + 30_000)
    reply = await harness.origin.run(0, said(window("run0", 2)), TIMEOUT_S)
    assert reply.answers[0] == counts((0, 0), at=3, left=PLENTY)
    assert not client.hexists(name, "crun3")


def _format(harness: RedisHarness, key: str, field: str) -> int:
    stored = harness.setup.first.client.hget(_stored(harness, key), field)
    assert isinstance(stored, bytes)
    unpacker = msgpack.Unpacker()
    unpacker.feed(stored)
    return int(next(unpacker))


async def test_a_record_is_written_in_the_lowest_format_that_holds_it(harness: RedisHarness) -> None:
    """Older versions read what has neither a reset nor a refund, also on rules that allow refunds."""
    plain = demanding(_window("k", 1, 3))
    await harness.origin.run(0, said(plain), TIMEOUT_S)
    assert _format(harness, "k", "w") == 1
    await harness.origin.run(0, said(plain._replace(number=2, reset=5)), TIMEOUT_S)
    assert _format(harness, "k", "w") == 2
    await harness.origin.run(0, said(demanding(window("a", 3, cell(3)), 1)._replace(reset=5)), TIMEOUT_S)
    assert _format(harness, "k", "w") == 3
    await harness.set_time(START_MS + 2 * WINDOW_MS)
    await harness.origin.run(0, said(window("a", 4)._replace(reset=5)), TIMEOUT_S)
    assert _format(harness, "k", "w") == 2, "what was given back has left with its window"


async def test_a_bucket_is_written_in_the_lowest_format_that_holds_it(harness: RedisHarness) -> None:
    await harness.origin.run(0, said(bucket_demanding(bucket("a", 1)), wants=((3,),)), TIMEOUT_S)
    assert _format(harness, "b", "b") == 1
    await harness.origin.run(0, said(bucket_demanding(bucket("a", 2, 3, acked=3), 1)), TIMEOUT_S)
    assert _format(harness, "b", "b") == 3


@pytest.mark.parametrize("kind", ["window", "bucket"])
async def test_older_versions_read_a_record_while_its_allowances_are_within_p(harness: RedisHarness, kind: str) -> None:
    """They would charge beside what is set aside beyond it: such a record is none that they can read."""

    def report(number: int, *, rest: int = 0, want: int = 0, within: bool = False) -> Report:
        if kind == "window":
            return window("a", number, key="b", rest=rest, want=want, precision=5, within=within)
        return bucket("a", number, rest=rest, want=want, burst=100, precision=5)._replace(within=within)

    field = "w" if kind == "window" else "b"
    reply = await harness.origin.run(0, said(report(1, want=40, within=True)), TIMEOUT_S)
    assert (reply.answers[0].more, _format(harness, "b", field)) == (5, 1)
    reply = await harness.origin.run(0, said(report(2, rest=5, want=6)), TIMEOUT_S)
    assert (reply.answers[0].more, _format(harness, "b", field)) == (1, 4)
    reply = await harness.origin.run(0, said(report(3, rest=6, want=6, within=True)), TIMEOUT_S)
    assert (reply.answers[0].more, _format(harness, "b", field)) == (0, 4), "until it is given back"
    await harness.origin.run(0, said(report(4)), TIMEOUT_S)
    assert _format(harness, "b", field) == 1


@pytest.mark.parametrize("kind", ["window", "bucket"])
async def test_older_versions_read_a_record_that_was_pressed(harness: RedisHarness, kind: str) -> None:
    """Else they would decide the key by policy until its window ends, with nobody left who could write it anew."""

    def report(run: str, number: int, *, want: int = 0, within: bool = False) -> Report:
        if kind == "window":
            return window(run, number, key="b", want=want, within=within)
        return bucket(run, number, want=want, burst=100)._replace(within=within)

    field = "w" if kind == "window" else "b"
    await harness.origin.run(0, said(report("a", 1, want=40)), TIMEOUT_S)
    reply = await harness.origin.run(0, said(report("b", 1), wants=((70,),)), TIMEOUT_S)
    assert reply.charged == (False,), "allowances alone are in the way"
    await harness.origin.run(0, said(report("a", 2)), TIMEOUT_S)
    assert _format(harness, "b", field) == 4, "given back, and pressed"
    await harness.origin.run(0, said(report("a", 3, within=True)), TIMEOUT_S)
    assert _format(harness, "b", field) == 1


async def test_a_heartbeat_tells_of_nodes_that_do_not_leave_room_for_allowances(harness: RedisHarness) -> None:
    client = harness.setup.first.client
    assert (await harness.origin.run(0, Heartbeat(b"new"), TIMEOUT_S)).older == 0
    (live,) = [name for name in client.keys("*") if isinstance(name, bytes) and name.endswith(b"live")]
    client.zadd(live, {"old": START_MS})
    pulse = await harness.origin.run(0, Heartbeat(b"new"), TIMEOUT_S)
    assert (pulse.live_nodes, pulse.older) == (2, 1)
    await harness.set_time(START_MS + 6_000)
    assert (await harness.origin.run(0, Heartbeat(b"new"), TIMEOUT_S)).older == 0
