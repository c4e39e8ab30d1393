"""A network between nodes and an origin: delay, loss of calls and of replies, stalls, partitions."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from headgate.origin.interface import Origin, OriginError, OriginTimeout
from headgate.origin.protocol import Call, ForeignCount, Pulse, Reply

T = TypeVar("T")


class NetworkedOrigin:
    """An origin behind a network: implements `Origin`, with the same semantics of failure as a real one."""

    exclusive = False

    def __init__(
        self,
        origin: Origin,
        random: random.Random,
        *,
        delay_ms: tuple[float, float] = (0.2, 1.0),
        lose_call: float = 0.0,
        lose_reply: float = 0.0,
    ) -> None:
        self._origin = origin
        self._random = random
        self.delay_ms = delay_ms
        self.lose_call = lose_call
        self.lose_reply = lose_reply
        self.connected = True
        self.calls = 0

    @property
    def shards(self) -> int:
        return self._origin.shards

    def shard_of(self, key: bytes) -> int:
        return self._origin.shard_of(key)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def describe(self) -> Sequence[Any]:
        return []

    async def call(self, shard: int, call: Call, timeout_s: float) -> Reply:
        self.calls += 1
        return await self._cross(lambda: self._origin.call(shard, call, timeout_s), timeout_s)

    async def heartbeat(self, shard: int, run: bytes, timeout_s: float) -> Pulse:
        return await self._cross(lambda: self._origin.heartbeat(shard, run, timeout_s), timeout_s)

    async def import_foreign(self, shard: int, counts: Sequence[ForeignCount], timeout_s: float) -> None:
        await self._cross(lambda: self._origin.import_foreign(shard, counts, timeout_s), timeout_s)

    async def _cross(self, send: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                await self._hop(self.lose_call)
                reply = await send()
                await self._hop(self.lose_reply)
                return reply
        except TimeoutError:
            raise OriginTimeout(f"no answer within {timeout_s} s") from None

    async def _hop(self, loss: float) -> None:
        if not self.connected:
            raise OriginError("refused")
        await asyncio.sleep(self._random.uniform(*self.delay_ms) / 2000)
        if self._random.random() < loss:
            await asyncio.Event().wait()  # lost: only the timeout ends this


class ShardedOrigin:
    """Several origins of one shard each, as one; keys are spread by their bytes."""

    exclusive = False

    def __init__(self, origins: Sequence[Origin]) -> None:
        self._origins = origins
        self.shards = len(origins)

    def shard_of(self, key: bytes) -> int:
        return sum(key) % self.shards

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def describe(self) -> Sequence[Any]:
        return []

    async def call(self, shard: int, call: Call, timeout_s: float) -> Reply:
        return await self._origins[shard].call(0, call, timeout_s)

    async def heartbeat(self, shard: int, run: bytes, timeout_s: float) -> Pulse:
        return await self._origins[shard].heartbeat(0, run, timeout_s)

    async def import_foreign(self, shard: int, counts: Sequence[ForeignCount], timeout_s: float) -> None:
        await self._origins[shard].import_foreign(0, counts, timeout_s)
