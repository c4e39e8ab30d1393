"""A region's counter of a key under a sliding or fixed window: two cells, as the region and this node make them.

`current` and `previous`, which the algorithms read, are what is known of the two cells. (docs/convergence.md,
sections 3, 5 and 6.)
"""

from typing import Any, Final

from headgate.limiter.algorithm import OVER
from headgate.limiter.counters import window_load
from headgate.limiter.decision import Charge, Verdict
from headgate.limiter.limit import Algorithm, Limit
from headgate.origin.names import exchange_name
from headgate.origin.protocol import Answer, CellReport, Report, WindowAnswer, WindowReport
from headgate.region.cells import CellView, Hold
from headgate.region.counters import NEXT_TO_NOTHING, Shard, SharedCounter
from headgate.window import used

MOST_LATE: Final = 2**44
"""The most that one node counts in one cell: four thousand times the largest limit, and 500 nodes together stay below
2^53, where Lua's numbers end. What is beyond it is denied as long as what is at it."""
LEAST_ALLOWANCE: Final = 4
"""An allowance of less is not worth working out."""
SLIDING: Final = Algorithm.SLIDING_WINDOW
_new: Final = tuple.__new__
"""Makes a named tuple from a tuple without asking its class: one is made per report."""


class SharedWindow(SharedCounter):
    """Two cells of one limit key, as this node knows them. Implements the limiter's `WindowCounts`."""

    __slots__ = ("_before", "current", "current_cell", "previous", "sequence", "window_ms")

    def __init__(self, key: bytes, place: bytes, component: bytes, shard: Shard, limit: Limit, now_ms: int) -> None:
        SharedCounter.__init__(self, key, place, component, shard, limit)  # by its name: `super` takes twice as long
        self.window_ms = window_ms = limit.window_ms
        self.sequence = sequence = shard.interned(now_ms // window_ms)
        self.current_cell = CellView(sequence)
        self._before: CellView | None = None
        """The previous cell; None while nothing is known of it. Most keys never have one."""
        self.current = 0
        self.previous = 0

    @property
    def previous_cell(self) -> CellView:
        """The cell before the current one."""
        before = self._before
        if before is None:
            before = self._before = CellView(self.sequence - 1)
        return before

    @property
    def expires_ms(self) -> int:
        return (self.sequence + 2) * self.window_ms

    def load(self, now_ms: int) -> int:
        return window_load(self, self.limit)

    @property
    def cells(self) -> tuple[CellView, CellView]:
        """The current and the previous one."""
        return self.current_cell, self.previous_cell

    # Time

    def advance(self, now_ms: int) -> int:
        sequence = now_ms // self.window_ms
        if sequence > self.sequence:
            self.roll(sequence)
        elif sequence < self.sequence:
            return self._behind(now_ms)
        return now_ms

    def roll(self, sequence: int) -> None:
        """Go on to a later window. A cell that follows a warm one starts at a known zero and is as fresh as it was."""
        if sequence > self.sequence + 1 and self._by_own_clock and self.shard.time.known:
            # Not much time has passed: this node's clock was slow.
            self._restate(sequence)
            return
        follows = sequence == self.sequence + 1
        self._before = self.current_cell if follows else None
        self.current_cell = CellView(sequence)
        self.ahead_of_shard = True
        self.sequence = sequence
        if self.refunds is not None:
            self.refunds.roll(follows=follows)
        self._recount()

    def _behind(self, now_ms: int) -> int:
        """Return the counter's time where this node's is behind it: an answer came from the next window, or the clock
        was set.

        Or the counter was made by this node's own clock, which was ahead: its first answer will restate it.
        """
        sequence = now_ms // self.window_ms
        if not self._by_own_clock and (self.clock_was_set() or sequence < self.sequence - 1):
            self.sequence = sequence
            self.begin_anew()
        return max(now_ms, self.sequence * self.window_ms)

    def begin_anew(self) -> None:
        super().begin_anew()
        self.current_cell, self._before = CellView(self.sequence), None
        self._recount()

    # Counts

    @property
    def credit(self) -> int:
        cell = self.current_cell
        credit = cell.own - cell.total - cell.reserved
        return credit if credit > 0 else 0

    @property
    def unacked(self) -> int:
        before = self._before
        return self.current_cell.unacked + (0 if before is None else before.unacked)

    @property
    def reserved(self) -> int:
        before = self._before
        return self.current_cell.reserved + (0 if before is None else before.reserved)

    @property
    def is_over_limit(self) -> bool:
        """True if the current window alone has more than the limit and its precision allow."""
        return self.current > self.limit.requests_per_unit + self.limit.precision

    @property
    def own_admitted(self) -> int:
        """Cost of the current window only."""
        return self.current_cell.total + self.current_cell.reserved

    def room(self, now_ms: int) -> int:
        limit = self.limit
        if not limit.requests_per_unit:
            return OVER
        previous = self.previous if limit.algorithm is SLIDING else 0
        return limit.requests_per_unit - used(self.current, previous, now_ms, self.window_ms)

    def reset_ms(self, now_ms: int) -> int:
        return self.window_ms - now_ms % self.window_ms

    def spend(self, cost: int, missing: int, now_ms: int) -> None:
        self.allowance = 0
        self.current += missing
        self.current_cell.total += cost

    def overdraw(self, cost: int, missing: int, now_ms: int) -> None:
        self.spend(cost, missing, now_ms)

    def countable(self, cost: int, now_ms: int) -> int:
        return min(cost, max(0, MOST_LATE - self.current_cell.total))

    def unspend(self, cost: int) -> None:
        self.current_cell.total -= cost
        self._recount()

    def uncharge(self, cost: int, now_ms: int) -> None:
        """Undo cost of the current window only: in the one before, nobody can spend any more."""
        self.unspend(min(cost, self.current_cell.total))
        self.forget_denial()

    def hold(self, cost: int, now_ms: int, charged: Answer | None = None) -> Hold:
        cell = self.current_cell
        if isinstance(charged, WindowAnswer) and charged.sequence == self.sequence - 1:
            cell = self.previous_cell
        cell.reserved += cost
        if cell.total + cell.reserved > cell.own:
            self._recount()  # else credit, which counted already, is held
        self.allowance = 0
        return Hold(self.component, cell, cost)

    def settle(self, hold: Hold, *, commit: bool) -> None:
        cell = hold.cell
        if cell is None or hold.component != self.component:
            cell = self.current_cell
        else:
            cell.reserved -= hold.cost
            if commit:
                cell.total += hold.cost
                self.allowance = 0
                return  # what was held is spent: the counts are what they were
        if commit:
            cell.total += hold.cost
        self._recount()

    @property
    def own_unacked(self) -> int:
        """Unacknowledged cost of the current window: what is left of the one before counts as it is."""
        return self.current_cell.unacked

    def fits_instead(self, cost: int, now_ms: int) -> bool:
        return cost - self.own_unacked <= self.room(now_ms)

    def _recount(self) -> None:
        """Work out what is known of both cells, after any of them has changed."""
        self.allowance = 0
        self.current = self.current_cell.known
        before = self._before
        self.previous = 0 if before is None else before.known
        if self.refunds is not None:
            self.current -= self.refunds.current.given
            self.previous -= self.refunds.previous.given

    # The allowance: how much the plain rule (engine.py) would admit with nothing else to look at

    def from_allowance(self, charge: Charge, now_ms: int, now_s: float) -> Verdict | None:
        """Admit the charge out of the key's allowance; None, and nothing changed: the plain rule must decide.

        The plain rule looks at all that is known. It is often clear for how much more it would say the same: as
        long as the window lasts and the view is fresh, until the grant is used so far that the shard must hear of it
        sooner, or what remains comes near the limit. Whatever else changes the counter ends the allowance. A reader
        who skips this misses nothing about what is decided. (tests/unit/region/test_allowance.py holds both equal.)
        """
        cost, limit = charge.cost, charge.limit
        if now_s >= self.usable_until_s or self.grant < LEAST_ALLOWANCE or self.limit is not limit:
            return None
        window_ms = self.window_ms
        reset_ms = (self.sequence + 1) * window_ms - now_ms
        if not self.shard.time.spread_ms < reset_ms <= window_ms:
            return None  # not this window by both bounds of the shard's time
        if not self.allowance:
            self.allowance = self._allowance(now_ms, now_s)
            if self.pause is not None and cost <= self.allowance:
                self.pause.count(cost, now_s)
        if cost > self.allowance:
            return None
        self.allowance -= cost
        self.current += cost
        self.current_cell.total += cost
        remaining = self.room(now_ms) if self.previous else limit.requests_per_unit - self.current
        return False, remaining, reset_ms

    def return_to_allowance(self, charge: Charge) -> None:
        self.allowance += charge.cost
        self.current -= charge.cost
        self.current_cell.total -= charge.cost

    def _allowance(self, now_ms: int, now_s: float) -> int:
        """Return the cost that may be admitted before anything but the counts would change: the delay of the flush, or
        that the shard must be asked."""
        grant = self.grant
        if self.credit_offered or self.credit:
            return 0
        if self.pause is not None and (now_s < self.pause.ends_s or not self.flush_due_s):
            return 0  # the plain rule counts the demand for a key that was at its limit
        room = self.room(now_ms)
        unacked, precision = self.unacked, self.limit.precision
        if unacked * 2 >= grant or room <= 2 * precision:
            left = min(self.held(now_s) - unacked, room - precision - 1)
        else:
            most = grant // NEXT_TO_NOTHING if unacked * NEXT_TO_NOTHING <= grant else (grant - 1) // 2
            left = min(most, self.held(now_s)) - unacked if room - most > 2 * precision else 0
        return left if left >= LEAST_ALLOWANCE else 0

    # Reports and answers

    def report(self, number: int, wanted: int, leaving: bool, now_s: float) -> Report:
        cell, before = self.current_cell, self._before
        cells: tuple[CellReport, ...] = (cell.report(),) if cell.says_something else ()
        if self.refill or self.ahead_of_shard or (before is not None and before.unacked):
            cells = (*cells, self.previous_cell.report())
        if before is not None:
            before.note_sent(0)
        self.credit_offered = self.credit if wanted else 0
        cell.note_sent(wanted)
        if wanted > self.first_wanted and not self.has_answer:
            self.first_wanted = wanted
        terms = self.shard.window_terms(self.limit, self.component, leaving)
        name = exchange_name(self.key, self.place, self.window_ms) if terms.publish_at else b""
        demands = self.demands(self.sequence, leaving, now_s)
        return _new(WindowReport, (self.key, terms, number, self.held(now_s), cells, name, self.reset, demands))

    def learn(self, answer: Any) -> bool:
        # A WindowAnswer is flat, and taken apart at once: by its names it would be searched for each of them.
        sequence: int
        sequence, own, total, foreign, own_before, total_before, foreign_before, _, _, refunds = answer
        if not self.has_answer and not 0 <= sequence - self.sequence <= 1:
            self._restate(sequence)
        self._by_own_clock = False
        if sequence > self.sequence:
            self.roll(sequence)
        self.ahead_of_shard = sequence < self.sequence
        if self.ahead_of_shard:
            # The shard's current cell is the previous one here, if it is one at all.
            is_previous = sequence == self.sequence - 1
            remembers = self.previous_cell.learn(own, total, foreign) if is_previous else True
        else:
            remembers = self.current_cell.learn(own, total, foreign)
            if self._before is not None or own_before or total_before or foreign_before:
                remembers &= self.previous_cell.learn(own_before, total_before, foreign_before)
        if self.refunds is not None and refunds is not None:
            self.refunds.learn(refunds, sequence - self.sequence)
        self._recount()
        if not self.has_answer or self.credit:
            # There is credit, and what did not fit may be paid for now; or a first answer, and
            # what was denied until then was denied by this node's own clock.
            self.forget_denial()
        return remembers

    def lacks(self, answer: Any) -> bool:
        sequence: int
        total: int
        total_before: int
        sequence, _, total, _, _, total_before, _, _, _, _ = answer
        before = self._before
        seen_before = 0 if before is None else before.highest_total_seen
        if sequence == self.sequence:
            return total < self.current_cell.highest_total_seen or total_before < seen_before
        return sequence == self.sequence - 1 and total < seen_before

    def _restate(self, sequence: int) -> None:
        """Move to the shard's window what was admitted by this node's own clock, which was off.

        Off by one window, what this node took for the previous cell belongs to the current one.
        What was sent for other windows the shard did not take, so it can't have been lost there.
        """
        current, previous = self.current_cell, self.previous_cell
        current.highest_sent = self.first_wanted
        if sequence == self.sequence - 1:
            current.total += previous.total
            current.highest_sent += previous.highest_sent
            if self.refunds is not None:
                self.refunds.join()
            self._before = None
        self.sequence = current.sequence = sequence
        if self._before is not None:
            self._before.sequence = sequence - 1
        self._by_own_clock = False
        self._recount()
