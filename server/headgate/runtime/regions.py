"""The exchange with other regions, in a process: its links and its listener."""

import asyncio
import random
from collections.abc import Mapping
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.config import Settings
from headgate.config.kinds import Peer
from headgate.exchange import instruments
from headgate.exchange.cut_off import CutRegions
from headgate.exchange.exchanger import Exchanger
from headgate.exchange.grpc_link import GrpcPeerLink
from headgate.exchange.grpc_server import ExchangeServer
from headgate.exchange.hello import Regions
from headgate.exchange.peer_list import MOST_PEERS, PeerList
from headgate.exchange.site import ExchangeSite, KeyScopes
from headgate.limiter.scopes import LimitsOfRegion
from headgate.origin.interface import Origin
from headgate.origin.select import open_origin
from headgate.quota import instruments as quota_instruments
from headgate.quota.keeper import QuotaKeeper
from headgate.rules.global_keys import GlobalKeys
from headgate.rules.request_limits import RequestLimits
from headgate.rules.store import RuleStore
from headgate.runtime.access import exchange_security
from headgate.runtime.identity import Identity
from headgate.telemetry.bounded import BoundedLogger
from headgate.telemetry.metrics import Metrics

STOP_TIMEOUT_S: Final = 1.0
"""For batches under way: what is cut off here is sent again."""
MEMORY: Final = "memory://"


def limits_of_region(settings: Settings, peers: PeerList) -> LimitsOfRegion:
    """Limits as this region enforces them, by the regions that there are now."""
    return LimitsOfRegion(1 + len(peers.now), overdraft=settings.overdraft, refund=settings.refund)


def key_scopes(settings: Settings, rules: RuleStore, limits: LimitsOfRegion) -> KeyScopes:
    """The keys that this region shares with others, by the rules in force."""
    return GlobalKeys(lambda: rules.current, limits, RequestLimits(settings.request_limits))


def open_regions_origin(settings: Settings, clock: Clock, logger: FilteringBoundLogger) -> Origin:
    """The origin as nodes and exchangers of a region use it."""
    return open_origin(
        settings.origin,
        clock=clock,
        region=settings.region,
        prefix=settings.redis_prefix,
        logger=logger,
        shared=settings.has_peers,
    )


class RegionExchange:
    """One process's exchanger: it sends to every peer, and takes in what they send."""

    def __init__(
        self,
        settings: Settings,
        identity: Identity,
        peers: PeerList,
        *,
        nodes_origin: Origin | None,
        scopes: KeyScopes,
        clock: Clock,
        random: random.Random,
        logger: FilteringBoundLogger,
    ) -> None:
        """Raises ConfigError where anybody could speak for a region."""
        self._peers = peers
        self._clock = clock
        self._regions = Regions(settings.region, peers.names)
        self._security = exchange_security(settings, peers.now, logger)
        # A connection of its own: no request of a node ever stands behind a page of changes.
        shares = settings.origin == MEMORY and nodes_origin is not None
        self._own_origin = None if shares else open_regions_origin(settings, clock, logger)
        origin = self._own_origin or nodes_origin
        assert origin is not None  # noqa: S101 - one of the two is there
        self.links = {peer.region: self._link(peer) for peer in peers.now}
        owner = f"{identity.node}/{identity.run}".encode()
        new_keys_bytes = settings.exchange_new_keys_bytes
        self.exchanger = Exchanger(
            ExchangeSite(settings.region, origin, owner, clock, random, logger, scopes, new_keys_bytes),
            self.links,
            {peer.region: peer.address for peer in peers.now},
            QuotaKeeper,
            settings.exchange_interval_s,
            CutRegions(origin),
        )
        self.server = ExchangeServer(
            settings.exchange,
            self.exchanger.receiver,
            regions=self._regions,
            security=self._security,
            clock=clock,
            logger=BoundedLogger(logger, clock),
            socket_mode=int(settings.socket_mode, 8),
            most_peers=MOST_PEERS if settings.peer_file is not None else 0,
        )
        self._watching: asyncio.Task[None] | None = None

    def _link(self, peer: Peer) -> GrpcPeerLink:
        return GrpcPeerLink(
            peer.region, peer.address, regions=self._regions, security=self._security, clock=self._clock
        )

    async def start(self) -> None:
        """Listen, then send. Raises ConfigError when the address can't be had."""
        if self._own_origin is not None:
            await self._own_origin.open()
        await self.exchanger.shard_list.look()
        await self.server.start()
        if self._security.tokens is not None:
            self._watching = asyncio.create_task(self._security.tokens.watch(), name="exchange-tokens")
        self.exchanger.start()
        self._peers.listen(self._follow_peers)

    async def _follow_peers(self) -> None:
        """Speak to the peers that there are now. One with another address is another one."""
        known = {Peer(region, link.address) for region, link in self.links.items()}
        leaving = [peer.region for peer in known.difference(self._peers.now)]
        joining = {peer.region: self._link(peer) for peer in self._peers.now if peer not in known}
        # Those that leave are refused before they are forgotten, and those that come are heard when all is ready.
        self._regions.peers = self._regions.peers.difference(leaving)
        for region in leaving:
            del self.links[region]
            self.server.forget(region)
        self.links.update(joining)
        await self.exchanger.change_peers(leaving, joining, {peer.region: peer.address for peer in self._peers.now})
        self._regions.peers = self._peers.names

    async def stop(self) -> None:
        """Stop. Counts that were not acknowledged stay in the origin, for others or the next run."""
        await self.exchanger.stop()
        await self.server.stop(STOP_TIMEOUT_S)
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._own_origin is not None:
            await self._own_origin.close()

    def describe(self) -> Mapping[str, Any]:
        """For people: this region, where it listens, and every peer."""
        said = self.exchanger.describe()
        peers = [self._with_bytes(peer) for peer in said["peers"]]
        error = {"peer_file_error": self._peers.error} if self._peers.error else {}
        return {"exchange": self.server.address, **said, "peers": peers, **error}

    def _with_bytes(self, peer: Mapping[str, Any]) -> Mapping[str, Any]:
        sent = {**peer["sent"], "bytes": self.sent_bytes(peer["region"])}
        received = {**peer["received"], "bytes": self.received_bytes(peer["region"])}
        return {**peer, "sent": sent, "received": received}

    def sent_bytes(self, peer: str) -> int:
        """Bytes of batches that the peer has acknowledged."""
        link = self.links.get(peer)
        return link.stats.bytes_sent if link is not None else 0

    def slowed_s(self, peer: str) -> float:
        """Seconds for which the peer's batches waited for their turn."""
        return self.server.stats.slowed_s[peer]

    def received_bytes(self, peer: str) -> int:
        """Bytes of batches that the peer has sent."""
        return self.server.stats.bytes_from[peer]


def register_exchange(metrics: Metrics, exchange: RegionExchange, clock: Clock) -> None:
    """Export the metrics of the exchange, and of the quota keeper that works through it."""
    by_peer = exchange.sent_bytes, exchange.received_bytes, exchange.slowed_s
    instruments.register(metrics, exchange.exchanger.peers, *by_peer, clock)
    quota_instruments.register(metrics, exchange.exchanger.quotas)
