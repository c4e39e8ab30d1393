"""Looking at a key's record: the same over every origin, at any time, and nothing changes by it."""

import pytest
from headgate.keys.peek_key import (
    BucketPeek,
    CellPeek,
    ComponentPeek,
    KeyPeek,
    PeekKey,
    RegionPeek,
    WindowPeek,
)
from headgate.origin.exchange_protocol import ForeignCount
from headgate.origin.memory import MemoryOrigin
from headgate.origin.operations.import_counts import ImportCounts
from headgate.origin.protocol import WindowReport

from tests.conformance.origin.cases import (
    CASES,
    SEQUENCE,
    START_MS,
    WINDOW_MS,
    Case,
    bucket,
    cell,
    said,
    window,
)
from tests.conformance.origin.conftest import Harness, RedisHarness, RedisSetup
from tests.conformance.origin.refund_cases import demanding
from tests.support.clock import ManualClock
from tests.support.waiting import PATIENCE_S


async def peek(harness: Harness, key: bytes = b"k") -> KeyPeek:
    return await harness.origin.run(0, PeekKey(key, WINDOW_MS), PATIENCE_S)


async def test_a_key_that_nobody_reported_has_no_record_and_gets_none(harness: Harness) -> None:
    await harness.set_time(START_MS)
    assert await peek(harness) == KeyPeek(START_MS, None)
    assert await peek(harness) == KeyPeek(START_MS, None)


async def test_a_window_shows_every_node_and_every_region(harness: Harness) -> None:
    await harness.set_time(START_MS)
    report = window("b", 1, cell(3), cell(2, at=-1))
    await harness.origin.run(0, said(window("a", 1, cell(5), want=5), report), PATIENCE_S)
    foreign = [ForeignCount(report.key, WINDOW_MS, SEQUENCE + at, b"eu", 7 + at) for at in (-1, 0, 1)]
    await harness.origin.run(0, ImportCounts(foreign), PATIENCE_S)
    expected = WindowPeek(
        SEQUENCE,
        CellPeek(8, 0, 7),
        CellPeek(2, 0, 6),
        (ComponentPeek(b"a", 5, 0, 5), ComponentPeek(b"b", 3, 2, 0)),
        (RegionPeek(b"eu", 7, 6, 8),),
    )
    for _ in range(2):
        assert await peek(harness, report.key) == KeyPeek(START_MS, expected)
    await harness.set_time(START_MS + WINDOW_MS)
    assert (await peek(harness, report.key)).record == WindowPeek(
        SEQUENCE + 1,
        CellPeek(0, 0, 8),
        CellPeek(8, 0, 7),
        (ComponentPeek(b"a", 0, 5, 5), ComponentPeek(b"b", 0, 3, 0)),
        (RegionPeek(b"eu", 8, 7, 0),),
    )


async def test_a_bucket_shows_when_it_is_free_again(harness: Harness) -> None:
    await harness.set_time(START_MS)
    report = bucket("a", 1, 2, since=START_MS, want=1)
    await harness.origin.run(0, said(report), PATIENCE_S)
    found = await peek(harness, report.key)
    assert found.record == BucketPeek(10, START_MS + 2_000, 0, (ComponentPeek(b"a", 2, 0, 1),))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_redis_and_the_reference_show_the_same_after_every_case(one_redis: RedisSetup, case: Case) -> None:
    harness, clock = RedisHarness(one_redis), ManualClock(START_MS)
    memory = MemoryOrigin(clock, region=b"here")
    try:
        await harness.wipe(restart=False)
        await harness.origin.open()
        for step in case.steps:
            if step.call is None:
                await harness.wipe(restart=False)
                memory.wipe()
                continue
            await harness.set_time(START_MS + step.at_ms)
            clock.step(START_MS + step.at_ms - clock.now_ms())
            await harness.origin.run(0, step.call, PATIENCE_S)
            memory.apply(step.call)
            for report in step.call.reports:
                window_ms = report.window_ms if isinstance(report, WindowReport) else 1
                shown = await harness.origin.run(0, PeekKey(report.key, window_ms), PATIENCE_S)
                assert shown == memory.apply(PeekKey(report.key, window_ms))
    finally:
        await harness.origin.close()


@pytest.mark.parametrize("garbage", ["text", "field"])
async def test_what_can_not_be_read_is_said_and_left_alone(one_redis: RedisSetup, garbage: str) -> None:
    harness = RedisHarness(one_redis)
    client = one_redis.first.client
    try:
        await harness.wipe(restart=False)
        await harness.origin.open()
        name = one_redis.prefix + "k:k"
        if garbage == "text":
            client.set(name, "nonsense")
        else:
            client.hset(name, "w", "nonsense")
        assert await peek(harness) == KeyPeek(START_MS, None, readable=False)
        assert client.exists(name)
    finally:
        await harness.origin.close()


async def test_what_was_given_back_is_shown_apart(harness: Harness) -> None:
    await harness.origin.run(0, said(demanding(window("a", 1, cell(30)), 12)), PATIENCE_S)
    brought = [ForeignCount(b"k", WINDOW_MS, SEQUENCE + at, b"eu", 9, refunded=4) for at in (0, 1)]
    await harness.origin.run(0, ImportCounts(brought), PATIENCE_S)
    for at, shown in (
        (0, (CellPeek(30, 0, 9, 12, 4), CellPeek())),
        (1, (CellPeek(0, 0, 9, 0, 4), CellPeek(30, 0, 9, 12, 4))),
    ):
        await harness.set_time(START_MS + at * WINDOW_MS)
        record = (await harness.origin.run(0, PeekKey(b"k", WINDOW_MS), PATIENCE_S)).record
        assert isinstance(record, WindowPeek)
        assert (record.current, record.previous) == shown
    assert shown[1].used == 23
