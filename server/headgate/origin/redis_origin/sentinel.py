"""The primaries that the Sentinels name: asked when a connection is made, and with every round of heartbeats.

All Sentinels are asked at once, and what most of them say holds, so that neither one that
stalls nor one that lags costs anything. With every round, because a primary that was
deposed goes on taking writes until its Sentinels reach it, which takes them ten
seconds and more: what is counted there is lost. What they say is not trusted either:
whoever is named must say itself that it is a primary (dial.py), so it is never a replica.
Each service is a shard: one that fails over takes its own connections down, and no other's.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
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

    def __init__(self, addresses: Sequence[RedisAddress], dialler: Dialler) -> None:
        self._addresses = addresses
        self._dialler = dialler

    async def primary(self, service: str) -> RedisAddress:
        """Find the primary of one service. Raises OriginError if no Sentinel names one."""
        (primary,) = await self.primaries((service,))
        if primary is None:
            raise OriginError(f"the Sentinels know no service {service!r}")
        return primary

    async def primaries(self, services: Sequence[str]) -> list[RedisAddress | None]:
        """Find for each service the primary that more than half name, else that most of those name that answer at all.

        None where they know no such service. Raises OriginError if no Sentinel answers.
        """
        attempts = [asyncio.create_task(self._ask(address, services)) for address in self._addresses]
        votes: list[Counter[RedisAddress]] = [Counter() for _ in services]
        failed, answered = OriginError("no Sentinel answers"), False
        try:
            for done in asyncio.as_completed(attempts):
                try:
                    named = await done
                except Exception as error:
                    failed = OriginError(f"no Sentinel can be asked: {explain(error)}")
                    continue
                answered = True
                for vote, address in zip(votes, named, strict=True):
                    vote.update(() if address is None else (address,))
                if all(self._is_settled(vote) for vote in votes):
                    break
        finally:
            for attempt in attempts:
                attempt.cancel()
            await asyncio.gather(*attempts, return_exceptions=True)
        if not answered:
            raise failed
        return [vote.most_common(1)[0][0] if vote else None for vote in votes]

    def _is_settled(self, vote: Counter[RedisAddress]) -> bool:
        return any(count * 2 > len(self._addresses) for count in vote.values())

    async def _ask(self, sentinel: RedisAddress, services: Sequence[str]) -> list[RedisAddress | None]:
        """Ask one Sentinel for all of them, on one connection."""
        async with asyncio.timeout(ASK_TIMEOUT_S):
            commands = [("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service) for service in services]
            replies = await ask_once(self._dialler, sentinel, *commands)
        return [None if reply is None else RedisAddress(reply[0].decode(), int(reply[1])) for reply in replies]


class SentinelOrigin(ShardsOrigin):
    """A shard for each service: the primary that the Sentinels name, followed when they name another."""

    def __init__(self, opening: Opening, open_server: Callable[[str], Server], sentinels: Sentinels) -> None:
        super().__init__(opening, open_server)
        self._sentinels = sentinels
        self._watching: asyncio.Task[None] | None = None
        self._beaten: set[int] = set()
        """Shards with a heartbeat since the Sentinels were last asked."""

    async def run(self, shard: int, operation: Operation[R], timeout_s: float) -> R:
        if isinstance(operation, Heartbeat):
            self._note_beat(shard)
        return await super().run(shard, operation, timeout_s)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await super().close()

    def _note_beat(self, shard: int) -> None:
        """Ask the Sentinels anew with the first shard that beats a second time: once a round, not once a shard."""
        is_new_round = shard in self._beaten or not self._beaten
        self._beaten.add(shard)
        if is_new_round and (self._watching is None or self._watching.done()):
            self._beaten = {shard}
            # Beside the heartbeat: a Sentinel that stalls must not make the node look dead.
            self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        try:
            servers = [self._servers[number] for number in sorted(self._in_use)]
            primaries = await self._sentinels.primaries([server.state.name for server in servers])
        except OriginError:
            # The primaries that we know are as good as any while nobody names others.
            return
        for server, primary in zip(servers, primaries, strict=True):
            if primary is not None:
                server.leave_unless_at(primary)


def open_sentinel(opening: Opening) -> SentinelOrigin:
    """The origin behind a redis+sentinel:// URL; connects to nothing yet."""
    url = opening.url
    sentinels = Sentinels(url.addresses, Dialler(opening.sentinel_login, url.tls))
    dialler = Dialler(opening.login, url.tls, url.db)

    def open_server(service: str) -> Server:
        return Server(service, partial(sentinels.primary, service), dialler, opening.clock, opening.logger)

    return SentinelOrigin(opening, open_server, sentinels)
