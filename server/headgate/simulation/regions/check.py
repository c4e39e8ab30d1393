"""Invariants between regions, at every step and when all is healed.

`owner`    no region knows more of a region than that region ever had: foreign counts are never republished
`sums`     what counts as foreign is exactly what the regions' components add up to
`doubled`  a region never counts more than its nodes reported and were charged for
`deadline` every request is decided in time, in any state of the regions
`agree`    after healing all regions have every live published component, exactly
`floor`    after healing a region counts at least what its peers know of it, also if it had lost everything
`lost`     after healing a region counts at least what its living nodes admitted
`left`     nothing is taken in of a region that was removed, as soon as all know it
`outbox`   names of keys that are gone go too
`lists`    no key is counted on two shards of a region at any time; after healing the list that its nodes want is in
           force, its exchangers go by it, and every key is where it belongs
`budget`   without faults, all regions together admit no more than the limit, P, what is kept back, and what
           comes while they can't know of each other yet
`cell`     the same for a limit of scope `cell`: no more than the limit and P, as soon as a window begins
Those of quotas are in quota_watch.py.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from headgate.limiter.limit import Limit, Scope
from headgate.origin.exchange_protocol import ForeignCount
from headgate.origin.operations.call import Call, Reply
from headgate.origin.outbox import Outbox
from headgate.origin.protocol import OVERTAKEN, WindowAnswer, WindowReport
from headgate.origin.window_cells import ForeignComponent
from headgate.origin.window_record import WindowRecord
from headgate.simulation.lost_cells import lost_cells
from headgate.simulation.regions.history import RegionFaultKind
from headgate.simulation.regions.world import FOLLOWS_S, RegionsWorld, Site, region_name
from headgate.simulation.shard import SimulatedShard, cells_of

Cell = tuple[int, bytes, int]
"""A region, a limit key and a window."""
UNKNOWING_S: Final = 1.6
"""A hit here is known there after a flush (250 ms), an interval (1 s), and the way; and a node hears of it with
its next flush (250 ms)."""


FOLLOWED_LIST_S: Final = 2.5
"""Seconds that a batch may have to come again until an exchanger knows of another list of shards."""
FOLLOWED_S: Final = FOLLOWS_S + 2.0
"""Seconds from a removal until no batch of that region can be under way to the origin any more."""


class RegionsWatch:
    """Looks at every step, and at the end."""

    def __init__(self, world: RegionsWorld) -> None:
        self._world = world
        self.highest: dict[Cell, int] = defaultdict(int)
        """The most that a region ever had in a cell, by its own shards."""
        self.reported: dict[Cell, dict[bytes, int]] = defaultdict(dict)
        """The most that each component of a region ever was."""
        self.admitted: list[tuple[float, int, int, int]] = []
        """Time, region, key and cost of each admission."""
        self.offered: list[tuple[float, int, int]] = []
        self._violate = world.violate
        for site in world.sites:
            for shard in site.shards:
                shard.on_reply = partial(self._replied, site)
                shard.on_import = partial(self._imported, site, shard)

    # At every step

    def _replied(self, site: Site, call: Call, reply: Reply) -> None:
        for report, answer in zip(call.reports, reply.answers, strict=True):
            self._counted_once(site, report.key)
            if isinstance(report, WindowReport) and isinstance(answer, WindowAnswer) and answer.more >= OVERTAKEN:
                self._learn(site, report, answer)

    def _learn(self, site: Site, report: WindowReport, answer: WindowAnswer) -> None:
        for sequence, count in ((answer.sequence, answer.current), (answer.sequence - 1, answer.previous)):
            cell = (site.index, report.key, sequence)
            known = self.reported[cell]
            known[report.component] = max(known.get(report.component, 0), count.own)
            self.highest[cell] = max(self.highest[cell], count.region_total)
            # What was never reported by name can only be what a node once saw of others that were.
            if count.region_total > sum(known.values()):
                self._violate("doubled", f"{site.name} {_named(cell)}: {count.region_total} of {sum(known.values())}")

    def _counted_once(self, site: Site, key: bytes) -> None:
        if self._world.listed and not any(shard.losses for shard in site.shards):
            counting = [index for index, shard in enumerate(site.shards) if shard.has_open(key)]
            if len(counting) > 1:
                self._violate("lists", f"{site.name} counts {key.decode()} on shards {counting}")

    def _imported(self, site: Site, shard: SimulatedShard, counts: Sequence[ForeignCount]) -> None:
        for index, removed in self._world.removed.items():
            now_s = self._world.loop.time()
            told = index != site.index and any(count.region == region_name(index).encode() for count in counts)
            if told and now_s > removed.since_s + FOLLOWED_S:
                self._violate(
                    "left", f"{site.name} takes in counts of region {index}, removed at {removed.since_s:.3f}"
                )
        for key in {count.key for count in counts}:
            self._counted_once(site, key)
            record = shard.record(key)
            if isinstance(record, WindowRecord):
                self._check_record(site, key, record)

    def _check_record(self, site: Site, key: bytes, record: WindowRecord) -> None:
        for sequence, cell_record in cells_of(record).items():
            cell = (site.index, key, sequence)
            if cell_record.region_total > sum(self.reported[cell].values()):
                self._violate("doubled", f"{site.name} {_named(cell)}: {cell_record.region_total}, from a peer")
        sums = Counter[int]()
        for region, component in record.foreign.items():
            component.roll(record.sequence)
            index = int(region.rsplit(b"-", 1)[1])
            for sequence, total in _cells(component):
                sums[sequence] += total
                if total > self.highest[index, key, sequence]:
                    what = f"{total} known to {site.name}, and it had {self.highest[index, key, sequence]}"
                    self._violate("owner", f"{_named((index, key, sequence))}: {what}")
        foreign = {
            record.sequence + 1: record.ahead_foreign,
            record.sequence: record.current.foreign,
            record.sequence - 1: record.previous.foreign,
        }
        for sequence, total in foreign.items():
            if total != sums[sequence]:
                self._violate("sums", f"{site.name} {key.decode()} in {sequence}: {total}, and {sums[sequence]} in all")

    # At the end

    def check(self) -> None:
        """Check the regions after everything is healed and sent."""
        for site in self._world.sites:
            for shard in site.shards:
                for key, record in shard.windows():
                    self._agree(site, key, record, shard.time_ms())
            self._nothing_lost(site)
            if self._world.listed:
                self._in_force(site)
            for exchanger in site.exchangers:
                if exchanger is not None and not exchanger.running:
                    self._violate("tasks", f"{site.name}: a task of its exchanger has ended")
        if all(fault.kind is RegionFaultKind.REGION_LISTED for fault in self._world.history.faults):
            self._within_budget()

    def _in_force(self, site: Site) -> None:
        for node in self._world.nodes(site):
            if node.lists.changing or node.lists.placed_by != site.listed:
                what = f"{node.lists.placed_by} in force, {site.listed} wanted: {node.lists.describe()}"
                self._violate("lists", f"{site.name}: {what}")
        for each in site.exchangers:
            if each is not None and each.shard_list.placement != self._world.placement_of(site):
                self._violate("lists", f"{site.name}: an exchanger goes by {each.shard_list.placement}")
        for key in self._world.history.keys:
            home = self._world.home_of(site, key.name)
            left = [index for index, shard in enumerate(site.shards) if shard.record(key.name) and index != home]
            if left:
                self._violate("lists", f"{site.name}: {key.name.decode()} belongs to shard {home}, and is on {left}")

    def check_outbox(self) -> None:
        """Check that outboxes are empty after every window is over."""
        for site in self._world.sites:
            for index, shard in enumerate(site.shards):
                live = len([key for key, _ in shard.windows()])
                names = len(shard.memory.part(Outbox))
                if names > 2 * live:
                    self._violate("outbox", f"{site.name} shard {index}: {names} names, {live} records")

    def _agree(self, site: Site, key: bytes, record: WindowRecord, now_ms: int) -> None:
        limit = self._limit(key)
        if not limit.publish_at:
            if record.foreign:
                self._violate("owner", f"{key.decode()} is counted in {site.name} for others: its scope tells nobody")
            return
        told = max(record.current.region_total, record.previous.region_total) >= limit.publish_at or (
            record.current.foreign + record.previous.foreign + record.ahead_foreign > 0
        )
        for peer in self._world.sites:
            if peer is site:
                continue
            shard = peer.shards[self._world.place_of(peer, key)]
            there = shard.record(key)
            known = _known_of(there, site.name.encode())
            for sequence, cell in cells_of(record).items():
                total = cell.region_total
                newest = shard.time_ms() // limit.window_ms
                if not (now_ms // limit.window_ms - 1 <= sequence and newest - 1 <= sequence <= newest + 1):
                    continue  # it no longer matters to one of them
                if told and total != known.get(sequence, 0):
                    what = f"{total} here, {known.get(sequence, 0)} in {peer.name}"
                    self._violate("agree", f"{_named((site.index, key, sequence))}: {what}")
                if known.get(sequence, 0) > total:
                    self._violate("floor", f"{_named((site.index, key, sequence))}: {total}, {peer.name} knows more")

    def _nothing_lost(self, site: Site) -> None:
        counters = (counter for node in self._world.nodes(site) for counter in node.engine.counters)
        for cell in lost_cells(site.shards, counters):
            what = f"{cell.admitted} admitted, {cell.counted} counted"
            self._violate("lost", f"{_named((site.index, cell.key, cell.sequence))}: {what}")

    def _within_budget(self) -> None:
        for key, known in enumerate(self._world.history.keys):
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
                start_s = _window_start(self._world, limit, at_s)
                total = sum(cost for hit_s, cost in hits if start_s <= hit_s <= at_s)
                slack = sum(cost for ask_s, cost in asked if at_s - UNKNOWING_S - self._way_s() <= ask_s <= at_s)
                if total > limit.requests_per_unit + kept_back + slack and at_s - start_s < window_s:
                    self._violate(
                        "budget",
                        f"{known.name.decode()}: {total} admitted, limit {limit.requests_per_unit}, "
                        f"{kept_back} kept back, {slack} unknown",
                    )
                    return

    def _within_cell(self, key: int) -> None:
        """Check the admissions of a window, by the region's clock. `P` is that of an even part."""
        limit, history = self._world.history.keys[key].limit, self._world.history
        admitted: Counter[int] = Counter()
        for at_s, region, which, cost in self.admitted:
            if which == key:
                now_ms = history.unix_ms + history.offsets_ms[region] + int(at_s * 1000)
                admitted[now_ms // limit.window_ms] += cost
        most = limit.requests_per_unit + limit.regions * (limit.precision + 1)
        for sequence, total in admitted.items():
            if total > most:
                self._violate("cell", f"{total} admitted in {sequence}, limit {limit.requests_per_unit}")

    def _way_s(self) -> float:
        spread_ms = max(self._world.history.offsets_ms) - min(self._world.history.offsets_ms)
        followed_s = FOLLOWED_LIST_S if self._world.listed else 0.0
        return 2 * self._world.history.link_ms[1] / 1000 + spread_ms / 1000 + followed_s

    def _limit(self, key: bytes) -> Limit:
        return next(known.limit for known in self._world.history.keys if known.name == key)


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
