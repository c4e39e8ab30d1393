"""Bounds that hold at every instant: the grants that nodes hold, the credit that they have not spent, their memory."""

from collections import Counter

from headgate.region.counters import SharedCounter
from headgate.region.node import RegionNode
from headgate.region.session import USABLE_S
from headgate.region.window_counter import SharedWindow
from headgate.simulation.cell_watch import CellWatch
from headgate.simulation.evidence import Evidence, Watcher
from headgate.simulation.upsets import Upsets
from headgate.simulation.world import NodeSlot


class BoundsWatch(Watcher):
    """Looks at all nodes every few milliseconds."""

    def __init__(self, evidence: Evidence, cells: CellWatch, upsets: Upsets) -> None:
        super().__init__(evidence)
        self._cells = cells
        self._upsets = upsets
        self._most_reports: Counter[str] = Counter()
        self._reports: dict[tuple[int, int, int], list[tuple[float, int]]] = {}

    def observe(self) -> None:
        """Check every counter and every node, now."""
        world = self._world
        held: Counter[bytes] = Counter()
        unsettled: set[bytes] = set()
        allowed: dict[bytes, int] = {}
        for slot, _, counter in world.counters():
            self._cells.observe(slot, counter)
            self._credit(slot, counter)
            link, now_s = counter, slot.clock.monotonic()
            if slot.serving and (grant := link.held(now_s)):
                held[counter.key] += grant
                allowed[counter.key] = max(allowed.get(counter.key, 0), link.limit.precision)
                upset_s = self._upsets.upset_s.get(counter.key)
                if upset_s is not None and link.usable_until_s <= upset_s + 1_000 + USABLE_S:
                    unsettled.add(counter.key)
        for key, total in held.items():
            if key in unsettled:
                # Who was granted something before the loss may use it until then.
                index = world.shard_of(key)
                time_ms = world.shards[index].key_time_ms(key)
                self._truth.disturb(key, time_ms, time_ms)
            elif total > allowed[key]:
                self._violate("grants", f"{key.decode()}: {total} held of {allowed[key]}")
        for slot, node in world.nodes():
            self._bounded(slot, node)

    def _credit(self, slot: NodeSlot, counter: SharedCounter) -> None:
        """Check that unspent credit is at most the cost of requests under way at once and of prefetched ones."""
        if isinstance(counter, SharedWindow):
            credit = max(cell.own - cell.total - cell.reserved for cell in counter.cells)
        else:
            credit = counter.credit
        most = self._evidence.charged_most(slot, counter.key)
        if credit > most:
            what = f"{slot.name} {counter.key.decode()}: {credit} unspent, {most} under way or ahead at most"
            self._violate("credit", what)

    def _bounded(self, slot: NodeSlot, node: RegionNode) -> None:
        """Cells are at most what is configured; queues at most the live cells and what was just reported."""
        cells = len(node.engine.counters)
        if cells > self._world.history.max_cells:
            self._violate("memory", f"{slot.name}: {cells} cells")
        now_s = self._world.loop.time()
        for link in node.links:
            reports = self._reports.setdefault((slot.index, slot.runs, link.index), [])
            reports.append((now_s, link.stats.reports))
            while len(reports) > 1 and reports[1][0] < now_s - 0.6:
                reports.pop(0)
            # A flush that was overtaken stays until its time comes: some for every recent report.
            recent = self._most_reports[slot.name] = max(
                self._most_reports[slot.name], link.stats.reports - reports[0][1]
            )
            queued = link.session.queued_flushes
            if queued > 3 * (cells + slot.waiting) + recent + 10:
                self._violate("memory", f"{slot.name}: {queued} flushes wait, {cells} cells, {recent} reports")
            if link.session.queued_questions > 2 * len(self._world.history.asks):
                self._violate("memory", f"{slot.name}: {link.session.queued_questions} questions")
