"""What every origin promises, by one table of cases and a few histories."""

import random
from collections import Counter

import pytest
from headgate.origin.exchange_protocol import ForeignCount
from headgate.origin.operations.call import Call
from headgate.origin.operations.heartbeat import Heartbeat
from headgate.origin.operations.import_counts import ImportCounts
from headgate.origin.protocol import PLENTY, WindowAnswer

from tests.conformance.origin.cases import (
    CASES,
    SEQUENCE,
    START_MS,
    WINDOW_MS,
    Case,
    cell,
    counts,
    looked_at,
    said,
    window,
)
from tests.conformance.origin.conftest import Harness
from tests.conformance.origin.refund_cases import CASES as REFUND_CASES
from tests.support.waiting import PATIENCE_S

TIMEOUT_S = PATIENCE_S


@pytest.mark.parametrize("case", [*CASES, *REFUND_CASES], ids=lambda case: case.name)
async def test_case(harness: Harness, case: Case) -> None:
    for position, step in enumerate(case.steps):
        if step.call is None:
            await harness.wipe(restart=step.action == "restart")
            continue
        await harness.set_time(START_MS + step.at_ms)
        reply = await harness.origin.run(0, step.call, TIMEOUT_S)
        assert reply.time_ms == START_MS + step.at_ms
        assert looked_at(reply.answers, step.answers) == step.answers, f"step {position}"
        assert reply.charged == step.charged, f"step {position}"


async def ask(harness: Harness, call: Call) -> WindowAnswer:
    answer = (await harness.origin.run(0, call, TIMEOUT_S)).answers[0]
    assert isinstance(answer, WindowAnswer)
    return answer


async def test_an_answer_carries_the_shards_clock_also_when_it_was_set_back(harness: Harness) -> None:
    await harness.set_time(START_MS + 5_000)
    await harness.origin.run(0, said(window("a", 1, cell(1))), TIMEOUT_S)
    await harness.set_time(START_MS - 7_200_000)
    assert (await harness.origin.run(0, said(window("a", 2)), TIMEOUT_S)).time_ms == START_MS - 7_200_000
    assert (await harness.origin.run(0, Heartbeat(b"a"), TIMEOUT_S)).time_ms == START_MS - 7_200_000


async def test_runs_heard_by_a_clock_that_was_ahead_do_not_count_as_alive(harness: Harness) -> None:
    await harness.set_time(START_MS + 7_200_000)
    for run in (b"a", b"b"):
        await harness.origin.run(0, Heartbeat(run), TIMEOUT_S)
    await harness.set_time(START_MS)
    pulse = await harness.origin.run(0, Heartbeat(b"a"), TIMEOUT_S)
    assert pulse.live_nodes == 1


async def test_a_heartbeat_counts_the_living_and_notices_a_wipe(harness: Harness) -> None:
    origin = harness.origin
    first = await origin.run(0, Heartbeat(b"a", 1), TIMEOUT_S)
    assert (first.live_nodes, first.memory) == (1, b"a.1"), "a new memory is given a name"
    second = await origin.run(0, Heartbeat(b"b", 7), TIMEOUT_S)
    assert (second.live_nodes, second.memory) == (2, b"a.1"), "and keeps it"
    await harness.set_time(START_MS + 4_000)
    again = await origin.run(0, Heartbeat(b"a", 2, first.time_ms), TIMEOUT_S)
    assert (again.live_nodes, again.memory) == (2, b"a.1")
    await harness.set_time(START_MS + 6_000)
    third = await origin.run(0, Heartbeat(b"a", 3, again.time_ms), TIMEOUT_S)
    assert (third.live_nodes, third.memory) == (1, b"a.1"), "b was silent for more than five seconds"
    await harness.wipe(restart=False)
    flushed = await origin.run(0, Heartbeat(b"a", 4, third.time_ms), TIMEOUT_S)
    assert (flushed.memory, flushed.epoch) == (b"a.4", again.epoch)
    assert (await origin.run(0, Heartbeat(b"b", 8, second.time_ms), TIMEOUT_S)).memory == b"a.4"
    await harness.wipe(restart=True)
    assert (await origin.run(0, Heartbeat(b"a"), TIMEOUT_S)).epoch != again.epoch


async def test_a_memory_keeps_its_name_however_long_nobody_is_heard(harness: Harness) -> None:
    first = await harness.origin.run(0, Heartbeat(b"a", 1), TIMEOUT_S)
    await harness.set_time(START_MS + 7_200_000)
    again = await harness.origin.run(0, Heartbeat(b"a", 2, first.time_ms), TIMEOUT_S)
    assert (again.live_nodes, again.memory) == (1, b"a.1")


async def test_a_memory_that_lacks_its_end_is_another_one(harness: Harness) -> None:
    """A replica that takes over has the name, and an older heartbeat than its primary answered. Whoever beats next
    hears of it, also if the answer to the one that noticed was lost."""
    await harness.origin.run(0, Heartbeat(b"a", 1), TIMEOUT_S)
    await harness.set_time(START_MS + 1_000)
    lost = Heartbeat(b"a", 2, START_MS + 500)
    assert (await harness.origin.run(0, lost, TIMEOUT_S)).memory == b"a.2"
    await harness.set_time(START_MS + 1_500)
    assert (await harness.origin.run(0, Heartbeat(b"b", 9), TIMEOUT_S)).memory == b"a.2"
    assert (await harness.origin.run(0, Heartbeat(b"a", 3, START_MS + 500), TIMEOUT_S)).memory == b"a.2"


async def test_a_heartbeat_tells_how_many_place_keys_by_another_list(harness: Harness) -> None:
    async def otherwise(run: bytes, shard_list: bytes) -> int:
        return (await harness.origin.run(0, Heartbeat(run, shard_list=shard_list), TIMEOUT_S)).listed_otherwise

    assert await otherwise(b"a", b"old") == 0
    assert await otherwise(b"b", b"old") == 0
    assert await otherwise(b"c", b"new") == 2
    assert await otherwise(b"a", b"old") == 1
    await harness.set_time(START_MS + 4_000)
    assert await otherwise(b"c", b"new") == 2
    await harness.set_time(START_MS + 6_000)
    assert await otherwise(b"c", b"new") == 0, "both others were silent for more than five seconds"
    assert await otherwise(b"a", b"new") == 0


async def test_lists_heard_by_a_clock_that_was_ahead_do_not_count(harness: Harness) -> None:
    await harness.set_time(START_MS + 7_200_000)
    await harness.origin.run(0, Heartbeat(b"a", shard_list=b"old"), TIMEOUT_S)
    await harness.set_time(START_MS)
    assert (await harness.origin.run(0, Heartbeat(b"b", shard_list=b"new"), TIMEOUT_S)).listed_otherwise == 0


def foreign(region: bytes, total: int, at: int = 0) -> ForeignCount:
    return ForeignCount(b"k", WINDOW_MS, SEQUENCE + at, region, total)


async def test_foreign_counts_merge_by_max_and_stay_apart(harness: Harness) -> None:
    origin = harness.origin
    await origin.run(0, said(window("a", 1, cell(3))), TIMEOUT_S)
    await origin.run(
        0, ImportCounts([foreign(b"eu", 5), foreign(b"us", 2), foreign(b"eu", 4), foreign(b"eu", 7)]), TIMEOUT_S
    )
    answer = await ask(harness, said(window("a", 2, cell(3)), wants=((1,),)))
    assert answer.current == (4, 4, 9)
    reply = await origin.run(0, said(window("a", 3, cell(4), limit=13), wants=((1,),)), TIMEOUT_S)
    assert reply.charged == (False,), "foreign counts bind"
    await harness.set_time(START_MS + WINDOW_MS)
    await origin.run(0, ImportCounts([foreign(b"eu", 8), foreign(b"eu", 1, at=1)]), TIMEOUT_S)
    answer = await ask(harness, said(window("a", 4)))
    assert (answer.current.foreign, answer.previous.foreign) == (1, 10)


async def test_the_regions_own_component_coming_back_can_only_raise_it(harness: Harness) -> None:
    origin = harness.origin
    await origin.run(0, said(window("a", 1, cell(3))), TIMEOUT_S)
    for total, expected in ((2, 3), (8, 8)):
        await origin.run(0, ImportCounts([ForeignCount(b"k", WINDOW_MS, SEQUENCE, b"here", total)]), TIMEOUT_S)
        answer = await ask(harness, said(window("a", 1)))
        assert (answer.current.region_total, answer.current.foreign) == (expected, 0)


async def test_counts_and_allowances_stay_within_the_limit_and_p_in_any_history(harness: Harness) -> None:
    """Runs that call at random, spend, lose replies, die and come back: all that was spent or may be is within it."""
    for seed in range(8):
        chooser = random.Random(seed)
        limit, precision = 100, chooser.choice([0, 1, 7, 50])
        holds: dict[str, int] = {}
        totals: dict[str, int] = {}
        lives: Counter[str] = Counter()
        now_ms = START_MS + seed * 1_000_000
        for number in range(1, 150):
            now_ms += chooser.choice([0, 1, 10, 30])
            await harness.set_time(now_ms)
            node = chooser.choice("abcdef")
            lives[node] += chooser.random() < 0.03  # it died, and comes back as another
            run = f"{node}{lives[node]}"
            spent = chooser.randint(0, holds.get(run, 0))
            totals[run] = totals.get(run, 0) + spent
            rest = holds.get(run, 0) - spent
            at = (now_ms - START_MS) // WINDOW_MS
            report = window(
                run, number, cell(totals[run], at=at), key=f"history-{seed}", rest=rest,
                want=chooser.choice([0, 2, 30]),
                limit=limit, precision=precision, sliding=False,
            )  # fmt: skip
            answer = await ask(harness, said(report))
            holds[run] = rest
            if chooser.random() < 0.7:
                holds[run] += answer.more
            assert sum(totals.values()) + sum(holds.values()) <= limit + precision


async def test_no_history_of_wants_admits_above_the_limit(harness: Harness) -> None:
    """Exact by itself: what is charged for wants never exceeds the limit, by the window's own measure."""
    chooser = random.Random(7)
    totals: dict[tuple[str, int], int] = {}
    admitted: dict[int, int] = {}
    now_ms = START_MS
    for number in range(1, 400):
        now_ms += chooser.choice([1, 20, 300])
        await harness.set_time(now_ms)
        run, at = chooser.choice("abc"), (now_ms - START_MS) // WINDOW_MS
        total = totals.get((run, at), 0)
        cost = chooser.randint(0, 3)
        call = said(window(run, number, cell(total, at=at, sent=total), limit=20), wants=((cost,),))
        if (await harness.origin.run(0, call, TIMEOUT_S)).charged[0]:
            totals[run, at] = total + cost
            admitted[at] = admitted.get(at, 0) + cost
            left_ms = WINDOW_MS - now_ms % WINDOW_MS
            assert admitted[at] + admitted.get(at - 1, 0) * left_ms // WINDOW_MS <= 20
    assert sum(admitted.values()) >= 75, "and not far below it either: four windows of 20"


async def test_a_call_without_reports_only_tells_the_time(harness: Harness) -> None:
    reply = await harness.origin.run(0, said(), TIMEOUT_S)
    assert (reply.time_ms, reply.answers, reply.charged) == (START_MS, (), ())


async def test_a_fresh_key_is_all_zero(harness: Harness) -> None:
    assert await ask(harness, said(window("a", 1))) == counts((0, 0), left=PLENTY)


async def test_another_regions_reset_empties_the_key_and_what_is_from_before_is_ignored(harness: Harness) -> None:
    origin = harness.origin
    await origin.run(0, said(window("a", 1, cell(4))._replace(reset=0)), TIMEOUT_S)
    await origin.run(0, ImportCounts([foreign(b"eu", 8)]), TIMEOUT_S)
    await origin.run(0, ImportCounts([foreign(b"eu", 2)._replace(reset=7)]), TIMEOUT_S)
    await origin.run(0, ImportCounts([foreign(b"us", 9), foreign(b"here", 9)]), TIMEOUT_S)
    (answer,) = (await origin.run(0, said(window("b", 1, cell(1))), TIMEOUT_S)).answers
    assert isinstance(answer, WindowAnswer)
    assert (answer.current[:3], answer.reset) == ((1, 1, 2), 7)
