"""Keeps one region's quota slices: drives the ledger (quota/ledger.py) from the origin, once a second.

Of all exchangers of a region one is the keeper, by a lease in the origin's first shard. Each second it reads what nodes
use and are offered, writes what they enforce, saves what it gave away, and tells the peers. What a peer tells arrives
at any exchanger of the region: where that is not the keeper, it waits in the origin until the keeper reads it.

Promises: a share is in force at most until the ledger's deadline, whatever happens to the keeper; nothing that it gave
is told before it is saved; a keeper that was replaced writes nothing more (its fence is too low); no request waits
for it. Its time is the first shard's, so no clock of a process matters.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Protocol

import msgpack
from google.protobuf.message import DecodeError
from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.errors import BadRequest
from headgate.exchange.fill import mark_of
from headgate.exchange.messages import Ack, LinkError
from headgate.exchange.quota.counts import Counts
from headgate.exchange.quota.ledger import QuotaLedger
from headgate.exchange.quota.membership import Mark
from headgate.exchange.quota.message import QuotaEntry, QuotaMessage
from headgate.exchange.quota.plan import Enforced
from headgate.exchange.quota_codec import pack_mark, pack_quota, unpack_mark, unpack_quota
from headgate.limiter.shares import WHOLE
from headgate.origin.interface import LEASE_MS, Origin, OriginError
from headgate.origin.protocol import split_exchange_key, split_name
from headgate.origin.quota_protocol import (
    NOT_USED,
    UNTOUCHED,
    QuotaKind,
    QuotaLease,
    QuotaSave,
    QuotaSeen,
    QuotaStep,
)

TURN_S: Final = 1.0
"""How often slices are reckoned anew. `class: abuse` needs no more: gifts move once a second anyway."""
TIMEOUT_S: Final = 2.0
"""Of one call to a shard. Nobody waits for it."""
STORE: Final = 0
"""The shard that has the store."""
HOLD_MS: Final = 25_000
"""For how long a key's own share holds unless it is written again. Under the 30 s that an epoch's overlap has beyond
its windows: a key that nobody looks at any more falls to its floor before others count on what it had."""
HOLD_TAKEN_MS: Final = 3_000
"""The same for one that has something of lost regions: they may come back at any time."""
LONGEST_MS: Final = 86_400_000
"""For longer nothing is said to hold; it is said again every second."""
SHARES_PER_STEP: Final = 250
"""Keys per call to a shard: about three milliseconds of its time."""
MOST_PER_TURN: Final = 5_000
"""Keys per turn and shard. When more are busy, each has its turn later, and gives nothing away meanwhile."""
BUSY_TURNS: Final = 4
"""Busy keys that a shard names: as many as have their turns in so many seconds, within which a share is renewed."""
ROWS_PER_SAVE: Final = 200
QUIET_S: Final = 2.0
"""How often a shard is looked at that has no quota in use: on a Cluster there are many."""
FORGOTTEN_PER_TURN: Final = 500
"""Shares that are looked at per turn and shard, whether their keys are still known."""
UNDER_WAY_S: Final = 3.0
"""For how long one message is told to a peer, before there is another one."""
MOST_POSTED_BYTES: Final = 4 * 1024 * 1024
"""Of a message that waits in the origin: as large as a batch may be."""
LONGEST_KEY_BYTES: Final = 64 * 1024
"""Far above what a rule's key can be: long values stand in it by their digest."""
SLICES_SHOWN: Final = 20
"""Keys whose slices people are shown."""
CLOCK_SET_MS: Final = 1_000
"""By so much a shard's time may seem to go back, because one call took longer than another."""
FAULT_PAUSE_S: Final = 1.0


class Teller(Protocol):
    """The way to one peer."""

    async def tell(self, message: QuotaMessage) -> Ack:
        """Send it; raises LinkError."""
        ...


@dataclass(slots=True)
class Shelf:
    """One shard, as the keeper knows it."""

    generation: bytes = b""
    epoch: bytes = b""
    unwritten: dict[bytes, None] = field(default_factory=dict)
    """Known keys whose shares the shard may not have: until all are there, its deadlines are not renewed."""
    written: dict[bytes, int] = field(default_factory=dict)
    """Names that have a share of their own there, and what it was."""
    busy: tuple[bytes, ...] = ()
    dropped: int = 0
    looked_s: float = -1e9
    turned: int = 0
    """Which of too many keys have their turn next."""


@dataclass(slots=True)
class KeeperCounts:
    """For metrics: what was refused, or hit a bound."""

    turns: int = 0
    failures: int = 0
    posted: int = 0
    """Messages that were left for another process."""
    refused: int = 0
    """Entries of peers that name no key."""
    waiting: int = 0
    """Busy keys that had to wait for a later turn."""


@dataclass(slots=True)
class BucketUse:
    """What a bucket had in use: it falls as it drains, and not because its rate was lowered."""

    at_ms: int
    used: int
    share: int


class Replaced(Exception):
    """Another keeper is there, or the store was lost."""


class QuotaKeeper:
    """One process's part in its region's slices: the keeper, or one that would be."""

    def __init__(
        self,
        origin: Origin,
        *,
        region: str,
        peers: Mapping[str, Teller],
        owner: bytes,
        clock: Clock,
        random: random.Random,
        logger: FilteringBoundLogger,
    ) -> None:
        self.counts = KeeperCounts()
        self.ledger_counts = Counts()
        """Of all ledgers that this process has had."""
        self._origin = origin
        self._region = region
        self._peers = peers
        self._names = tuple(peer.encode() for peer in peers)
        self._owner = owner
        self._clock = clock
        self._random = random
        self._logger = logger
        self._lock = asyncio.Lock()
        """Held by whoever works on the ledger, over its calls to the origin."""
        self._ledger: QuotaLedger | None = None
        self._lease: QuotaLease | None = None
        self._leased_s = 0.0
        self._latest_ms = 0
        self._generation = b""
        self._mark = b""
        self._shelves = [Shelf() for _ in range(origin.shards)]
        self._buckets: dict[bytes, BucketUse] = {}
        self._under_way: dict[str, tuple[QuotaMessage, float]] = {}
        self._telling: dict[str, asyncio.Task[None]] = {}
        self._went_by_slice = False

    # Lifecycle

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            began_s = self._clock.monotonic()
            try:
                await self.turn()
            except OriginError:
                self.counts.failures += 1  # its nodes say so; what holds holds until its deadline
            except Exception as error:
                self.counts.failures += 1
                self._logger.error("quota_turn_failed", exc_info=error)
                await asyncio.sleep(FAULT_PAUSE_S)
            await asyncio.sleep(max(0.0, began_s + TURN_S - self._clock.monotonic()))

    @asynccontextmanager
    async def between_turns(self, timeout_s: float) -> AsyncIterator[None]:
        """While no call is under way that would take the lease again; or, after that time, whatever there is."""
        waiting = asyncio.create_task(self._lock.acquire())
        done, _ = await asyncio.wait({waiting}, timeout=timeout_s)
        try:
            yield
        finally:
            if done:
                self._lock.release()
            else:
                waiting.cancel()

    async def stop(self) -> None:
        """Messages under way are given up."""
        for task in self._telling.values():
            task.cancel()
        await asyncio.gather(*self._telling.values(), return_exceptions=True)
        self._telling.clear()

    @property
    def is_keeper(self) -> bool:
        return self._ledger is not None and self._clock.monotonic() < self._leased_s + LEASE_MS / 1000

    async def turn(self) -> None:
        """What is to be done once a second."""
        async with self._lock:
            try:
                ledger = await self._keep()
                if ledger is None:
                    return
                taken_in = self._take_in_posted(ledger)
                await self._step_all(ledger)
                ledger.tick(self._now_ms())
                await self._save(ledger, taken_in)
            except Replaced:
                self._ledger = None
                return
            self._note_standing(ledger)
        self.counts.turns += 1
        for peer in self._peers:
            self._tell(ledger, peer)

    # The lease, and the ledger that comes with it

    async def _keep(self) -> QuotaLedger | None:
        """The ledger, if this process is the keeper."""
        asked_s = self._clock.monotonic()
        drawn = self._random.randbytes(16)
        lease = await self._origin.quota_lease(STORE, self._owner, drawn, self._names, TIMEOUT_S)
        if not lease.leased:
            self._ledger = None
            return None
        is_new = self._ledger is None or self._lease is None or lease.fence != self._lease.fence
        self._lease, self._leased_s = lease, asked_s
        generation = mark_of(lease.generation, lease.epoch)
        if is_new:
            self._ledger = await self._open(lease, generation)
        elif generation != self._generation and self._ledger is not None:
            self._ledger.wiped(self._now_ms())
            self._mark = b""
            self._logger.warning("quota_store_lost", reason="the first shard's memory is another one")
        self._generation = generation
        return self._ledger

    async def _open(self, lease: QuotaLease, generation: bytes) -> QuotaLedger:
        mark = _unwrap(lease.mark, generation)
        regions = (self._region, *self._peers)
        ledger = QuotaLedger(self._region, regions, run=lease.fence, now_ms=lease.time_ms, mark=mark)
        ledger.counts = self.ledger_counts
        cursor = 0
        while True:
            cursor, page = await self._origin.quota_rows(STORE, cursor, TIMEOUT_S)
            for name, packed in page:
                if _shard_place(name) is not None:
                    ledger.load(name, packed, lease.time_ms)
            if not cursor:
                break
        self._mark = lease.mark
        self._buckets.clear()
        self._under_way.clear()
        self._shelves = [Shelf() for _ in range(self._origin.shards)]
        self._logger.info("quota_keeper", fence=lease.fence, keys=len(ledger.known()), filled=ledger.filled)
        return ledger

    def _now_ms(self) -> int:
        """The first shard's time. It does not go back by the way of a call; further, and that clock was set."""
        lease = self._lease
        assert lease is not None  # noqa: S101 - there is one since there is a ledger
        now_ms = lease.time_ms + round((self._clock.monotonic() - self._leased_s) * 1000)
        if not 0 < self._latest_ms - now_ms < CLOCK_SET_MS:
            self._latest_ms = now_ms
        return self._latest_ms

    def _note_standing(self, ledger: QuotaLedger) -> None:
        goes_by_slice = ledger.goes_by_slice(self._now_ms())
        if goes_by_slice != self._went_by_slice:
            self._went_by_slice = goes_by_slice
            log = self._logger.info if goes_by_slice else self._logger.warning
            log("quota_slices" if goes_by_slice else "quota_floors", region=self._region, filled=ledger.filled)

    # What nodes enforce, use and are offered

    async def _step_all(self, ledger: QuotaLedger) -> None:
        by_shard: list[dict[bytes, None]] = [{} for _ in self._shelves]
        for name in ledger.watched():
            self._place(name, by_shard)
        for shelf in self._shelves:
            for name in shelf.busy:
                self._place(name, by_shard)
        for shard, names in enumerate(by_shard):
            try:
                await self._step_shard(ledger, shard, names)
            except OriginError:
                self.counts.failures += 1  # the others' keys are not held up by it

    def _place(self, name: bytes, by_shard: list[dict[bytes, None]]) -> None:
        place = _shard_place(name)
        if place is not None:
            by_shard[self._origin.shard_of(place)][name] = None

    async def _step_shard(self, ledger: QuotaLedger, shard: int, names: dict[bytes, None]) -> None:
        shelf = self._shelves[shard]
        now_s = self._clock.monotonic()
        is_quiet = not names and not shelf.unwritten and not shelf.written
        if shelf.generation and is_quiet and now_s < shelf.looked_s + QUIET_S:
            return
        if not shelf.generation:
            await self._step(ledger, shard, (), with_deadlines=False)  # it says what its memory is called
        chosen = self._chosen(shelf, list(names))
        chosen += [name for name in islice(shelf.unwritten, MOST_PER_TURN) if name not in names]
        pages = [chosen[at : at + SHARES_PER_STEP] for at in range(0, len(chosen), SHARES_PER_STEP)] or [[]]
        for page in pages:
            generation = shelf.generation
            await self._step(ledger, shard, page, with_deadlines=page is pages[-1])
            if shelf.generation != generation:
                return
        shelf.looked_s = now_s

    def _chosen(self, shelf: Shelf, names: list[bytes]) -> list[bytes]:
        if len(names) <= MOST_PER_TURN:
            return names
        self.counts.waiting += len(names) - MOST_PER_TURN
        begin = shelf.turned % len(names)
        shelf.turned = begin + MOST_PER_TURN
        return (names[begin:] + names[:begin])[:MOST_PER_TURN]

    async def _step(self, ledger: QuotaLedger, shard: int, names: Sequence[bytes], *, with_deadlines: bool) -> None:
        shelf, now_ms = self._shelves[shard], self._now_ms()
        shares = [(name, ledger.enforced(name, split_name(name)[0], now_ms)) for name in names]
        deadlines, unknown = ledger.deadlines(now_ms), ledger.unknown(now_ms)
        complete = with_deadlines and len(shelf.unwritten.keys() - set(names)) == 0
        step = QuotaStep(
            fence=self._fence,
            generation=shelf.generation,
            drawn=self._random.randbytes(16),
            taken_ms=_left_ms(deadlines.taken_until_ms, now_ms),
            until_ms=_left_ms(deadlines.until_ms, now_ms) if complete else UNTOUCHED,
            share=unknown.share,
            settled_ago_ms=min(now_ms - unknown.settled_ms, now_ms),
            shares=tuple((name, *enforced, _hold_ms(enforced)) for name, enforced in shares),
            forgotten=tuple(self._forgotten(ledger, shelf)) if with_deadlines else (),
            most=BUSY_TURNS * MOST_PER_TURN if with_deadlines else 0,
        )
        stepped = await self._origin.quota_step(shard, step, TIMEOUT_S)
        if not stepped.kept:
            self._lost(ledger, shard, stepped.generation)
            return
        if stepped.epoch != shelf.epoch and shelf.epoch:
            self._begin_shelf(ledger, shard)  # a copy may have taken over, that lacks what was written last
        shelf.epoch = stepped.epoch
        for (name, enforced), seen in zip(shares, stepped.seen, strict=True):
            shelf.unwritten.pop(name, None)
            shelf.written[name] = enforced.share
            if seen is not None:
                self._observe(ledger, name, enforced, seen)
        for name in step.forgotten:
            shelf.written.pop(name, None)
            self._buckets.pop(name, None)
        if with_deadlines:
            shelf.busy, shelf.dropped = stepped.busy, stepped.dropped

    @property
    def _fence(self) -> int:
        return self._lease.fence if self._lease is not None else 0

    def _lost(self, ledger: QuotaLedger, shard: int, generation: bytes) -> None:
        """The shard has another memory, and with it no shares and no deadlines; or a later keeper was there."""
        shelf = self._shelves[shard]
        if generation == shelf.generation:
            raise Replaced
        shelf.generation = generation
        self._begin_shelf(ledger, shard)

    def _begin_shelf(self, ledger: QuotaLedger, shard: int) -> None:
        places = [(name, _shard_place(name)) for name in ledger.known()]
        shelf = self._shelves[shard]
        shelf.unwritten = {
            name: None for name, place in places if place is not None and self._origin.shard_of(place) == shard
        }

    def _forgotten(self, ledger: QuotaLedger, shelf: Shelf) -> Iterator[bytes]:
        """Names of which nothing is known any more, of some that are looked at."""
        busy = set(shelf.busy)
        for name in list(islice(shelf.written, FORGOTTEN_PER_TURN)):
            if name in ledger or name in busy:
                shelf.written[name] = shelf.written.pop(name)  # it is looked at again when all others were
            else:
                yield name

    def _observe(self, ledger: QuotaLedger, name: bytes, enforced: Enforced, seen: QuotaSeen) -> None:
        window_ms = split_name(name)[0]
        limit, used = max(1, seen.limit), seen.used
        if seen != NOT_USED and seen.window_ms != window_ms:
            return
        if seen.kind is QuotaKind.BUCKET:
            used = self._used_of_bucket(name, enforced.share, seen)
        ledger.observe(
            name,
            limit=limit,
            window_ms=window_ms,
            enforced=enforced.share,
            used=used,
            offered=seen.offered,
            now_ms=self._now_ms(),
        )

    def _used_of_bucket(self, name: bytes, share: int, seen: QuotaSeen) -> int:
        """As a cost, by the rate. A bucket is read by its time, and its rate and burst change with the share: what was
        used by a larger share is gone when it has drained, not when the share has become smaller."""
        now_ms, full_ms = self._now_ms(), max(1, seen.burst * seen.window_ms // max(1, seen.limit))
        used = -(-share * min(seen.used, full_ms) // full_ms)
        before = self._buckets.get(name)
        if before is not None:
            used = max(used, before.used - before.share * max(0, now_ms - before.at_ms) // full_ms)
        self._buckets[name] = BucketUse(now_ms, used, share)
        return -(-seen.limit * used // WHOLE)

    # The store

    async def _save(self, ledger: QuotaLedger, taken_in: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """All that the store does not have; the mark goes with the last of it."""
        items = ledger.unsaved()
        pages = [items[at : at + ROWS_PER_SAVE] for at in range(0, len(items), ROWS_PER_SAVE)] or [[]]
        complete = True
        for page in pages:
            is_last = page is pages[-1]
            mark = _wrap(ledger.mark, self._generation) if is_last and complete else self._mark
            save = QuotaSave(
                self._fence,
                self._lease.generation if self._lease is not None else b"",
                tuple((item.key, item.before, item.packed) for item in page),
                mark,
                tuple(taken_in) if is_last and complete else (),
            )
            saved = await self._origin.quota_save(STORE, save, TIMEOUT_S)
            if not saved.kept:
                raise Replaced
            self._mark = mark
            refused = dict(saved.refused)
            complete &= not refused
            for item in page:
                if item.key in refused:
                    ledger.overtaken(item.key, refused[item.key], self._now_ms())
                else:
                    ledger.saved(item)

    # Other regions

    async def receive(self, peer: str, message: QuotaMessage) -> Mark | None:
        """A peer's message; which of its messages this region has taken in and saved. Raises OriginError."""
        async with self._lock:
            ledger = self._ledger
            if ledger is not None and self.is_keeper:
                ledger.incoming(peer, self._sensible(message), self._now_ms())
                try:
                    if ledger.unsaved():
                        await self._save(ledger)
                    return message.mark
                except Replaced:
                    self._ledger = None
        data = pack_quota(message)
        if len(data) > MOST_POSTED_BYTES:
            raise BadRequest(f"a message of {len(data)} bytes about quotas: at most {MOST_POSTED_BYTES} are accepted")
        self.counts.posted += 1
        return unpack_mark(await self._origin.quota_post(STORE, peer.encode(), data, TIMEOUT_S))

    def _take_in_posted(self, ledger: QuotaLedger) -> list[tuple[bytes, bytes]]:
        """What came at other processes of the region. Nobody is told so before it is saved."""
        taken_in = []
        for peer, data in self._lease.posted if self._lease is not None else ():
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
        now_s = self._clock.monotonic()
        message, since_s = self._under_way.get(peer, (None, 0.0))
        if message is None or now_s >= since_s + UNDER_WAY_S:
            message = ledger.outgoing(peer, self._now_ms())
            self._under_way[peer] = message, now_s
        self._telling[peer] = asyncio.create_task(self._send(ledger, peer, message), name=f"quota-{peer}")

    async def _send(self, ledger: QuotaLedger, peer: str, message: QuotaMessage) -> None:
        try:
            ack = await self._peers[peer].tell(message)
        except LinkError:
            return  # the exchange says so
        except Exception as error:
            self._logger.error("quota_message_failed", region=peer, exc_info=error)
            return
        if ack.quota == message.mark and ledger is self._ledger:
            self._under_way.pop(peer, None)
            ledger.acknowledged(peer, message.mark.number, self._now_ms())

    # For people and metrics

    @property
    def keys(self) -> int:
        """Keys of which gifts or needs are known."""
        return len(self._ledger.known()) if self._ledger is not None else 0

    @property
    def dropped(self) -> int:
        """How often a busy key was not noted, because there were too many."""
        return sum(shelf.dropped for shelf in self._shelves)

    @property
    def goes_by_slice(self) -> bool:
        return self._ledger is not None and self._ledger.goes_by_slice(self._now_ms())

    def gifts_of(self, name: bytes) -> bytes:
        """All that is known to have been given of a key, as it is saved."""
        return self._ledger.dump(name) if self._ledger is not None else b""

    def describe(self) -> Mapping[str, Any]:
        """Whether this process is the keeper, and the slices of the keys that move."""
        ledger = self._ledger
        if ledger is None:
            return {"keeper": False}
        now_ms = self._now_ms()
        enforced = {name: share for shelf in self._shelves for name, share in shelf.written.items()}
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


def _shard_place(name: bytes) -> bytes | None:
    """What chooses the shard of a key that is called so between regions; None where it is no name of ours."""
    try:
        return split_exchange_key(split_name(name)[1])[1]
    except ValueError:
        return None


def _names_a_key(entry: QuotaEntry) -> bool:
    if not 0 < len(entry.key) <= LONGEST_KEY_BYTES or _shard_place(entry.key) is None:
        return False
    return split_name(entry.key)[0] == entry.window_ms


def _left_ms(until_ms: int, now_ms: int) -> int:
    return min(LONGEST_MS, max(0, until_ms - now_ms))


def _hold_ms(enforced: Enforced) -> int:
    return HOLD_MS if enforced.share == enforced.lasting else HOLD_TAKEN_MS


def _wrap(mark: bytes, generation: bytes) -> bytes:
    """The ledger's mark with the memory that it is of: a server that lost its last writes has another epoch."""
    packed: bytes = msgpack.packb([generation, mark]) if mark else b""
    return packed


def _unwrap(wrapped: bytes, generation: bytes) -> bytes:
    try:
        of, mark = msgpack.unpackb(wrapped)
    except (ValueError, TypeError, msgpack.UnpackException):
        return b""
    return mark if of == generation and isinstance(mark, bytes) else b""
