"""Two regions in one process: origins in memory on a clock that is set, and links that hand batches over."""

import random
from collections.abc import Callable

import structlog
from headgate.exchange.messages import Ack, Batch, LinkError
from headgate.exchange.peers import PeerStatus
from headgate.exchange.receiver import OriginReceiver
from headgate.exchange.sender import PeerSender
from headgate.exchange.site import NEW_KEYS_BYTES, ExchangeSite
from headgate.keys.peek_key import PeekKey, WindowPeek
from headgate.origin.memory import MemoryOrigin
from headgate.origin.names import exchange_name
from headgate.origin.operations.call import Call
from headgate.origin.protocol import UNBOUND, CellReport, Count, Demand, WindowAnswer, WindowReport

from tests.support.clock import ManualClock

WINDOW_MS = 60_000
SEQUENCE = 30_000_000
START_MS = SEQUENCE * WINDOW_MS
LOGGER = structlog.get_logger().bind()


class ChosenKeys:
    """Rules by which regions share all keys but those that begin with `own`. Implements `KeyScopes`."""

    def __init__(self) -> None:
        self.version: object = "first"
        self.shared: set[bytes] = set()

    def is_global(self, key: bytes, place: bytes, window_ms: int) -> bool:
        return not key.startswith(b"own") or key in self.shared


class Region:
    """One region: its origin, and what takes peers' batches in."""

    def __init__(self, name: str, *peers: str, now_ms: int = START_MS, new_keys_bytes: int = NEW_KEYS_BYTES) -> None:
        self.name = name
        self.clock = ManualClock(now_ms)
        self.origin = MemoryOrigin(self.clock, region=name.encode())
        self.peers = {peer: PeerStatus(peer, "") for peer in peers}
        self.scopes = ChosenKeys()
        self.site = ExchangeSite(
            name, self.origin, b"exchanger", self.clock, random.Random(1), LOGGER, self.scopes, new_keys_bytes
        )
        self.receiver = OriginReceiver(self.site, self.peers)
        self._number = 0

    def count(
        self, total: int, key: bytes = b"k", *, publish_at: int = 1, reset: int = UNBOUND, back: int = 0, told: int = 0
    ) -> None:
        """A node has admitted so much in all, since that reset of the key, demanded so much back, and was given so
        much of it."""
        self._number += 1
        sequence = self.clock.now_ms() // WINDOW_MS
        name = exchange_name(key, key, WINDOW_MS)
        cells = (CellReport(sequence, total, 0, 0, total),)
        own = (key, b"node", self._number, 0, 0, 100, WINDOW_MS, 0, True, False, cells, publish_at, name, False, reset)
        demands = (Demand(sequence, back, told, told),)
        self.origin.apply(Call((WindowReport(*own, demands),), ()))

    def known(self, key: bytes = b"k") -> Count:
        """What a node is told of the current cell."""
        report = WindowReport(key, b"reader", 0, 0, 0, 100, WINDOW_MS, 0, True, False, ())
        (answer,) = self.origin.apply(Call((report,), ())).answers
        assert isinstance(answer, WindowAnswer)
        return answer.current

    def used(self, key: bytes = b"k") -> int:
        """What counts in the current cell, less what was given back, in all regions."""
        record = self.origin.apply(PeekKey(key, WINDOW_MS)).record
        assert isinstance(record, WindowPeek)
        return record.current.used

    def sender_to(self, peer: "Region", link: "Handover | None" = None) -> PeerSender:
        return PeerSender(self.site, link or Handover(self, peer), self.peers[peer.name])


class Handover:
    """A link that takes no time. `on_send` sees every batch first, and may raise LinkError."""

    def __init__(self, region: Region, peer: Region) -> None:
        self._region = region
        self._peer = peer
        self.batches: list[Batch] = []
        self.on_send: Callable[[Batch], None] = lambda batch: None
        self.lose_acks = False

    is_renewed = False

    async def send(self, batch: Batch, timeout_s: float) -> Ack:
        self.batches.append(batch)
        self.on_send(batch)
        ack = await self._peer.receiver.receive(self._region.name, batch)
        if self.lose_acks:
            raise LinkError("lost")
        return ack

    async def close(self) -> None: ...
