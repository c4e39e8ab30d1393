"""The simulated regions: shards, nodes and exchangers of each, and the links between them.

Create it inside a running (virtual) loop. It decides nothing itself: faults.py says what breaks, check.py what that
means.
"""

import asyncio
import random
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from headgate.exchange.exchanger import Exchanger
from headgate.exchange.messages import Receiver
from headgate.exchange.site import ExchangeSite
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Scope
from headgate.limiter.scopes import LimitsOfRegion, charges_of
from headgate.origin.placement import KeptPlacement, Placement
from headgate.quota.keeper import QuotaKeeper
from headgate.quota.node_slices import NodeSlices
from headgate.region.active import ActiveRegions
from headgate.region.node import RegionNode
from headgate.simulation.loop import LoopClock
from headgate.simulation.network import NetworkedOrigin, NetworkPath, shard_names, shard_of
from headgate.simulation.regions.history import RegionFaultKind, RegionsHistory
from headgate.simulation.regions.links import LinkPath, SimulatedLink
from headgate.simulation.regions.scopes import HistoryScopes
from headgate.simulation.shard import SimulatedShard
from headgate.simulation.stage import Stage
from headgate.simulation.trace import Tracer

INSIDE_MS = (0.2, 1.0)
"""A round trip within a region."""
MAX_CELLS = 10_000
LISTED_EVERY_S: Final = 0.15
"""Seconds from node to node when their settings change."""
FOLLOWS_S: Final = 1.5
"""Longest time in seconds until an exchanger has seen that its peers are others."""


class Site:
    """One region: its shards, the nodes that live, and the exchangers that do."""

    def __init__(self, index: int, clock: LoopClock, shards: list[SimulatedShard], listed: tuple[str, ...]) -> None:
        self.index = index
        self.name = region_name(index)
        self.clock = clock
        self.shards = shards
        self.listed = listed
        """The list of shards that its settings say; none: all of them, and nothing to agree on."""
        self.nodes: list[RegionNode | None] = []
        self.limits: dict[RegionNode, LimitsOfRegion] = {}
        """Limits of the region on each node that lives."""
        self.exchangers: list[Exchanger[QuotaKeeper] | None] = []
        self.exchange_paths = [NetworkPath(delay_ms=INSIDE_MS) for _ in shards]
        """Paths from its exchangers to its shards."""
        self.runs = 0
        self.changing = asyncio.Lock()
        """Held while one of its exchangers gets other peers."""


class Removed(NamedTuple):
    """A region that the others have removed."""

    since_s: float
    tries: bool
    """True if it goes on trying to reach them."""


def region_name(index: int) -> str:
    """Name of a region, by its number."""
    return f"region-{index}"


class RegionsWorld(Stage[RegionsHistory]):
    """All regions of one history."""

    def __init__(self, history: RegionsHistory, trace: Tracer) -> None:
        super().__init__(history, trace)
        self.sites = [self._site(index) for index in range(history.regions)]
        self.links = {
            (site.index, peer.index): LinkPath(delay_ms=history.link_ms)
            for site in self.sites
            for peer in self.sites
            if site is not peer
        }
        self.removed: dict[int, Removed] = {}
        """Regions that the others have no more as a peer."""
        self._scopes = HistoryScopes(history)
        self._charges: dict[tuple[int, int], tuple[Charge, ...]] = {}

    def charges(self, site: Site, node: RegionNode, key: int, cost: int) -> tuple[Charge, ...]:
        """Charges of a request on a key, on this node."""
        known = self.history.keys[key]
        if known.limit.scope is Scope.CELL:
            return (Charge(known.name, site.limits[node].bind(known.limit), cost),)
        if (key, cost) not in self._charges:
            self._charges[key, cost] = charges_of([Charge(known.name, known.limit, cost)])
        return self._charges[key, cost]

    @property
    def listed(self) -> bool:
        """True if regions agree on lists of shards: then each has a spare one."""
        return any(fault.kind is RegionFaultKind.REGION_LISTED for fault in self.history.faults)

    def place_of(self, site: Site, key: bytes) -> int:
        """Index of the shard that counts a key in a region; of one that nobody counts, of one where it may begin."""
        found = [index for index, shard in enumerate(site.shards) if shard.has_open(key)]
        found += [index for index, shard in enumerate(site.shards) if shard.record(key) is not None]
        return found[0] if found else self.home_of(site, key)

    def home_of(self, site: Site, key: bytes) -> int:
        """Index of the shard to which a key belongs by the latest list that any of a region's shards has heard of."""
        placement = self.placement_of(site)
        return int(placement.shards[shard_of(key, len(placement.shards))])

    def placement_of(self, site: Site) -> Placement:
        """The latest list of shards that any of a region's has heard of."""
        latest = Placement(0, site.listed or shard_names(len(site.shards)))
        for shard in site.shards:
            kept = shard.memory.part(KeptPlacement).placement
            latest = kept if kept.overrules(latest) else latest
        return latest

    async def change_list(self, site: Site, listed: tuple[str, ...]) -> None:
        """Have a region's nodes want another list of shards, one after the other."""
        site.listed = listed
        for node in self.nodes(site):
            node.lists.want(listed)
            await asyncio.sleep(LISTED_EVERY_S)

    def _site(self, index: int) -> Site:
        history = self.history
        offset_ms = history.offsets_ms[index]
        shards = [
            SimulatedShard(
                LoopClock(history.unix_ms, offset_ms=offset_ms), epoch=b"%d" % shard, region=region_name(index).encode()
            )
            for shard in range(history.shards + self.listed)
        ]
        listed = shard_names(history.shards) if self.listed else ()
        return Site(index, LoopClock(history.unix_ms, offset_ms=offset_ms), shards, listed)

    def nodes(self, site: Site) -> Iterator[RegionNode]:
        """Nodes that live."""
        return (node for node in site.nodes if node is not None)

    async def start(self) -> None:
        """Every node and every exchanger of every region."""
        for site in self.sites:
            site.nodes = [None] * self.history.nodes
            site.exchangers = [None] * self.history.exchangers
            for number in range(self.history.nodes):
                await self.start_node(site, number)
        for site in self.sites:
            for number in range(self.history.exchangers):
                self.start_exchanger(site, number)

    async def start_node(self, site: Site, number: int) -> None:
        """A new run of a node."""
        site.runs += 1
        who = f"{site.name} node {number} run {site.runs}"
        limits = LimitsOfRegion(self.history.regions)
        active = ActiveRegions(limits, self.history.regions, site.clock, lambda regions: None)
        node = RegionNode(
            NetworkedOrigin(
                site.shards, [NetworkPath(delay_ms=INSIDE_MS) for _ in site.shards], self.chance(who), site.listed
            ),
            run=who.encode(),
            clock=site.clock,
            random=self.chance(who),
            logger=self.logger(who),
            max_cells=MAX_CELLS,
            deadline_s=self.history.deadline_ms / 1000,
            on_regions_heard=active.heard,
            extension=partial(NodeSlices, monotonic=site.clock.monotonic, most=MAX_CELLS),
        )
        site.nodes[number] = node
        site.limits[node] = limits
        await node.start()

    async def kill_node(self, site: Site, number: int) -> None:
        """End a node as kill −9 does."""
        node, site.nodes[number] = site.nodes[number], None
        if node is not None:
            del site.limits[node]
            await node.abandon()

    def start_exchanger(self, site: Site, number: int) -> None:
        """A new run of an exchanger."""
        site.runs += 1
        who = f"{site.name} exchanger {number} run {site.runs}"
        chance = self.chance(who)
        peers = self._peers(site)
        origin = NetworkedOrigin(site.shards, site.exchange_paths, self.chance(who), site.listed)
        exchanger = Exchanger(
            ExchangeSite(site.name, origin, who.encode(), site.clock, chance, self.logger(who), self._scopes),
            {peer.name: self._link(site, peer, chance) for peer in peers},
            {},
            QuotaKeeper,
        )
        site.exchangers[number] = exchanger
        exchanger.start()

    async def remove(self, site: Site, *, tries: bool) -> None:
        """Have no exchanger of another region know this one as a peer; and this one none of them, unless it `tries`."""
        self.removed[site.index] = Removed(self.loop.time(), tries)
        await self._follow_peers()

    async def add(self, site: Site) -> None:
        """Have all regions know each other again."""
        del self.removed[site.index]
        await self._follow_peers()

    def _peers(self, site: Site) -> list[Site]:
        own = self.removed.get(site.index)
        if own is not None and not own.tries:
            return []
        return [peer for peer in self.sites if peer is not site and peer.index not in self.removed]

    async def _follow_peers(self) -> None:
        running = [(site, each) for site in self.sites for each in site.exchangers if each is not None]
        await asyncio.gather(*(self._follow(site, exchanger) for site, exchanger in running))

    async def _follow(self, site: Site, exchanger: Exchanger[QuotaKeeper]) -> None:
        """Give an exchanger the peers of its region, when it has looked at its file."""
        chance = self.chance(f"{site.name} peers {self.loop.time():.6f} {site.exchangers.index(exchanger)}")
        await asyncio.sleep(round(chance.uniform(0, FOLLOWS_S), 6))
        async with site.changing:
            if exchanger not in site.exchangers:
                return  # killed
            wanted = {peer.name: peer for peer in self._peers(site)}
            joining = {
                name: self._link(site, peer, chance) for name, peer in wanted.items() if name not in exchanger.peers
            }
            leaving = [name for name in exchanger.peers if name not in wanted]
            await exchanger.change_peers(leaving, joining, dict.fromkeys(joining, ""))

    async def kill_exchanger(self, site: Site, number: int) -> None:
        """End an exchanger without its last steps."""
        exchanger, site.exchangers[number] = site.exchangers[number], None
        if exchanger is not None:
            await exchanger.abandon()

    def _link(self, site: Site, peer: Site, chance: random.Random) -> SimulatedLink:
        def receiver() -> Receiver | None:
            alive = [exchanger for exchanger in peer.exchangers if exchanger is not None]
            return chance.choice(alive).receiver if alive else None

        there, back = self.links[site.index, peer.index], self.links[peer.index, site.index]
        return SimulatedLink(site.name, there, back, receiver, chance)
