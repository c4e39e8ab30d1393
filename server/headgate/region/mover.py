"""Moves records from the shards that keys leave to those where they belong, while nodes go on counting in them.

A record is open at one shard at any time, or sealed for a moment on its way (origin/operations/move_records.py). Every
node may do it: one walks through a shard's records, others go on where that one died, and who finds a sealed record in
its way brings it home. (docs/convergence.md, section 12.)
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from headgate.origin.interface import Origin, OriginError
from headgate.origin.keyspace import LIMIT
from headgate.origin.names import key_of_name
from headgate.origin.operations.move_records import (
    PAGE,
    WHEREVER,
    DropRecords,
    PublishedName,
    PutRecords,
    RecordPage,
    TakeRecords,
    WalkRecords,
)
from headgate.origin.operations.take_claim import CLAIM
from headgate.origin.region_map import MAP_KEY

TIMEOUT_S: Final = 2.0
"""For one step: nobody waits for it."""
LOOK_S: Final = 1.0
"""Pause between looks whether a shard's records have moved, while another node moves them."""

LOOKS: Final = 5
"""Looks whether records may come: whoever is to prepare for them does so once a second, or is not there."""

PlaceOf = Callable[[bytes], bytes]
"""Finds the bytes that choose the shard of a limit key: the key, unless its domain says otherwise."""
MayCome = Callable[[Origin, int, int], Awaitable[bool]]
"""Says if records may come to a shard by the list of a number: what belongs to them and lies elsewhere is there. They
are not wrong without it, only held short."""


class Leaving(NamedTuple):
    """Something that belongs to another shard than it is on."""

    place: bytes
    """Bytes that choose its shard."""
    name: bytes
    """Name of its record, or of a claim."""
    published: PublishedName | None = None
    """Name by which other regions are told of it."""


class Mover:
    """One node's part in moving records."""

    def __init__(self, origin: Origin, run: bytes, place_of: PlaceOf, may_come: MayCome) -> None:
        self.moved = 0
        """Records that this node has moved."""
        self._origin = origin
        self._run = run
        self._place_of = place_of
        self._may_come = may_come
        self._on_their_way: set[tuple[int, bytes]] = set()

    async def walk(self, shard: int, number: int) -> None:
        """Move all records of a shard that belong elsewhere by the list of this number; until cancelled."""
        await self._until_they_may_come(number)
        after = WHEREVER
        while True:
            leaves = self._origin.shard_before(MAP_KEY) == shard != self._origin.shard_of(MAP_KEY)
            try:
                page = await self._origin.run(shard, WalkRecords(number, self._run, after, leaves), TIMEOUT_S)
                if page.mine and await self._move_page(shard, number, page):
                    after = page.next
                    continue
            except OriginError:
                pass  # whoever is next goes on with the same page
            after = WHEREVER
            await asyncio.sleep(LOOK_S)

    async def _until_they_may_come(self, number: int) -> None:
        """Wait until records may come to every shard of the list without being denied in vain, but not for ever."""
        homes = [self._origin.shard_named(name) for name in self._origin.placement.shards]
        for _ in range(LOOKS):
            try:
                while homes and await self._may_come(self._origin, homes[-1], number):
                    homes.pop()
            except OriginError:
                pass
            if not homes:
                return
            await asyncio.sleep(LOOK_S)

    async def bring(self, shard: int, number: int, key: bytes, place: bytes) -> None:
        """Bring a sealed record home, unless that is under way here. What fails is done by the walk."""
        if (shard, key) in self._on_their_way:
            return
        self._on_their_way.add((shard, key))
        try:
            await self._move(shard, self._origin.shard_of(place), number, [Leaving(place, LIMIT + key)])
        except OriginError:
            return
        finally:
            self._on_their_way.discard((shard, key))

    async def _move_page(self, shard: int, number: int, page: RecordPage) -> bool:
        """Move those of a page that belong elsewhere; return whether all are there now."""
        by_shard: dict[int, list[Leaving]] = {}
        for leaving in self._found(page):
            home = self._origin.shard_of(leaving.place)
            if home != shard:
                by_shard.setdefault(home, []).append(leaving)
        for home, found in by_shard.items():
            for first in range(0, len(found), PAGE):
                if not await self._move(shard, home, number, found[first : first + PAGE]):
                    return False
        return True

    def _found(self, page: RecordPage) -> list[Leaving]:
        if page.priority is None:
            return [Leaving(self._place_of_name(name), name) for name in page.names]
        found = []
        for name in page.names:
            try:
                key = key_of_name(name)
            except ValueError:
                continue  # nobody of ours wrote it, and nobody is told of it
            found.append(Leaving(self._place_of(key), LIMIT + key, PublishedName(page.priority, name)))
        return found

    def _place_of_name(self, name: bytes) -> bytes:
        return name.removeprefix(CLAIM) if name.startswith(CLAIM) else self._place_of(name.removeprefix(LIMIT))

    async def _move(self, shard: int, home: int, number: int, leaving: Sequence[Leaving]) -> bool:
        """Seal at one shard, open at the other, and only then drop; each step may be made again by anybody."""
        names = [one.name for one in leaving]
        published = [one.published for one in leaving if one.published is not None]
        records = await self._origin.run(shard, TakeRecords(number, names), TIMEOUT_S)
        if records or published:
            put = PutRecords(number, records, published)
            if not await self._origin.run(home, put, TIMEOUT_S):
                return False
        self.moved += len(records)
        return await self._origin.run(shard, DropRecords(number, names, published), TIMEOUT_S)
