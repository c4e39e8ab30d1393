"""Bounds that hold at every instant: what nodes may spend, the credit that they have not spent, their memory."""

from collections import Counter
from typing import Final

from headgate.origin.allowances import GENERATION_MS
from headgate.origin.bucket_record import BucketComponent, BucketRecord
from headgate.origin.window_cells import NodeComponent
from headgate.origin.window_record import WindowRecord
from headgate.region.bucket_counter import SharedBucket
from headgate.region.counters import SharedCounter
from headgate.region.node import RegionNode
from headgate.region.window_counter import SharedWindow
from headgate.simulation.cell_watch import CellWatch
from headgate.simulation.evidence import Evidence, Watcher
from headgate.simulation.upsets import Upsets
from headgate.simulation.world import NodeSlot

FORGOTTEN_S: Final = 6.0
"""After a shard lost something every node has told it again, or spends nothing more, within so long."""


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
        for slot, _, counter in world.counters():
            self._cells.observe(slot, counter)
            self._credit(slot, counter)
            if slot.serving and counter.has_answer:
                self._cover(slot, counter)
        for slot, node in world.nodes():
            self._bounded(slot, node)
        if world.listed:
            self._counted_once()

    def _counted_once(self) -> None:
        """Check that no key of which nothing was lost is counted on two shards, whatever lists nodes have."""
        for key in self._world.history.keys:
            if any(self._world.shards[index].has_lost(key.name) for index in self._world.may_count(key.name)):
                continue
            counting = [index for index, shard in enumerate(self._world.shards) if shard.has_open(key.name)]
            if len(counting) > 1:
                self._violate("lists", f"{key.name.decode()} is counted on shards {counting}")

    def _cover(self, slot: NodeSlot, counter: SharedCounter) -> None:
        """Check that what a node has spent unheard of, and what it may still spend, is counted at its shard.

        Whatever a policy admitted, and late costs, are on top; and so is what a shard forgot, until it was told again.
        """
        key, known = counter.key, (counter.component, counter.key)
        unheard, held = self._unheard(counter)
        spends = counter.spendable(slot.clock.monotonic())
        if not unheard:
            self._evidence.excused.discard(known)
        if unheard + spends <= held:
            return
        upset_s = self._upsets.upset_s.get(key)
        if known not in self._evidence.excused and (upset_s is None or self._world.loop.time() > upset_s + FORGOTTEN_S):
            what = f"{unheard} unheard of and {spends} to spend, {held} set aside"
            self._violate("cover", f"{slot.name} {key.decode()}: {what}")

    def _unheard(self, counter: SharedCounter) -> tuple[int, int]:
        """Return what the counter's shard has not heard of, and what it has set aside for it."""
        shard = self._world.shards[self._world.shard_of(counter.key)]
        record, generation = shard.record(counter.key), shard.time_ms() // GENERATION_MS
        component = (
            record.components.get(counter.component) if isinstance(record, WindowRecord | BucketRecord) else None
        )
        held = component.held if component is not None and component.generation >= generation - 1 else 0
        if isinstance(counter, SharedBucket):
            # A bucket that has drained is forgotten, with what was heard of it.
            own = component.own if isinstance(component, BucketComponent) else counter.own
            return max(0, counter.total - own), held
        assert isinstance(counter, SharedWindow)  # noqa: S101 - there is no third kind
        heard: dict[int, int] = {}
        if isinstance(component, NodeComponent):
            heard = {component.sequence: component.own, component.sequence - 1: component.previous_own}
        first = shard.key_time_ms(counter.key) // counter.window_ms - 1
        cells = [cell for cell in counter.cells if cell.sequence >= first]
        return sum(max(0, cell.total - heard.get(cell.sequence, 0)) for cell in cells), held

    def _credit(self, slot: NodeSlot, counter: SharedCounter) -> None:
        """Check that unspent credit is at most the cost of requests under way at once."""
        if isinstance(counter, SharedWindow):
            credit = max(cell.own - cell.total - cell.reserved for cell in counter.cells)
        else:
            credit = counter.credit
        most = self._evidence.charged_most(slot, counter.key)
        if credit > most:
            what = f"{slot.name} {counter.key.decode()}: {credit} unspent, {most} under way at most"
            self._violate("credit", what)

    def _bounded(self, slot: NodeSlot, node: RegionNode) -> None:
        """Cells are at most what is configured; queues at most the live cells and what was just reported."""
        cells = len(node.engine.counters)
        if cells > self._world.history.max_cells:
            self._violate("memory", f"{slot.name}: {cells} cells")
        now_s = self._world.loop.time()
        for link in node.links_in_use:
            shard = self._world.shards[link.index]
            if link.stats.refills and not shard.losses and not shard.lost_keys:
                self._violate("refill", f"{slot.name}: shard {link.index} is taken to have lost what it has")
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
