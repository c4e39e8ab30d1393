"""One limit key under a sliding or fixed window, as the origin keeps it.

Components merge by max and the region's total follows by what they gained, so a report
may come late, twice or never. `l` is what a cell is known to have contained and no
component explains: it is what makes a refill after a wipe count nothing twice and
nothing of the dead less than once.
"""

from headgate.origin.grants import GENERATION_MS, Grants, Holding
from headgate.origin.protocol import NO_GRANT, CellReport, Count, WindowAnswer, WindowReport


class CellRecord:
    """The region's side of one cell."""

    __slots__ = ("f", "l", "t")

    def __init__(self) -> None:
        self.t = 0
        self.l = 0
        self.f = 0

    def learn(self, seen: int) -> None:
        """A node was told more than is here: that much was lost, whoever's it was."""
        if seen > self.t:
            self.l += seen - self.t
            self.t = seen

    def gain(self, n: int, m: int, sent: int) -> None:
        """A component rises from n to m. What it had sent before may be what was lost."""
        explained = min(self.l, max(0, min(m, sent) - n))
        self.l -= explained
        self.t += m - n - explained


class NodeComponent(Holding):
    """One run's part: its n in the current and the previous cell."""

    __slots__ = ("n", "previous_n", "sequence")

    def __init__(self, sequence: int) -> None:
        super().__init__()
        self.sequence = sequence
        self.n = 0
        self.previous_n = 0

    def roll(self, sequence: int) -> None:
        if sequence > self.sequence:
            self.previous_n = self.n if sequence == self.sequence + 1 else 0
            self.n = 0
            self.sequence = sequence


class ForeignComponent:
    """Another region's part."""

    __slots__ = ("current", "previous", "sequence")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.current = 0
        self.previous = 0

    def roll(self, sequence: int) -> None:
        if sequence > self.sequence:
            self.previous = self.current if sequence == self.sequence + 1 else 0
            self.current = 0
            self.sequence = sequence


class WindowRecord:
    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self.sequence = 0
        self.current = CellRecord()
        self.previous = CellRecord()
        self.grants = Grants()
        self.components: dict[bytes, NodeComponent] = {}
        self.foreign: dict[bytes, ForeignComponent] = {}

    def expires_ms(self, now_ms: int) -> int:
        """When nothing in here can matter any more: neither a count nor a grant."""
        return max((self.sequence + 2) * self.window_ms, now_ms + 2 * GENERATION_MS)

    def report(self, report: WindowReport, time_ms: int) -> int:
        self._roll(time_ms // self.window_ms)
        component = self._component(report.component)
        for cell in report.cells:
            self._merge(component, cell)
        if report.number <= component.number:
            return NO_GRANT
        component.number = report.number
        return self.grants.renew(component, report.held, report.precision, time_ms, leaving=report.leaving)

    def missing(self, report: WindowReport, charged: int, cost: int) -> int:
        component = self._component(report.component)
        own = charged
        for cell in report.cells:
            if cell.sequence == self.sequence:
                own += cell.total + cell.reserved
        return max(0, cost - max(0, component.n - own))

    def fits(self, report: WindowReport, time_ms: int, missing: int) -> bool:
        effective = self.current.t + self.current.f + missing
        if report.sliding:
            left_ms = self.window_ms - time_ms % self.window_ms
            effective += (self.previous.t + self.previous.f) * left_ms // self.window_ms
        return effective <= report.limit

    def charge(self, report: WindowReport, missing: int, time_ms: int) -> None:
        component = self._component(report.component)
        sent = max((cell.sent for cell in report.cells if cell.sequence == self.sequence), default=0)
        self.current.gain(component.n, component.n + missing, sent)
        component.n += missing

    def answer(self, report: WindowReport, grant: int) -> WindowAnswer:
        component = self._component(report.component)
        return WindowAnswer(
            self.sequence,
            Count(component.n, self.current.t, self.current.f),
            Count(component.previous_n, self.previous.t, self.previous.f),
            grant,
        )

    def merge_own(self, sequence: int, count: int, time_ms: int) -> None:
        """The region's own component, back from a peer: it was here once, so it counts again."""
        self._roll(time_ms // self.window_ms)
        if sequence == self.sequence:
            self.current.learn(count)
        elif sequence == self.sequence - 1:
            self.previous.learn(count)

    def merge_foreign(self, region: bytes, sequence: int, count: int, time_ms: int) -> None:
        self._roll(time_ms // self.window_ms)
        component = self.foreign.setdefault(region, ForeignComponent(self.sequence))
        component.roll(self.sequence)
        if sequence == self.sequence and count > component.current:
            self.current.f += count - component.current
            component.current = count
        elif sequence == self.sequence - 1 and count > component.previous:
            self.previous.f += count - component.previous
            component.previous = count

    def _component(self, name: bytes) -> NodeComponent:
        component = self.components.get(name)
        if component is None:
            component = self.components[name] = NodeComponent(self.sequence)
        component.roll(self.sequence)
        return component

    def _merge(self, component: NodeComponent, cell: CellReport) -> None:
        """Cells of the shard's future come again when it is there; older ones no longer matter."""
        if cell.sequence == self.sequence:
            self.current.learn(cell.seen)
            if cell.total > component.n:
                self.current.gain(component.n, cell.total, cell.sent)
                component.n = cell.total
        elif cell.sequence == self.sequence - 1:
            self.previous.learn(cell.seen)
            if cell.total > component.previous_n:
                self.previous.gain(component.previous_n, cell.total, cell.sent)
                component.previous_n = cell.total

    def _roll(self, sequence: int) -> None:
        if sequence <= self.sequence:
            return
        self.previous = self.current if sequence == self.sequence + 1 else CellRecord()
        self.current = CellRecord()
        self.sequence = sequence
        self._forget_the_gone()

    def _forget_the_gone(self) -> None:
        """At a rollover: runs with nothing in either cell that have not called for two generations."""
        for name, component in list(self.components.items()):
            component.roll(self.sequence)
            idle = component.generation < self.grants.generation - 1
            if idle and not component.n and not component.previous_n:
                del self.components[name]
