"""One region's exchanger: sends every peer the changes of this region, and takes in theirs.

Runs inside a serving process or alone. Several of one region share the work by leases in the origin. It
never touches a request: nodes learn what other regions have counted with their own calls to the origin.
"""

import asyncio
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from headgate.exchange.cut_off import LOOK_S, CutRegions
from headgate.exchange.extension import ExchangeExtension, Teller
from headgate.exchange.followed_list import FollowedList
from headgate.exchange.messages import LinkError, PeerLink, Refused
from headgate.exchange.peers import PeerStatus
from headgate.exchange.receiver import OriginReceiver
from headgate.exchange.sender import SWEEPER, PeerSender, sweep
from headgate.exchange.site import ExchangeSite
from headgate.origin.exchange_protocol import Priority
from headgate.origin.interface import OriginError
from headgate.origin.operations.release_leases import ReleaseLeases

URGENT_S: Final = 0.2
"""Seconds between looks for changes of rules with `class: abuse`."""
FIRST_RETRY_S: Final = 0.2
LONGEST_RETRY_S: Final = 1.0
"""Longest time from the beginning of an attempt that failed to the next, in seconds: full jitter up to this. An attempt
that took longer than that (SEND_TIMEOUT_S, 3 s) is followed by the next at once. So after a network has healed the
first batch goes within 3 s, the peer's own batch an interval later, and all regions agree within 5 s.
"""
REFUSED_RETRY_S: Final = 10.0
"""Seconds until the next attempt after a refusal: an operator has to change a setting first."""
LIST_S: Final = 1.0
"""Seconds between looks at the region's list of shards. A list takes longer than that to change."""
RENEWED_S: Final = 0.5
"""Seconds between looks for a new token or certificate."""
INTERVAL_JITTER: Final = 0.1
SWEEP_PAGE: Final = 200
"""Names looked at per call: under a millisecond of a shard's time."""
SWEEPS: Final = 8
"""Calls per interval, on shards and priorities in turn: on a Cluster, which has many, no more than on four shards."""
RETURN_TIMEOUT_S: Final = 0.5
"""Seconds for releasing leases, which is a courtesy: they end by themselves in 5 s."""
FAULT_PAUSE_S: Final = 1.0
"""Pause in seconds after a fault of our own: it must neither end the exchange nor fill the log."""


Quotas = TypeVar("Quotas", bound=ExchangeExtension)


class Exchanger(Generic[Quotas]):
    """All peers of one region, from one process."""

    def __init__(
        self,
        site: ExchangeSite,
        links: Mapping[str, PeerLink],
        addresses: Mapping[str, str],
        quotas: Callable[[ExchangeSite, Mapping[str, Teller]], Quotas],
        interval_s: float = 1.0,
        cut: CutRegions | None = None,
    ) -> None:
        """`quotas` makes the feature that moves quota slices, of the ways to all peers. `cut` are the regions that
        operators have cut off: nothing is sent to them, and nothing is heard.
        """
        self.peers: dict[str, PeerStatus] = {}
        self.shard_list = FollowedList(site.origin, site.logger)
        self._site = site
        self._cut = cut
        self._interval_s = interval_s
        self._senders: dict[str, PeerSender] = {}
        for peer, link in links.items():
            self._add(peer, link, addresses.get(peer, ""))
        self.quotas = quotas(site, self._senders)
        self.receiver = OriginReceiver(site, self.peers, self.quotas, cut)
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def _add(self, peer: str, link: PeerLink, address: str) -> None:
        cut_off = self._cut is not None and peer in self._cut.names
        status = self.peers[peer] = PeerStatus(peer, address, cut_off=cut_off)
        self._senders[peer] = PeerSender(self._site, link, status)

    def start(self) -> None:
        """Begin to send. What peers send is taken in by `receiver`, from before this on."""
        for peer in self._senders:
            self._begin(peer)
        if self._site.origin.listed:
            self._tasks.append(asyncio.create_task(self._follow_list(), name="exchange-list"))
        self._tasks.append(asyncio.create_task(self._sweeps(), name="exchange-sweep"))
        if self._cut is not None:
            self._tasks.append(asyncio.create_task(self._follow_cuts(self._cut), name="exchange-cuts"))
        self._tasks.append(asyncio.create_task(self.quotas.run(), name="quota-keeper"))

    def _begin(self, peer: str) -> None:
        self._sending[peer] = asyncio.create_task(self._send(peer), name=f"peer-{peer}")

    @property
    def running(self) -> bool:
        """True while every task that was begun still runs."""
        return not any(task.done() for task in (*self._tasks, *self._sending.values()))

    async def change_peers(
        self, leaving: Collection[str], joining: Mapping[str, PeerLink], addresses: Mapping[str, str]
    ) -> None:
        """Speak no more to some regions, and begin to speak to others, while this runs.

        What one that leaves has told stays until its windows are over; one that comes asks for everything, and is told
        it, as one that has lost its memory.
        """
        ending = [self._sending.pop(peer) for peer in leaving]
        left = [self._senders.pop(peer) for peer in leaving]
        for task, peer in zip(ending, leaving, strict=True):
            task.cancel()
            del self.peers[peer]
            self.receiver.forget(peer)
        await asyncio.gather(*ending, return_exceptions=True)
        await asyncio.gather(*(sender.close() for sender in left), return_exceptions=True)
        await self._release([peer.encode() for peer in leaving])
        for peer, link in joining.items():
            self._add(peer, link, addresses[peer])
        await self.quotas.follow_peers()
        for peer in joining if self._tasks else ():  # none if it was stopped meanwhile
            self._begin(peer)

    async def stop(self) -> None:
        """Release all leases, so that no other exchanger waits for their end. Changes without acknowledgement stay in
        the origin.
        """
        async with self.quotas.between_ticks(RETURN_TIMEOUT_S):
            await self.abandon()
        peers = [SWEEPER, *(peer.encode() for peer in self.peers)]
        await asyncio.gather(self._release(peers), self.quotas.release(RETURN_TIMEOUT_S), return_exceptions=True)

    async def _release(self, peers: Sequence[bytes]) -> None:
        release = ReleaseLeases(self._site.owner, peers)
        shards = self._site.origin.placed_on
        returning = [self._site.origin.run(shard, release, RETURN_TIMEOUT_S) for shard in shards if peers]
        await asyncio.gather(*returning, return_exceptions=True)

    async def abandon(self) -> None:
        """End at once, as in a crash: leases end by themselves."""
        tasks = [*self._tasks, *self._sending.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        self._sending.clear()
        await self.quotas.stop()
        await asyncio.gather(*(sender.close() for sender in self._senders.values()), return_exceptions=True)

    def describe(self) -> Mapping[str, Any]:
        """Describe every peer and its state, for people."""
        now_ms = self._site.clock.now_ms()
        return {
            "region": self._site.region,
            "peers": [_describe(status, now_ms) for status in self.peers.values()],
            "quota": self.quotas.describe(),
        }

    async def _send(self, peer: str) -> None:
        sender, status = self._senders[peer], self.peers[peer]
        failures, normal_s = 0, 0.0
        while True:
            if status.cut_off:
                await asyncio.sleep(LOOK_S)
                continue
            now_s = self._site.clock.monotonic()
            try:
                if now_s >= normal_s:
                    normal_s = now_s + self._interval_s * (1 - self._site.random.random() * INTERVAL_JITTER)
                    if await sender.exchange(Priority.NORMAL):
                        normal_s = now_s  # there is more: a region that has lost everything waits for it
                await sender.exchange(Priority.URGENT)
            except LinkError as error:
                failures += 1
                normal_s = 0.0  # what is tried again is that: an urgent priority with nothing in it proves nothing
                self._failed(status, error)
                await self._pause(sender, error, now_s + self._retry_s(error, failures))
                continue
            except Exception as error:
                self._site.logger.error("peer_exchange_failed", region=peer, exc_info=error)
                await asyncio.sleep(FAULT_PAUSE_S)
                continue
            if failures:
                failures = 0
                self._site.logger.info("peer_connected", region=peer, address=status.address)
            left_s = max(0.0, normal_s - self._site.clock.monotonic())
            await asyncio.sleep(min(URGENT_S, left_s) if sender.is_urgent else left_s)

    async def _pause(self, sender: PeerSender, error: LinkError, until_s: float) -> None:
        """Wait until the next attempt. A sender that was refused, and has another token or certificate now, tries at
        once.
        """
        while (left_s := until_s - self._site.clock.monotonic()) > 0:
            if not isinstance(error, Refused):
                await asyncio.sleep(left_s)
                return
            await asyncio.sleep(min(RENEWED_S, left_s))
            if sender.is_renewed:
                return

    def _failed(self, status: PeerStatus, error: LinkError) -> None:
        status.failures += 1
        if status.error != str(error):
            self._site.logger.warning("peer_failed", region=status.region, address=status.address, reason=str(error))
        status.error = str(error)

    def _retry_s(self, error: LinkError, failures: int) -> float:
        if isinstance(error, Refused):
            return REFUSED_RETRY_S * (1 - self._site.random.random() * INTERVAL_JITTER)
        longest_s: float = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2 ** min(failures, 10))
        return longest_s * self._site.random.random()

    async def _follow_list(self) -> None:
        while True:
            try:
                await self.shard_list.look()
            except Exception as error:
                self._site.logger.error("exchange_list_failed", exc_info=error)
            await asyncio.sleep(LIST_S)

    async def _follow_cuts(self, cut: CutRegions) -> None:
        while True:
            try:
                await cut.refresh()
            except OriginError:
                pass  # then what was known holds
            except Exception as error:
                self._site.logger.error("exchange_cuts_failed", exc_info=error)
            for status in self.peers.values():
                status.cut_off = status.region in cut.names
            await asyncio.sleep(LOOK_S)

    async def _sweeps(self) -> None:
        for turn in itertools.count():
            await asyncio.sleep(self._interval_s)
            places = [(shard, priority) for shard in self._site.origin.placed_on for priority in Priority]
            first = turn * SWEEPS % len(places)
            for shard, priority in places[first : first + SWEEPS]:
                await self._sweep(shard, priority)

    async def _sweep(self, shard: int, priority: Priority) -> None:
        try:
            await sweep(self._site, shard, priority, SWEEP_PAGE)
        except OriginError:
            return
        except Exception as error:
            self._site.logger.error("exchange_sweep_failed", shard=shard, exc_info=error)
            await asyncio.sleep(FAULT_PAUSE_S)


def _describe(status: PeerStatus, now_ms: int) -> Mapping[str, Any]:
    return {
        "region": status.region,
        "address": status.address,
        "connected": status.is_connected(now_ms),
        "serving": status.serving,
        "cut_off": status.cut_off,
        "error": status.error or None,
        "lag_ms": status.lag_ms,
        "backlog": status.backlog,
        "filling": status.filling,
        "clock_ahead_ms": status.skew_ms,
        "clock_skewed": status.skewed,
        "last_published_ms": status.published_ms or None,
        "last_imported_ms": status.imported_ms or None,
        "sent": {"batches": status.sent_batches, "entries": status.sent_entries},
        "received": {
            "batches": status.received_batches,
            "entries": status.received_entries,
            "refused": status.refused_entries,
            "unshared": status.unshared_entries,
            "unasked": status.unasked_entries,
            "over_budget": status.over_budget,
        },
    }
