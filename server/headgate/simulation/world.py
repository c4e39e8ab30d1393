"""The simulated region: shards, and places for nodes in which runs come and go.

Create it inside a running (virtual) loop. It decides nothing itself: faults.py says what breaks, watch.py what that
means.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from headgate.limiter.decision import Charge
from headgate.limiter.limit import Limit
from headgate.origin.placement import KeptPlacement, Placement
from headgate.region.counters import SharedCounter
from headgate.region.node import RegionNode
from headgate.simulation.history import FaultKind, SimulationHistory
from headgate.simulation.loop import LoopClock
from headgate.simulation.network import NetworkedOrigin, NetworkPath, shard_names, shard_of
from headgate.simulation.shard import SimulatedShard
from headgate.simulation.stage import Stage
from headgate.simulation.trace import Tracer

DRAIN_S: Final = 1.0


@dataclass(eq=False)
class NodeSlot:
    """A place for a node: its clock, its ways to the shards, and the run that is there now, if any."""

    index: int
    clock: LoopClock
    paths: list[NetworkPath]
    node: RegionNode | None = None
    serving: bool = False
    runs: int = 0
    live_nodes: int = 1
    listed: tuple[str, ...] = ()
    """The list of shards that it wants; none: all of the world's, and nothing to agree on."""
    open: Counter[bytes] = field(default_factory=Counter)
    """Cost of the requests under way, by key; and the most that it ever was."""
    open_most: Counter[bytes] = field(default_factory=Counter)
    waiting: int = 0

    @property
    def name(self) -> str:
        return f"node {self.index}"

    @property
    def run(self) -> bytes:
        """Prefix of the component names of the run that is there now."""
        return b"node%d-%d" % (self.index, self.runs)


class World(Stage[SimulationHistory]):
    """The nodes, shards, clocks and networks of one history."""

    def __init__(self, history: SimulationHistory, trace: Tracer) -> None:
        super().__init__(history, trace)
        clocks = list(zip(history.shard_offsets_ms, history.shard_drifts_ppm, strict=True))
        self.listed = any(fault.kind in (FaultKind.RELISTED, FaultKind.LISTED) for fault in history.faults)
        """Nodes agree on a list of shards, and there is a spare shard that it may come to name."""
        if self.listed:
            clocks.append(clocks[0])
        self.shards = [
            SimulatedShard(LoopClock(history.unix_ms, offset_ms=offset_ms, drift_ppm=drift_ppm))
            for offset_ms, drift_ppm in clocks
        ]
        self.slots = [self._slot(index) for index in range(history.nodes)]
        self.limits: list[list[Limit]] = [[key.limit] for key in history.keys]
        """Every version of each key's rule."""
        self.versions = [[0] * len(history.keys) for _ in self.slots]
        """Index of the limit that each node uses, by key."""
        self._charges: dict[tuple[int, int, int], Charge] = {}

    def _slot(self, index: int) -> NodeSlot:
        history = self.history
        clock = LoopClock(
            history.unix_ms, offset_ms=history.node_offsets_ms[index], drift_ppm=history.node_drifts_ppm[index]
        )
        paths = [NetworkPath(delay_ms=history.delay_ms) for _ in self.shards]
        return NodeSlot(index, clock, paths, listed=self.list_with(0) if self.listed else ())

    def list_with(self, spare: int) -> tuple[str, ...]:
        """The list of the history's shards, with so many spare ones."""
        return shard_names(self.history.shards + spare)

    def shard_of(self, key: bytes) -> int:
        """Index of the shard that counts a key; of one that nobody counts, where it is or would be."""
        if not self.listed:
            return super().shard_of(key)
        found = [index for index, shard in enumerate(self.shards) if shard.has_open(key)]
        found += [index for index, shard in enumerate(self.shards) if shard.record(key) is not None]
        return found[0] if found else super().shard_of(key)

    @property
    def placement(self) -> Placement:
        """The latest list of shards that any of them has heard of."""
        latest = Placement(0, self.list_with(0))
        for shard in self.shards:
            kept = shard.memory.part(KeptPlacement).placement
            latest = kept if kept.overrules(latest) else latest
        return latest

    @property
    def list_number(self) -> int:
        """Number of that list; 0 where nodes agree on none."""
        return self.placement.number if self.listed else 0

    def owners(self, key: bytes) -> list[tuple[int, bool]]:
        """Shards that may count a key, in the order in which to ask, and whether it leaves each."""
        if not self.listed:
            return [(super().shard_of(key), False)]
        _, shards, before = self.placement
        home = int(shards[shard_of(key, len(shards))])
        former = int(before[shard_of(key, len(before))]) if before else home
        return [(home, False)] if former == home else [(former, True), (home, False)]

    def may_count(self, key: bytes) -> set[int]:
        """Shards that may count a key, by any list that nodes may agree on."""
        spare = (0, 1) if self.listed else (0,)
        return {shard_of(key, self.history.shards + more) for more in spare}

    def serving(self, index: int) -> NodeSlot | None:
        """The node asked for, or the next one that serves, as a balancer would."""
        for step in range(len(self.slots)):
            slot = self.slots[(index + step) % len(self.slots)]
            if slot.serving:
                return slot
        return None

    def charges(self, slot: NodeSlot, parts: tuple[tuple[int, int], ...]) -> tuple[Charge, ...]:
        return tuple([self._charge(key, self.versions[slot.index][key], cost) for key, cost in parts])

    def _charge(self, key: int, version: int, cost: int) -> Charge:
        charge = self._charges.get((key, version, cost))
        if charge is None:
            name, limit = self.history.keys[key].name, self.limits[key][version]
            charge = Charge(name, limit, abs(cost), refund=cost < 0)
            self._charges[key, version, cost] = charge
        return charge

    def limit_at(self, key: bytes, requests_per_unit: int) -> Limit:
        """The version of a key's rule that says so much."""
        versions = next(self.limits[index] for index, known in enumerate(self.history.keys) if known.name == key)
        return next(limit for limit in reversed(versions) if limit.requests_per_unit == requests_per_unit)

    def nodes(self) -> Iterator[tuple[NodeSlot, RegionNode]]:
        """Nodes that live."""
        for slot in self.slots:
            if slot.node is not None:
                yield slot, slot.node

    def clock_was_set(self, key: bytes) -> bool:
        """Say if the clock of a shard was set that has the key, or may have had it."""
        shards = self.shards if self.listed else [self.shards[self.shard_of(key)]]
        return any(shard.clock_steps for shard in shards)

    def node_time_ms(self, node: RegionNode, index: int) -> int:
        """Time of a shard as a node knows it; of one that the node is not in touch with, the shard's own."""
        link = node.links[index] if index < len(node.links) else None
        return link.session.now_ms() if link is not None and link.in_use else self.shards[index].time_ms()

    def counters(self) -> Iterator[tuple[NodeSlot, RegionNode, SharedCounter]]:
        for slot, node in self.nodes():
            for counter in node.engine.counters:
                yield slot, node, counter

    # The life of a node

    async def start(self, slot: NodeSlot) -> None:
        slot.runs += 1
        run = slot.run
        chance = self.chance(run.decode())
        node = RegionNode(
            NetworkedOrigin(self.shards, slot.paths, chance, slot.listed),
            run=run,
            clock=slot.clock,
            random=chance,
            # A generator of its own, so that a history without pauses stays the same.
            pause_random=self.chance(f"{run.decode()} turns"),
            logger=self.logger(slot.name),
            max_cells=self.history.max_cells,
            deadline_s=self.history.deadline_ms / 1000,
            live_nodes=slot.live_nodes,
        )
        slot.node = node
        await node.start()
        slot.serving = True
        self.trace.say(slot.name, f"serves as {run.decode()}")

    async def kill(self, slot: NodeSlot) -> None:
        """End a run as kill −9 does: nothing is flushed, nothing is released, no request is answered."""
        node, slot.node, slot.serving = slot.node, None, False
        if node is not None:
            slot.live_nodes = node.live_nodes
            await node.abandon()
        slot.open.clear()
        slot.open_most.clear()
        slot.waiting = 0

    async def drain(self, slot: NodeSlot) -> None:
        """No new requests; what is under way is answered, what was admitted reported, allowances given back."""
        slot.serving = False
        while slot.node is not None and slot.waiting:  # noqa: ASYNC110 - on virtual time this costs nothing
            await asyncio.sleep(0.005)
        if slot.node is not None:
            await slot.node.stop(DRAIN_S)
            await self.kill(slot)
