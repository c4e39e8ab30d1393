"""Keeps one region's quota slices: drives the ledger (quota/ledger.py) from the origin, once a second.

Of all exchangers of a region one is the keeper, by a lease in the first shard of the region's list. Each second it
reads what nodes use and are offered, writes what they enforce, saves what it gave away, and tells the peers. What a
peer tells arrives at any exchanger of the region: where that is not the keeper, it waits in the origin until the keeper
reads it.

Promises: a share is in force at most until the ledger's deadline, whatever happens to the keeper; nothing that it gave
is told before it is saved; a keeper that was replaced writes nothing more (its fence is too low); no request waits
for it. Its time is the first shard's, so no clock of a process matters. When the region has another list of shards the
keeper begins anew, with the store that was before, if another shard is the first now (docs/convergence.md, 12.11).
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, Final

import msgpack
from google.protobuf.message import DecodeError

from headgate.errors import BadRequest, NotReady
from headgate.exchange.extension import Teller
from headgate.exchange.fill import mark_of
from headgate.exchange.messages import LinkError
from headgate.exchange.site import ExchangeSite
from headgate.origin.interface import LEASE_MS, OriginError, firsts_of
from headgate.origin.names import split_name
from headgate.origin.placement import Placement
from headgate.quota.codec import pack_mark, pack_quota, unpack_mark, unpack_quota
from headgate.quota.counts import LedgerCounts
from headgate.quota.ledger import QuotaLedger
from headgate.quota.message import QuotaEntry, QuotaMessage
from headgate.quota.operations.keeping import LeaseQuotas, PostQuotas, ReadQuotaRows, ReleaseQuotas, SaveQuotas
from headgate.quota.protocol import QuotaLease
from headgate.quota.shard_shares import TIMEOUT_S, KeeperCounts, Replaced, ShardShares, shard_place

TICK_S: Final = 1.0
"""Time from tick to tick, at which slices are reckoned anew. `class: abuse` needs no more: gifts move once a second."""
ROWS_PER_SAVE: Final = 200
UNDER_WAY_S: Final = 3.0
"""For how long one message is told to a peer, before there is another one."""
MOST_POSTED_BYTES: Final = 4 * 1024 * 1024
"""Size of a message that waits in the origin: as large as a batch may be."""
LONGEST_KEY_BYTES: Final = 64 * 1024
"""Far above what a rule's key can be: long values stand in it by their digest."""
SLICES_SHOWN: Final = 20
"""Keys whose slices people are shown."""
CLOCK_SET_MS: Final = 1_000
"""Time by which a shard's clock may seem to go back, because one call took longer than another."""
FAULT_PAUSE_S: Final = 1.0


class QuotaKeeper:
    """One process's part in its region's slices: the keeper, or one that would be."""

    def __init__(self, site: ExchangeSite, peers: Mapping[str, Teller]) -> None:
        self.counts = KeeperCounts()
        self.ledger_counts = LedgerCounts()
        """Counts of all ledgers that this process has had."""
        self._site = site
        self._ways = peers
        """Ways to all peers, as the exchange has them."""
        self._peers = dict(peers)
        """Those that the ledger knows."""
        self._lock = asyncio.Lock()
        """Held by whoever works on the ledger, over its calls to the origin."""
        self._ledger: QuotaLedger | None = None
        self._placement = site.origin.placement
        """The list of shards by which the ledger was opened."""
        self._lease: QuotaLease | None = None
        self._leased_s = 0.0
        self._latest_ms = 0
        self._generation = b""
        self._mark = b""
        self._shards = ShardShares(site, self.counts, self._now_ms)
        self._under_way: dict[str, tuple[QuotaMessage, float]] = {}
        self._telling: dict[str, asyncio.Task[None]] = {}
        self._went_by_slice = False

    # Lifecycle

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            began_s = self._site.clock.monotonic()
            try:
                await self.tick()
            except OriginError:
                self.counts.failures += 1  # its nodes say so; what holds holds until its deadline
            except Exception as error:
                self.counts.failures += 1
                self._site.logger.error("quota_turn_failed", exc_info=error)
                await asyncio.sleep(FAULT_PAUSE_S)
            await asyncio.sleep(max(0.0, began_s + TICK_S - self._site.clock.monotonic()))

    @asynccontextmanager
    async def between_ticks(self, timeout_s: float) -> AsyncIterator[None]:
        """Wait until no call that takes the lease is under way, `timeout_s` at most, and hold back further ones."""
        waiting = asyncio.create_task(self._lock.acquire())
        done, _ = await asyncio.wait({waiting}, timeout=timeout_s)
        try:
            yield
        finally:
            if done:
                self._lock.release()
            else:
                waiting.cancel()

    async def release(self, timeout_s: float) -> None:
        """End this process's lease, if it has it: the next keeper need not wait. Raises OriginError."""
        await self._site.origin.run(self._store, ReleaseQuotas(self._site.owner), timeout_s)

    async def follow_peers(self) -> None:
        """Begin anew with the peers that there are now: as after a start, in another set of regions."""
        async with self._lock:
            gone = [self._telling.pop(peer) for peer in self._peers if peer in self._telling]
            for task in gone:
                task.cancel()
            self._peers = dict(self._ways)
            self._ledger = None

    async def stop(self) -> None:
        """Messages under way are given up."""
        for task in self._telling.values():
            task.cancel()
        await asyncio.gather(*self._telling.values(), return_exceptions=True)
        self._telling.clear()

    @property
    def is_keeper(self) -> bool:
        return self._ledger is not None and self._site.clock.monotonic() < self._leased_s + LEASE_MS / 1000

    async def tick(self) -> None:
        """Do what is to be done once a second."""
        async with self._lock:
            try:
                ledger = await self._keep()
                if ledger is None:
                    return
                taken_in = self._take_in_posted(ledger)
                await self._shards.step_all(ledger, self._held.fence)
                ledger.tick(self._now_ms())
                await self._save(ledger, taken_in)
            except Replaced:
                self._ledger = None
                return
            self._note_standing(ledger)
        self.counts.ticks += 1
        for peer in self._peers:
            self._tell(ledger, peer)

    # The lease, and the ledger that comes with it

    async def _keep(self) -> QuotaLedger | None:
        """The ledger, if this process is the keeper."""
        if self._site.origin.placement is not self._placement:
            self._placement, self._ledger = self._site.origin.placement, None
        asked_s = self._site.clock.monotonic()
        # A ledger of this process has a higher fence than the one before it: nothing of that counts any more.
        opens, before = self._ledger is None, self._lease.fence if self._lease is not None else 0
        lease = await self._take_lease(self._store, before if opens else 0)
        if not lease.leased:
            self._ledger = None
            return None
        former = await self._lease_former() if opens else None
        if former is not None:
            if not former.leased:
                return None  # whoever has it does not know yet that the region has another list
            lease = await self._take_lease(self._store, former.fence)
        is_new = self._ledger is None or self._lease is None or lease.fence != self._lease.fence
        self._lease, self._leased_s = lease, asked_s
        generation = mark_of(lease.generation, lease.epoch)
        if is_new:
            self._ledger = await self._open(lease, generation, former)
        elif generation != self._generation and self._ledger is not None:
            self._ledger.wiped(self._now_ms())
            self._mark = b""
            self._site.logger.warning("quota_store_lost", reason="the first shard's memory is another one")
        self._generation = generation
        return self._ledger

    @property
    def _store(self) -> int:
        """The shard that has the store."""
        return self._site.origin.placed_on[0]

    async def _lease_former(self) -> QuotaLease | None:
        """Take the lease on the store that was before, while keys move: nobody keeps slices there any more. None: it is
        the same one.
        """
        former = firsts_of(self._site.origin)[0]
        return await self._take_lease(former, 0) if former != self._store else None

    async def _take_lease(self, shard: int, above: int) -> QuotaLease:
        peers = tuple(peer.encode() for peer in self._peers)
        drawn, number = self._site.random.randbytes(16), self._placement.number
        return await self._site.origin.run(shard, LeaseQuotas(self._site.owner, drawn, peers, number, above), TIMEOUT_S)

    async def _open(self, lease: QuotaLease, generation: bytes, former: QuotaLease | None) -> QuotaLedger:
        """Begin with what the store has; with what the one before has, if that was the region's until now."""
        mark = _unwrap(lease.mark, generation, self._placement)
        moves = former is not None and bool(_unwrap(former.mark, _memory_of(former), self._placement))
        if former is not None and moves:
            mark = _unwrap(former.mark, _memory_of(former), self._placement)
        regions = (self._site.region, *self._peers)
        ledger = QuotaLedger(
            self._site.region, regions, run=lease.fence, now_ms=lease.time_ms, mark=mark, counts=self.ledger_counts
        )
        shard = firsts_of(self._site.origin)[0] if moves else self._store
        await self._load(ledger, shard, lease.time_ms)
        if former is not None and moves:
            # From here on the rows there are not all. Until they are here, nobody relies on either.
            forgets = SaveQuotas(former.fence, former.generation, (), b"", ())
            if not (await self._site.origin.run(shard, forgets, TIMEOUT_S)).kept:
                raise Replaced
            ledger.table.lost()
        self._mark = b"" if moves else lease.mark
        self._under_way.clear()
        self._shards.begin()
        self._site.logger.info("quota_keeper", fence=lease.fence, keys=len(ledger.known()), filled=ledger.filled)
        return ledger

    async def _load(self, ledger: QuotaLedger, shard: int, now_ms: int) -> None:
        cursor = 0
        while True:
            cursor, page = await self._site.origin.run(shard, ReadQuotaRows(cursor), TIMEOUT_S)
            for name, packed in page:
                if shard_place(name) is not None:
                    ledger.table.load(name, packed, now_ms)
            if not cursor:
                return

    def _now_ms(self) -> int:
        """The first shard's time. It does not go back by the way of a call; further, and that clock was set."""
        now_ms = self._held.time_ms + round((self._site.clock.monotonic() - self._leased_s) * 1000)
        if not 0 < self._latest_ms - now_ms < CLOCK_SET_MS:
            self._latest_ms = now_ms
        return self._latest_ms

    def _note_standing(self, ledger: QuotaLedger) -> None:
        goes_by_slice = ledger.goes_by_slice(self._now_ms())
        if goes_by_slice != self._went_by_slice:
            self._went_by_slice = goes_by_slice
            log = self._site.logger.info if goes_by_slice else self._site.logger.warning
            log("quota_slices" if goes_by_slice else "quota_floors", region=self._site.region, filled=ledger.filled)

    # The store

    @property
    def _held(self) -> QuotaLease:
        assert self._lease is not None  # noqa: S101 - there is one since there is a ledger
        return self._lease

    async def _save(self, ledger: QuotaLedger, taken_in: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """All that the store does not have; the mark goes with the last of it."""
        items = ledger.table.unsaved()
        pages = [items[at : at + ROWS_PER_SAVE] for at in range(0, len(items), ROWS_PER_SAVE)] or [[]]
        complete = True
        for page in pages:
            is_last = page is pages[-1]
            mark = _wrap(ledger.mark, self._generation, self._placement) if is_last and complete else self._mark
            save = SaveQuotas(
                self._held.fence,
                self._held.generation,
                tuple((item.key, item.before, item.packed) for item in page),
                mark,
                tuple(taken_in) if is_last and complete else (),
            )
            saved = await self._site.origin.run(self._store, save, TIMEOUT_S)
            if not saved.kept:
                raise Replaced
            self._mark = mark
            refused = dict(saved.refused)
            complete &= not refused
            for item in page:
                if item.key in refused:
                    ledger.table.overtaken(item.key, refused[item.key], self._now_ms())
                else:
                    ledger.table.saved(item)

    # Other regions

    async def receive(self, peer: str, said: bytes) -> bytes:
        """Take in a peer's message; return the mark of its last one that this region has taken in and saved, packed.

        Raises OriginError, and BadRequest for what is no message of ours.
        """
        message = unpack_quota(said)
        async with self._lock:
            if peer not in self._peers:
                raise NotReady(f"region {self._site.region!r} has just changed its peers: say it again")
            ledger = self._ledger
            if ledger is not None and self.is_keeper:
                ledger.incoming(peer, self._sensible(message), self._now_ms())
                try:
                    if ledger.table.unsaved():
                        await self._save(ledger)
                    return pack_mark(message.mark)
                except Replaced:
                    self._ledger = None
        if len(said) > MOST_POSTED_BYTES:
            raise BadRequest(f"a message of {len(said)} bytes about quotas: at most {MOST_POSTED_BYTES} are accepted")
        self.counts.posted += 1
        return await self._site.origin.run(self._store, PostQuotas(peer.encode(), said), TIMEOUT_S)

    def _take_in_posted(self, ledger: QuotaLedger) -> list[tuple[bytes, bytes]]:
        """Take in what came at other processes of the region. Nobody is told so before it is saved."""
        taken_in = []
        for peer, data in self._held.posted:
            try:
                message = unpack_quota(data)
            except (BadRequest, DecodeError):
                self.counts.refused += 1  # somebody else wrote there
                continue
            ledger.incoming(peer.decode(), self._sensible(message), self._now_ms())
            taken_in.append((peer, pack_mark(message.mark)))
        return taken_in

    def _sensible(self, message: QuotaMessage) -> QuotaMessage:
        """Without what names no key of ours, or one of another window."""
        entries = tuple([entry for entry in message.entries if _names_a_key(entry)])
        self.counts.refused += len(message.entries) - len(entries)
        return message._replace(entries=entries)

    def _tell(self, ledger: QuotaLedger, peer: str) -> None:
        """One message at a time. One that was not acknowledged is told again: the peer's keeper may be elsewhere, and
        says so with the next."""
        task = self._telling.get(peer)
        if task is not None and not task.done():
            return
        now_s = self._site.clock.monotonic()
        message, since_s = self._under_way.get(peer, (None, 0.0))
        if message is None or now_s >= since_s + UNDER_WAY_S:
            message = ledger.outgoing(peer, self._now_ms())
            self._under_way[peer] = message, now_s
        self._telling[peer] = asyncio.create_task(self._send(ledger, peer, message), name=f"quota-{peer}")

    async def _send(self, ledger: QuotaLedger, peer: str, message: QuotaMessage) -> None:
        try:
            ack = await self._peers[peer].tell(pack_quota(message))
        except LinkError:
            return  # the exchange says so
        except Exception as error:
            self._site.logger.error("quota_message_failed", region=peer, exc_info=error)
            return
        if unpack_mark(ack.quota) == message.mark and ledger is self._ledger:
            self._under_way.pop(peer, None)
            ledger.acknowledged(peer, message.mark.number, self._now_ms())

    # For people and metrics

    @property
    def keys(self) -> int:
        """Keys of which gifts or needs are known."""
        return len(self._ledger.known()) if self._ledger is not None else 0

    @property
    def dropped(self) -> int:
        """Times that a busy key was not noted, because there were too many."""
        return self._shards.dropped

    @property
    def goes_by_slice(self) -> bool:
        return self._ledger is not None and self._ledger.goes_by_slice(self._now_ms())

    def gifts_of(self, name: bytes) -> bytes:
        """All that is known to have been given of a key, as it is saved."""
        return self._ledger.table.dump(name) if self._ledger is not None else b""

    def describe(self) -> Mapping[str, Any]:
        """Describe for people whether this process is the keeper, and the slices of the keys that move."""
        ledger = self._ledger
        if ledger is None:
            return {"keeper": False}
        now_ms = self._now_ms()
        enforced = self._shards.enforced()
        return {
            "keeper": True,
            "filled": ledger.filled,
            "by_slice": ledger.goes_by_slice(now_ms),
            "floor": ledger.floor,
            "keys": self.keys,
            "slices": [
                {
                    "key": name.decode(errors="replace"),
                    "window_ms": split_name(name)[0],
                    "slices": ledger.slices(name, now_ms),
                    "enforced": enforced.get(name),
                }
                for name in islice((name for name in ledger.watched() if name in ledger), SLICES_SHOWN)
            ],
        }


def _names_a_key(entry: QuotaEntry) -> bool:
    if not 0 < len(entry.key) <= LONGEST_KEY_BYTES or shard_place(entry.key) is None:
        return False
    return split_name(entry.key)[0] == entry.window_ms


def _memory_of(lease: QuotaLease) -> bytes:
    return mark_of(lease.generation, lease.epoch)


def _wrap(mark: bytes, generation: bytes, placement: Placement) -> bytes:
    """The ledger's mark with the memory that it is of: a server that lost its last writes has another epoch. And with
    the list of shards by which the store was there, if that is not the region's first one, which older versions read.
    """
    number = (placement.number,) if placement.number > 1 else ()
    packed: bytes = msgpack.packb([generation, mark, *number]) if mark else b""
    return packed


def _unwrap(wrapped: bytes, generation: bytes, placement: Placement) -> bytes:
    """Return a mark of this memory that was written by the list in force, or by the one before while keys move: since
    an earlier one the store may have been elsewhere.
    """
    try:
        of, mark, *number = msgpack.unpackb(wrapped)
    except (ValueError, TypeError, msgpack.UnpackException):
        return b""
    written, now = number[0] if number else 1, max(1, placement.number)
    is_latest = written in ((now, now - 1) if placement.before else (now,))
    return mark if of == generation and is_latest and isinstance(mark, bytes) else b""
