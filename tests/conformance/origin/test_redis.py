"""What only a Redis origin can be asked: scripts that were flushed, keys that expire, replies in order."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from headgate.clock import SystemClock
from headgate.origin.exchange_protocol import ForeignCount
from headgate.origin.interface import Origin
from headgate.origin.operations.call import Call
from headgate.origin.operations.heartbeat import Heartbeat
from headgate.origin.operations.import_counts import ImportCounts
from headgate.origin.protocol import CellReport, WindowAnswer, WindowReport
from headgate.origin.redis_origin.base import RedisOrigin
from headgate.origin.select import open_origin

from tests.conformance.origin.cases import SEQUENCE, START_MS, WINDOW_MS, bucket, cell, said, window
from tests.conformance.origin.conftest import RedisHarness, RedisSetup
from tests.support.redis_servers import RedisServer
from tests.support.waiting import PATIENCE_S

TIMEOUT_S = PATIENCE_S
YEAR_MS = 365 * 86_400_000
"""A window that does not end during a test."""


@pytest.fixture
async def origin(one_redis: RedisSetup) -> AsyncIterator[Origin]:
    """As in production: the scripts read Redis's own clock."""
    one_redis.first.client.flushall()
    opened = open_origin(one_redis.url, clock=SystemClock(), region="here")
    await opened.open()
    yield opened
    await opened.close()


def test_all_of_redis_is_below_the_redis_origin(origin: Origin) -> None:
    assert isinstance(origin, RedisOrigin)
    assert (origin.exclusive, origin.shards, origin.shard_of(b"k")) == (False, 1, 0)


def shard_time_ms(server: RedisServer) -> int:
    seconds, microseconds = server.client.time()
    return int(seconds * 1000 + microseconds // 1000)


async def test_time_is_the_shards_own(origin: Origin, one_redis: RedisSetup) -> None:
    before = shard_time_ms(one_redis.first)
    reply = await origin.run(0, said(), TIMEOUT_S)
    pulse = await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
    assert before <= reply.time_ms <= pulse.time_ms <= shard_time_ms(one_redis.first)


async def test_the_epoch_is_the_run_of_the_server(origin: Origin, one_redis: RedisSetup) -> None:
    run_id = one_redis.first.run_id().encode()
    assert (await origin.run(0, said(), TIMEOUT_S)).epoch == run_id
    assert (await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)).epoch == run_id


async def test_scripts_that_were_flushed_are_loaded_again_unnoticed(origin: Origin, one_redis: RedisSetup) -> None:
    sequence = shard_time_ms(one_redis.first) // YEAR_MS

    def report(number: int, total: int) -> WindowReport:
        cells = (CellReport(sequence, total, 0, 0, 0),)
        return WindowReport(b"k", b"a", number, 0, 0, 100, YEAR_MS, 0, True, False, cells)

    for number in (1, 2, 3):
        one_redis.first.client.script_flush()
        reply = await origin.run(0, said(report(number, number), wants=((1,),)), TIMEOUT_S)
        answer = reply.answers[0]
        assert isinstance(answer, WindowAnswer)
        assert (answer.current.own, answer.current.region_total, reply.charged) == (number + 1, number + 1, (True,))
        one_redis.first.client.script_flush()
        await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
        one_redis.first.client.script_flush()
        await origin.run(0, ImportCounts([ForeignCount(b"other", 1_000, 1, b"eu", 1)]), TIMEOUT_S)


async def test_every_key_expires_and_none_too_early(origin: Origin, one_redis: RedisSetup) -> None:
    client = one_redis.first.client
    now_ms = shard_time_ms(one_redis.first)
    hour = replace_window(window("a", 1, key="hour"), 3_600_000)
    second = replace_window(window("a", 1, key="second"), 1_000)
    far = bucket("a", 1, answered=(now_ms + 500_000, 0), burst=600)
    await origin.run(0, said(hour, second, far, wants=((1, 1),)), TIMEOUT_S)
    await origin.run(0, Heartbeat(b"run"), TIMEOUT_S)
    await origin.run(0, ImportCounts([ForeignCount(b"foreign", 60_000, now_ms // 60_000, b"eu", 1)]), TIMEOUT_S)
    left_ms = {key.decode(): client.pttl(key) for key in client.scan_iter()}
    later_ms = shard_time_ms(one_redis.first)
    assert left_ms.keys() == needed_until(now_ms, now_ms).keys()
    for key, until_ms in needed_until(now_ms, now_ms).items():
        assert until_ms - later_ms <= left_ms[key] <= needed_until(now_ms, later_ms)[key] - now_ms + 31_000, key


def needed_until(began_ms: int, at_ms: int) -> dict[str, int]:
    """Until when each key matters at least, if it was written `at_ms`."""
    return {
        "headgate:here/k:hour": (at_ms // 3_600_000 + 2) * 3_600_000,
        "headgate:here/k:second": at_ms + 20_000,
        "headgate:here/k:b": began_ms + 520_000,
        "headgate:here/k:foreign": (began_ms // 60_000 + 2) * 60_000,
        "headgate:here/live": at_ms + 5_000,
        "headgate:here/live2": at_ms + 5_000,
        "headgate:here/memory": at_ms + 86_400_000,
        "headgate:here/listed": at_ms + 5_000,
        "headgate:here/list:": at_ms + 5_000,
    }


def replace_window(report: WindowReport, window_ms: int) -> WindowReport:
    return report._replace(window_ms=window_ms)


async def test_expiry_moves_on_with_reports(one_redis: RedisSetup) -> None:
    """Told to Redis only now and then: but in time, also when the record itself has not changed."""
    harness, client = RedisHarness(one_redis), one_redis.first.client
    try:
        await harness.wipe(restart=False)
        for number, at_ms in enumerate((0, 5_000, 9_000, 11_000), 1):
            if at_ms == 11_000:
                # What the first report asked for is almost over.
                client.pexpire("headgate:here/k:k", 19_000)
            await harness.set_time(START_MS + at_ms)
            await harness.origin.run(0, said(window("a", number)), TIMEOUT_S)
        assert client.pttl("headgate:here/k:k") > 20_000
    finally:
        await harness.origin.close()


async def test_runs_that_are_gone_leave_the_hash(one_redis: RedisSetup) -> None:
    harness, client = RedisHarness(one_redis), one_redis.first.client
    try:
        await harness.wipe(restart=False)
        for generation in range(6):
            runs = [window(f"run-{generation}-{index}", 1, cell(1, at=generation)) for index in range(20)]
            await harness.set_time(START_MS + generation * WINDOW_MS)
            await harness.origin.run(0, said(*runs), TIMEOUT_S)
        # Those of this window, of the last one, and of the one before while their grants count.
        assert client.hlen("headgate:here/k:k") <= 1 + 3 * 20
        foreign = [ForeignCount(b"k", WINDOW_MS, SEQUENCE + 5, b"eu-%d" % index, 1) for index in range(9)]
        await harness.origin.run(0, ImportCounts(foreign), TIMEOUT_S)
        await harness.set_time(START_MS + 9 * WINDOW_MS)
        await harness.origin.run(0, said(window("last", 1)), TIMEOUT_S)
        await harness.set_time(START_MS + 10 * WINDOW_MS)
        await harness.origin.run(0, said(window("last", 2)), TIMEOUT_S)
        assert set(client.hkeys("headgate:here/k:k")) == {b"w", b"clast"}
    finally:
        await harness.origin.close()


async def test_a_clock_that_was_set_back_by_less_than_a_window_moves_no_cell(one_redis: RedisSetup) -> None:
    """The cell has begun: its time is not before that, and the previous one weighs all it can."""
    harness = RedisHarness(one_redis)
    try:
        await harness.wipe(restart=False)
        await harness.set_time(START_MS + 9_999)
        await harness.origin.run(0, said(window("a", 1, cell(10))), TIMEOUT_S)
        await harness.set_time(START_MS + 15_000)
        await harness.origin.run(0, said(window("a", 2, cell(2, at=1))), TIMEOUT_S)
        await harness.set_time(START_MS + 9_000)
        reply = await harness.origin.run(0, said(window("b", 1, limit=12), wants=((0,), (1,))), TIMEOUT_S)
        answer = reply.answers[0]
        assert isinstance(answer, WindowAnswer)
        assert (answer.sequence, reply.charged) == (SEQUENCE + 1, (True, False))
        assert reply.time_ms == START_MS + 9_000
    finally:
        await harness.origin.close()


async def test_calls_at_once_never_mix_their_replies(origin: Origin, one_redis: RedisSetup) -> None:
    sequence = shard_time_ms(one_redis.first) // YEAR_MS
    chooser = random.Random(3)

    memories: set[bytes] = set()

    async def ask(index: int) -> None:
        beaten_ms = 0
        for number in range(1, 20):
            reports = tuple(
                WindowReport(
                    b"key-%d-%d" % (index, part), b"a", number, 0, 0, 1, YEAR_MS, 0, True, False,
                    (CellReport(sequence, 1_000 * index + number, 0, 0, 0),),
                )
                for part in range(chooser.randint(0, 3))
            )  # fmt: skip
            reply = await origin.run(0, Call(reports, ()), TIMEOUT_S)
            totals = [answer.current.own for answer in reply.answers if isinstance(answer, WindowAnswer)]
            assert totals == [1_000 * index + number] * len(reports)
            pulse = await origin.run(0, Heartbeat(b"run-%d" % index, number, beaten_ms), TIMEOUT_S)
            memories.add(pulse.memory)
            beaten_ms = pulse.time_ms

    await asyncio.gather(*map(ask, range(20)))
    assert len(memories) == 1


async def test_a_caller_that_leaves_takes_nobody_elses_reply(origin: Origin, one_redis: RedisSetup) -> None:
    sequence = shard_time_ms(one_redis.first) // YEAR_MS

    def call(total: int) -> Call:
        cells = (CellReport(sequence, total, 0, 0, 0),)
        return said(WindowReport(b"k-%d" % total, b"a", 1, 0, 0, 1, YEAR_MS, 0, True, False, cells))

    tasks = [asyncio.create_task(origin.run(0, call(total), TIMEOUT_S)) for total in range(1, 31)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    replies = await asyncio.gather(*tasks, return_exceptions=True)
    for total, reply in enumerate(replies, 1):
        if not isinstance(reply, BaseException):
            answer = reply.answers[0]
            assert isinstance(answer, WindowAnswer)
            assert answer.current.own == total
    assert sum(isinstance(reply, asyncio.CancelledError) for reply in replies) == 10


async def test_the_state_of_a_server_is_told(origin: Origin, one_redis: RedisSetup) -> None:
    (state,) = origin.describe()
    server = one_redis.first
    expected = (server.address, server.address, True, "primary", server.run_id(), "")
    assert (state.name, state.address, state.connected, state.role, state.run_id, state.error) == expected
    assert state.since_ms > 0
