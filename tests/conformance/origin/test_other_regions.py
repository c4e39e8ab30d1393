"""What one other region can make a shard keep, and how it is taken out again; over every origin."""

from headgate.origin.exchange_protocol import ForeignCount, NewKeys, Priority
from headgate.origin.names import exchange_name
from headgate.origin.operations.forget_region import ForgetRegion
from headgate.origin.operations.import_counts import DAY_S, NEW_KEY_BYTES, ImportCounts
from headgate.origin.operations.mark_filled import MarkFilled
from headgate.origin.operations.read_changes import ReadChanges
from headgate.origin.operations.read_mark import ReadMark
from headgate.origin.protocol import WindowAnswer

from tests.conformance.origin.cases import SEQUENCE, START_MS, WINDOW_MS, cell, said, window
from tests.conformance.origin.conftest import Harness
from tests.conformance.origin.refund_cases import demanding
from tests.support.waiting import PATIENCE_S as TIMEOUT_S

SIZE = NEW_KEY_BYTES + 2 * len(exchange_name(b"k0", b"k0", WINDOW_MS))
ROOM = NewKeys(b"eu", 3 * SIZE)


def counts(*numbers: int, total: int = 5, region: bytes = b"eu") -> list[ForeignCount]:
    keys = [b"k%d" % number for number in numbers]
    return [ForeignCount(key, WINDOW_MS, SEQUENCE, region, total, exchange_name(key, key, WINDOW_MS)) for key in keys]


async def foreign_of(harness: Harness, key: str) -> int:
    (answer,) = (await harness.origin.run(0, said(window("reader", 0, key=key)), TIMEOUT_S)).answers
    assert isinstance(answer, WindowAnswer)
    return answer.current.foreign


async def test_a_peer_has_room_for_so_many_new_keys_and_no_more(harness: Harness) -> None:
    run = harness.origin.run
    assert (await run(0, ImportCounts(counts(0, 1, 2, 3, 4), room=ROOM), TIMEOUT_S)).left_out == 2
    assert (await run(0, ImportCounts(counts(0, 1, 2, total=9), room=ROOM), TIMEOUT_S)).left_out == 0, (
        "known keys need none"
    )
    assert [await foreign_of(harness, f"k{number}") for number in range(3)] == [9, 9, 9]
    assert (
        await run(0, ImportCounts(counts(5, region=b"us"), room=ROOM._replace(peer=b"us")), TIMEOUT_S)
    ).left_out == 0
    assert (await run(0, ImportCounts(counts(6)), TIMEOUT_S)).left_out == 0, "without a bound"
    assert (await run(0, ImportCounts(counts(7), room=ROOM), TIMEOUT_S)).left_out == 1


async def test_the_room_comes_back_evenly_over_a_day_and_with_a_lost_memory(harness: Harness) -> None:
    run, room = harness.origin.run, NewKeys(b"eu", 3 * DAY_S)
    most = room.most_bytes // SIZE
    assert (await run(0, ImportCounts(counts(*range(10, 10 + most + 1)), room=room), TIMEOUT_S)).left_out >= 1
    later = counts(1, 2)
    assert (await run(0, ImportCounts(later, room=room), TIMEOUT_S)).left_out == 2
    await harness.set_time(START_MS + SIZE // 3 * 1_000)
    assert (await run(0, ImportCounts(later, room=room), TIMEOUT_S)).left_out == 1, "three bytes a second"
    await harness.wipe(restart=False)
    assert (await run(0, ImportCounts(counts(*range(10, 20)), room=room), TIMEOUT_S)).left_out == 0


async def test_a_region_is_taken_out_of_keys_and_others_stay(harness: Harness) -> None:
    run = harness.origin.run
    await run(0, said(window("a", 1, cell(3, sent=3), key="k0")), TIMEOUT_S)
    brought = [
        *counts(0, 1),
        *counts(0, total=4, region=b"us"),
        counts(0, total=8)[0]._replace(sequence=SEQUENCE - 1, refunded=2),
        counts(0, total=6)[0]._replace(refunded=1),
        counts(0, total=2)[0]._replace(sequence=SEQUENCE + 1),
        counts(0, total=7, region=b"us")[0]._replace(sequence=SEQUENCE - 1, refunded=3),
    ]
    await run(0, ImportCounts(brought), TIMEOUT_S)
    names = [exchange_name(key, key, WINDOW_MS) for key in (b"k0", b"k1", b"never")]
    assert await run(0, ForgetRegion(b"eu", names), TIMEOUT_S) == 2
    assert await run(0, ForgetRegion(b"eu", names), TIMEOUT_S) == 0, "once is enough"
    assert (await foreign_of(harness, "k0"), await foreign_of(harness, "k1")) == (4, 0)
    (answer,) = (await run(0, said(demanding(window("a", 2, key="k0"))), TIMEOUT_S)).answers
    assert isinstance(answer, WindowAnswer)
    assert answer.refunds is not None
    assert (answer.current, answer.previous) == ((3, 3, 4), (0, 0, 7))
    assert [refund.foreign for refund in answer.refunds] == [0, 3]
    await harness.set_time(START_MS + WINDOW_MS)
    assert await foreign_of(harness, "k0") == 0, "also of what lay ahead"
    await run(0, ImportCounts(counts(0, total=1)), TIMEOUT_S)
    (answer,) = (await run(0, said(window("a", 3, key="k0")), TIMEOUT_S)).answers
    assert isinstance(answer, WindowAnswer)
    assert answer.previous.foreign == 5, "what it says after that is merged as ever"


async def test_a_mark_is_read_with_the_memory_that_it_is_in(harness: Harness) -> None:
    run = harness.origin.run
    first = await run(0, ReadMark(b"eu"), TIMEOUT_S)
    assert (first.generation, first.mark) == (b"", b"")
    changes = await run(0, ReadChanges(b"eu", Priority.NORMAL, b"x", b"drawn", 1), TIMEOUT_S)
    await run(0, MarkFilled(b"eu", b"mark"), TIMEOUT_S)
    assert await run(0, ReadMark(b"eu"), TIMEOUT_S) == (b"drawn", changes.epoch, b"mark")
    assert (await run(0, ReadMark(b"us"), TIMEOUT_S)).mark == b""
