"""The exchange with other regions, where this process is the one that speaks to them."""

from collections.abc import Mapping
from typing import Any

from headgate.runtime.context import ProcessContext
from headgate.runtime.regions import RegionExchange, key_scopes, register_exchange
from headgate.runtime.room import Room, Rooms
from headgate.runtime.rooms.decision_log import DecisionLogRoom
from headgate.runtime.rooms.peers import PeersRoom
from headgate.runtime.rooms.region import RegionRoom
from headgate.runtime.rooms.rules import RulesRoom
from headgate.telemetry.metrics import Metrics


class ExchangeRoom(Room):
    """Runs one exchanger per machine: that is enough, so of several workers it is the first one's."""

    _exchange: RegionExchange | None = None
    """None where there are no other regions, or another process speaks to them."""

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        self._log = rooms.get(DecisionLogRoom)
        self._peers = rooms.get(PeersRoom).list
        self._region = rooms.get(RegionRoom)
        self._rules = rooms.get(RulesRoom)

    async def start(self) -> None:
        context, settings = self.context, self.context.settings
        if not settings.has_peers or not settings.exchange_inside or not context.first:
            return
        self._exchange = RegionExchange(
            settings,
            context.identity,
            self._peers,
            nodes_origin=self._region.origin,
            scopes=key_scopes(settings, self._rules.store, self._region.limits),
            clock=context.clock,
            random=context.random,
            logger=self._log.history,
        )
        await self._exchange.start()

    def describe(self) -> Mapping[str, Any]:
        """Describe this region and its peers for `/regions`."""
        peers = [{"region": peer.region, "address": peer.address} for peer in self._peers.now]
        known = {"region": self.context.settings.region, "peers": peers}
        exchange = known if self._exchange is None else self._exchange.describe()
        return {**exchange, "active": self._region.limits.active, "exchanging": self._exchange is not None}

    def register(self, metrics: Metrics) -> None:
        if self._exchange is not None:
            register_exchange(metrics, self._exchange, self.context.clock)

    async def stop(self, patience_s: float) -> None:
        if self._exchange is not None:
            await self._exchange.stop()
