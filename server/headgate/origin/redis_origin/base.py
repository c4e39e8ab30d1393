"""The Origin interface over scripts: what shards, a Cluster and Sentinel have in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.clock import Clock
from headgate.origin.interface import NODE_GONE_MS, OriginError
from headgate.origin.protocol import Call, ForeignCount, Pulse, Reply
from headgate.origin.redis_origin.codec import pack_foreign, pack_reports, pack_requests, unpack_reply
from headgate.origin.redis_origin.scripts import Script, Scripts
from headgate.origin.redis_origin.secrets import Login
from headgate.origin.redis_origin.server import ShardState
from headgate.origin.redis_origin.url import RedisUrl
from headgate.telemetry.bounded import BoundedLogger

AFTER_PREFIX: Final = b"/"
"""Ends the prefix in every key. No prefix holds one, so keys of two prefixes can't meet."""
LIMIT: Final = b"k:"
LIVE: Final = b"live"
"""What follows a shard's prefix: a limit key, or the set of the living. No limit key's name can
be that of the set."""


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
        arguments = (pack_reports(call), pack_requests(call.requests))
        packed, epoch = await self._run(shard, self._scripts.call, keys, arguments, timeout_s)
        try:
            return unpack_reply(packed, epoch, call)
        except (ValueError, TypeError, IndexError, KeyError) as error:
            raise OriginError(f"shard {shard}: a reply that is not one of ours: {error}") from error

    async def heartbeat(self, shard: int, run: bytes, timeout_s: float) -> Pulse:
        keys, arguments = [self._prefixes[shard] + LIVE], (run, NODE_GONE_MS)
        reply, epoch = await self._run(shard, self._scripts.heartbeat, keys, arguments, timeout_s, beat=True)
        try:
            time_ms, live_nodes, known = reply
        except (ValueError, TypeError) as error:
            raise OriginError(f"shard {shard}: a reply that is not one of ours: {error}") from error
        return Pulse(time_ms, epoch, live_nodes, known == 1)

    async def import_foreign(self, shard: int, counts: Sequence[ForeignCount], timeout_s: float) -> None:
        if not counts:
            return
        keys = [self._prefixes[shard] + LIMIT + count.key for count in counts]
        arguments = (pack_foreign(counts, self._region),)
        await self._run(shard, self._scripts.import_foreign, keys, arguments, timeout_s)
