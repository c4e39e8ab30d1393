"""Independent Redis servers, each a shard: at an address, or found by Sentinels."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from headgate.errors import ConfigError
from headgate.origin.interface import OriginError
from headgate.origin.keyspace import KeySpace
from headgate.origin.placement import Placement
from headgate.origin.redis_origin.base import AFTER_PREFIX, Opening, RedisOrigin
from headgate.origin.redis_origin.dial import Dialler
from headgate.origin.redis_origin.scripts import Script
from headgate.origin.redis_origin.server import Server, ShardState
from headgate.origin.redis_origin.url import MOST_SHARDS, RedisAddress, parse_address
from headgate.origin.rendezvous import Rendezvous

MOST_NAMED: Final = 4 * MOST_SHARDS
"""Servers that may ever have been in the lists of one process. More is a slip, or somebody's mischief."""


class ShardsOrigin(RedisOrigin):
    """Independent Redis servers: each is a shard, and a key's name chooses its shard among those of a list."""

    def __init__(self, opening: Opening, open_server: Callable[[str], Server]) -> None:
        super().__init__(opening.scripts, opening.region, [])
        self.listed = opening.url.listed
        self._opening = opening
        self._open_server = open_server
        self._servers: list[Server] = []
        self._numbers: dict[str, int] = {}
        self._in_use: set[int] = set()
        self._placement = Placement(0, self.listed)
        self.place_by(self._placement)

    @property
    def placement(self) -> Placement:
        return self._placement

    @property
    def placed_on(self) -> Sequence[int]:
        return self._placed_on

    def shard_of(self, key: bytes) -> int:
        return self._now.owner(key)

    def shard_before(self, key: bytes) -> int:
        return self._before.owner(key)

    def place_by(self, placement: Placement) -> None:
        now = self._list(placement.shards)
        self._before = self._list(placement.before) if placement.before else now
        self._now, self._placement = now, placement
        self._placed_on = tuple(dict.fromkeys((*now.numbers, *self._before.numbers)))

    def _list(self, names: Sequence[str]) -> "ListedShards":
        return ListedShards(names, [self.shard_named(name) for name in names])

    def shard_named(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            if len(self._servers) >= MOST_NAMED:
                raise ConfigError(f"{MOST_NAMED} servers were in this process's lists: start it anew to name others")
            self._servers.append(self._open_server(name))
            self._spaces.append(KeySpace(self._opening.prefix + AFTER_PREFIX, self._opening.region))
            number = self._numbers[name] = len(self._servers) - 1
        self._in_use.add(number)
        return number

    def describe(self) -> list[ShardState]:
        return [self._servers[number].state for number in sorted(self._in_use)]

    async def open(self) -> None:
        await asyncio.gather(*map(_try_to_connect, self._servers))

    async def leave(self, shard: int) -> None:
        self._in_use.discard(shard)
        server = self._servers[shard]
        self._servers[shard] = self._open_server(server.state.name)
        await server.close()

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers))

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
        return await self._servers[shard].run(script, keys, arguments, timeout_s, own_connection=own_connection)


class ListedShards:
    """Shards of one list, by their names and numbers."""

    def __init__(self, names: Sequence[str], numbers: Sequence[int]) -> None:
        self._rendezvous = Rendezvous(names)
        self.numbers = numbers
        """Numbers of the shards, in the order of the list."""

    def owner(self, key: bytes) -> int:
        """Return the number of the shard that owns a key."""
        return self.numbers[self._rendezvous.owner(key)]


async def _try_to_connect(server: Server) -> None:
    try:
        await server.connect()
    except OriginError:
        # Kept in the server's state, and logged; the node serves by its rules' policies.
        return


def open_shards(opening: Opening) -> ShardsOrigin:
    """The origin behind a redis:// URL; connects to nothing yet."""
    url = opening.url
    dialler = Dialler(opening.login, url.tls, url.db)

    def open_server(name: str) -> Server:
        return Server(name, at(parse_address(name)), dialler, opening.clock, opening.logger)

    return ShardsOrigin(opening, open_server)


def at(address: RedisAddress) -> Callable[[], Awaitable[RedisAddress]]:
    """Make a finder of a server that is always at one address."""

    async def find() -> RedisAddress:
        return address

    return find
