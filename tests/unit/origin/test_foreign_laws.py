"""Laws of merging what regions say of each other: neither order nor repetition nor grouping matters; nothing falls."""

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headgate.origin.protocol import CellReport, WindowReport
from headgate.origin.window_record import WindowRecord
from hypothesis import given
from hypothesis import strategies as st

WINDOW_MS = 60_000
SEQUENCE = 30_000_000
NOW_MS = SEQUENCE * WINDOW_MS + 1_000
OWN = b"eu"
OTHERS = (b"us", b"ap", b"sa")


class Said(NamedTuple):
    """One region's count in one cell, as an exchanger said it."""

    region: bytes
    sequence: int
    total: int


def said(*cells: int, regions: Sequence[bytes] = (OWN, *OTHERS)) -> st.SearchStrategy[list[Said]]:
    """Anything, about cells that lie so far from the current one."""
    one = st.builds(
        Said, st.sampled_from(regions), st.sampled_from([SEQUENCE + cell for cell in cells]), st.integers(0, 20)
    )
    return st.lists(one, max_size=12)


ANYTHING = said(-2, -1, 0, 1, 2)


def merge(record: WindowRecord, messages: Iterable[Said], now_ms: int = NOW_MS) -> WindowRecord:
    for region, sequence, total in messages:
        if region == OWN:
            record.merge_own(sequence, total, now_ms)
        else:
            record.merge_foreign(region, sequence, total, now_ms)
    return record


def merged(messages: Iterable[Said]) -> WindowRecord:
    record = WindowRecord(WINDOW_MS)
    record.come_to(NOW_MS)
    return merge(record, messages)


State = tuple[tuple[int, ...], dict[bytes, tuple[int, int, int]]]


def state(record: WindowRecord) -> State:
    """All that decides or is published: the totals, and who has what. Components of 0 are as good as none."""
    cells = (record.previous.region_total, record.current.region_total)
    sums = (record.previous.foreign, record.current.foreign, record.ahead_foreign)
    components = {}
    for region, component in record.foreign.items():
        component.roll(record.sequence)
        counts = (component.previous, component.current, component.ahead)
        if any(counts):
            components[region] = counts
    return (record.sequence, *cells, *sums), components


def messages_of(record: WindowRecord) -> list[Said]:
    """What the record holds, said once more."""
    found = [
        Said(OWN, record.sequence - 1, record.previous.region_total),
        Said(OWN, record.sequence, record.current.region_total),
    ]
    for region, counts in state(record)[1].items():
        found += [Said(region, record.sequence - 1 + at, count) for at, count in enumerate(counts)]
    return found


@given(ANYTHING, st.randoms(use_true_random=False))
def test_order_and_repetition_make_no_difference(messages: list[Said], chooser: random.Random) -> None:
    """Commutative and idempotent."""
    again = messages + chooser.sample(messages, len(messages) // 2)
    chooser.shuffle(again)
    assert state(merged(again)) == state(merged(messages))


@given(ANYTHING, ANYTHING, ANYTHING)
def test_grouping_makes_no_difference(first: list[Said], second: list[Said], third: list[Said]) -> None:
    """Associative: what two have merged can be merged with a third, or the other way round."""
    left = merge(merged(messages_of(merge(merged(first), second))), third)
    right = merge(merged(first), messages_of(merge(merged(second), third)))
    assert state(left) == state(right) == state(merged(first + second + third))


@given(ANYTHING)
def test_nothing_ever_falls_and_sums_are_those_of_the_components(messages: list[Said]) -> None:
    record, before = merged([]), state(merged([]))[0]
    for message in messages:
        totals, components = state(merge(record, [message]))
        assert all(after >= was for was, after in zip(before, totals, strict=True))
        sums = tuple(map(sum, zip(*components.values(), strict=True))) or (0, 0, 0)
        assert totals[3:] == sums, "each component counts once"
        before = totals


@given(ANYTHING)
def test_each_component_is_the_highest_that_was_said_of_it(messages: list[Said]) -> None:
    highest: dict[tuple[bytes, int], int] = {}
    for region, sequence, count in messages:
        highest[region, sequence] = max(count, highest.get((region, sequence), 0))
    record = merged(messages)
    _, components = state(record)
    for region in OTHERS:
        expected = tuple(highest.get((region, SEQUENCE + cell), 0) for cell in (-1, 0, 1))
        assert components.get(region, (0, 0, 0)) == expected
    assert record.totals() == (SEQUENCE, highest.get((OWN, SEQUENCE), 0), highest.get((OWN, SEQUENCE - 1), 0))


@given(said(-2, -1, 0, 1, 2, regions=OTHERS), said(-1, 0, regions=(OWN,)))
def test_what_others_have_is_never_published_as_ones_own(foreign: list[Said], own: list[Said]) -> None:
    assert merged(own + foreign).totals() == merged(own).totals()


@given(said(0, 1, regions=OTHERS), st.data())
def test_a_rollover_in_between_makes_no_difference(messages: list[Said], data: st.DataObject) -> None:
    """Whoever's clock is ahead: what was said of the next window before it began counts when it has."""
    split = data.draw(st.integers(0, len(messages)))
    later_ms = NOW_MS + WINDOW_MS
    record = merge(merged(messages[:split]), messages[split:], later_ms)
    record.come_to(later_ms)
    at_once = merged(messages)
    at_once.come_to(later_ms)
    assert state(record) == state(at_once)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(0, 120), st.data())
def test_a_floor_from_peers_and_the_nodes_own_reports_count_once(
    totals: list[int], floor: int, data: st.DataObject
) -> None:
    """After a wipe, in any order: nodes report what they had reported before, peers say what they knew of it."""
    events = data.draw(st.permutations([*range(len(totals)), None, None]))
    record, numbers = merged([]), itertools.count(1)
    for event in events:
        if event is None:
            record.merge_own(SEQUENCE, floor, NOW_MS)
        else:
            cell = CellReport(SEQUENCE, totals[event], 0, 0, totals[event])
            report = WindowReport(
                b"k", b"node-%d" % event, next(numbers), 0, 0, 100, WINDOW_MS, 0, True, False, (cell,)
            )
            record.report(report, NOW_MS)
    assert record.current.region_total == max(floor, sum(totals))
