"""Quotas in an origin: what is in force of a key, what nodes are told, what the keeper reads, and who may write."""

from dataclasses import replace
from typing import Any

import pytest
from headgate.origin.interface import LEASE_MS
from headgate.origin.names import exchange_name
from headgate.origin.operations.call import Call
from headgate.origin.operations.heartbeat import Heartbeat
from headgate.origin.placement import Placement
from headgate.origin.protocol import BucketReport
from headgate.quota.operations.call import QuotaCall, QuotaReply
from headgate.quota.operations.keeping import (
    LeaseQuotas,
    PostQuotas,
    QuotaSaved,
    ReadQuotaRows,
    ReleaseQuotas,
    SaveQuotas,
)
from headgate.quota.operations.ready import SharesReady
from headgate.quota.operations.step import UNTOUCHED, QuotaStepped, StepQuotas
from headgate.quota.protocol import NOT_USED, QuotaKind, QuotaReport, QuotaSeen, QuotaShare

from tests.conformance.origin.cases import START_MS, WINDOW_MS, cell, window
from tests.conformance.origin.conftest import Harness
from tests.support.waiting import PATIENCE_S as TIMEOUT_S

LIMIT = 1_000
FLOOR = 100_000
GENERATION = b"drawn"
NAME = exchange_name(b"k", b"k", WINDOW_MS)


def quota(offered: int = 0, *, name: bytes = NAME, kind: QuotaKind = QuotaKind.SLIDING, burst: int = 0) -> QuotaReport:
    return QuotaReport(0, name, kind, LIMIT, burst, WINDOW_MS, offered, FLOOR, 100)


async def call(
    harness: Harness, number: int, total: int, *wants: int, offered: int = 0, kind: QuotaKind = QuotaKind.SLIDING
) -> QuotaReply:
    """A node that still believes in the whole limit."""
    report = window("a", number, cell(total, sent=total + sum(wants)))._replace(limit=LIMIT, window_ms=WINDOW_MS)
    report = report._replace(sliding=kind is not QuotaKind.FIXED)
    requests = tuple(((0, want),) for want in wants)
    return await harness.origin.run(0, QuotaCall(Call((report,), requests), (quota(offered, kind=kind),)), TIMEOUT_S)


async def step(harness: Harness, *shares: tuple[bytes, int, int, int], **changed: Any) -> QuotaStepped:
    told = StepQuotas(1, GENERATION, GENERATION, 5_000, 20_000, 333_333, 10 * WINDOW_MS, shares, (), 10)
    return await harness.origin.run(0, replace(told, **changed), TIMEOUT_S)


async def test_without_a_keeper_the_floor_is_in_force(harness: Harness) -> None:
    answered = await call(harness, 1, 0, 100, 1)
    assert answered.shares == (QuotaShare(FLOOR, 0),)
    assert answered.reply.charged == (True, False)


async def test_a_key_without_a_share_of_its_own_has_that_of_unknown_keys(harness: Harness) -> None:
    await step(harness)
    answered = await call(harness, 1, 0, 333, 1)
    assert answered.shares == (QuotaShare(333_333, START_MS + 20_000),)
    assert answered.reply.charged == (True, False)


async def test_the_share_of_unknown_keys_is_theirs_two_windows_after_it_has_settled(harness: Harness) -> None:
    await step(harness, settled_ago_ms=WINDOW_MS)
    assert (await call(harness, 1, 0)).shares == (QuotaShare(FLOOR, START_MS + 20_000),)
    await harness.set_time(START_MS + WINDOW_MS)
    assert (await call(harness, 2, 0)).shares == (QuotaShare(333_333, START_MS + 20_000),)


async def test_the_shard_charges_nothing_beyond_the_share_whatever_the_node_believes(harness: Harness) -> None:
    await step(harness, (NAME, 600_000, 500_000, 25_000))
    assert (await call(harness, 1, 0, 600, 1)).reply.charged == (True, False)
    await step(harness, (NAME, 700_000, 500_000, 25_000))
    assert (await call(harness, 2, 600, 100, 1)).reply.charged == (True, False)


@pytest.mark.parametrize(
    ("at_ms", "expected"),
    [
        (0, QuotaShare(600_000, 5_000)),
        (4_999, QuotaShare(600_000, 5_000)),
        (5_000, QuotaShare(500_000, 20_000)),
        (19_999, QuotaShare(500_000, 20_000)),
        (20_000, QuotaShare(FLOOR, 0)),
    ],
)
async def test_a_share_falls_at_each_deadline_whoever_lives(harness: Harness, at_ms: int, expected: QuotaShare) -> None:
    await step(harness, (NAME, 600_000, 500_000, 25_000))
    await harness.set_time(START_MS + at_ms)
    until_ms = expected.until_ms and START_MS + expected.until_ms
    assert (await call(harness, 1, 0)).shares == (QuotaShare(expected.share, until_ms),)


async def test_a_share_that_is_not_renewed_falls_to_the_floor_and_its_key_is_named(harness: Harness) -> None:
    await step(harness, (NAME, 600_000, 600_000, 3_000))
    assert (await call(harness, 1, 0)).shares == (QuotaShare(600_000, START_MS + 3_000),)
    assert (await step(harness)).busy == ()
    await harness.set_time(START_MS + 3_000)
    assert (await call(harness, 2, 0)).shares == (QuotaShare(FLOOR, 0),)
    assert (await step(harness)).busy == (NAME,)


async def test_a_forgotten_share_is_that_of_unknown_keys_again(harness: Harness) -> None:
    await step(harness, (NAME, 600_000, 600_000, 25_000))
    await step(harness, forgotten=(NAME,))
    assert (await call(harness, 1, 0)).shares == (QuotaShare(333_333, START_MS + 20_000),)


async def test_a_step_that_leaves_the_deadlines_alone_leaves_them_alone(harness: Harness) -> None:
    await step(harness)
    await harness.set_time(START_MS + 4_000)
    await step(harness, (NAME, 600_000, 500_000, 25_000), until_ms=UNTOUCHED)
    assert (await call(harness, 1, 0)).shares == (QuotaShare(600_000, START_MS + 5_000),)


async def test_the_keeper_reads_what_is_used_and_offered_when_it_has_written(harness: Harness) -> None:
    await call(harness, 1, 40, offered=60)
    own = (NAME, 500_000, 500_000, 25_000)
    seen = QuotaSeen(QuotaKind.SLIDING, LIMIT, 0, WINDOW_MS, 40, 60)
    assert (await step(harness, own)).seen == (seen,)
    await harness.set_time(START_MS + WINDOW_MS + WINDOW_MS // 4)
    assert (await step(harness, own)).seen == (seen._replace(used=30, offered=45),)
    await harness.set_time(START_MS + 3 * WINDOW_MS)
    assert (await step(harness, own)).seen[0] in (NOT_USED, seen._replace(used=0, offered=0))


async def test_what_a_fixed_window_has_in_use_ends_with_it(harness: Harness) -> None:
    await call(harness, 1, 40, offered=60, kind=QuotaKind.FIXED)
    await harness.set_time(START_MS + WINDOW_MS)
    found = (await step(harness, (NAME, 500_000, 500_000, 25_000))).seen[0]
    assert found == QuotaSeen(QuotaKind.FIXED, LIMIT, 0, WINDOW_MS, 0, 60)


async def test_a_bucket_is_cut_in_rate_and_burst_and_read_by_its_arrival_time(harness: Harness) -> None:
    report = BucketReport(b"k", b"a.0", 1, 0, 0, LIMIT, WINDOW_MS, 100, 0, False, 0, 0, 0, 0, 0, 0)
    requests = (((0, 50),), ((0, 1),))
    await step(harness, (NAME, 500_000, 500_000, 25_000))
    told = (quota(60, kind=QuotaKind.BUCKET, burst=100),)
    answered = await harness.origin.run(0, QuotaCall(Call((report,), requests), told), TIMEOUT_S)
    assert answered.reply.charged == (True, False)
    found = (await step(harness, (NAME, 500_000, 500_000, 25_000))).seen[0]
    assert found == QuotaSeen(QuotaKind.BUCKET, LIMIT, 100, WINDOW_MS, 50 * WINDOW_MS // 500, 60)


async def test_a_key_that_is_not_used_here_is_read_as_such(harness: Harness) -> None:
    assert (await step(harness, (NAME, 500_000, 500_000, 25_000))).seen == (NOT_USED,)


async def test_a_count_without_a_limit_says_nothing(harness: Harness) -> None:
    report = window("a", 1, cell(7, sent=7))._replace(window_ms=WINDOW_MS)
    await harness.origin.run(0, Call((report,), ()), TIMEOUT_S)
    assert (await step(harness, (NAME, 500_000, 500_000, 25_000))).seen == (None,)


async def test_a_key_is_busy_from_its_threshold_on_and_for_ten_seconds(harness: Harness) -> None:
    await call(harness, 1, 0, offered=99)
    assert (await step(harness)).busy == ()
    await call(harness, 2, 0, offered=1)
    assert (await step(harness)).busy == (NAME,)
    assert (await step(harness, most=0)).busy == ()
    await harness.set_time(START_MS + 10_000)
    assert (await step(harness)).busy == ()


async def test_what_an_earlier_keeper_writes_is_refused(harness: Harness) -> None:
    assert (await step(harness, fence=7)).kept
    late = await step(harness, (NAME, 900_000, 900_000, 25_000), fence=6)
    assert (late.kept, late.generation, late.seen) == (False, GENERATION, ())
    assert (await call(harness, 1, 0)).shares[0].share == 333_333


async def test_nothing_is_written_into_a_memory_that_is_another_one(harness: Harness) -> None:
    await step(harness, (NAME, 900_000, 900_000, 25_000))
    await harness.wipe(restart=False)
    found = await step(harness, (NAME, 900_000, 900_000, 25_000), drawn=b"anew")
    assert (found.kept, found.generation) == (False, b"anew")
    assert (await call(harness, 1, 0)).shares == (QuotaShare(FLOOR, 0),)


# Lists of shards


async def told(harness: Harness, number: int) -> None:
    """A node has told the shard a list."""
    await harness.origin.run(0, Heartbeat(b"run", placement=Placement(number, ("a",))), TIMEOUT_S)


async def came(harness: Harness, number: int, came_by: int) -> int:
    """The share that is in force of a key that came to the shard by a list."""
    report = window("a", number, cell(0))._replace(limit=LIMIT, window_ms=WINDOW_MS)
    told = QuotaCall(Call((report,), ()), (quota()._replace(came_by=came_by),))
    return (await harness.origin.run(0, told, TIMEOUT_S)).shares[0].share


async def test_a_key_that_came_has_its_floor_until_shares_are_told_by_that_list(harness: Harness) -> None:
    await told(harness, 1)
    await step(harness, (NAME, 600_000, 600_000, 25_000), number=1)
    assert [await came(harness, number, came_by) for number, came_by in ((1, 0), (2, 1), (3, 2))] == [
        600_000,
        600_000,
        FLOOR,
    ]
    await told(harness, 2)
    await step(harness, (NAME, 100_000, 100_000, 25_000), number=2)
    assert await came(harness, 4, 2) == 100_000


async def test_keys_may_come_when_shares_were_told_by_that_list_or_none_is_in_force(harness: Harness) -> None:
    async def ready(number: int) -> bool:
        return await harness.origin.run(0, SharesReady(number), TIMEOUT_S)

    assert await ready(2), "nobody has told any"
    await told(harness, 1)
    await step(harness, number=1)
    assert [await ready(1), await ready(2)] == [True, False]
    await told(harness, 2)
    await step(harness, number=2)
    assert await ready(2)
    await harness.set_time(START_MS + 20_000)
    assert await ready(3)


async def test_nobody_keeps_slices_by_an_earlier_list(harness: Harness) -> None:
    await told(harness, 2)
    assert (await step(harness, number=2)).kept
    assert not (await step(harness, number=3)).kept, "a list that nodes have not told it yet"
    assert not (await step(harness, (NAME, 900_000, 900_000, 25_000), number=1)).kept
    assert not (await lease(harness, number=1)).leased
    assert (await lease(harness, number=2)).leased
    assert (await came(harness, 1, 0)) == 333_333, "nothing of it was written"


async def test_a_keeper_that_comes_from_another_store_has_a_higher_fence(harness: Harness) -> None:
    far = START_MS + 10_000
    assert (await lease(harness, above=far)).fence == far + 1
    assert (await lease(harness)).fence == far + 1, "and keeps it"


# The keeper's store


async def lease(
    harness: Harness,
    owner: bytes = b"x",
    peers: tuple[bytes, ...] = (b"eu", b"us"),
    *,
    number: int = 0,
    above: int = 0,
) -> Any:
    return await harness.origin.run(0, LeaseQuotas(owner, GENERATION, peers, number, above), TIMEOUT_S)


async def save(harness: Harness, fence: int, *rows: tuple[bytes, bytes, bytes], **changed: Any) -> QuotaSaved:
    told = SaveQuotas(fence, GENERATION, rows, b"mark", ())
    return await harness.origin.run(0, replace(told, **changed), TIMEOUT_S)


async def test_one_keeps_the_slices_and_its_fence_until_another_one_does(harness: Harness) -> None:
    first = await lease(harness)
    assert (first.leased, first.fence, first.generation, first.mark, first.posted) == (
        True,
        START_MS,
        GENERATION,
        b"",
        (),
    )
    assert not (await lease(harness, b"y")).leased
    assert (await lease(harness)).fence == first.fence
    await harness.set_time(START_MS + LEASE_MS)
    second = await lease(harness, b"y")
    assert second.leased
    assert second.fence > first.fence
    assert not (await save(harness, first.fence)).kept, "the former one was too slow"


async def test_a_lease_that_is_given_back_is_free_at_once(harness: Harness) -> None:
    first = await lease(harness)
    await harness.origin.run(0, ReleaseQuotas(b"y"), TIMEOUT_S)
    assert not (await lease(harness, b"y")).leased, "only its owner gives it back"
    await harness.origin.run(0, ReleaseQuotas(b"x"), TIMEOUT_S)
    second = await lease(harness, b"y")
    assert second.leased
    assert second.fence > first.fence


async def test_rows_are_written_over_what_was_known_to_be_there(harness: Harness) -> None:
    fence = (await lease(harness)).fence
    assert await save(harness, fence, (b"1", b"", b"rows"), (b"2", b"", b"others")) == QuotaSaved(True, ())
    refused = await save(harness, fence, (b"1", b"", b"mine"), (b"2", b"others", b""))
    assert refused == QuotaSaved(True, ((b"1", b"rows"),))
    assert await harness.origin.run(0, ReadQuotaRows(0), TIMEOUT_S) == (0, ((b"1", b"rows"),))
    assert (await lease(harness)).mark == b"mark"
    await save(harness, fence, mark=b"")
    assert (await lease(harness)).mark == b""


async def test_many_rows_come_in_pages(harness: Harness) -> None:
    fence = (await lease(harness)).fence
    await save(harness, fence, *((b"%d" % number, b"", b"row" * 30) for number in range(1_200)))
    found: dict[bytes, bytes] = {}
    cursor, pages = 0, 0
    while cursor or not pages:
        cursor, page = await harness.origin.run(0, ReadQuotaRows(cursor), TIMEOUT_S)
        found.update(page)
        pages += 1
    assert len(found) == 1_200
    assert pages > 1


async def test_a_message_waits_for_the_keeper_until_it_is_taken_in(harness: Harness) -> None:
    fence = (await lease(harness)).fence
    assert await harness.origin.run(0, PostQuotas(b"us", b"first"), TIMEOUT_S) == b""
    await harness.origin.run(0, PostQuotas(b"us", b"second"), TIMEOUT_S)
    assert (await lease(harness)).posted == ((b"us", b"second"),)
    await save(harness, fence, acknowledged=((b"us", b"which"),))
    assert (await lease(harness)).posted == ()
    assert await harness.origin.run(0, PostQuotas(b"us", b"third"), TIMEOUT_S) == b"which"
