"""A region's counter of a key under a sliding or fixed window: its current and its previous cell.

`current` and `previous`, which the algorithms read, are all that is known to count in the two
cells. They are worked out anew whenever a cell changes. (docs/convergence.md, sections 3 to 6.)
"""

from typing import Any, Final

from headgate.limiter.counters import window_load
from headgate.limiter.limit import Algorithm, Limit, TrafficClass
from headgate.origin.names import exchange_name
from headgate.origin.protocol import UNBOUND, Answer, CellReport, Report, WindowAnswer, WindowReport, WindowTerms
from headgate.region.cells import CellView
from headgate.region.counters import Hold, SharedCounter, shared
from headgate.region.shard import Shard

MOST_LATE: Final = 2**44
"""The most that one node counts in one cell: four thousand times the largest limit, and 500 nodes together stay below
2^53, where Lua's numbers end. What is beyond it is denied as long as what is at it."""
NOTHING: Final = (0, 0, 0)
"""What most answers say of the previous cell."""

MOST_TERMS: Final = 4_096
"""As many limits may have their terms kept; when there are more, all are made anew."""
_new: Final = tuple.__new__
"""Makes a named tuple from a tuple without asking its class: several are made per report."""
_kept_terms: dict[int, tuple[Limit, WindowTerms]] = {}


def _terms(limit: Limit, component: bytes, leaving: bool) -> WindowTerms:
    """What reports of a component under a limit have in common, as one object: made once, and packed once per call."""
    kept = _kept_terms.get(id(limit))
    if kept is not None and kept[0] is limit:
        terms = kept[1]
        if terms.component is component and terms.leaving is leaving:
            return terms
    if len(_kept_terms) >= MOST_TERMS:
        _kept_terms.clear()
    sliding, urgent = limit.algorithm is Algorithm.SLIDING_WINDOW, limit.traffic_class is TrafficClass.ABUSE
    terms = WindowTerms(
        component, limit.requests_per_unit, limit.window_ms, limit.precision, sliding, leaving, limit.publish_at, urgent
    )
    _kept_terms[id(limit)] = limit, terms
    return terms


class SharedWindow(SharedCounter):
    """Two cells of one limit key, as this node knows them. Implements the limiter's `WindowCounts`."""

    __slots__ = ("_before", "current", "current_cell", "previous", "sequence", "window_ms")

    def __init__(self, key: bytes, component: bytes, shard: Shard, limit: Limit, now_ms: int) -> None:
        SharedCounter.__init__(self, key, component, shard, limit)  # by its name: `super` takes twice as long
        self.window_ms = window_ms = limit.window_ms
        self.sequence = sequence = shared(now_ms // window_ms)
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

    def roll(self, sequence: int) -> None:
        """Go on to a later window. A cell that follows a warm one starts at a known zero and is as fresh as it was."""
        if sequence > self.sequence + 1 and self.own_time is not None and self.own_time.known:
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

    def advance(self, now_ms: int) -> int:
        sequence = now_ms // self.window_ms
        if sequence > self.sequence:
            self.roll(sequence)
        elif sequence < self.sequence:
            return self._behind(now_ms)
        return now_ms

    def _behind(self, now_ms: int) -> int:
        """This node's time is behind the counter's: an answer came from the next window, or the clock was set.

        Or the counter was made by this node's own clock, which was ahead: its first answer will restate it.
        """
        sequence = now_ms // self.window_ms
        if self.own_time is None and (self.clock_was_set() or sequence < self.sequence - 1):
            self.sequence = sequence
            self.begin_anew()
        return max(now_ms, self.sequence * self.window_ms)

    def begin_anew(self) -> None:
        super().begin_anew()
        self.current_cell, self._before = CellView(self.sequence), None
        self._recount()

    def fits_when_new(self, cost: int) -> bool:
        return 0 < cost <= self.limit.requests_per_unit

    @property
    def credit(self) -> int:
        cell = self.current_cell
        credit = cell.own - cell.total - cell.reserved
        return credit if credit > 0 else 0

    @property
    def unacked(self) -> int:
        cell = self.current_cell
        unacked = cell.total + cell.reserved - cell.own
        if unacked < 0:
            unacked = 0
        cell_before = self._before
        if cell_before is not None:
            before = cell_before.total + cell_before.reserved - cell_before.own
            if before > 0:
                unacked += before
        return unacked

    @property
    def unreported(self) -> bool:
        # As `unacked` has it, in one call: this is asked of every counter after every call.
        cell, before = self.current_cell, self._before
        if cell.total + cell.reserved > cell.own:
            return True
        if before is not None and before.total + before.reserved > before.own:
            return True
        return self.refunds is not None and self.refunds.waiting

    @property
    def reserved(self) -> int:
        before = self._before
        return self.current_cell.reserved + (0 if before is None else before.reserved)

    @property
    def is_over_limit(self) -> bool:
        """In the current window alone."""
        return self.current > self.limit.requests_per_unit + self.limit.precision

    @property
    def own_admitted(self) -> int:
        """Of the current window only."""
        return self.current_cell.total + self.current_cell.reserved

    def spend(self, cost: int, now_ms: int) -> None:
        self.lane_left = 0
        self.current_cell.total += cost

    def countable(self, cost: int, now_ms: int) -> int:
        return min(cost, max(0, MOST_LATE - self.current_cell.total))

    def unspend(self, cost: int) -> None:
        self.current_cell.total -= cost
        self._recount()

    def give_back(self, cost: int, now_ms: int) -> None:
        """Of the current window only: in the one before, nobody can spend any more."""
        self.unspend(min(cost, self.current_cell.total))

    def hold(self, cost: int, now_ms: int, charged: Answer | None = None) -> Hold:
        cell = self.current_cell
        if isinstance(charged, WindowAnswer) and charged.sequence == self.sequence - 1:
            cell = self.previous_cell
        cell.reserved += cost
        self._recount()
        return Hold(self, self.component, cell, cost)

    def commit(self, cost: int, now_ms: int, charged: Answer) -> int:
        cell = self.current_cell
        assert isinstance(charged, WindowAnswer)  # noqa: S101 - a window's
        if charged.sequence == self.sequence - 1:
            cell = self.previous_cell
        cell.total += cost
        if cell.own < cell.total + cell.reserved:
            self._recount()
            self.flush(0)
        else:
            self.lane_left = 0  # credit, which counted already, has become cost: the counts are what they were
            if self._before is not None:
                self.flush(0)
        return cell.sequence

    def settle(self, hold: Hold, *, commit: bool) -> None:
        cell = hold.cell
        if cell is None or hold.component != self.component:
            cell = self.current_cell
        else:
            cell.reserved -= hold.cost
        if commit:
            cell.total += hold.cost
        self._recount()

    def report(self, number: int, wanted: int, leaving: bool, now_s: float) -> Report:
        cell, before = self.current_cell, self._before
        cells: tuple[CellReport, ...] = (cell.report(),)
        if self.refill or self.ahead_of_shard or (before is not None and before.unacked):
            cells = (*cells, self.previous_cell.report())
        if before is not None:
            before.note_sent(0)
        sent = cell.total + cell.reserved
        self.credit_offered = cell.own - sent if wanted and cell.own > sent else 0
        if sent + wanted > cell.highest_sent:
            cell.highest_sent = sent + wanted
        if wanted > self.first_wanted and not self.has_answer:
            self.first_wanted = wanted
        limit, key = self.limit, self.key
        terms = _terms(limit, self.component, leaving)
        name = exchange_name(key, self.place, self.window_ms) if terms.publish_at else b""
        demands = self.demands(self.sequence, leaving, now_s) if limit.refund or self.refunds is not None else None
        held = self.held(now_s) if self.grant else 0
        return _new(WindowReport, (key, terms, number, held, cells, name, self.reset, demands))

    def answered(self, answer: Any, usable_until_s: float) -> bool:
        """As for all counters; at once where it is a key's first answer, and tells of this window alone.

        That is what most answers are where traffic has a long tail. (tests/unit/region/test_first_answers.py holds both
        ways equal.)
        """
        cell = self.current_cell
        if self.has_answer or cell.total or cell.reserved or self._before is not None or self.refunds is not None:
            return SharedCounter.answered(self, answer, usable_until_s)
        sequence, own, total, foreign, own_before, total_before, foreign_before, grant, reset, _ = answer
        if (
            sequence != self.sequence
            or reset != self.reset != UNBOUND
            or not 0 <= own <= cell.highest_sent
            or own > total
            or grant < 0
            or own_before
            or total_before
            or foreign_before
        ):
            return SharedCounter.answered(self, answer, usable_until_s)
        cell.own = own
        cell.others = total - own
        cell.foreign = foreign
        cell.highest_total_seen = total
        if total > cell.highest_sent:
            cell.others_at_least = total - cell.highest_sent
        self.current = total + foreign
        self.previous = 0
        self.lane_left = 0
        self.deny_until_ms = 0
        self.ahead_of_shard = False
        self.own_time = None
        self.has_answer = True
        self.reset = reset
        if grant != self.grant:
            self.grant = shared(grant)
        self.usable_until_s = usable_until_s
        self.refill = False
        self.credit_offered = 0
        self.pins -= 1
        return True

    def learn(self, answer: Any) -> bool:
        # A WindowAnswer is flat: from 1 on the current cell's count, from 4 on the previous one's.
        sequence: int = answer.sequence
        if not self.has_answer and not 0 <= sequence - self.sequence <= 1:
            self._restate(sequence)
        self.own_time = None
        if sequence > self.sequence:
            self.roll(sequence)
        self.ahead_of_shard = sequence < self.sequence
        if self.ahead_of_shard:
            # The shard's current cell is the previous one here, if it is one at all.
            is_previous = sequence == self.sequence - 1
            remembers = self.previous_cell.learn(answer[1:4]) if is_previous else True
        else:
            remembers = self.current_cell.learn(answer[1:4])
            previous = answer[4:7]
            if self._before is not None or previous != NOTHING:
                remembers &= self.previous_cell.learn(previous)
        if self.refunds is not None and answer.refunds is not None:
            for back, place in ((answer.refunds[0], sequence), (answer.refunds[1], sequence - 1)):
                if place == self.sequence:
                    self.refunds.current.learn(back)
                elif place == self.sequence - 1:
                    self.refunds.previous.learn(back)
        self._recount()
        cell = self.current_cell
        if not self.has_answer or cell.own > cell.total + cell.reserved:
            # There is credit, and what did not fit may be paid for now; or a first answer, and
            # what was denied until then was denied by this node's own clock.
            self.deny_until_ms = 0
        return remembers

    def lacks(self, answer: Any) -> bool:
        before = self._before
        seen_before = 0 if before is None else before.highest_total_seen
        if answer.sequence == self.sequence:
            if answer.region_total < self.current_cell.highest_total_seen:
                return True
            return bool(answer.previous_region_total < seen_before)
        is_previous = answer.sequence == self.sequence - 1
        return bool(is_previous and answer.region_total < seen_before)

    def _recount(self) -> None:
        self.lane_left = 0
        cell = self.current_cell
        own, counted = cell.own, cell.total + cell.reserved
        self.current = cell.others + cell.foreign + (own if own > counted else counted)
        before = self._before
        if before is None:
            self.previous = 0
        else:
            own, counted = before.own, before.total + before.reserved
            self.previous = before.others + before.foreign + (own if own > counted else counted)
        if self.refunds is not None:
            self.current -= self.refunds.current.given
            self.previous -= self.refunds.previous.given

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
        self.own_time = None
        self._recount()
