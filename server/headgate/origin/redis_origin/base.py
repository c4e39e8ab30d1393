"""The Origin interface over scripts: what shards, a Cluster and Sentinel have in common."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from headgate.clock import Clock
from headgate.origin.book import (
    MOST_ENTRIES,
    MOST_NAMES,
    REMOVED_FOR_MS,
    BookEntry,
    BookMark,
    BookPage,
    BookState,
)
from headgate.origin.claims import Claim, ClaimState
from headgate.origin.interface import LEASE_MS, NODE_GONE_MS, REGION_GONE_MS, OriginError
from headgate.origin.look import MOST_FIELDS, KeyLook
from headgate.origin.protocol import (
    Call,
    Changes,
    ForeignCount,
    Lane,
    Published,
    Pulse,
    Reply,
    Stamp,
    key_of_name,
)
from headgate.origin.quota_book import MOST_ROWS
from headgate.origin.quota_protocol import QuotaLease, QuotaSave, QuotaSaved, QuotaStep, QuotaStepped
from headgate.origin.redis_origin.codec import (
    REGION,
    pack_ahead,
    pack_call,
    pack_entries,
    pack_foreign,
    pack_names,
    pack_quotas,
    pack_step,
    unpack_changes,
    unpack_components,
    unpack_entries,
    unpack_reply,
    unpack_stepped,
)
from headgate.origin.redis_origin.look import unpack_look
from headgate.origin.redis_origin.scripts import Script, Scripts
from headgate.origin.redis_origin.secrets import Login
from headgate.origin.redis_origin.server import ShardState
from headgate.origin.redis_origin.url import RedisUrl
from headgate.telemetry.bounded import BoundedLogger

AFTER_PREFIX: Final = b"/"
"""Ends the prefix in every key. No prefix holds one, so keys of two prefixes can't meet."""
LIMIT: Final = b"k:"
LIVE: Final = b"live"
EXCHANGE: Final = b"exchange"
CHANGED: Final = b"changed:"
HEARD: Final = b"heard"
QUOTA: Final = b"quota"
BUSY: Final = b"busy"
CLAIM: Final = b"claim:"
BOOK: Final = b"book"
BOOK_CHANGED: Final = b"book:changed"
BOOK_EXPIRY: Final = b"book:expiry"
BOOK_ABOUT: Final = b"book:about"
"""What follows a shard's prefix: a limit key, the set of the living, what is kept for the exchange
between regions, an index of published keys, when other regions were heard, what is kept for quotas, which of
them are busy, the region's book. No limit key's name can be that of another."""


@dataclass(frozen=True, slots=True)
class Opening:
    """All that an origin in Redis is made from."""

    url: RedisUrl
    login: Login
    sentinel_login: Login
    prefix: bytes
    """Begins every key of this region and of nobody else; without braces, which mean something in a Cluster."""
    region: bytes
    scripts: Scripts
    clock: Clock
    logger: BoundedLogger


class RedisOrigin(ABC):
    """What all topologies share: how a call becomes a script with its keys, and a reply of it."""

    exclusive = False

    def __init__(self, scripts: Scripts, region: bytes, prefixes: Sequence[bytes]) -> None:
        self._scripts = scripts
        self._region = region
        self._prefixes = prefixes

    @property
    def shards(self) -> int:
        return len(self._prefixes)

    @abstractmethod
    def shard_of(self, key: bytes) -> int: ...

    @abstractmethod
    def describe(self) -> list[ShardState]:
        """Each server's state, without passwords."""

    @abstractmethod
    async def open(self) -> None:
        """Connect where possible. A server that is not there is not an error: calls to it will be."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def _run(
        self,
        shard: int,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[bytes | int],
        timeout_s: float,
        *,
        beat: bool = False,
    ) -> tuple[Any, bytes]:
        """A script's reply, and the epoch of the server that gave it."""

    async def call(self, shard: int, call: Call, timeout_s: float) -> Reply:
        prefix = self._prefixes[shard]
        # A call without reports still says by its key where it belongs.
        record = prefix + LIMIT
        keys = [record + report.key for report in call.reports] or [prefix + LIVE]
        names = quotas = b""
        reports, later, demands, publishes = pack_call(call)
        if publishes:
            names = pack_names(call.reports)
            keys += self._outbox(shard)
        if call.quotas:
            quotas = pack_quotas(call.quotas, len(keys) + 1)
            keys += self._quota(shard)
        arguments = (reports, later, quotas, pack_ahead(call.ahead), demands, names)
        packed, epoch = await self._run(shard, self._scripts.call, keys, arguments, timeout_s)
        with _ours(shard):
            return unpack_reply(packed, epoch, call)

    async def heartbeat(self, shard: int, run: bytes, timeout_s: float) -> Pulse:
        prefix = self._prefixes[shard]
        keys = [prefix + LIVE, prefix + HEARD, prefix + BOOK_ABOUT]
        arguments = (run, NODE_GONE_MS, REGION_GONE_MS)
        reply, epoch = await self._run(shard, self._scripts.heartbeat, keys, arguments, timeout_s, beat=True)
        with _ours(shard):
            time_ms, live_nodes, known, heard, generation, version = reply
        return Pulse(time_ms, epoch, live_nodes, known == 1, heard, BookMark(generation, version))

    async def import_foreign(
        self, shard: int, counts: Sequence[ForeignCount], timeout_s: float, stamp: Stamp | None = None
    ) -> None:
        if not counts and stamp is None:
            return
        prefix = self._prefixes[shard]
        keys = [*self._outbox(shard), prefix + HEARD, *(prefix + LIMIT + count.key for count in counts)]
        arguments = (pack_foreign(counts, self._region), *(stamp or (b"", 0)))
        await self._run(shard, self._scripts.import_foreign, keys, arguments, timeout_s)

    async def changes(
        self,
        shard: int,
        peer: bytes,
        lane: Lane,
        owner: bytes,
        generation: bytes,
        most: int,
        timeout_s: float,
        after: int = 0,
    ) -> Changes:
        arguments = (int(lane), peer, owner, LEASE_MS, generation, most, after)
        reply, epoch = await self._run(shard, self._scripts.changes, self._outbox(shard), arguments, timeout_s)
        with _ours(shard):
            return unpack_changes(reply, epoch)

    async def components(
        self, shard: int, peer: bytes, lane: Lane, names: Sequence[bytes], timeout_s: float
    ) -> list[Published | None]:
        records = [self._prefixes[shard] + LIMIT + key_of_name(name) for name in names]
        keys, arguments = [self._outbox(shard)[1 + lane], *records], (REGION + peer, *names)
        packed, _ = await self._run(shard, self._scripts.components, keys, arguments, timeout_s)
        with _ours(shard):
            return unpack_components(packed, len(names))

    async def acknowledge(self, shard: int, peer: bytes, lane: Lane, changes: Changes, timeout_s: float) -> bool:
        arguments = (int(lane), peer, changes.generation, changes.since, changes.until)
        moved, _ = await self._run(shard, self._scripts.acknowledge, self._outbox(shard)[:1], arguments, timeout_s)
        return bool(moved == 1)

    async def begin_walk(self, shard: int, peer: bytes, walk: bytes, timeout_s: float) -> None:
        await self._run(shard, self._scripts.begin_walk, self._outbox(shard)[:1], (peer, walk), timeout_s)

    async def mark_filled(self, shard: int, peer: bytes, mark: bytes, timeout_s: float) -> None:
        await self._run(shard, self._scripts.mark_filled, self._outbox(shard)[:1], (peer, mark), timeout_s)

    async def give_back(self, shard: int, owner: bytes, peers: Sequence[bytes], timeout_s: float) -> None:
        keys = [self._outbox(shard)[0], self._quota(shard)[0]]
        await self._run(shard, self._scripts.give_back, keys, (owner, *peers), timeout_s)

    async def quota_lease(
        self, shard: int, owner: bytes, drawn: bytes, peers: Sequence[bytes], timeout_s: float
    ) -> QuotaLease:
        arguments: list[bytes | int] = [owner, LEASE_MS, drawn, *peers]
        reply, epoch = await self._run(shard, self._scripts.quota_lease, self._quota(shard)[:1], arguments, timeout_s)
        with _ours(shard):
            time_ms, leased, fence, generation, mark, *posted = reply
            messages = tuple((peer, message) for peer, message in zip(peers, posted, strict=False) if message)
            return QuotaLease(time_ms, epoch, leased == 1, int(fence), generation, mark, messages)

    async def quota_rows(
        self, shard: int, cursor: int, timeout_s: float
    ) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
        keys, arguments = self._quota(shard)[:1], (cursor, MOST_ROWS)
        reply, _ = await self._run(shard, self._scripts.quota_rows, keys, arguments, timeout_s)
        with _ours(shard):
            return int(reply[0]), tuple(zip(reply[1::2], reply[2::2], strict=True))

    async def quota_save(self, shard: int, save: QuotaSave, timeout_s: float) -> QuotaSaved:
        rows = [part for row in save.rows for part in row]
        acknowledged = [part for message in save.acknowledged for part in message]
        arguments: list[bytes | int] = [save.fence, save.generation, save.mark, len(save.rows), *rows, *acknowledged]
        reply, _ = await self._run(shard, self._scripts.quota_save, self._quota(shard)[:1], arguments, timeout_s)
        with _ours(shard):
            return QuotaSaved(reply[0] == 1, tuple(zip(reply[1::2], reply[2::2], strict=True)))

    async def quota_post(self, shard: int, peer: bytes, message: bytes, timeout_s: float) -> bytes:
        keys = self._quota(shard)[:1]
        acknowledged, _ = await self._run(shard, self._scripts.quota_post, keys, (peer, message), timeout_s)
        return bytes(acknowledged)

    async def quota_step(self, shard: int, step: QuotaStep, timeout_s: float) -> QuotaStepped:
        records = [self._prefixes[shard] + LIMIT + key_of_name(name) for name, *_ in step.shares]
        keys = [*self._quota(shard), *records]
        reply, epoch = await self._run(shard, self._scripts.quota_step, keys, pack_step(step), timeout_s)
        with _ours(shard):
            return unpack_stepped(reply, epoch, len(step.shares))

    def _quota(self, shard: int) -> list[bytes]:
        """The quota hash and the busy keys (quota.lua)."""
        prefix = self._prefixes[shard]
        return [prefix + QUOTA, prefix + BUSY]

    async def write_book(
        self, shard: int, entries: Sequence[BookEntry], generation: bytes, timeout_s: float
    ) -> BookState:
        prefix = self._prefixes[shard]
        keys = [prefix + BOOK, prefix + BOOK_CHANGED, prefix + BOOK_EXPIRY, prefix + BOOK_ABOUT]
        arguments = (pack_entries(entries), generation, MOST_ENTRIES, MOST_NAMES, REMOVED_FOR_MS)
        reply, _ = await self._run(shard, self._scripts.write_book, keys, arguments, timeout_s)
        with _ours(shard):
            generation, version, time_ms, count, refused = reply
            return BookState(BookMark(generation, version), time_ms, count, refused)

    async def read_book(self, shard: int, since: int, most: int, timeout_s: float) -> BookPage:
        prefix = self._prefixes[shard]
        keys = [prefix + BOOK, prefix + BOOK_CHANGED, prefix + BOOK_ABOUT]
        reply, _ = await self._run(shard, self._scripts.read_book, keys, (since, most), timeout_s)
        with _ours(shard):
            generation, version, time_ms, until, packed = reply
            return BookPage(BookMark(generation, version), time_ms, until, unpack_entries(packed))

    async def look(self, shard: int, key: bytes, window_ms: int, timeout_s: float) -> KeyLook:
        keys = [self._prefixes[shard] + LIMIT + key]
        reply, _ = await self._run(shard, self._scripts.look, keys, (MOST_FIELDS,), timeout_s)
        with _ours(shard):
            return unpack_look(reply, window_ms)

    async def claim(self, shard: int, name: bytes, value: bytes, expires_ms: int, timeout_s: float) -> Claim:
        keys = [self._prefixes[shard] + CLAIM + name]
        reply, _ = await self._run(shard, self._scripts.claim, keys, (value, expires_ms), timeout_s)
        with _ours(shard):
            state, held = reply
            return Claim(ClaimState(state), held)

    def _outbox(self, shard: int) -> list[bytes]:
        """The exchange hash and the lanes' indexes (outbox.lua)."""
        prefix = self._prefixes[shard]
        return [prefix + EXCHANGE, *(prefix + CHANGED + b"%d" % lane for lane in Lane)]


@contextmanager
def _ours(shard: int) -> Iterator[None]:
    """Whatever else stands in a reply, somebody else wrote it."""
    try:
        yield
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise OriginError(f"shard {shard}: a reply that is not one of ours: {error}") from error
