"""Moves records from the shards that keys leave to those where they belong, while nodes go on counting in them.

A record is open at one shard at any time, or sealed for a moment on its way (origin/operations/move_records.py). Every
node may do it: one walks through a shard's records, others go on where that one died, and who finds a sealed record in
its way brings it home. (docs/convergence.md, section 12.)
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from headgate.origin.interface import Origin, OriginError
from headgate.origin.keyspace import LIMIT
from headgate.origin.operations.move_records import PAGE, DropRecords, PutRecords, TakeRecords, WalkRecords
from headgate.origin.operations.take_claim import CLAIM
from headgate.origin.region_map import MAP_KEY

TIMEOUT_S: Final = 2.0
"""For one step: nobody waits for it."""
LOOK_S: Final = 1.0
"""Pause between looks whether a shard's records have moved, while another node moves them."""

PlaceOf = Callable[[bytes], bytes]
"""Finds the bytes that choose the shard of a limit key: the key, unless its domain says otherwise."""


class Mover:
    """One node's part in moving records."""

    def __init__(self, origin: Origin, run: bytes, place_of: PlaceOf) -> None:
        self.moved = 0
        """Records that this node has moved."""
        self._origin = origin
        self._run = run
        self._place_of = place_of
        self._on_their_way: set[tuple[int, bytes]] = set()

    async def walk(self, shard: int, number: int) -> None:
        """Move all records of a shard that belong elsewhere by the list of this number; until cancelled."""
        after = -1
        while True:
            leaves = self._origin.shard_before(MAP_KEY) == shard != self._origin.shard_of(MAP_KEY)
            try:
                page = await self._origin.run(shard, WalkRecords(number, self._run, after, leaves), TIMEOUT_S)
                if page.mine and await self._move_page(shard, number, page.names):
                    after = page.next
                    continue
            except OriginError:
                pass  # whoever is next goes on with the same page
            after = -1
            await asyncio.sleep(LOOK_S)

    async def bring(self, shard: int, number: int, key: bytes, place: bytes) -> None:
        """Bring a sealed record home, unless that is under way here. What fails is done by the walk."""
        if (shard, key) in self._on_their_way:
            return
        self._on_their_way.add((shard, key))
        try:
            await self._move(shard, self._origin.shard_of(place), number, [LIMIT + key])
        except OriginError:
            return
        finally:
            self._on_their_way.discard((shard, key))

    async def _move_page(self, shard: int, number: int, names: Sequence[bytes]) -> bool:
        """Move those of the names that belong elsewhere; return whether all are there now."""
        by_shard: dict[int, list[bytes]] = {}
        for name in names:
            place = name.removeprefix(CLAIM) if name.startswith(CLAIM) else self._place_of(name.removeprefix(LIMIT))
            home = self._origin.shard_of(place)
            if home != shard:
                by_shard.setdefault(home, []).append(name)
        for home, leaving in by_shard.items():
            for first in range(0, len(leaving), PAGE):
                if not await self._move(shard, home, number, leaving[first : first + PAGE]):
                    return False
        return True

    async def _move(self, shard: int, home: int, number: int, names: Sequence[bytes]) -> bool:
        """Seal at one shard, open at the other, and only then drop; each step may be made again by anybody."""
        records = await self._origin.run(shard, TakeRecords(number, names), TIMEOUT_S)
        if records and not await self._origin.run(home, PutRecords(number, records), TIMEOUT_S):
            return False
        self.moved += len(records)
        return await self._origin.run(shard, DropRecords(number, names), TIMEOUT_S)
