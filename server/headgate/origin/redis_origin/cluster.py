"""Redis Cluster: limit keys in a fixed number of groups, each group one slot, each a shard.

A call to a group names only keys with the group's hash tag, so it is one script on
one node. Redirections are followed, because then nothing was executed; nothing else is
ever sent again. What a node does not answer makes the map of slots be read again, in
the background: calls to healthy nodes never wait for that.
"""

import asyncio
import itertools
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

from redis.crc import key_slot
from redis.exceptions import RedisError

from headgate.origin.interface import OriginError, OriginTimeout
from headgate.origin.redis_origin.base import AFTER_PREFIX, Opening, RedisOrigin
from headgate.origin.redis_origin.dial import Dialler, ask_once
from headgate.origin.redis_origin.errors import Redirected, TryAgain, explain
from headgate.origin.redis_origin.scripts import Script
from headgate.origin.redis_origin.server import Server, ShardState
from headgate.origin.redis_origin.shards import at
from headgate.origin.redis_origin.url import RedisAddress
from headgate.origin.rendezvous import hash_of

SLOTS: Final = 16384
GROUPS: Final = 64
"""Enough that a Cluster of ten masters is loaded evenly (6 or 7 groups each), and few enough that
one heartbeat per group and second costs nothing. Another number would move every key."""
MOST_REDIRECTIONS: Final = 5
"""A slot that is moving sends a call to and fro; one that never arrives has lost its way."""
TRY_AGAIN_S: Final = 0.005
"""Pause between attempts while a call's keys are on two nodes, until its timeout: a key moves in less."""
MAP_TIMEOUT_S: Final = 0.5
"""Timeout of one node's map; then the next one is asked."""
MAP_EVERY_S: Final = 0.25
"""Time between two readings of the map while a node does not answer: a failover takes seconds."""


def _tags() -> list[bytes]:
    """One tag per group, spread evenly over the slots: the first number that falls into its part."""
    tags: dict[int, bytes] = {}
    for number in itertools.count():
        tag = b"%d" % number
        tags.setdefault(key_slot(tag) * GROUPS // SLOTS, tag)
        if len(tags) == GROUPS:
            return [tags[group] for group in range(GROUPS)]
    raise AssertionError


TAGS: Final = _tags()
GROUP_SLOTS: Final = [key_slot(tag) for tag in TAGS]


class ClusterOrigin(RedisOrigin):
    """A Redis Cluster. Its slots are divided into groups, and each group is one shard to a node."""

    def __init__(self, opening: Opening) -> None:
        prefix = opening.prefix + AFTER_PREFIX
        super().__init__(opening.scripts, opening.region, [b"%s{%s}:" % (prefix, tag) for tag in TAGS])
        self._seeds = opening.url.addresses
        self._dialler = Dialler(opening.login, opening.url.tls, cluster=True)
        self._clock = opening.clock
        self._logger = opening.logger
        self._owners: list[RedisAddress | None] = [None] * GROUPS
        self._servers: dict[RedisAddress, Server] = {}
        self._reading: asyncio.Task[None] | None = None
        self._read_at_s = float("-inf")
        self._turn = -1
        self._map_error = "not connected yet"
        self._since_ms = opening.clock.now_ms()
        self._closing: set[asyncio.Task[None]] = set()

    def shard_of(self, key: bytes) -> int:
        return hash_of(key) % GROUPS

    def describe(self) -> list[ShardState]:
        states = [server.state for _, server in sorted(self._servers.items(), key=lambda item: str(item[0]))]
        if self._map_error:
            seeds = ",".join(map(str, self._seeds))
            states.append(ShardState(f"cluster at {seeds}", error=self._map_error, since_ms=self._since_ms))
        return states

    async def open(self) -> None:
        try:
            await self._read_map()
            await asyncio.gather(*(server.connect() for server in self._servers.values()))
        except OriginError:
            # Kept in the states, and logged; the node serves by its rules' policies.
            return

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        await asyncio.gather(*(server.close() for server in self._servers.values()), *self._closing)

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
        deadline_s = self._clock.monotonic() + timeout_s
        address, asking, redirections = await self._owner(shard, timeout_s), False, 0
        refusal: OriginError | None = None
        while redirections <= MOST_REDIRECTIONS:
            left_s = deadline_s - self._clock.monotonic()
            if refusal is not None and left_s < TRY_AGAIN_S:
                # Too late for another: its timeout would cost everyone the connection.
                raise refusal
            try:
                return await self._server(address).run(
                    script, keys, arguments, left_s, own_connection=own_connection, asking=asking
                )
            except Redirected as elsewhere:
                refusal = elsewhere
                address, asking, redirections = elsewhere.address, elsewhere.ask, redirections + 1
                if not asking:
                    self._owners[shard] = address
                    self._read_map_soon()
            except TryAgain as later:
                refusal = later
                await asyncio.sleep(TRY_AGAIN_S)
                # From the beginning: whether that sends us on is another question by then.
                address, asking, redirections = await self._owner(shard, left_s), False, 0
            except OriginError:
                self._read_map_soon()
                raise
        raise OriginError(f"{address}: the slot of group {shard} is on its way from node to node")

    async def _owner(self, group: int, timeout_s: float) -> RedisAddress:
        if self._owners[group] is None:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._read_map()
            except TimeoutError as error:
                raise OriginTimeout(f"no map of the Cluster in {timeout_s * 1000:.0f} ms") from error
        owner = self._owners[group]
        if owner is None:
            raise OriginError(f"no node of the Cluster has slot {GROUP_SLOTS[group]}")
        return owner

    def _server(self, address: RedisAddress) -> Server:
        server = self._servers.get(address)
        if server is None:
            server = Server(str(address), at(address), self._dialler, self._clock, self._logger)
            self._servers[address] = server
        return server

    # The map of slots: read by one task at a time, for all who wait.

    async def _read_map(self) -> None:
        await asyncio.shield(self._reading_map())

    def _read_map_soon(self) -> None:
        """Read the map in the background, unless it was just read."""
        if self._clock.monotonic() >= self._read_at_s + MAP_EVERY_S:
            self._reading_map()

    def _reading_map(self) -> asyncio.Task[None]:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_map_once())
            # Kept for describe(): nobody may be waiting for this task.
            self._reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._reading

    async def _read_map_once(self) -> None:
        self._read_at_s = self._clock.monotonic()
        error: Exception = OriginError("nobody to ask")
        for address in self._whom_to_ask():
            try:
                async with asyncio.timeout(MAP_TIMEOUT_S):
                    ranges = await _ask_slots(self._dialler, address)
            except (RedisError, OSError, OriginError) as failed:
                error = failed
            else:
                self._note("")
                self._apply(ranges)
                return
        text = "no answer" if isinstance(error, TimeoutError) else explain(error)
        self._note(f"no map of the Cluster: {text}")
        raise OriginError(self._map_error) from error

    def _whom_to_ask(self) -> list[RedisAddress]:
        """Everyone known, beginning with another one each time: one may be cut off from the rest, and wrong."""
        known = list(dict.fromkeys([*self._servers, *self._seeds]))
        self._turn = (self._turn + 1) % len(known)
        return known[self._turn :] + known[: self._turn]

    def _apply(self, ranges: list[tuple[int, int, RedisAddress]]) -> None:
        starts = [start for start, _, _ in ranges]
        for group, slot in enumerate(GROUP_SLOTS):
            position = bisect_right(starts, slot) - 1
            covered = position >= 0 and slot <= ranges[position][1]
            self._owners[group] = ranges[position][2] if covered else None
        for address in [address for address in self._servers if address not in self._owners]:
            self._let_go(self._servers.pop(address))
        for owner in self._owners:
            if owner is not None:
                self._server(owner)

    def _let_go(self, server: Server) -> None:
        task = asyncio.create_task(server.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _note(self, text: str) -> None:
        if text == self._map_error:
            return
        self._map_error, self._since_ms = text, self._clock.now_ms()
        if text:
            self._logger.warning("origin_failed", server="cluster", reason=text)


async def _ask_slots(dialler: Dialler, address: RedisAddress) -> list[tuple[int, int, RedisAddress]]:
    """Slot ranges and their masters, in order."""
    (reply,) = await ask_once(dialler, address, ("CLUSTER", "SLOTS"))
    ranges = []
    for start, end, (host, port, *_), *_replicas in reply:
        # A node that does not know its own address is where it was asked.
        ranges.append((start, end, RedisAddress(host.decode() if host else address.host, port)))
    if not ranges:
        raise OriginError(f"{address} knows no slots")
    return sorted(ranges, key=lambda found: found[0])
