"""What every shard of a list does while records move from one to another: agree, fence, seal, open, drop."""

import pytest
from headgate.origin.exchange_protocol import Changes, ForeignCount, Priority
from headgate.origin.keyspace import LIMIT
from headgate.origin.names import exchange_name
from headgate.origin.operations.acknowledge import Acknowledge
from headgate.origin.operations.call import Call
from headgate.origin.operations.change_list import ChangeList
from headgate.origin.operations.heartbeat import Heartbeat
from headgate.origin.operations.import_counts import ImportCounts, Imported
from headgate.origin.operations.move_records import (
    ALL_MOVED,
    WALKER_MS,
    WHEREVER,
    DropRecords,
    PublishedName,
    PutRecords,
    RecordPage,
    TakeRecords,
    WalkRecords,
)
from headgate.origin.operations.read_changes import ReadChanges
from headgate.origin.operations.read_components import ReadComponents
from headgate.origin.operations.read_list import ReadList
from headgate.origin.operations.take_claim import CLAIM, ClaimState, TakeClaim
from headgate.origin.placement import NO_PLACEMENT, Placement
from headgate.origin.protocol import ELSEWHERE, SEALED, Report

from tests.conformance.origin.cases import SEQUENCE, START_MS, WINDOW_MS, bucket, cell, window
from tests.conformance.origin.conftest import WITH_A_LIST, Harness
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


async def walk(harness: Harness, run: bytes, after: bytes = WHEREVER) -> RecordPage:
    return await harness.origin.run(0, WalkRecords(2, run, after), PATIENCE_S)


@pytest.mark.parametrize("harness", WITH_A_LIST, indirect=True)
async def test_one_node_walks_and_another_goes_on_where_it_died(harness: Harness) -> None:
    keys = [window("run", 1, cell(1), key=f"key-{number}") for number in range(300)]
    await told(harness, SECOND)
    await harness.origin.run(0, Call(tuple(keys), (), 2), PATIENCE_S)
    await harness.origin.run(0, TakeClaim(b"nonce", b"1/run", START_MS + 60_000, 2), PATIENCE_S)
    page = await walk(harness, b"one")
    assert page.mine
    assert not (await walk(harness, b"two")).mine, "one at a time"
    await harness.set_time(START_MS + WALKER_MS + 1)
    again = await walk(harness, b"two")
    assert again == page, "the same page: nobody has said that it was moved"
    assert not (await walk(harness, b"one", page.next)).mine
    found = set(again.names)
    while page.next:
        page = await walk(harness, b"two", page.next)
        found.update(page.names)
    assert found == {LIMIT + report.key for report in keys} | {CLAIM + b"nonce"}
    assert not (await harness.origin.run(0, Heartbeat(b"run"), PATIENCE_S)).moved
    await walk(harness, b"two", ALL_MOVED)
    assert (await harness.origin.run(0, Heartbeat(b"run"), PATIENCE_S)).moved
    assert not (await walk(harness, b"one")).mine, "nothing is left to do"


async def test_claims_are_copied(harness: Harness) -> None:
    await told(harness, SECOND)
    claim = TakeClaim(b"nonce", b"1/run", START_MS + 60_000, 2)
    await harness.origin.run(0, claim, PATIENCE_S)
    taken = await harness.origin.run(0, TakeRecords(2, [CLAIM + b"nonce"]), PATIENCE_S)
    await harness.origin.run(0, DropRecords(2, [CLAIM + b"nonce"]), PATIENCE_S)
    other = TakeClaim(b"nonce", b"2/other", START_MS + 60_000, 1)
    assert (await harness.origin.run(0, other, PATIENCE_S)).state is ClaimState.TAKEN, "it holds where it was, too"
    await harness.wipe(restart=False)
    assert await harness.origin.run(0, PutRecords(2, taken), PATIENCE_S)
    assert (await harness.origin.run(0, other, PATIENCE_S)).state is ClaimState.TAKEN


async def test_a_claim_begins_by_the_latest_list_alone(harness: Harness) -> None:
    async def claim(number: int, *, leaving: bool = False, value: bytes = b"1/run") -> ClaimState:
        operation = TakeClaim(b"nonce", value, START_MS + 60_000, number, leaving)
        return (await harness.origin.run(0, operation, PATIENCE_S)).state

    assert await claim(2, leaving=True) is ClaimState.ELSEWHERE, "of a name that leaves none begins"
    assert await claim(1) is ClaimState.ELSEWHERE, "nor, from then on, by an earlier list"
    assert await claim(2) is ClaimState.MINE
    assert await claim(1, value=b"2/other") is ClaimState.TAKEN, "one that is there is there for all"


NAME = exchange_name(b"k", b"k", WINDOW_MS)
URGENT = exchange_name(b"urgent", b"urgent", WINDOW_MS)
PUBLISHED = [PublishedName(Priority.NORMAL, NAME), PublishedName(Priority.URGENT, URGENT)]


def abroad(total: int = 5) -> ForeignCount:
    return ForeignCount(b"k", WINDOW_MS, SEQUENCE, b"eu", total, NAME)


async def changes(harness: Harness, priority: Priority) -> Changes:
    read = ReadChanges(b"eu", priority, b"me", b"drawn", 100)
    return await harness.origin.run(0, read, PATIENCE_S)


async def test_what_is_imported_goes_where_nodes_count(harness: Harness) -> None:
    run = harness.origin.run
    await told(harness, SECOND)
    assert await run(0, ImportCounts([abroad()], number=3), PATIENCE_S) == Imported(elsewhere=(0,)), "not heard of yet"
    assert await run(0, ImportCounts([abroad()], number=2, leaving=True), PATIENCE_S) == Imported(elsewhere=(0,))
    assert await run(0, ImportCounts([abroad()], number=1), PATIENCE_S) == Imported(elsewhere=(0,)), "an earlier list"
    assert await run(0, ImportCounts([abroad()]), PATIENCE_S) == Imported(elsewhere=(0,)), "or none"
    assert not (await changes(harness, Priority.NORMAL)).names
    assert await run(0, ImportCounts([abroad()], number=2), PATIENCE_S) == Imported()
    assert await run(0, ImportCounts([abroad(6)], number=1, leaving=True), PATIENCE_S) == Imported(), (
        "one that is there"
    )
    await run(0, TakeRecords(2, [LIMIT + b"k"]), PATIENCE_S)
    both = [abroad(7)._replace(key=b"new", name=b""), abroad(7)]
    assert await run(0, ImportCounts(both, number=2, leaving=True), PATIENCE_S) == Imported(0, (0,), (1,))


async def test_a_published_key_is_told_again_from_where_it_is_opened(harness: Harness) -> None:
    """Put back where it was taken from: what was acknowledged there stands behind the cursor again."""
    await told(harness, SECOND)
    run = harness.origin.run
    await run(0, ImportCounts([abroad()], number=2), PATIENCE_S)
    first = await changes(harness, Priority.NORMAL)
    assert await run(0, Acknowledge(b"eu", Priority.NORMAL, first), PATIENCE_S)
    taken = await run(0, TakeRecords(2, [LIMIT + b"k"]), PATIENCE_S)
    assert await run(0, PutRecords(2, taken, PUBLISHED), PATIENCE_S)
    assert [(await changes(harness, priority)).names for priority in Priority] == [(NAME,), (URGENT,)]
    assert await run(0, DropRecords(2, [LIMIT + b"k"], PUBLISHED), PATIENCE_S)
    assert [(await changes(harness, priority)).names for priority in Priority] == [(), ()]


async def test_while_keys_leave_no_name_is_forgotten(harness: Harness) -> None:
    """It is the walk that tells the shard where the record is now."""
    await told(harness, FIRST)
    run = harness.origin.run
    await run(0, PutRecords(1, [], PUBLISHED), PATIENCE_S)
    await told(harness, SECOND)
    gone = ReadComponents(b"eu", Priority.NORMAL, [NAME])
    assert await run(0, gone, PATIENCE_S) == [None]
    assert (await changes(harness, Priority.NORMAL)).names == (NAME,)
    await told(harness, SECOND._replace(before=()))
    await run(0, gone, PATIENCE_S)
    assert not (await changes(harness, Priority.NORMAL)).names


@pytest.mark.parametrize("harness", WITH_A_LIST, indirect=True)
async def test_a_walk_names_what_is_published_before_all_else_and_after_it(harness: Harness) -> None:
    await told(harness, SECOND)
    await harness.origin.run(0, PutRecords(2, [], PUBLISHED), PATIENCE_S)
    page = await walk(harness, b"one")
    said = [(page.priority, page.names)]
    while page.next:
        page = await walk(harness, b"one", page.next)
        said.append((page.priority, page.names))
    published = [(Priority.NORMAL, (NAME,)), (Priority.URGENT, (URGENT,))]
    assert [*said[:2], *said[-2:]] == [*published, *published]
    assert {priority for priority, _ in said[2:-2]} == {None}
    await walk(harness, b"one", ALL_MOVED)
    gone = await harness.origin.run(0, ReadComponents(b"eu", Priority.NORMAL, [NAME]), PATIENCE_S)
    assert gone == [None]
    assert not (await changes(harness, Priority.NORMAL)).names, "when all have moved what is gone is gone"


async def test_a_shard_says_by_which_list_it_goes_to_those_without_a_heartbeat(harness: Harness) -> None:
    assert await harness.origin.run(0, ReadList(), PATIENCE_S) == NO_PLACEMENT
    await told(harness, SECOND)
    assert await harness.origin.run(0, ReadList(), PATIENCE_S) == SECOND
