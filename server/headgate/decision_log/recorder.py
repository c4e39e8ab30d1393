"""Chooses the decisions that are logged, and notes their figures: the one place where decisions meet the log.

Every denial is logged, every decision that a failure policy made, every one that a shadow rule would have denied, and
one of so many allowances. On the loop's thread the recorder copies the figures of the counters that decided, because
they change with the next request. Names, hashes and the rest are worked out by the log's own thread (expander.py).
"""

import random
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

from headgate.clock import Clock
from headgate.decision_log.expander import PATHS
from headgate.decision_log.log import TRACE_BYTES, DecisionLog, Page
from headgate.decision_log.schema import NO_SHARD, ROW, Flag
from headgate.limiter.counters import BucketCounter, WindowCounter
from headgate.limiter.decision import Charge, Decision, DecisionPath, Verdict
from headgate.limiter.engine import Engine
from headgate.plan import Plan
from headgate.region.engine import RegionalEngine
from headgate.region.node import RegionNode
from headgate.region.window_counter import SharedWindow

_LOCAL: Final = DecisionPath.LOCAL
_ASKED: Final = (DecisionPath.ORIGIN, DecisionPath.EXACT)
# By identity: the hash of an enum's member is a function of Python's own library, in Python.
_PATH_NUMBERS: Final = {id(path): number for number, path in enumerate(PATHS)}

# As plain numbers: flags of the enum's own kind take a microsecond to put together.
_NO_COUNTER: Final = int(Flag.NO_COUNTER)
_SHARD_AWAY: Final = int(Flag.SHARD_AWAY)
_ALLOWED: Final = int(Flag.ALLOWED)
_OVER: Final = int(Flag.OVER)

WriteRow = Callable[[list[int], Charge, Verdict, int, int, int, int, int], None]
"""Appends the row of one charge to a page's numbers, in the order of `ROW`: the charge and its verdict, then what of a
row the recorder knows (the charge's number on the page, the decision's, path, flags, weight)."""

_LAST_NUMBER: Final = ROW.index("number") - len(ROW)
"""Index in a page of the id of the decision that was logged last."""


class DecisionRecorder:
    """Gives each decision an id, and writes those that are to be logged to the page."""

    def __init__(
        self,
        log: DecisionLog,
        write_row: WriteRow,
        *,
        allowances: int,
        random: random.Random,
    ) -> None:
        """`allowances`: one of so many is logged; 0 logs none."""
        self._log = log
        self._room = log.room
        self._write_row = write_row
        self._every = allowances
        self._until_next = allowances
        # Begun anywhere, so that no two runs have the same in a foreseeable time; and where counting is still one step
        # of the machine's, for longer than anything runs.
        self._next_number = count(random.getrandbits(62)).__next__

    def __call__(self, plan: Plan, decision: Decision) -> int:
        number = self._next_number()
        admitted, path, verdicts = decision.admitted, decision.path, decision.verdicts
        weight = 1
        if admitted and (path is _LOCAL or (path in _ASKED and not _any_over(verdicts))):
            # An allowance that is not logged costs no more than counting down.
            self._until_next -= 1
            if self._until_next:
                return number
            self._until_next = weight = self._every
        page = self._room()
        if page is not None:
            path_number, flags = _PATH_NUMBERS[id(path)], _ALLOWED if admitted else 0
            for position, charge in enumerate(plan.charges):
                index = page.charge_index.get(charge)
                if index is None:
                    index = _add_charge(page, plan, charge)
                self._write_row(page.flat, charge, verdicts[position], index, number, path_number, flags, weight)
                page.rows += 1
        return number

    def traced(self, number: int, trace_id: int) -> None:
        """Note the trace of the last decision: its records say so, if it was logged."""
        page = self._log.page
        if page.rows and page.flat[_LAST_NUMBER] == number:
            page.traces[number] = trace_id
            page.size += TRACE_BYTES


def _any_over(verdicts: Sequence[Verdict]) -> bool:
    """Tell whether some limit had no room: a shadow rule's, where the request was admitted."""
    for over, _, _ in verdicts:  # noqa: SIM110 - `any` would make a generator for every decision that waited
        if over:
            return True
    return False


def _add_charge(page: Page, plan: Plan, charge: Charge) -> int:
    """Put a charge on the page that has no row of it yet; the number that stands for it."""
    index = page.charge_index[charge] = len(page.charges)
    page.charges.append((charge, plan.version))
    page.size += plan.size
    return index


def write_alone(engine: Engine, clock: Clock) -> WriteRow:
    """Rows of a node on its own: all that counts is its own."""
    find, now = engine.counters.find, clock.now_ms

    def write_row(
        flat: list[int], charge: Charge, verdict: Verdict, index: int, number: int, path: int, flags: int, weight: int
    ) -> None:
        counter = find(charge.key)
        over, remaining, wait_ms = verdict
        now_ms = now()
        own = previous = 0
        if over:
            flags |= _OVER
        if isinstance(counter, WindowCounter):
            # A denial from memory does not move the counter on to the window that it falls into.
            passed = now_ms // counter.window_ms - counter.sequence
            if passed <= 0:
                own, previous = counter.current, counter.previous
            elif passed == 1:
                previous = counter.current
        elif isinstance(counter, BucketCounter):
            own = _bucket_used(counter, charge, now_ms)
        else:
            flags |= _NO_COUNTER
        flat += (
            index, now_ms, number, path, flags, remaining, wait_ms, own, 0, 0, previous, NO_SHARD, 1, weight,
        )  # fmt: skip

    return write_row


def write_in_region(engine: RegionalEngine, node: RegionNode) -> WriteRow:
    """Rows of a node of a region: its own, the others', the other regions'."""
    find = engine.counters.find

    def write_row(
        flat: list[int], charge: Charge, verdict: Verdict, index: int, number: int, path: int, flags: int, weight: int
    ) -> None:
        counter = find(charge.key)
        over, remaining, wait_ms = verdict
        own = others = foreign = previous = 0
        if over:
            flags |= _OVER
        if counter is None:
            link = node.shard_of(charge.shard_key)
            now_ms, shard = link.now_ms(), link.index
            flags |= _NO_COUNTER
        else:
            place = counter.shard
            now_ms, shard = place.now_ms(), place.index
            if not place.available:
                flags |= _SHARD_AWAY
            if isinstance(counter, SharedWindow):
                cell = counter.current_cell
                own, others, foreign, previous = cell.own, cell.others, cell.foreign, counter.previous
                own = max(own, cell.total + cell.reserved)
            else:
                own = _bucket_used(counter, charge, now_ms)
        flat += (
            index, now_ms, number, path, flags, remaining, wait_ms,
            own, others, foreign, previous, shard, node.live_nodes, weight,
        )  # fmt: skip

    return write_row


def _bucket_used(counter: Any, charge: Charge, now_ms: int) -> int:
    """Whole requests that the bucket has no token for any more, rounded up."""
    used = max(0, counter.tat - now_ms * counter.rate)
    return int(-(-used // charge.limit.window_ms))


def row_writer(engine: Engine | RegionalEngine, node: RegionNode | None, clock: Clock) -> WriteRow:
    """The function that writes rows about the counters of this process."""
    if isinstance(engine, RegionalEngine):
        assert node is not None  # noqa: S101 - a regional engine is a node's
        return write_in_region(engine, node)
    return write_alone(engine, clock)
