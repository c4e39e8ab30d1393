"""The clients of a history: its requests, each at its time, and what became of them."""

import asyncio
from functools import partial

from headgate.limiter.decision import Charge, Decision, Kind
from headgate.region.counters import SharedCounter
from headgate.region.node import RegionNode
from headgate.simulation.awaiting import future_of
from headgate.simulation.decision_watch import Asked
from headgate.simulation.history import Ask
from headgate.simulation.outcome import SimulationOutcome
from headgate.simulation.watch import Watch
from headgate.simulation.world import NodeSlot, World


class Clients:
    """Sends a history's requests to its nodes, each at its time, and counts what became of them."""

    def __init__(self, world: World, watch: Watch) -> None:
        self._world = world
        self._watch = watch
        self._asks = world.history.asks
        self._next = 0
        self._done = asyncio.Event()
        self.outcome = SimulationOutcome(world.history, world.violations)

    async def run(self) -> None:
        """Ask; returns when the last request has been asked."""
        self._go_on()
        await self._done.wait()

    def _go_on(self) -> None:
        # One timer for all requests: they are in order.
        now_us = round(self._world.loop.time() * 1e6)
        while self._next < len(self._asks) and self._asks[self._next].at_us <= now_us:
            self._ask(self._asks[self._next])
            self._next += 1
        if self._next < len(self._asks):
            self._world.loop.call_at(self._asks[self._next].at_us / 1e6, self._go_on)
        else:
            self._done.set()

    def _ask(self, ask: Ask) -> None:
        slot = self._world.serving(ask.slot)
        if slot is None or slot.node is None:
            self.outcome.unserved += 1
            return
        self.outcome.requests += 1
        node = slot.node
        charges = self._world.charges(slot, ask.parts)
        asked = Asked(slot, node, charges, self._world.loop.time(), self._times_ms(node, charges))
        unplaced = node.engine.stats.unplaced
        decision = node.decide(charges)
        cells = [node.engine.counters.find(charge.key) for charge in charges]
        self._watch.decisions.demanded(charges, cells)
        if isinstance(decision, Decision):
            self._decided(asked, cells, decision, node.engine.stats.unplaced > unplaced)
            return
        self.outcome.waited += 1
        slot.waiting += 1
        for charge in charges:
            slot.open[charge.key] += waits_for(charge)
            slot.open_most[charge.key] = max(slot.open_most[charge.key], slot.open[charge.key])
        future_of(decision).add_done_callback(partial(self._answered, asked, cells))

    def _times_ms(self, node: RegionNode, charges: tuple[Charge, ...]) -> tuple[tuple[int, int], ...]:
        shards = [self._world.shard_of(charge.key) for charge in charges]
        return tuple(
            [
                (self._world.node_time_ms(node, index), self._world.shards[index].key_time_ms(charge.key))
                for index, charge in zip(shards, charges, strict=True)
            ]
        )

    def _answered(self, asked: Asked, cells: list[SharedCounter | None], future: "asyncio.Future[Decision]") -> None:
        slot = asked.slot
        if slot.node is not asked.node:
            return  # its node is dead: no answer comes
        slot.waiting -= 1
        for charge in asked.charges:
            slot.open[charge.key] -= waits_for(charge)
        self._decided(asked, cells, future.result(), False)

    def _decided(self, asked: Asked, cells: list[SharedCounter | None], decision: Decision, unplaced: bool) -> None:
        self.outcome.decided(self._world.loop.time(), asked.slot.index, decision)
        if self._world.trace.listening:
            self._world.trace.say(asked.slot.name, _decision_text(asked, decision))
        self._watch.decisions.decided(asked, cells, decision, unplaced)


def _decision_text(asked: Asked, decision: Decision) -> str:
    wants = ", ".join([f"{charge.key.decode()} × {charge.cost}" for charge in asked.charges])
    return f"{wants}: {'admitted' if decision.admitted else 'denied'} ({decision.path.value})"


def waits_for(charge: Charge) -> int:
    """Cost that a shard may charge for it: a peek is not charged, and a late cost is no longer asked for."""
    return charge.cost if charge.kind is Kind.TAKE else 0


def waiting(slots: list[NodeSlot]) -> int:
    """Number of requests that wait for a decision, on all nodes."""
    return sum(slot.waiting for slot in slots)
