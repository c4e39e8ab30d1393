"""Independent Redis servers, each a shard: at an address, or found by Sentinels."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from headgate.origin.interface import OriginError
from headgate.origin.redis_origin.base import AFTER_PREFIX, Opening, RedisOrigin
from headgate.origin.redis_origin.dial import Dialler
from headgate.origin.redis_origin.scripts import Script
from headgate.origin.redis_origin.server import Server, ShardState
from headgate.origin.redis_origin.url import RedisAddress
from headgate.origin.rendezvous import Rendezvous, list_name


class ShardsOrigin(RedisOrigin):
    """Independent Redis servers: each is a shard, and a key's name chooses its shard."""

    def __init__(self, opening: Opening, servers: Sequence[Server]) -> None:
        super().__init__(opening.scripts, opening.region, [opening.prefix + AFTER_PREFIX] * len(servers))
        self._servers = servers
        names = [server.state.name for server in servers]
        self._rendezvous = Rendezvous(names)
        self.shard_list = list_name(names)

    def shard_of(self, key: bytes) -> int:
        return self._rendezvous.owner(key)

    def describe(self) -> list[ShardState]:
        return [server.state for server in self._servers]

    async def open(self) -> None:
        await asyncio.gather(*map(_try_to_connect, self._servers))

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
    servers = [Server(str(address), at(address), dialler, opening.clock, opening.logger) for address in url.addresses]
    return ShardsOrigin(opening, servers)


def at(address: RedisAddress) -> Callable[[], Awaitable[RedisAddress]]:
    """Make a finder of a server that is always at one address."""

    async def find() -> RedisAddress:
        return address

    return find
