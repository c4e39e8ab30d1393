"""Run one history of several regions, and say what came of it."""

import asyncio
from typing import Final

from headgate.limiter.decision import Decision
from headgate.simulation.awaiting import future_of
from headgate.simulation.outcome import SimulationOutcome
from headgate.simulation.regions.check import RegionsWatch
from headgate.simulation.regions.faults import RegionFaults
from headgate.simulation.regions.history import RegionAsk, RegionsHistory
from headgate.simulation.regions.hostile import HostileHistory, HostilePeer
from headgate.simulation.regions.quota_watch import QuotaWatch
from headgate.simulation.regions.world import RegionsWorld
from headgate.simulation.trace import Tracer

HEAL_S: Final = 16.0
"""A lease (5 s) of an exchanger that died, a retry (2 s), an interval of each side, a fill of several pages; and
a batch that comes again 4 s later."""
RETURN_S: Final = 20.0
"""Seconds to wait in addition for quotas: a region that was lost stays at its floors for 10 s when all hear it again.
"""
AFTERWARDS_S: Final = 45.0
"""Seconds after a day without faults: two of the longest windows whose names are checked, and the records' slack."""


class _Clients:
    def __init__(self, world: RegionsWorld, watch: RegionsWatch) -> None:
        self._world = world
        self._watch = watch
        self.outcome = SimulationOutcome(world.history, world.violations)
        self._waiting: set[asyncio.Future[Decision]] = set()

    async def run(self) -> None:
        for ask in self._world.history.asks:
            await asyncio.sleep(max(0.0, ask.at_us / 1e6 - self._world.loop.time()))
            self._ask(ask)
        if self._waiting:
            await asyncio.wait(self._waiting)

    def _ask(self, ask: RegionAsk) -> None:
        site = self._world.sites[ask.region]
        node = site.nodes[ask.node] or next(self._world.nodes(site), None)
        if node is None:
            self.outcome.unserved += 1
            return
        self.outcome.requests += 1
        asked_s = self._world.loop.time()
        self._watch.offered.append((asked_s, ask.key, ask.cost))
        decision = node.decide(self._world.charges(site, node, ask.key, ask.cost))
        if isinstance(decision, Decision):
            self._decided(ask, asked_s, decision)
            return
        self.outcome.waited += 1
        future = future_of(decision)
        self._waiting.add(future)
        future.add_done_callback(lambda done: self._answered(ask, asked_s, done))

    def _answered(self, ask: RegionAsk, asked_s: float, done: "asyncio.Future[Decision]") -> None:
        self._waiting.discard(done)
        if not done.cancelled():
            self._decided(ask, asked_s, done.result())

    def _decided(self, ask: RegionAsk, asked_s: float, decision: Decision) -> None:
        now_s = self._world.loop.time()
        if now_s - asked_s > self._world.history.deadline_ms / 1000 + 0.001:
            self._world.violate("deadline", f"a request waited for {now_s - asked_s:.3f} s")
        self.outcome.decided(now_s, ask.region, decision)
        if decision.admitted:
            self._watch.admitted.append((now_s, ask.region, ask.key, ask.cost))


async def run_regions(history: RegionsHistory, trace: Tracer) -> SimulationOutcome:
    """Play a history; call on a virtual loop."""
    world = RegionsWorld(history, trace)
    watch = RegionsWatch(world)
    quotas = QuotaWatch(world)
    clients, faults = _Clients(world, watch), RegionFaults(world)
    world.report_uncaught()
    await world.start()
    looking = asyncio.create_task(quotas.run())
    hostile = [HostilePeer(world, history.hostile)] if isinstance(history, HostileHistory) else []
    await asyncio.gather(clients.run(), faults.run(history.faults), *(peer.run() for peer in hostile))
    await asyncio.sleep(HEAL_S)
    watch.check()
    for peer in hostile:
        peer.check()
    if quotas.keys:
        await asyncio.sleep(RETURN_S)
        quotas.check()
    looking.cancel()
    if not history.faults:
        await asyncio.sleep(AFTERWARDS_S)
        watch.check_outbox()
    for site in world.sites:
        for number in range(len(site.exchangers)):
            await world.kill_exchanger(site, number)
        for number in range(len(site.nodes)):
            await world.kill_node(site, number)
    return clients.outcome
