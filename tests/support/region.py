"""A region in one process, on virtual time: the production nodes over origins in memory.

Only clocks, network and shards are simulated. Every admission is logged with the shard's
own time, so that it can be measured afterwards as one perfect observer would.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import structlog
from headgate.limiter.decision import Charge, Decision
from headgate.limiter.limit import Algorithm, Limit
from headgate.origin.window_record import WindowRecord
from headgate.region.node import RegionNode
from headgate.simulation.awaiting import future_of
from headgate.simulation.loop import LoopClock, run_virtually
from headgate.simulation.network import NetworkedOrigin, NetworkPath
from headgate.simulation.shard import SimulatedShard

UNIX_MS = 1_700_000_000_000
LOGGER = structlog.get_logger().bind()


class RegionWorld:
    """Create inside a running (virtual) loop."""

    def __init__(self, seed: int, *, shards: int = 1, deadline_s: float = 5.0, max_cells: int = 100_000) -> None:
        self.random = random.Random(seed)
        self.clock = LoopClock(UNIX_MS)
        self.shards = [SimulatedShard(self.clock) for _ in range(shards)]
        self.nodes: list[RegionNode] = []
        self.networks: list[NetworkPath] = []
        self.deadline_s = deadline_s
        self.max_cells = max_cells
        self.admitted: dict[bytes, list[tuple[int, int]]] = {}
        self.outcomes: Counter[tuple[str, bool]] = Counter()
        self.waits = 0
        self._tasks: set[asyncio.Task[Decision]] = set()
        self._runs = 0

    async def start_node(self, *, offset_ms: int = 0, listed: tuple[str, ...] = (), **path: Any) -> RegionNode:
        self._runs += 1
        network = NetworkPath(**path)
        node = RegionNode(
            NetworkedOrigin(self.shards, [network] * len(self.shards), self.random, listed),
            run=b"run%d" % self._runs,
            clock=LoopClock(UNIX_MS, offset_ms=offset_ms),
            random=self.random,
            logger=LOGGER,
            max_cells=self.max_cells,
            deadline_s=self.deadline_s,
        )
        await node.start()
        self.nodes.append(node)
        self.networks.append(network)
        return node

    async def kill(self, node: RegionNode) -> None:
        """As kill −9: nothing is flushed, nothing is given back."""
        await node.abandon()
        index = self.nodes.index(node)
        del self.nodes[index], self.networks[index]

    async def ask(self, node: RegionNode, *charges: Charge) -> Decision:
        decision = node.decide(charges)
        if not isinstance(decision, Decision):
            self.waits += 1
            decision = await future_of(decision)
        self.outcomes[decision.path.value, decision.admitted] += 1
        if decision.admitted:
            for charge in charges:
                self.admitted.setdefault(charge.key, []).append((self.clock.now_ms(), charge.cost))
        return decision

    def ask_soon(self, node: RegionNode, *charges: Charge) -> None:
        task = asyncio.get_running_loop().create_task(self.ask(node, *charges))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def load(self, per_s: float, seconds: float, *charges: Charge) -> None:
        """Requests at random times to random nodes."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while True:
            await asyncio.sleep(self.random.expovariate(per_s))
            if loop.time() >= end_s:
                break
            self.ask_soon(self.random.choice(self.nodes), *charges)
        await asyncio.gather(*self._tasks)

    async def quiet(self, seconds: float = 3.0) -> None:
        """Long enough for everything that is due to be flushed."""
        await asyncio.sleep(seconds)

    def worst(self, key: bytes, limit: Limit) -> int:
        """The highest count at any admission, by the window's own measure."""
        window_ms, worst = limit.window_ms, 0
        counts: Counter[int] = Counter()
        for now_ms, cost in self.admitted.get(key, []):
            sequence, elapsed_ms = divmod(now_ms, window_ms)
            counts[sequence] += cost
            previous = counts[sequence - 1] if limit.algorithm is Algorithm.SLIDING_WINDOW else 0
            worst = max(worst, counts[sequence] + previous * (window_ms - elapsed_ms) // window_ms)
        return worst

    def admitted_in(self, key: bytes, window_ms: int, sequence: int) -> int:
        return sum(cost for now_ms, cost in self.admitted.get(key, []) if now_ms // window_ms == sequence)

    def record(self, key: bytes) -> WindowRecord:
        for shard in self.shards:
            found = shard.record(key)
            if found is not None:
                assert isinstance(found, WindowRecord)
                return found
        raise KeyError(key)


def virtually(history: Coroutine[Any, Any, None]) -> None:
    run_virtually(history)
