"""Invariants between regions, at every step and when all is healed.

`owner`    no region knows more of a region than that region ever had: foreign counts are never republished
`sums`     what counts as foreign is exactly what the regions' components add up to
`doubled`  a region never counts more than its nodes reported and were charged for
`deadline` every request is decided in time, in any state of the regions
`agree`    after healing all regions have every live published component, exactly
`floor`    after healing a region counts at least what its peers know of it, also if it had lost everything
`lost`     after healing a region counts at least what its living nodes admitted
`outbox`   names of keys that are gone go too
`budget`   without faults, all regions together admit no more than the limit, P, what is kept back, and what
           comes while they can't know of each other yet
`cell`     the same for a limit of scope `cell`: no more than the limit and P, as soon as a window begins
Those of quotas are in quota_watch.py.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from headgate.limiter.limit import Limit, Scope
from headgate.origin.exchange_protocol import ForeignCount
from headgate.origin.operations.call import Call, Reply
from headgate.origin.outbox import Outbox
from headgate.origin.protocol import UNREADABLE, WindowAnswer, WindowReport
from headgate.origin.window_cells import ForeignComponent
from headgate.origin.window_record import WindowRecord
from headgate.region.window_counter import SharedWindow
from headgate.simulation.regions.world import RegionsWorld, Site
from headgate.simulation.watch import Violation

Cell = tuple[int, bytes, int]
"""A region, a limit key and a window."""
MOST_VIOLATIONS: Final = 20
UNKNOWING_S: Final = 1.6
"""A hit here is known there after a flush (250 ms), an interval (1 s), and the way; and a node hears of it with
its next flush (250 ms)."""


class Component(NamedTuple):
    """One region's component of one cell, as another region has it."""

    key: bytes
    sequence: int
    total: int


class RegionsWatch:
    """Looks at every step, and at the end."""

    def __init__(self, world: RegionsWorld) -> None:
        self.world = world
        self.violations: list[Violation] = []
        self.highest: dict[Cell, int] = defaultdict(int)
        """The most that a region ever had in a cell, by its own shards."""
        self.reported: dict[Cell, dict[bytes, int]] = defaultdict(dict)
        """The most that each component of a region ever was."""
        self.admitted: list[tuple[float, int, int, int]] = []
        """Time, region, key and cost of each admission."""
        self.offered: list[tuple[float, int, int]] = []
        world.on_error = lambda what: self.violate("tasks", what)
        for site in world.sites:
            for shard in site.shards:
                shard.on_reply = self._replied(site)
                shard.on_import = self._imported(site)

    def violate(self, invariant: str, what: str) -> None:
        """Write down what was violated; the first ones are enough."""
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(Violation(invariant, self.world.loop.time(), what))
        self.world.trace.say("violated", f"{invariant}: {what}")

    # At every step

    def _replied(self, site: Site) -> Callable[[Call, Reply], None]:
        def replied(call: Call, reply: Reply) -> None:
            for report, answer in zip(call.reports, reply.answers, strict=True):
                if isinstance(report, WindowReport) and isinstance(answer, WindowAnswer) and answer.more != UNREADABLE:
                    self._learn(site, report, answer)

        return replied

    def _learn(self, site: Site, report: WindowReport, answer: WindowAnswer) -> None:
        for sequence, count in ((answer.sequence, answer.current), (answer.sequence - 1, answer.previous)):
            cell = (site.index, report.key, sequence)
            known = self.reported[cell]
            known[report.component] = max(known.get(report.component, 0), count.own)
            self.highest[cell] = max(self.highest[cell], count.region_total)
            # What was never reported by name can only be what a node once saw of others that were.
            if count.region_total > sum(known.values()):
                self.violate("doubled", f"{site.name} {_named(cell)}: {count.region_total} of {sum(known.values())}")

    def _imported(self, site: Site) -> Callable[[Sequence[ForeignCount]], None]:
        def imported(counts: Sequence[ForeignCount]) -> None:
            for key in {count.key for count in counts}:
                record = site.shards[self.world.shard_of(key)].record(key)
                if isinstance(record, WindowRecord):
                    self._check_record(site, key, record)

        return imported

    def _check_record(self, site: Site, key: bytes, record: WindowRecord) -> None:
        for cell_record, sequence in ((record.current, record.sequence), (record.previous, record.sequence - 1)):
            cell = (site.index, key, sequence)
            if cell_record.region_total > sum(self.reported[cell].values()):
                self.violate("doubled", f"{site.name} {_named(cell)}: {cell_record.region_total}, from a peer")
        sums = Counter[int]()
        for region, component in record.foreign.items():
            component.roll(record.sequence)
            index = int(region.rsplit(b"-", 1)[1])
            for sequence, total in _cells(component):
                sums[sequence] += total
                if total > self.highest[index, key, sequence]:
                    what = f"{total} known to {site.name}, and it had {self.highest[index, key, sequence]}"
                    self.violate("owner", f"{_named((index, key, sequence))}: {what}")
        foreign = {
            record.sequence + 1: record.ahead_foreign,
            record.sequence: record.current.foreign,
            record.sequence - 1: record.previous.foreign,
        }
        for sequence, total in foreign.items():
            if total != sums[sequence]:
                self.violate("sums", f"{site.name} {key.decode()} in {sequence}: {total}, and {sums[sequence]} in all")

    # At the end

    def check(self) -> None:
        """Check the regions after everything is healed and sent."""
        for site in self.world.sites:
            for shard in site.shards:
                for key, record in shard.windows():
                    self._agree(site, key, record, shard.time_ms())
            self._nothing_lost(site)
            for exchanger in site.exchangers:
                if exchanger is not None and not exchanger.running:
                    self.violate("tasks", f"{site.name}: a task of its exchanger has ended")
        if not self.world.history.faults:
            self._within_budget()

    def check_outbox(self) -> None:
        """Check that outboxes are empty after every window is over."""
        for site in self.world.sites:
            for index, shard in enumerate(site.shards):
                live = len([key for key, _ in shard.windows()])
                names = len(shard.memory.part(Outbox))
                if names > 2 * live:
                    self.violate("outbox", f"{site.name} shard {index}: {names} names, {live} records")

    def _agree(self, site: Site, key: bytes, record: WindowRecord, now_ms: int) -> None:
        limit = self._limit(key)
        if not limit.publish_at:
            if record.foreign:
                self.violate("owner", f"{key.decode()} is counted in {site.name} for others: its scope tells nobody")
            return
        told = max(record.current.region_total, record.previous.region_total) >= limit.publish_at or (
            record.current.foreign + record.previous.foreign + record.ahead_foreign > 0
        )
        for peer in self.world.sites:
            if peer is site:
                continue
            there = peer.shards[self.world.shard_of(key)].record(key)
            known = _known_of(there, site.name.encode())
            for sequence, total in (
                (record.sequence, record.current.region_total),
                (record.sequence - 1, record.previous.region_total),
            ):
                newest = peer.shards[self.world.shard_of(key)].time_ms() // limit.window_ms
                if not (now_ms // limit.window_ms - 1 <= sequence and newest - 1 <= sequence <= newest + 1):
                    continue  # it no longer matters to one of them
                if told and total != known.get(sequence, 0):
                    what = f"{total} here, {known.get(sequence, 0)} in {peer.name}"
                    self.violate("agree", f"{_named((site.index, key, sequence))}: {what}")
                if known.get(sequence, 0) > total:
                    self.violate("floor", f"{_named((site.index, key, sequence))}: {total}, {peer.name} knows more")

    def _nothing_lost(self, site: Site) -> None:
        admitted: Counter[tuple[bytes, int]] = Counter()
        for node in self.world.nodes(site):
            for counter in node.engine.counters:
                if isinstance(counter, SharedWindow):
                    for cell in counter.cells:
                        admitted[counter.key, cell.sequence] += cell.total
        for shard in site.shards:
            for key, record in shard.windows():
                counts = {record.sequence: record.current, record.sequence - 1: record.previous}
                for sequence, count in counts.items():
                    if admitted[key, sequence] > count.region_total:
                        what = f"{admitted[key, sequence]} admitted, {count.region_total} counted"
                        self.violate("lost", f"{_named((site.index, key, sequence))}: {what}")

    def _within_budget(self) -> None:
        for key, known in enumerate(self.world.history.keys):
            limit = known.limit
            if limit.scope is Scope.CELL:
                self._within_cell(key)
            if limit.scope is not Scope.GLOBAL:
                continue
            hits = [(at_s, cost) for at_s, _, which, cost in self.admitted if which == key]
            asked = [(at_s, cost) for at_s, which, cost in self.offered if which == key]
            kept_back = limit.requests_per_unit // 5 + limit.precision * limit.regions
            for at_s, _ in hits:
                window_s = limit.window_ms / 1000
                # Windows begin at different times where clocks differ: one that holds no boundary is looked at.
                start_s = _window_start(self.world, limit, at_s)
                total = sum(cost for hit_s, cost in hits if start_s <= hit_s <= at_s)
                slack = sum(cost for ask_s, cost in asked if at_s - UNKNOWING_S - self._way_s() <= ask_s <= at_s)
                if total > limit.requests_per_unit + kept_back + slack and at_s - start_s < window_s:
                    self.violate(
                        "budget",
                        f"{known.name.decode()}: {total} admitted, limit {limit.requests_per_unit}, "
                        f"{kept_back} kept back, {slack} unknown",
                    )
                    return

    def _within_cell(self, key: int) -> None:
        """Check the admissions of a window, by the region's clock. `P` is that of an even part."""
        limit, history = self.world.history.keys[key].limit, self.world.history
        admitted: Counter[int] = Counter()
        for at_s, region, which, cost in self.admitted:
            if which == key:
                now_ms = history.unix_ms + history.offsets_ms[region] + int(at_s * 1000)
                admitted[now_ms // limit.window_ms] += cost
        most = limit.requests_per_unit + limit.regions * (limit.precision + 1)
        for sequence, total in admitted.items():
            if total > most:
                self.violate("cell", f"{total} admitted in {sequence}, limit {limit.requests_per_unit}")

    def _way_s(self) -> float:
        spread_ms = max(self.world.history.offsets_ms) - min(self.world.history.offsets_ms)
        return 2 * self.world.history.link_ms[1] / 1000 + spread_ms / 1000

    def _limit(self, key: bytes) -> Limit:
        return next(known.limit for known in self.world.history.keys if known.name == key)


def _window_start(world: RegionsWorld, limit: Limit, at_s: float) -> float:
    latest = max(world.history.offsets_ms)
    unix_ms = world.history.unix_ms + latest
    now_ms = unix_ms + int(at_s * 1000)
    # By the clock that is furthest behind, the window began later.
    began_ms = now_ms // limit.window_ms * limit.window_ms + latest - min(world.history.offsets_ms)
    return (began_ms - unix_ms) / 1000


def _known_of(record: object, region: bytes) -> dict[int, int]:
    if not isinstance(record, WindowRecord) or region not in record.foreign:
        return {}
    return dict(_cells(record.foreign[region]))


def _cells(component: ForeignComponent) -> Iterator[tuple[int, int]]:
    yield component.sequence + 1, component.ahead
    yield component.sequence, component.current
    yield component.sequence - 1, component.previous


def _named(cell: Cell) -> str:
    region, key, sequence = cell
    return f"region {region} {key.decode()} in {sequence}"
