"""One limit key under a sliding or fixed window, as the origin keeps it.

Components merge by max and the region's total follows by what they gained, so a report
may come late, twice or never. After a wipe nodes say which region total they were told:
what no component explains yet is kept as `unattributed`, and a component that comes back
is taken out of it before it raises the total. So a hit that is reported again is not counted
twice, and the hits of nodes that died stay counted. (docs/convergence.md, section 6.)

What is given back is counted apart, never subtracted from a count: nodes say what they demand back, in all, and the
record accepts as much as a cell still holds. So it may come late or twice as well. (Section 11.)

The shard's clock may be set. A record one window ahead of it waits for it; one that is further
ahead was written by a wrong clock and begins anew. (docs/convergence.md, section 1.)
"""

from headgate.origin.allowances import GENERATION_MS, Allowances, reserve
from headgate.origin.exchange_protocol import Published
from headgate.origin.protocol import (
    OVERTAKEN,
    UNBOUND,
    CellReport,
    Count,
    Demand,
    Refund,
    WindowAnswer,
    WindowReport,
)
from headgate.origin.window_cells import CellRecord, ForeignComponent, NodeComponent
from headgate.window import weighted


class WindowRecord:
    """One limit key: its current and its previous cell, who holds an allowance, and everybody's component."""

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self.sequence = 0
        self.current = CellRecord()
        self.previous = CellRecord()
        self.ahead_foreign = 0
        """Counts of other regions in the next cell."""
        self.ahead_refunded = 0
        """Refunded part of these."""
        self.allowances = Allowances()
        self.components: dict[bytes, NodeComponent] = {}
        self.foreign: dict[bytes, ForeignComponent] = {}
        self.reset = 0
        """Number of the key's reset to which all of it belongs. Never falls while the record lives."""

    def expires_ms(self, now_ms: int) -> int:
        """Time from which on nothing in here can matter: neither a count nor an allowance."""
        last = self.sequence + (1 if self.ahead_foreign else 0)
        return max((last + 2) * self.window_ms, now_ms + 2 * GENERATION_MS)

    def time_ms(self, now_ms: int) -> int:
        """The time of this key: the shard's, or the beginning of a window that the shard's clock has yet to reach."""
        return max(now_ms, self.sequence * self.window_ms)

    def report(self, report: WindowReport, now_ms: int) -> int:
        """Merge a report, with what is left of its run's allowance; OVERTAKEN if a later one was there first."""
        self.come_to(now_ms)
        if not self.belongs(report.reset):
            return OVERTAKEN
        component = self._component(report.component)
        rest = report.rest
        for cell in report.cells:
            self._merge(component, cell)
            if cell.sequence > self.sequence:
                rest += cell.total  # spent in a window that is yet to come here: set aside until then
        for demand in report.demands or ():
            self._bring_back(component, demand)
        for demand in report.demands or ():
            self._refund(component, demand)
        if report.number <= component.number:
            return OVERTAKEN
        component.number = report.number
        self.allowances.keep(component, 0 if report.leaving else rest, now_ms)
        return 0

    def belongs(self, reset: int) -> bool:
        """Say if what is of this reset counts here. A later one than is known empties the record."""
        if reset > self.reset:
            self.reset = reset
            self._begin_anew(self.sequence)
        return reset in (UNBOUND, self.reset)

    def missing(self, report: WindowReport, charged: int, cost: int) -> int:
        """Part of a cost that the run's credit does not cover; `charged` of that credit is spoken for."""
        component = self._component(report.component)
        own = charged
        for cell in report.cells:
            if cell.sequence == self.sequence:
                own += cell.total + cell.reserved
        return max(0, cost - max(0, component.own - own))

    def fits(self, report: WindowReport, now_ms: int, missing: int) -> bool:
        """Say if so much more fits beside all allowances; note it where those alone are in the way."""
        room = self.room(report, now_ms)
        if missing <= self.allowances.free(room, report.precision):
            return True
        if missing <= room:
            self.allowances.press()
        return False

    def room(self, report: WindowReport, now_ms: int) -> int:
        """Room by the report's algorithm; below 0 where more is used than the limit."""
        used = self.current.used
        if report.sliding:
            left_ms = self.window_ms - self.time_ms(now_ms) % self.window_ms
            used += weighted(self.previous.used, left_ms, self.window_ms)
        return report.limit - used

    def charge(self, report: WindowReport, missing: int, now_ms: int) -> None:
        """Raise the run's component in the current cell."""
        component = self._component(report.component)
        sent = max((cell.highest_sent for cell in report.cells if cell.sequence == self.sequence), default=0)
        self.current.raise_component(component.own, component.own + missing, sent)
        component.own += missing

    def offer(self, report: WindowReport, now_ms: int) -> tuple[int, int]:
        """Set more aside for the run: how much more, and how much is left then."""
        room, kept = self.room(report, now_ms), reserve(report.limit, self.window_ms)
        want = 0 if report.leaving else report.want
        component = self._component(report.component)
        return self.allowances.offer(component, want, room, report.limit, kept, report.precision, within=report.within)

    def answer(self, report: WindowReport, more: int, left: int) -> WindowAnswer:
        """Answer to the reporting run."""
        component = self._component(report.component)
        return WindowAnswer(
            self.sequence,
            Count(component.own, self.current.region_total, self.current.foreign),
            Count(component.previous_own, self.previous.region_total, self.previous.foreign),
            more,
            left,
            self.reset,
            None if report.demands is None else self._refunds(component),
        )

    def _refunds(self, component: NodeComponent) -> tuple[Refund, Refund]:
        current, previous = self.current, self.previous
        return (
            Refund(component.demanded, component.refunded, current.refunded, current.foreign_refunded),
            Refund(
                component.previous_demanded, component.previous_refunded, previous.refunded, previous.foreign_refunded
            ),
        )

    def merge_own(self, sequence: int, count: int, now_ms: int) -> None:
        """The region's own component, back from a peer: it was here once, so it counts again."""
        self.come_to(now_ms)
        if sequence == self.sequence:
            self.current.restore(count)
        elif sequence == self.sequence - 1:
            self.previous.restore(count)

    def merge_foreign(self, region: bytes, sequence: int, count: int, now_ms: int, refunded: int = 0) -> None:
        """Another region's component, as its exchanger said: merged by max."""
        self.come_to(now_ms)
        component = self.foreign.setdefault(region, ForeignComponent(self.sequence))
        component.roll(self.sequence)
        if sequence == self.sequence and count > component.current:
            self.current.foreign += count - component.current
            component.current = count
        elif sequence == self.sequence - 1 and count > component.previous:
            self.previous.foreign += count - component.previous
            component.previous = count
        elif sequence == self.sequence + 1 and count > component.ahead:
            self.ahead_foreign += count - component.ahead
            component.ahead = count
        self._merge_foreign_refund(component, sequence - self.sequence, refunded)

    def _merge_foreign_refund(self, component: ForeignComponent, place: int, refunded: int) -> None:
        """Merge another region's refunds in the previous cell (−1), the current one or the next: within its total."""
        total = {-1: component.previous, 0: component.current, 1: component.ahead}.get(place, 0)
        known = component.refunded.get(self.sequence + place, 0)
        more = min(refunded, total) - known
        if more <= 0:
            return
        component.refunded[self.sequence + place] = known + more
        if place > 0:
            self.ahead_refunded += more
        else:
            (self.previous if place else self.current).foreign_refunded += more

    def totals(self) -> tuple[int, int, int]:
        """The cell that is current here, with the region's totals in it and in the one before: what is published."""
        return self.sequence, self.current.region_total, self.previous.region_total

    def state(self) -> tuple[int, ...]:
        """Totals that peers are told, and the reset: another one is another reason to tell them."""
        return *self.totals(), self.reset, self.current.refunded, self.previous.refunded

    def is_published(self, publish_at: int) -> bool:
        """Say if other regions are told: at or above the threshold, once one of them counts here, or after a reset."""
        return (
            max(self.current.region_total, self.previous.region_total) >= publish_at
            or self.current.foreign + self.previous.foreign + self.ahead_foreign > 0
            or self.reset > 0
        )

    def published(self, peer: bytes) -> Published:
        """Components that the exchanger tells `peer`: the region's own component, and the peer's, should it
        have lost it."""
        component = self.foreign.get(peer)
        about = self.reset, self.current.refunded, self.previous.refunded
        if component is None or not component.ahead + component.current + component.previous:
            return Published(*self.totals(), 0, 0, 0, *about)
        component.roll(self.sequence)
        if component.ahead:
            return Published(*self.totals(), component.sequence + 1, component.ahead, component.current, *about)
        return Published(*self.totals(), component.sequence, component.current, component.previous, *about)

    def _component(self, name: bytes) -> NodeComponent:
        component = self.components.get(name)
        if component is None:
            component = self.components[name] = NodeComponent(self.sequence)
        component.roll(self.sequence)
        return component

    def _merge(self, component: NodeComponent, cell: CellReport) -> None:
        """Cells of the shard's future come again when it is there; older ones no longer matter."""
        if cell.sequence == self.sequence:
            self.current.restore(cell.highest_total_seen)
            if cell.total > component.own:
                self.current.raise_component(component.own, cell.total, cell.highest_sent)
                component.own = cell.total
        elif cell.sequence == self.sequence - 1:
            self.previous.restore(cell.highest_total_seen)
            if cell.total > component.previous_own:
                self.previous.raise_component(component.previous_own, cell.total, cell.highest_sent)
                component.previous_own = cell.total

    def _bring_back(self, component: NodeComponent, demand: Demand) -> None:
        """Bring back refunds that the run was told of and that are gone: the shard lost them."""
        if demand.sequence == self.sequence:
            lost = min(demand.refunded - component.refunded, self.current.net)
            if lost > 0:
                self.current.refunded += lost
                component.refunded += lost
        elif demand.sequence == self.sequence - 1:
            lost = min(demand.refunded - component.previous_refunded, self.previous.net)
            if lost > 0:
                self.previous.refunded += lost
                component.previous_refunded += lost

    def _refund(self, component: NodeComponent, demand: Demand) -> None:
        """Refund what is new in a demand, out of the current cell, then out of the one before; the rest was
        never charged."""
        if demand.sequence == self.sequence:
            dealt_with = max(component.demanded, demand.settled)
            component.demanded = max(dealt_with, demand.demanded)
        elif demand.sequence == self.sequence - 1:
            dealt_with = max(component.previous_demanded, demand.settled)
            component.previous_demanded = max(dealt_with, demand.demanded)
        else:
            return
        asked = max(0, demand.demanded - dealt_with)
        of_this = min(asked, self.current.net)
        self.current.refunded += of_this
        component.refunded += of_this
        of_the_one_before = min(asked - of_this, self.previous.net)
        self.previous.refunded += of_the_one_before
        component.previous_refunded += of_the_one_before

    def come_to(self, now_ms: int) -> None:
        """Come to the shard's time: cells roll over, and what a wrong clock wrote goes."""
        sequence = now_ms // self.window_ms
        if sequence > self.sequence:
            self._roll(sequence)
        elif sequence < self.sequence - 1:
            self._begin_anew(sequence)
        elif self.allowances.ahead(now_ms):
            self._forget_who()

    def _begin_anew(self, sequence: int) -> None:
        """Nothing of it counts any more: a wrong clock wrote it, and it would never age, or the key was reset."""
        self.sequence = sequence
        self.current, self.previous = CellRecord(), CellRecord()
        self.ahead_foreign = self.ahead_refunded = 0
        self.allowances = Allowances()
        self.components.clear()
        self.foreign.clear()

    def _forget_who(self) -> None:
        """The clock was set back within the window: the counts stay, allowances and components lie ahead and go.

        What was given back goes with its components: their runs bring it back, as after a loss.
        """
        for cell in (self.current, self.previous):
            cell.unattributed = cell.region_total
            cell.refunded = 0
        self.allowances = Allowances()
        self.components.clear()

    def _roll(self, sequence: int) -> None:
        ahead, self.ahead_foreign = self.ahead_foreign, 0
        ahead_refunded, self.ahead_refunded = self.ahead_refunded, 0
        self.previous = self.current if sequence == self.sequence + 1 else CellRecord()
        self.current = CellRecord()
        if sequence == self.sequence + 1:
            self.current.foreign, self.current.foreign_refunded = ahead, ahead_refunded
        elif sequence == self.sequence + 2:
            self.previous.foreign, self.previous.foreign_refunded = ahead, ahead_refunded
        self.sequence = sequence
        self._forget_the_gone()

    def _forget_the_gone(self) -> None:
        """At a rollover: runs and regions with nothing in either cell; runs only if they have not called for two
        generations.
        """
        for region, foreign in list(self.foreign.items()):
            foreign.roll(self.sequence)
            if not foreign.current and not foreign.previous:
                del self.foreign[region]
        for name, component in list(self.components.items()):
            component.roll(self.sequence)
            idle = component.generation < self.allowances.generation - 1
            if idle and not component.counts:
                del self.components[name]
