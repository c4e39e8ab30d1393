"""The region's counts of one cell after a loss, and how much each run may admit unacknowledged."""

import pytest
from headgate.origin.grants import GENERATION_MS, Grants, Holding
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


Renewal = tuple[str, int, int, int]
"""A run, the generation in which it calls, what it may still be using, and what it is offered."""
LEAVES = -1
"""Instead of what it holds: the run gives its grant back."""


@pytest.mark.parametrize(
    ("precision", "renewals", "sums"),
    [
        # Sums: what is counted as granted in the last generation that was called in, and in the one before.
        case(0, [("a", 5, 0, 0)], (0, 0), id="exact: nothing is granted"),
        case(10, [("a", 5, 0, 5)], (5, 0), id="half of what is free"),
        case(1, [("a", 5, 0, 1)], (1, 0), id="rounded up: the last one is granted too"),
        case(3, [("a", 5, 0, 2), ("b", 5, 0, 1), ("c", 5, 0, 0)], (3, 0), id="until none is free"),
        case(10, [("a", 5, 0, 5), ("a", 5, 5, 5)], (5, 0), id="a renewal counts once"),
        case(10, [("a", 5, 0, 5), ("b", 5, 0, 3), ("a", 5, 5, 4)], (8, 0), id="held is more than offered: held counts"),
        case(10, [("a", 5, 0, 5), ("b", 5, 0, 3), ("a", 5, 0, 4)], (7, 0), id="nothing held: offered counts"),
        case(10, [("a", 5, 0, 5), ("a", 5, LEAVES, 0)], (0, 0), id="given back"),
        case(10, [("a", 5, 0, 5), ("a", 5, LEAVES, 0), ("a", 5, LEAVES, 0)], (0, 0), id="given back, and not twice"),
        case(10, [("a", 5, 0, 5), ("b", 5, 0, 3), ("a", 5, LEAVES, 0), ("b", 5, 3, 5)], (5, 0), id="others get it"),
        case(10, [("a", 5, 0, 5), ("b", 6, 0, 3)], (3, 5), id="the generation before still counts"),
        case(10, [("a", 5, 0, 5), ("a", 6, 5, 5)], (5, 0), id="a renewal moves to the new generation"),
        case(10, [("a", 5, 0, 5), ("b", 7, 0, 5)], (5, 0), id="two generations later it has come back"),
        case(10, [("a", 5, 0, 5), ("b", 6, 0, 3), ("c", 7, 0, 4)], (4, 3), id="only the oldest has come back"),
        case(10, [("a", 5, 0, 5), ("b", 7, 0, 5), ("a", 7, 0, 3)], (8, 0), id="who was silent for long starts anew"),
        case(10, [("a", 6, 0, 5), ("b", 5, 0, 3)], (8, 0), id="a clock that went back begins no generation"),
        case(10, [("a", 5, 0, 5), ("b", 5, 8, 3)], (13, 0), id="what is held counts even above P: it may be in use"),
        case(10, [("a", 5, 0, 5), ("b", 5, 8, 3), ("c", 5, 0, 0)], (13, 0), id="and then nothing is offered"),
    ],
)  # fmt: skip
def test_grants_are_offered_renewed_and_come_back(
    precision: int, renewals: list[Renewal], sums: tuple[int, int]
) -> None:
    grants, holdings = Grants(), {name: Holding() for name, *_ in renewals}
    for name, generation, held, offered in renewals:
        time_ms = generation * GENERATION_MS + 1
        got = grants.renew(holdings[name], max(0, held), precision, time_ms, leaving=held == LEAVES)
        assert got == offered, (name, generation)
    assert (grants.sum, grants.previous_sum) == sums
