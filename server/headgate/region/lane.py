"""A key's free lane: how much of it this node may admit with nothing else to look at.

The plain rule (`RegionalEngine._try`) decides every request on its own, from all that is known. After an admission
it is often plain for how much more it would say the same: as long as the window lasts and the view is fresh, until
the grant is used so far that the shard must hear of it sooner, or what remains comes near the limit. The lane is that
much, kept with the counter. Through an open lane a decision is a lookup and a few comparisons, and it leaves
the counter exactly as the plain rule would have: nothing is derived later.

Whatever else changes a counter closes its lane: a report that goes out, an answer, a reservation, another admission,
another window. Only the plain rule opens it, and only on a key that is in use: the second admission since the
last report. A reader who skips this file misses nothing about what is decided. (tests/unit/region/test_lane.py
holds both equal.)
"""

from typing import Any, Final

from headgate.limiter.decision import Charge, Verdict
from headgate.limiter.limit import Algorithm
from headgate.region.counters import NEXT_TO_NOTHING, SharedCounter
from headgate.region.window_counter import SharedWindow

LEAST: Final = 4
"""A lane for less is not worth opening."""


def open_lane(counter: SharedCounter, remaining: int, now_s: float) -> None:
    """After the plain rule admitted a cost of which `remaining` is left, and its report is due."""
    if not isinstance(counter, SharedWindow) or counter.credit or counter.credit_offered:
        return
    left = _left(counter, remaining, now_s)
    if left >= LEAST:
        counter.lane_left = left
        counter.lane_ends_ms = (counter.sequence + 1) * counter.window_ms


def through(counter: Any, charge: Charge, now_s: float) -> Verdict | None:
    """Admit the charge through the lane; None: it is closed, or too narrow, and the plain rule must decide.

    The counter is a `SharedCounter`, and a `SharedWindow` if its lane is open: nothing else has one.
    """
    cost, limit = charge.cost, charge.limit
    if cost > counter.lane_left or now_s >= counter.usable_until_s or counter.limit is not limit:
        return None
    time = counter.shard.time
    reset_ms: int = counter.lane_ends_ms - time.at_ms(now_s)
    if not time.spread_ms < reset_ms <= counter.window_ms:
        return None  # this window, by both bounds of the shard's time
    remaining: int = limit.requests_per_unit - counter.current - cost
    if counter.previous and limit.algorithm is Algorithm.SLIDING_WINDOW:
        remaining -= counter.previous * reset_ms // counter.window_ms
    counter.lane_left -= cost
    counter.current += cost
    counter.current_cell.total += cost
    return False, remaining, reset_ms


def back(counter: SharedCounter, charge: Charge) -> None:
    """Undo `through` in the same instant: another charge of the request did not pass."""
    assert isinstance(counter, SharedWindow)  # noqa: S101 - as above
    counter.lane_left += charge.cost
    counter.current -= charge.cost
    counter.current_cell.total -= charge.cost


def _left(counter: SharedWindow, remaining: int, now_s: float) -> int:
    """What may be admitted before anything but the counts would change: the delay of the flush, or who decides."""
    precision, unacked, grant = counter.limit.precision, counter.unacked, counter.grant
    soon = unacked * 2 >= grant or remaining <= 2 * precision
    if soon:
        return min(counter.held(now_s) - unacked, remaining - precision - 1)
    most = grant // NEXT_TO_NOTHING if unacked * NEXT_TO_NOTHING <= grant else (grant - 1) // 2
    return min(most, counter.held(now_s)) - unacked if remaining - most > 2 * precision else 0
