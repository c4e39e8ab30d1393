"""Takes out what a region stated: out of the records of all shards, and out of what nodes remember.

Every key in which another region counts stands in its shard's index of changes, so the index is walked. A node knows
other regions' counts as one sum that only grows; it begins such counters anew, and asks the shard. What it had admitted
and not reported yet is forgotten with that: never more than the limit's precision.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from headgate.origin.cut_regions import read
from headgate.origin.exchange_protocol import Priority
from headgate.origin.interface import Origin, OriginError
from headgate.origin.operations.forget_region import ForgetRegion
from headgate.origin.operations.read_changes import ReadChanges
from headgate.origin.region_map import MapEntry
from headgate.region.node import RegionNode
from headgate.region.region_map import RegionMapReplica
from headgate.region.window_counter import SharedWindow

READER: Final = b" cut"
"""Reads the indexes under this name, which no region can have."""
PAGE: Final = 500
"""Names per call to a shard: two or three milliseconds of its time."""
TIMEOUT_S: Final = 2.0
COUNTERS_AT_ONCE: Final = 1_000
"""Counters that a node looks at before the loop gets its turn again: well under a millisecond."""


async def forget_region(origin: Origin, region: str, owner: bytes) -> int:
    """Take a region's counts out of all keys; return of how many. Raises OriginError, also while keys move: one that
    does may be missed.
    """
    placement = origin.placement
    places = [(shard, priority) for shard in origin.placed_on for priority in Priority]
    found = sum([await _forget_in(origin, shard, priority, region, owner) for shard, priority in places])
    if placement.before or origin.placement is not placement:
        raise OriginError("keys move to other shards at present")
    return found


async def _forget_in(origin: Origin, shard: int, priority: Priority, region: str, owner: bytes) -> int:
    found = after = 0
    while True:
        read_names = ReadChanges(READER, priority, owner, owner, PAGE, after)
        changes = await origin.run(shard, read_names, TIMEOUT_S)
        if not changes.leased:
            raise OriginError(f"shard {shard}: another operator takes a region out of it at present")
        if not changes.names:
            return found
        found += await origin.run(shard, ForgetRegion(region.encode(), changes.names), TIMEOUT_S)
        after = changes.until


class ForgetsOtherRegions:
    """Has a node's counters begin anew that know of other regions, whenever one was cut off."""

    def __init__(self, node: RegionNode) -> None:
        self._node = node
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, region_map: RegionMapReplica) -> None:
        """Act on cuts, now and whenever there is another step of one."""
        region_map.listen(self._changed)

    def _changed(self, entries: Sequence[MapEntry]) -> None:
        if any(cut is not None and cut.step for cut in map(read, entries)):
            task = asyncio.get_running_loop().create_task(self.forget(), name="forget-regions")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def forget(self) -> None:
        """Have all counters begin anew that know of counts of other regions."""
        for number, counter in enumerate(list(self._node.engine.counters), 1):
            if isinstance(counter, SharedWindow) and any(cell.foreign for cell in counter.cells):
                counter.begin_anew()
            if number % COUNTERS_AT_ONCE == 0:
                await asyncio.sleep(0)
