"""The primary that the Sentinels name: asked when a connection is made, and with every heartbeat.

All are asked at once, and what most of them say holds, so that neither one that stalls
nor one that lags costs anything. With every heartbeat, because a primary that was
deposed goes on taking writes until its Sentinels reach it, which takes them ten
seconds and more: what is counted there is lost. What they say is not trusted either:
whoever is named must say itself that it is a primary (dial.py), so it is never a replica.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from headgate.origin.interface import OriginError
from headgate.origin.operation import Operation, R
from headgate.origin.operations.heartbeat import Heartbeat
from headgate.origin.redis_origin.base import Opening
from headgate.origin.redis_origin.dial import Dialler, ask_once
from headgate.origin.redis_origin.errors import explain
from headgate.origin.redis_origin.server import Server
from headgate.origin.redis_origin.shards import ShardsOrigin
from headgate.origin.redis_origin.url import RedisAddress

ASK_TIMEOUT_S: Final = 0.5
"""Timeout of a Sentinel that stalls, while the others are no majority without it."""


class Sentinels:
    """Those who know which server is the primary of a service."""

    def __init__(self, addresses: Sequence[RedisAddress], service: str, dialler: Dialler) -> None:
        self._addresses = addresses
        self._service = service
        self._dialler = dialler

    async def primary(self) -> RedisAddress:
        """Find the primary that more than half name; else the one that most of those name that answer at all."""
        attempts = [asyncio.create_task(self._ask(address)) for address in self._addresses]
        named: Counter[RedisAddress] = Counter()
        error: Exception = OriginError("no Sentinel answers")
        try:
            for done in asyncio.as_completed(attempts):
                try:
                    address = await done
                except Exception as failed:
                    error = failed
                    continue
                named[address] += 1
                if named[address] * 2 > len(self._addresses):
                    return address
        finally:
            for attempt in attempts:
                attempt.cancel()
            await asyncio.gather(*attempts, return_exceptions=True)
        if named:
            return named.most_common(1)[0][0]
        raise error if isinstance(error, OriginError) else OriginError(f"no Sentinel can be asked: {explain(error)}")

    async def _ask(self, sentinel: RedisAddress) -> RedisAddress:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            reply = await ask_once(self._dialler, sentinel, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service))
        if reply is None:
            raise OriginError(f"the Sentinels know no service {self._service!r}")
        host, port = reply
        return RedisAddress(host.decode(), int(port))


class SentinelOrigin(ShardsOrigin):
    """One shard: the primary that the Sentinels name, followed when they name another."""

    def __init__(self, opening: Opening, server: Server, sentinels: Sentinels) -> None:
        super().__init__(opening, [server])
        self._server = server
        self._sentinels = sentinels
        self._watching: asyncio.Task[None] | None = None

    async def run(self, shard: int, operation: Operation[R], timeout_s: float) -> R:
        if isinstance(operation, Heartbeat) and (self._watching is None or self._watching.done()):
            # Beside the heartbeat: a Sentinel that stalls must not make the node look dead.
            self._watching = asyncio.create_task(self._watch())
        return await super().run(shard, operation, timeout_s)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await super().close()

    async def _watch(self) -> None:
        try:
            primary = await self._sentinels.primary()
        except OriginError:
            # The primary that we know is as good as any while nobody names another.
            return
        self._server.leave_unless_at(primary)


def open_sentinel(opening: Opening) -> SentinelOrigin:
    """The origin behind a redis+sentinel:// URL; connects to nothing yet."""
    url = opening.url
    sentinels = Sentinels(url.addresses, url.service, Dialler(opening.sentinel_login, url.tls))
    dialler = Dialler(opening.login, url.tls, url.db)
    server = Server(url.service, sentinels.primary, dialler, opening.clock, opening.logger)
    return SentinelOrigin(opening, server, sentinels)
