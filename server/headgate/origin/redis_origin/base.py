"""The Origin interface over scripts: the part that shards, a Cluster and Sentinel have in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.clock import Clock
from headgate.origin.interface import OriginError
from headgate.origin.keyspace import KeySpace
from headgate.origin.operation import Operation, R
from headgate.origin.placement import NO_PLACEMENT, Placement
from headgate.origin.redis_origin.scripts import Script, Scripts
from headgate.origin.redis_origin.secrets import Login
from headgate.origin.redis_origin.server import ShardState
from headgate.origin.redis_origin.url import RedisUrl
from headgate.telemetry.bounded import BoundedLogger

AFTER_PREFIX: Final = b"/"
"""Ends the prefix in every key. No prefix holds one, so keys of two prefixes can't meet."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Everything that an origin in Redis is made from."""

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
    """Base of all topologies: an operation becomes a script with its keys, and the reply its result."""

    exclusive = False
    listed: tuple[str, ...] = ()
    """A Cluster's keys are placed by the key alone; what places them by a list says by which."""

    def __init__(self, scripts: Scripts, region: bytes, prefixes: Sequence[bytes]) -> None:
        self._scripts = scripts
        self._spaces = [KeySpace(prefix, region) for prefix in prefixes]

    @property
    def shards(self) -> int:
        return len(self._spaces)

    @property
    def placement(self) -> Placement:
        return NO_PLACEMENT

    @property
    def placed_on(self) -> Sequence[int]:
        return range(len(self._spaces))

    @abstractmethod
    def shard_of(self, key: bytes) -> int: ...

    def shard_before(self, key: bytes) -> int:
        return self.shard_of(key)

    def place_by(self, placement: Placement) -> None:
        raise AssertionError("a Cluster places keys by itself")

    def shard_named(self, name: str) -> int:
        raise AssertionError("the shards of a Cluster have no names")

    async def leave(self, shard: int) -> None:
        raise AssertionError("a Cluster's shards stay")

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
        own_connection: bool,
    ) -> tuple[Any, bytes]:
        """Run a script, once: its reply, and the epoch of the server that gave it."""

    async def run(self, shard: int, operation: Operation[R], timeout_s: float) -> R:
        keys, arguments = operation.pack(self._spaces[shard])
        script = self._scripts.of(operation.lua)
        own = operation.own_connection
        reply, epoch = await self._run(shard, script, keys, arguments, timeout_s, own_connection=own)
        try:
            return operation.unpack(reply, epoch)
        except (ValueError, TypeError, IndexError, KeyError) as error:
            raise OriginError(f"shard {shard}: a reply that is not one of ours: {error}") from error
