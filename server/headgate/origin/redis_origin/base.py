"""The Origin interface over scripts: what shards, a Cluster and Sentinel have in common."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from headgate.clock import Clock
from headgate.origin.interface import LEASE_MS, NODE_GONE_MS, REGION_GONE_MS, OriginError
from headgate.origin.protocol import (
    Call,
    Changes,
    ForeignCount,
    Lane,
    Published,
    Pulse,
    Reply,
    Stamp,
    WindowReport,
    key_of_name,
)
from headgate.origin.redis_origin.codec import (
    REGION,
    pack_foreign,
    pack_reports,
    pack_requests,
    unpack_changes,
    unpack_components,
    unpack_reply,
)
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
"""What follows a shard's prefix: a limit key, the set of the living, what is kept for the exchange
between regions, an index of published keys, when other regions were heard. No limit key's name can be
that of another."""


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
        keys = [prefix + LIMIT + report.key for report in call.reports] or [prefix + LIVE]
        if any(isinstance(report, WindowReport) and report.publish_at for report in call.reports):
            keys += self._outbox(shard)
        arguments = (pack_reports(call), pack_requests(call.requests))
        packed, epoch = await self._run(shard, self._scripts.call, keys, arguments, timeout_s)
        with _ours(shard):
            return unpack_reply(packed, epoch, call)

    async def heartbeat(self, shard: int, run: bytes, timeout_s: float) -> Pulse:
        prefix = self._prefixes[shard]
        keys, arguments = [prefix + LIVE, prefix + HEARD], (run, NODE_GONE_MS, REGION_GONE_MS)
        reply, epoch = await self._run(shard, self._scripts.heartbeat, keys, arguments, timeout_s, beat=True)
        with _ours(shard):
            time_ms, live_nodes, known, heard = reply
        return Pulse(time_ms, epoch, live_nodes, known == 1, heard)

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
        self, shard: int, peer: bytes, lane: Lane, owner: bytes, generation: bytes, most: int, timeout_s: float
    ) -> Changes:
        arguments = (int(lane), peer, owner, LEASE_MS, generation, most)
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
