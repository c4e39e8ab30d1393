"""The region's counts of one cell after a loss, and how much each run may admit unacknowledged."""

import pytest
from headgate.origin.allowances import GENERATION_MS, Allowances, Holding, reserve
from headgate.origin.window_cells import CellRecord

case = pytest.param
Cell = tuple[int, int]
"""The region's total, and how much of it no component explains."""


def cell_of(before: Cell) -> CellRecord:
    cell = CellRecord()
    cell.region_total, cell.unattributed = before
    return cell


@pytest.mark.parametrize(
    ("before", "seen", "after"),
    [
        case((0, 0), 0, (0, 0), id="nothing was seen"),
        case((0, 0), 7, (7, 7), id="all was lost"),
        case((5, 0), 7, (7, 2), id="two were lost"),
        case((5, 2), 7, (7, 4), id="two more were lost"),
        case((7, 2), 7, (7, 2), id="as much was seen as is here"),
        case((9, 2), 7, (9, 2), id="less was seen than is here"),
    ],
)
def test_a_node_was_told_of_a_higher_total(before: Cell, seen: int, after: Cell) -> None:
    cell = cell_of(before)
    cell.restore(seen)
    assert (cell.region_total, cell.unattributed) == after


@pytest.mark.parametrize(
    ("before", "component", "sent", "after"),
    [
        # The component's count before and after; `sent` is the most that it may have told a shard before.
        case((5, 0), (3, 3), 3, (5, 0), id="nothing is new"),
        case((5, 0), (3, 6), 3, (8, 0), id="nothing was lost: all is new"),
        case((5, 0), (3, 6), 6, (8, 0), id="nothing was lost: what was sent before did not arrive"),
        case((7, 7), (0, 4), 4, (7, 3), id="all of it was lost and comes back"),
        case((7, 7), (0, 4), 0, (11, 7), id="none of it was sent before: all is new"),
        case((7, 7), (0, 6), 4, (9, 3), id="four come back, two are new"),
        case((7, 2), (0, 6), 6, (11, 0), id="only two were lost: four are new"),
        case((7, 7), (3, 6), 4, (9, 6), id="three are here: of what was sent one comes back, and two are new"),
        case((7, 7), (3, 6), 2, (10, 7), id="more is here than was sent: all is new"),
        case((7, 7), (3, 6), 99, (7, 4), id="no more comes back than the component rises"),
    ],
)
def test_a_component_rises(before: Cell, component: tuple[int, int], sent: int, after: Cell) -> None:
    cell = cell_of(before)
    cell.raise_component(*component, sent)
    assert (cell.region_total, cell.unattributed) == after


Report = tuple[str, int, int, int, int]
"""A run, the generation in which it calls, what is left of its allowance, what it wants, and how much more it gets."""


@pytest.mark.parametrize(
    ("reports", "sums"),
    [
        # Of a limit of 100 that nobody has used 14 are kept, and P is 0: 86 are free.
        # Sums: what is set aside in the last generation that was called in, and in the one before.
        case([("a", 5, 0, 0, 0)], (0, 0), id="nothing is wanted"),
        case([("a", 5, 0, 9, 9)], (9, 0), id="what is wanted"),
        case([("a", 5, 0, 99, 43)], (43, 0), id="half of what is free, at most"),
        case([("a", 5, 0, 85, 43), ("b", 5, 0, 99, 22), ("c", 5, 0, 99, 11)], (76, 0), id="and of what others leave"),
        case([("a", 5, 0, 9, 9), ("a", 5, 9, 9, 0)], (9, 0), id="what is left counts once"),
        case([("a", 5, 0, 9, 9), ("a", 5, 4, 9, 5)], (9, 0), id="it is filled up"),
        case([("a", 5, 0, 9, 9), ("a", 5, 0, 9, 9)], (9, 0), id="spent, and wanted again"),
        case([("a", 5, 0, 9, 9), ("a", 5, 4, 0, 0)], (4, 0), id="given back"),
        case([("a", 5, 0, 9, 9), ("b", 6, 0, 3, 3)], (3, 9), id="the generation before still counts"),
        case([("a", 5, 0, 9, 9), ("a", 6, 9, 9, 0)], (9, 0), id="a report moves to the new generation"),
        case([("a", 5, 0, 9, 9), ("b", 7, 0, 3, 3)], (3, 0), id="two generations later it has come back"),
        case([("a", 5, 0, 9, 9), ("b", 7, 0, 3, 3), ("a", 7, 0, 2, 2)], (5, 0), id="who was silent starts anew"),
        case([("a", 6, 0, 9, 9), ("b", 5, 0, 3, 3)], (12, 0), id="a clock that went back begins no generation"),
        case([("a", 5, 200, 9, 0), ("b", 5, 0, 3, 0)], (200, 0), id="what is left counts even above the limit"),
    ],
)  # fmt: skip
def test_allowances_are_set_aside_kept_and_come_back(reports: list[Report], sums: tuple[int, int]) -> None:
    allowances, holdings = Allowances(), {name: Holding() for name, *_ in reports}
    for name, generation, rest, want, more in reports:
        holdings[name].number = 1
        allowances.keep(holdings[name], rest, generation * GENERATION_MS + 1)
        assert allowances.offer(holdings[name], want, 100, 100, 14, 0, within=False)[0] == more, (name, generation)
    assert (allowances.sum, allowances.previous_sum) == sums


@pytest.mark.parametrize(
    ("limit", "window_ms", "kept"),
    [(100, 1_000, 14), (100, 10_000, 14), (100, 20_000, 10), (100, 3_600_000, 0), (4_000_000_000, 1_000, 89_442)],
)
def test_the_noise_of_ten_seconds_stays_free(limit: int, window_ms: int, kept: int) -> None:
    assert reserve(limit, window_ms) == kept
