"""What every shard of a list does while records move from one to another: agree, fence, seal, open, drop."""

import pytest
from headgate.origin.keyspace import LIMIT
from headgate.origin.operations.call import Call
from headgate.origin.operations.change_list import ChangeList
from headgate.origin.operations.heartbeat import Heartbeat
from headgate.origin.operations.move_records import (
    WALKER_MS,
    DropRecords,
    PutRecords,
    RecordPage,
    TakeRecords,
    WalkRecords,
)
from headgate.origin.operations.take_claim import CLAIM, ClaimState, TakeClaim
from headgate.origin.placement import NO_PLACEMENT, Placement
from headgate.origin.protocol import ELSEWHERE, SEALED, Report

from tests.conformance.origin.cases import START_MS, bucket, cell, window
from tests.conformance.origin.conftest import Harness
from tests.support.waiting import PATIENCE_S

FIRST = Placement(1, ("a", "b"))
SECOND = Placement(2, ("a", "b", "c"), ("a", "b"))
REPORTS: list[Report] = [
    window("run", 1, cell(7), rest=0, want=4),
    bucket("run", 1, 2, since=START_MS, want=1, burst=50),
]


async def told(harness: Harness, placement: Placement) -> Placement:
    return (await harness.origin.run(0, Heartbeat(b"run", placement=placement), PATIENCE_S)).placement


async def more(harness: Harness, report: Report, number: int, *, leaving: bool = False) -> int:
    call = Call((report,), (((0, 1),),), number, (0,) if leaving else ())
    reply = await harness.origin.run(0, call, PATIENCE_S)
    assert reply.charged == (reply.answers[0].more >= 0,), "nothing is charged where nothing is done"
    return reply.answers[0].more


async def test_one_list_of_each_number_is_agreed(harness: Harness) -> None:
    assert await harness.origin.run(0, ChangeList(FIRST), PATIENCE_S) == FIRST
    assert await harness.origin.run(0, ChangeList(Placement(1, ("z",))), PATIENCE_S) == FIRST
    assert await harness.origin.run(0, ChangeList(Placement(3, ("z",))), PATIENCE_S) == FIRST
    assert await harness.origin.run(0, ChangeList(SECOND), PATIENCE_S) == SECOND
    third = Placement(3, ("z",), SECOND.shards)
    assert await harness.origin.run(0, ChangeList(third), PATIENCE_S) == SECOND, "keys are still on their way"


async def test_a_shard_keeps_the_last_list_that_anybody_tells(harness: Harness) -> None:
    assert await told(harness, NO_PLACEMENT) == NO_PLACEMENT
    assert await told(harness, SECOND) == SECOND
    assert await told(harness, FIRST) == SECOND
    settled = SECOND._replace(before=())
    assert await told(harness, settled) == settled, "the end of the same move"
    assert await told(harness, SECOND) == settled
    assert await told(harness, Placement(2, ("a",))) == settled, "two of one number, after a loss: the same for all"
    assert await told(harness, Placement(2, ("a", "b", "d"))) == Placement(2, ("a", "b", "d"))


@pytest.mark.parametrize("report", REPORTS, ids=["window", "bucket"])
async def test_a_record_begins_by_the_latest_list_alone(harness: Harness, report: Report) -> None:
    assert await more(harness, report, 2, leaving=True) == ELSEWHERE, "of a key that leaves none begins"
    assert await more(harness, report, 1) == ELSEWHERE, "nor, from then on, by an earlier list"
    assert await more(harness, report, 2) >= 0
    assert await more(harness, report._replace(number=2), 1) >= 0, "one that is open is open to all"
    assert await more(harness, report._replace(number=3), 2, leaving=True) >= 0
    assert await more(harness, report._replace(number=4), 0) >= 0


@pytest.mark.parametrize("report", REPORTS, ids=["window", "bucket"])
async def test_a_record_moves_whole_and_is_open_once(harness: Harness, report: Report) -> None:
    """Put back where it was taken from, as what was sealed here by an earlier move is replaced."""
    names = [LIMIT + report.key]
    await told(harness, SECOND)
    before = (await harness.origin.run(0, Call((report,), (), 2), PATIENCE_S)).answers[0]
    taken = await harness.origin.run(0, TakeRecords(2, [*names, LIMIT + b"another"]), PATIENCE_S)
    assert [record.name for record in taken] == names, "of what is not there nothing is taken"
    assert await more(harness, report, 2) == SEALED
    assert len(await harness.origin.run(0, TakeRecords(2, names), PATIENCE_S)) == 1, "anybody may take it again"
    assert await harness.origin.run(0, PutRecords(2, taken), PATIENCE_S)
    look = report._replace(number=2, want=0, rest=before.more)
    after = (await harness.origin.run(0, Call((look,), (), 2), PATIENCE_S)).answers[0]
    assert after._replace(more=0, left=0) == before._replace(more=0, left=0)
    again = await harness.origin.run(0, TakeRecords(2, names), PATIENCE_S)
    assert await harness.origin.run(0, DropRecords(2, names), PATIENCE_S)
    assert await more(harness, report, 2, leaving=True) == ELSEWHERE
    assert await harness.origin.run(0, PutRecords(2, again), PATIENCE_S)
    assert await harness.origin.run(0, PutRecords(2, taken), PATIENCE_S), "which changes nothing: it is open"
    assert await harness.origin.run(0, DropRecords(2, names), PATIENCE_S), "nor does this: it is not sealed"
    assert await more(harness, look._replace(number=3), 2, leaving=True) >= 0


async def test_steps_of_an_earlier_move_do_nothing(harness: Harness) -> None:
    await harness.origin.run(0, Call((REPORTS[0],), (), 2), PATIENCE_S)
    taken = await harness.origin.run(0, TakeRecords(2, [LIMIT + b"k"]), PATIENCE_S)
    await told(harness, Placement(3, ("a",), ("a", "b")))
    assert await harness.origin.run(0, TakeRecords(2, [LIMIT + b"k"]), PATIENCE_S) == []
    assert not await harness.origin.run(0, PutRecords(2, taken), PATIENCE_S)
    assert not await harness.origin.run(0, DropRecords(2, [LIMIT + b"k"]), PATIENCE_S)
    assert await more(harness, REPORTS[0], 3) == SEALED


async def walk(harness: Harness, run: bytes, after: int = -1) -> RecordPage:
    return await harness.origin.run(0, WalkRecords(2, run, after), PATIENCE_S)


async def test_one_node_walks_and_another_goes_on_where_it_died(harness: Harness) -> None:
    if not harness.origin.listed and harness.origin.shards > 1:
        pytest.skip("a Cluster has no list")
    keys = [window("run", 1, cell(1), key=f"key-{number}") for number in range(300)]
    await told(harness, SECOND)
    await harness.origin.run(0, Call(tuple(keys), (), 2), PATIENCE_S)
    await harness.origin.run(0, TakeClaim(b"nonce", b"1/run", START_MS + 60_000), PATIENCE_S)
    page = await walk(harness, b"one")
    assert page.mine
    assert not (await walk(harness, b"two")).mine, "one at a time"
    await harness.set_time(START_MS + WALKER_MS + 1)
    again = await walk(harness, b"two")
    assert again == page, "the same page: nobody has said that it was moved"
    assert not (await walk(harness, b"one", page.next or -1)).mine
    found = set(again.names)
    while page.next:
        page = await walk(harness, b"two", page.next)
        found.update(page.names)
    assert found == {LIMIT + report.key for report in keys} | {CLAIM + b"nonce"}
    assert not (await harness.origin.run(0, Heartbeat(b"run"), PATIENCE_S)).moved
    await walk(harness, b"two", 0)
    assert (await harness.origin.run(0, Heartbeat(b"run"), PATIENCE_S)).moved
    assert not (await walk(harness, b"one")).mine, "nothing is left to do"


async def test_claims_are_copied(harness: Harness) -> None:
    await told(harness, SECOND)
    claim = TakeClaim(b"nonce", b"1/run", START_MS + 60_000)
    await harness.origin.run(0, claim, PATIENCE_S)
    taken = await harness.origin.run(0, TakeRecords(2, [CLAIM + b"nonce"]), PATIENCE_S)
    await harness.origin.run(0, DropRecords(2, [CLAIM + b"nonce"]), PATIENCE_S)
    other = TakeClaim(b"nonce", b"2/other", START_MS + 60_000)
    assert (await harness.origin.run(0, other, PATIENCE_S)).state is ClaimState.TAKEN, "it holds where it was, too"
    await harness.wipe(restart=False)
    assert await harness.origin.run(0, PutRecords(2, taken), PATIENCE_S)
    assert (await harness.origin.run(0, other, PATIENCE_S)).state is ClaimState.TAKEN
