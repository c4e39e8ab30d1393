"""A key's free lane: how much of it this node may admit with nothing else to look at.

The plain rule (`RegionalEngine._try`) decides every request on its own, from all that is known. After an admission
it is often plain for how much more it would say the same: as long as the window lasts and the view is fresh, until
the grant is used so far that the shard must hear of it sooner, or what remains comes near the limit. The lane is that
much, kept with the counter. Through an open lane a decision is a lookup and a few comparisons, and it leaves
the counter exactly as the plain rule would have: nothing is derived later.

Whatever else changes a counter closes its lane: a report that goes out, an answer, a reservation, another admission,
another window. It is opened again by the next request on the key: before that is decided, where the shard has
acknowledged everything and the grant is wide; else by the plain rule, at the second admission since the last report. A
reader who skips this file misses nothing about what is decided. (tests/unit/region/test_lane.py holds both equal.)
"""

from typing import Any, Final

from headgate.limiter.counters import CounterTable
from headgate.limiter.decision import Charge, Verdict
from headgate.limiter.limit import Algorithm
from headgate.region.counters import NEXT_TO_NOTHING, SharedCounter
from headgate.region.window_counter import SharedWindow

LEAST: Final = 4
"""A lane for less is not worth opening."""
WIDE: Final = LEAST * NEXT_TO_NOTHING
"""A grant of which as much may be used before anybody minds hearing of it late."""


def open_lane(counter: SharedCounter, remaining: int, now_s: float) -> None:
    """After the plain rule admitted a cost of which `remaining` is left, and its report is due."""
    if not isinstance(counter, SharedWindow) or counter.credit or counter.credit_offered:
        return
    left = _left(counter, remaining, now_s)
    if left >= LEAST:
        counter.lane_left = left
        counter.lane_ends_ms = (counter.sequence + 1) * counter.window_ms


def open_unused(counter: Any, charge: Charge, now_s: float) -> bool:
    """Open it before the charge is decided, if nothing of the grant is in use and nothing is unusual. Else the plain
    rule must decide. The counter is a `SharedCounter` whose lane is closed."""
    limit = charge.limit
    if counter.grant < WIDE or now_s >= counter.usable_until_s or counter.limit is not limit:
        return False
    if counter.deny_until_ms or counter.turns is not None or type(counter) is not SharedWindow or limit.refund:
        return False
    if counter.unacked or counter.credit or counter.credit_offered:
        return False
    time = counter.shard.time
    ends_ms = (counter.sequence + 1) * counter.window_ms
    left_ms = ends_ms - time.at_ms(now_s)
    if not time.spread_ms < left_ms <= counter.window_ms:
        return False
    remaining = limit.requests_per_unit - counter.current
    if counter.previous and limit.algorithm is Algorithm.SLIDING_WINDOW:
        remaining -= counter.previous * left_ms // counter.window_ms
    left = _left(counter, remaining, now_s)
    if left < LEAST:
        return False
    counter.lane_left = left
    counter.lane_ends_ms = ends_ms
    return True


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
    if not counter.flush_due_s:
        counter.flush(remaining)
    return False, remaining, reset_ms


def through_all(
    table: CounterTable[SharedCounter], charges: tuple[Charge, ...], now_s: float, *, kept: bool = False
) -> list[Verdict] | None:
    """`through` for all charges of a request; None, and nothing charged: one did not pass.

    `kept`: each charge keeps its counter (`Charge.counter`), and the table is asked only for those that are gone.
    """
    verdicts: list[Verdict] = []
    passed: list[Any] = []
    unreported: list[tuple[SharedCounter, int]] = []
    find = table.find
    counter: Any
    shard: Any = None
    now_ms = spread_ms = 0
    for charge in charges:
        counter = charge.counter if kept else find(charge.key)
        if kept and (counter is None or counter.wheel_slot is None):
            counter = charge.counter = find(charge.key)
        cost, limit = charge.cost, charge.limit
        if counter is None:
            break
        if not counter.lane_left and open_unused(counter, charge, now_s):
            table.touch(counter.key)
        if cost > counter.lane_left or now_s >= counter.usable_until_s:
            break
        if counter.limit is not limit or not charge.quick:
            break
        if counter.shard is not shard:
            shard = counter.shard
            now_ms, spread_ms = shard.time.at_ms(now_s), shard.time.spread_ms
        reset_ms: int = counter.lane_ends_ms - now_ms
        if not spread_ms < reset_ms <= counter.window_ms:
            break
        remaining: int = limit.requests_per_unit - counter.current - cost
        if counter.previous and limit.algorithm is Algorithm.SLIDING_WINDOW:
            remaining -= counter.previous * reset_ms // counter.window_ms
        counter.lane_left -= cost
        counter.current += cost
        counter.current_cell.total += cost
        passed.append(counter)
        verdicts.append((False, remaining, reset_ms))
        if not counter.flush_due_s:
            unreported.append((counter, remaining))
    else:
        for counter, remaining in unreported:
            counter.flush(remaining)
        return verdicts
    for counter, charge in zip(passed, charges, strict=False):
        counter.lane_left += charge.cost
        counter.current -= charge.cost
        counter.current_cell.total -= charge.cost
    return None


def _left(counter: SharedWindow, remaining: int, now_s: float) -> int:
    """What may be admitted before anything but the counts would change: the delay of the flush, or who decides."""
    precision, unacked, grant = counter.limit.precision, counter.unacked, counter.grant
    soon = unacked * 2 >= grant or remaining <= 2 * precision
    if soon:
        return min(counter.held(now_s) - unacked, remaining - precision - 1)
    most = grant // NEXT_TO_NOTHING if unacked * NEXT_TO_NOTHING <= grant else (grant - 1) // 2
    return min(most, counter.held(now_s)) - unacked if remaining - most > 2 * precision else 0
