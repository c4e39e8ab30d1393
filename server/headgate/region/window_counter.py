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
from headgate.region.counters import SharedCounter
from headgate.region.shard import Shard
from headgate.window import used

MOST_LATE: Final = 2**44
"""The most that one node counts in one cell: four thousand times the largest limit, and 500 nodes together stay below
2^53, where Lua's numbers end. What is beyond it is denied as long as what is at it."""
SLIDING: Final = Algorithm.SLIDING_WINDOW
FIXED: Final = Algorithm.FIXED_WINDOW
_new: Final = tuple.__new__
"""Makes a named tuple from a tuple without asking its class: one is made per report."""


class SharedWindow(SharedCounter):
    """Two cells of one limit key, as this node knows them. Implements the limiter's `WindowCounts`."""

    __slots__ = ("_before", "current", "current_cell", "previous", "sequence", "window_ms")

    def __init__(
        self, key: bytes, place: bytes, component: bytes, shard: Shard[SharedCounter], limit: Limit, now_ms: int
    ) -> None:
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
    def uncovered(self) -> int:
        before = self._before
        return self.current_cell.uncovered + (0 if before is None else before.uncovered)

    @property
    def most(self) -> int:
        return self.limit.requests_per_unit

    @property
    def spare(self) -> int:
        return self.limit.requests_per_unit - self.current - self.previous

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

    def has_room_by(self, time_ms: int) -> bool:
        return self.room(min(time_ms, (self.sequence + 1) * self.window_ms - 1)) > 0

    def reset_ms(self, now_ms: int) -> int:
        return self.window_ms - now_ms % self.window_ms

    def spend(self, cost: int, missing: int, now_ms: int) -> None:
        self.use(missing)
        self.current += missing
        self.current_cell.total += cost

    def overdraw(self, cost: int, missing: int, now_ms: int) -> None:
        self.spend(cost, missing, now_ms)

    def countable(self, cost: int, now_ms: int) -> int:
        return min(cost, max(0, MOST_LATE - self.current_cell.total))

    def unspend(self, cost: int) -> None:
        unacked = self.current_cell.unacked
        self.current_cell.total -= cost
        self.allowance += unacked - self.current_cell.unacked
        self._recount()

    def uncharge(self, cost: int, now_ms: int) -> None:
        """Undo cost of the current window only: in the one before, nobody can spend any more."""
        self.current_cell.total -= min(cost, self.current_cell.total)
        self._recount()
        self.forget_denial()

    def hold(self, cost: int, now_ms: int, charged: Answer | None = None) -> Hold:
        cell = self.current_cell
        if isinstance(charged, WindowAnswer) and charged.sequence == self.sequence - 1:
            cell = self.previous_cell
        unacked = cell.unacked
        cell.reserved += cost
        used = self.use(cell.unacked - unacked)
        if cell.total + cell.reserved > cell.own:
            self._recount()  # else credit, which counted already, is held
        return Hold(self.component, cell, cost, used, self.limit)

    def settle(self, hold: Hold, *, commit: bool) -> None:
        cell = hold.cell
        if cell is None or hold.component != self.component:
            cell = self.current_cell
        else:
            unacked = cell.unacked
            cell.reserved -= hold.cost
            if commit:
                cell.total += hold.cost
                return  # what was held is spent: the counts are what they were
            if hold.limit is self.limit:
                self.allowance += min(hold.used, unacked - cell.unacked)
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
        self.current = self.current_cell.known
        before = self._before
        self.previous = 0 if before is None else before.known
        if self.refunds is not None:
            self.current -= self.refunds.current.given
            self.previous -= self.refunds.previous.given

    # The allowance

    def from_allowance(self, charge: Charge, now_ms: int, now_s: float) -> Verdict | None:
        cost, limit = charge.cost, charge.limit
        if cost > self.allowance or now_s >= self.allowance_until_s or self.limit is not limit:
            return None
        window_ms, cell = self.window_ms, self.current_cell
        reset_ms = (self.sequence + 1) * window_ms - now_ms
        if not self.shard.time.spread_ms < reset_ms <= window_ms:
            return None  # not this window by both bounds of the shard's time
        if cell.own > cell.total:
            return None  # credit is spent first
        remaining = (self.room(now_ms) if self.previous else limit.requests_per_unit - self.current) - cost
        if remaining < 0:
            return None
        self.allowance -= cost
        self.asked += cost
        self.requests += 1
        self.current += cost
        cell.total += cost
        return False, remaining, reset_ms

    def return_to_allowance(self, charge: Charge) -> None:
        self.allowance += charge.cost
        self.asked -= charge.cost
        self.requests -= 1
        self.current -= charge.cost
        self.current_cell.total -= charge.cost

    # Reports and answers

    def report(self, number: int, wanted: int, want: int, leaving: bool, now_s: float) -> Report:
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
        rest = self.allowance
        if cell.reserved or (before is not None and before.reserved):
            rest += self.uncovered
        return _new(WindowReport, (self.key, terms, number, rest, want, cells, name, self.reset, demands))

    def learn(self, answer: Any) -> bool:
        # A WindowAnswer is flat, and taken apart at once: by its names it would be searched for each of them.
        sequence: int
        sequence, own, total, foreign, own_before, total_before, foreign_before, _, _, _, refunds = answer
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
        sequence, _, total, _, _, total_before, _, _, _, _, _ = answer
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
