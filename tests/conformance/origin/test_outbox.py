"""What a shard has to tell other regions: when a key is published, who is told, and what is never lost."""

from headgate.origin.exchange_protocol import Changes, ForeignCount, Priority, Published, Stamp
from headgate.origin.interface import LEASE_MS
from headgate.origin.names import exchange_key, exchange_name, key_of_name, split_exchange_key, split_name
from headgate.origin.operations.acknowledge import Acknowledge
from headgate.origin.operations.begin_walk import BeginWalk
from headgate.origin.operations.import_counts import ImportCounts
from headgate.origin.operations.mark_filled import MarkFilled
from headgate.origin.operations.read_changes import ReadChanges
from headgate.origin.operations.read_components import ReadComponents
from headgate.origin.protocol import WindowAnswer, WindowReport

from tests.conformance.origin.cases import SEQUENCE, START_MS, WINDOW_MS, cell, said, window
from tests.conformance.origin.conftest import Harness
from tests.conformance.origin.refund_cases import demanding
from tests.support.waiting import PATIENCE_S as TIMEOUT_S

NAME = exchange_name(b"k", b"k", WINDOW_MS)
PUBLISH_AT = 7


def published(report: WindowReport, *, urgent: bool = False) -> WindowReport:
    name = exchange_name(report.key, report.key, report.window_ms)
    return report._replace(publish_at=PUBLISH_AT, name=name, urgent=urgent)


async def report(harness: Harness, number: int, total: int, *, urgent: bool = False, key: str = "k") -> None:
    told = published(window("a", number, cell(total, sent=total), key=key), urgent=urgent)
    await harness.origin.run(0, said(told), TIMEOUT_S)


async def changes(
    harness: Harness, peer: bytes = b"eu", *, priority: Priority = Priority.NORMAL, owner: bytes = b"x", most: int = 100
) -> Changes:
    return await harness.origin.run(0, ReadChanges(peer, priority, owner, b"drawn", most), TIMEOUT_S)


async def told(harness: Harness, found: Changes, peer: bytes = b"eu") -> list[Published | None]:
    return await harness.origin.run(0, ReadComponents(peer, Priority.NORMAL, found.names), TIMEOUT_S)


def test_a_name_says_window_key_and_place() -> None:
    for key, place in ((b"k", b"k"), (b"a:b", b"p:q"), (b"", b"")):
        name = exchange_name(key, place, 60_000)
        assert split_name(name) == (60_000, exchange_key(key, place))
        assert split_exchange_key(exchange_key(key, place)) == (key, place)
        assert key_of_name(name) == key


async def test_a_key_is_published_from_its_threshold_on(harness: Harness) -> None:
    await report(harness, 1, PUBLISH_AT - 1)
    assert (await changes(harness)).names == ()
    await report(harness, 2, PUBLISH_AT)
    found = await changes(harness)
    assert found.names == (NAME,)
    assert await told(harness, found) == [Published(SEQUENCE, PUBLISH_AT, 0, 0, 0, 0)]


async def test_a_change_stands_until_it_is_acknowledged_and_comes_once_however_often_it_changes(
    harness: Harness,
) -> None:
    await report(harness, 1, 10)
    await report(harness, 2, 11)
    found = await changes(harness)
    assert (found.names, (await changes(harness)).names) == ((NAME,), (NAME,))
    await report(harness, 3, 11)
    assert await harness.origin.run(0, Acknowledge(b"eu", Priority.NORMAL, found), TIMEOUT_S)
    assert (await changes(harness)).names == (), "a report without anything new is no change"
    await report(harness, 4, 12)
    assert (await changes(harness)).names == (NAME,)
    assert (await changes(harness, b"us")).names == (NAME,), "each peer has its own cursor"


async def test_what_changes_after_it_was_read_is_not_acknowledged_with_it(harness: Harness) -> None:
    await report(harness, 1, 10)
    found = await changes(harness)
    await report(harness, 2, 11)
    assert await harness.origin.run(0, Acknowledge(b"eu", Priority.NORMAL, found), TIMEOUT_S)
    assert (await changes(harness)).names == (NAME,)


async def test_an_acknowledgement_of_another_memory_means_nothing(harness: Harness) -> None:
    """Else what the shard learns again would stand before the cursor, and never be told."""
    await report(harness, 1, 10)
    found = await changes(harness)
    await harness.wipe(restart=False)
    await report(harness, 2, 10)
    assert not await harness.origin.run(0, Acknowledge(b"eu", Priority.NORMAL, found), TIMEOUT_S)
    again = await harness.origin.run(0, ReadChanges(b"eu", Priority.NORMAL, b"x", b"drawn anew", 100), TIMEOUT_S)
    assert (again.names, again.generation) == ((NAME,), b"drawn anew")
    assert not await harness.origin.run(0, Acknowledge(b"eu", Priority.NORMAL, found), TIMEOUT_S)


async def test_one_exchanger_serves_a_peer_until_its_lease_is_over(harness: Harness) -> None:
    await report(harness, 1, 10)
    assert (await changes(harness, owner=b"x")).leased
    other = await changes(harness, owner=b"y")
    assert (other.leased, other.names, other.since, other.latest) == (False, (), 0, 1), "it sees how far the peer is"
    assert not (await changes(harness, owner=b"y", priority=Priority.URGENT)).leased, "nor the other priority"
    assert (await changes(harness, b"us", owner=b"y")).leased, "another peer may be served by another one"
    await harness.set_time(START_MS + LEASE_MS)
    assert (await changes(harness, owner=b"y")).leased
    await harness.set_time(START_MS - 10 * LEASE_MS)
    assert (await changes(harness, owner=b"x")).leased, "a lease from a clock that was ahead binds nobody"


async def test_names_come_in_pages_in_the_order_of_their_changes(harness: Harness) -> None:
    for number, key in enumerate(["a", "b", "c", "a"], 1):
        await report(harness, number, 10 + number, key=key)
    order = []
    for _ in range(3):
        found = await changes(harness, most=1)
        order += [key_of_name(name) for name in found.names]
        assert await harness.origin.run(0, Acknowledge(b"eu", Priority.NORMAL, found), TIMEOUT_S)
    assert order == [b"b", b"c", b"a"]


async def test_names_from_behind_a_change_are_told_out_of_turn_and_move_nothing(harness: Harness) -> None:
    for number in range(5):
        await report(harness, number + 1, PUBLISH_AT, key=f"k{number}")

    async def read(after: int) -> Changes:
        return await harness.origin.run(0, ReadChanges(b"eu", Priority.NORMAL, b"x", b"drawn", 100, after), TIMEOUT_S)

    out_of_turn = await read(3)
    assert [key_of_name(name) for name in out_of_turn.names] == [b"k3", b"k4"]
    assert (out_of_turn.since, out_of_turn.until, out_of_turn.latest) == (0, 5, 5)
    assert len((await read(5)).names) == 0
    in_turn = await changes(harness, most=4)
    assert len(in_turn.names) == 4
    assert await harness.origin.run(0, Acknowledge(b"eu", Priority.NORMAL, in_turn), TIMEOUT_S)
    assert [key_of_name(name) for name in (await read(3)).names] == [b"k4"], "what was told is told"


async def test_urgent_changes_have_a_priority_of_their_own(harness: Harness) -> None:
    await report(harness, 1, 10, urgent=True)
    assert (await changes(harness)).names == ()
    assert (await changes(harness, priority=Priority.URGENT)).names == (NAME,)


async def test_another_regions_count_makes_a_key_published_both_cells(harness: Harness) -> None:
    await report(harness, 1, 3)
    await harness.set_time(START_MS + WINDOW_MS)
    await harness.origin.run(0, said(published(window("a", 2, cell(1, at=1, sent=1)))), TIMEOUT_S)
    assert (await changes(harness)).names == (), "below the threshold"
    abroad = ForeignCount(b"k", WINDOW_MS, SEQUENCE + 1, b"eu", 5, NAME)
    await harness.origin.run(0, ImportCounts([abroad]), TIMEOUT_S)
    found = await changes(harness)
    assert await told(harness, found) == [Published(SEQUENCE + 1, 1, 3, SEQUENCE + 1, 5, 0)]
    assert await harness.origin.run(0, Acknowledge(b"eu", Priority.NORMAL, found), TIMEOUT_S)
    await harness.origin.run(0, ImportCounts([abroad._replace(total=6)]), TIMEOUT_S)
    assert (await changes(harness)).names == (), "what is another region's is never published from here"


async def test_a_count_from_the_next_window_counts_when_that_comes(harness: Harness) -> None:
    """Another region's clock may be ahead; what it said once it does not say again."""
    await report(harness, 1, 3)
    await harness.origin.run(0, ImportCounts([ForeignCount(b"k", WINDOW_MS, SEQUENCE + 1, b"eu", 5, NAME)]), TIMEOUT_S)
    for at, current, previous in ((0, 0, 0), (1, 5, 0), (2, 0, 5), (3, 0, 0)):
        await harness.set_time(START_MS + at * WINDOW_MS)
        reply = await harness.origin.run(0, said(window("a", 2 + at)), TIMEOUT_S)
        (answer,) = reply.answers
        assert (answer.current.foreign, answer.previous.foreign) == (current, previous)  # type: ignore[union-attr]


async def test_a_count_from_the_next_window_counts_also_if_nobody_asks_for_one(harness: Harness) -> None:
    await report(harness, 1, 3)
    await harness.origin.run(0, ImportCounts([ForeignCount(b"k", WINDOW_MS, SEQUENCE + 1, b"eu", 5)]), TIMEOUT_S)
    await harness.set_time(START_MS + 2 * WINDOW_MS)
    await harness.origin.run(0, ImportCounts([ForeignCount(b"k", WINDOW_MS, SEQUENCE + 1, b"eu", 6)]), TIMEOUT_S)
    reply = await harness.origin.run(0, said(window("a", 2)), TIMEOUT_S)
    (answer,) = reply.answers
    assert (answer.current.foreign, answer.previous.foreign) == (0, 6)  # type: ignore[union-attr]


async def test_a_walk_tells_everything_again_with_the_peers_own_components(harness: Harness) -> None:
    await report(harness, 1, 10)
    await harness.origin.run(0, ImportCounts([ForeignCount(b"k", WINDOW_MS, SEQUENCE, b"eu", 5, NAME)]), TIMEOUT_S)
    found = await changes(harness)
    assert await harness.origin.run(0, Acknowledge(b"eu", Priority.NORMAL, found), TIMEOUT_S)
    for _ in range(2):  # asked for twice with the same words, it is done once
        await harness.origin.run(0, BeginWalk(b"eu", b"lost it"), TIMEOUT_S)
        walk = await changes(harness)
        if walk.names:
            assert (walk.walk, walk.since, walk.walk_until) == (b"lost it", 0, walk.latest)
            assert await told(harness, walk) == [Published(SEQUENCE, 10, 0, SEQUENCE, 5, 0)]
            assert await harness.origin.run(0, Acknowledge(b"eu", Priority.NORMAL, walk), TIMEOUT_S)
    assert walk.names == ()
    await harness.origin.run(0, BeginWalk(b"eu", b""), TIMEOUT_S)
    again = await changes(harness)
    assert (again.names, again.walk) == ((NAME,), b"lost it")


async def test_own_counts_that_come_back_are_told_to_others(harness: Harness) -> None:
    await harness.origin.run(0, ImportCounts([ForeignCount(b"k", WINDOW_MS, SEQUENCE, b"here", 9, NAME)]), TIMEOUT_S)
    assert await told(harness, await changes(harness, b"us"), b"us") == [Published(SEQUENCE, 9, 0, 0, 0, 0)]


async def test_marks_and_beats_stay_with_the_memory(harness: Harness) -> None:
    await harness.origin.run(0, MarkFilled(b"eu", b"mark"), TIMEOUT_S)
    await harness.origin.run(0, ImportCounts([], Stamp(b"eu", 1_234)), TIMEOUT_S)
    found = await changes(harness)
    assert (found.mark, found.beat_ms) == (b"mark", 1_234)
    assert (await changes(harness, b"us")).mark == b""
    await harness.wipe(restart=False)
    assert (await changes(harness)).mark == b""


async def test_a_name_whose_record_is_gone_is_forgotten(harness: Harness) -> None:
    await report(harness, 1, 10)
    found = await changes(harness)
    gone = exchange_name(b"gone", b"gone", WINDOW_MS)
    assert await harness.origin.run(0, ReadComponents(b"eu", Priority.NORMAL, [gone, *found.names]), TIMEOUT_S) == [
        None,
        Published(SEQUENCE, 10, 0, 0, 0, 0),
    ]


async def test_what_is_given_back_of_a_published_key_is_told_with_its_total(harness: Harness) -> None:
    await report(harness, 1, 10)
    found = await changes(harness)
    assert await harness.origin.run(0, Acknowledge(b"eu", Priority.NORMAL, found), TIMEOUT_S)
    refund = demanding(published(window("a", 2, cell(10, sent=10))), 4)
    await harness.origin.run(0, said(refund), TIMEOUT_S)
    found = await changes(harness)
    assert found.names == (NAME,), "the total is what it was"
    assert await told(harness, found) == [Published(SEQUENCE, 10, 0, 0, 0, 0, current_refunded=4)]


async def test_what_other_regions_gave_back_merges_by_max_within_their_totals(harness: Harness) -> None:
    async def room(limit: int) -> int:
        call = said(window("a", next(numbers), cell(0), limit=limit), wants=((1,),))
        return (await harness.origin.run(0, call, TIMEOUT_S)).charged.count(True)

    numbers = iter(range(1, 100))
    for total, refunded in ((10, 4), (10, 2), (8, 3)):
        count = ForeignCount(b"k", WINDOW_MS, SEQUENCE, b"eu", total, refunded=refunded)
        await harness.origin.run(0, ImportCounts([count]), TIMEOUT_S)
    assert await room(6) == 0, "6 of another region's 10 count"
    assert await room(7) == 1
    too_much = ForeignCount(b"k", WINDOW_MS, SEQUENCE, b"eu", 10, refunded=99)
    await harness.origin.run(0, ImportCounts([too_much]), TIMEOUT_S)
    answer = (await harness.origin.run(0, said(demanding(window("a", next(numbers)))), TIMEOUT_S)).answers[0]
    assert isinstance(answer, WindowAnswer)
    assert answer.refunds is not None
    assert (answer.current.foreign, answer.refunds[0].foreign) == (10, 10), "never below nothing"
