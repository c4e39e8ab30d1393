"""What a node makes of a shard's count of one cell: everything merges by max."""

from typing import NamedTuple

import pytest
from headgate.origin.protocol import Count
from headgate.region.cells import CellView

from tests.unit.region.support import case


class View(NamedTuple):
    """A cell's fields that answers change."""

    own: int = 0
    others: int = 0
    foreign: int = 0
    others_at_least: int = 0
    highest_total_seen: int = 0
    highest_sent: int = 0


NEW = View()
KNOWN = View(own=3, others=7, foreign=2, others_at_least=7, highest_total_seen=10, highest_sent=3)
REFILLED = View(own=5, others=7, others_at_least=7, highest_total_seen=12, highest_sent=9)
"""Of 9 that were sent the shard acknowledged 5, and then lost its memory: its 12 may hold all 9 as lost ones."""


def cell_of(view: View) -> CellView:
    cell = CellView(1)
    for name, value in view._asdict().items():
        setattr(cell, name, value)
    return cell


def view_of(cell: CellView) -> View:
    return View(*(getattr(cell, name) for name in View._fields))


@pytest.mark.parametrize(
    ("before", "count", "after", "remembers"),
    [
        # Count: own, region total, foreign. View: own, others, foreign, others at least, highest seen, highest sent.
        case(NEW, Count(0, 0, 0), NEW, True, id="nothing is counted yet"),
        case(NEW, Count(3, 10, 2), View(3, 7, 2, 7, 10, 3), True, id="a first answer"),
        case(KNOWN, Count(3, 10, 2), KNOWN, True, id="the same answer again"),
        case(KNOWN, Count(3, 15, 2), View(3, 12, 2, 12, 15, 3), True, id="others admitted five more"),
        case(KNOWN, Count(5, 12, 2), View(5, 7, 2, 7, 12, 5), True, id="two more of this node arrived"),
        case(KNOWN, Count(3, 10, 9), View(3, 7, 9, 7, 10, 3), True, id="other regions have more"),
        case(KNOWN, Count(3, 10, 1), KNOWN, True, id="other regions never fall"),
        case(KNOWN, Count(2, 6, 1), KNOWN, False, id="an older answer that comes late"),
        case(KNOWN, Count(0, 0, 0), KNOWN, False, id="the shard lost everything"),
        case(KNOWN, Count(0, 10, 2), KNOWN, True, id="the shard lost whose they were, and knows the total"),
        case(KNOWN, Count(3, 9, 2), KNOWN, False, id="one is missing from the total"),
        case(View(highest_sent=10), Count(4, 10, 0), View(4, 6, 0, 0, 10, 10), True, id="all may be this node's"),
        case(View(highest_sent=10), Count(4, 13, 0), View(4, 9, 0, 3, 13, 10), True, id="three can't be"),
        case(REFILLED, Count(9, 12, 0), View(9, 7, 0, 7, 16, 9), True, id="new hits were taken for lost ones"),
        case(View(9, 7, 0, 7, 16, 9), Count(9, 12, 0), View(9, 7, 0, 7, 16, 9), False, id="and are said again"),
        case(View(9, 7, 0, 7, 16, 9), Count(9, 16, 0), View(9, 7, 0, 7, 16, 9), True, id="and are back"),
    ],
)  # fmt: skip
def test_learning_a_count(before: View, count: Count, after: View, remembers: bool) -> None:
    cell = cell_of(before)
    assert cell.learn(*count) is remembers
    assert view_of(cell) == after


@pytest.mark.parametrize(
    ("total", "reserved", "own", "others", "foreign", "known", "unacked"),
    [
        case(0, 0, 0, 0, 0, 0, 0, id="nothing"),
        case(5, 0, 5, 7, 2, 14, 0, id="all is acknowledged"),
        case(5, 0, 3, 7, 2, 14, 2, id="two are not, and count"),
        case(5, 2, 3, 7, 2, 16, 4, id="what waiting requests hold counts too"),
        case(3, 0, 5, 7, 2, 14, 0, id="credit counts until it is spent"),
        case(3, 1, 5, 7, 2, 14, 0, id="a reservation is paid from credit"),
    ],
)
def test_what_counts_and_what_is_unacknowledged(
    total: int, reserved: int, own: int, others: int, foreign: int, known: int, unacked: int
) -> None:
    cell = cell_of(View(own=own, others=others, foreign=foreign))
    cell.total, cell.reserved = total, reserved
    assert (cell.known, cell.unacked) == (known, unacked)


@pytest.mark.parametrize(
    ("total", "reserved", "wanted", "before", "after"),
    [
        case(3, 0, 0, 0, 3, id="a report"),
        case(3, 2, 4, 0, 9, id="with what waits and what is wanted"),
        case(3, 0, 0, 9, 9, id="it never falls"),
    ],
)
def test_what_was_sent_at_most(total: int, reserved: int, wanted: int, before: int, after: int) -> None:
    cell = cell_of(View(highest_sent=before))
    cell.total, cell.reserved = total, reserved
    cell.note_sent(wanted)
    assert cell.highest_sent == after
