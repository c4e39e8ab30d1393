"""Lists of shards by which a region places its keys: the one in force, and the one before while keys move from it.

Each shard keeps the placement that it was last told of, and all nodes go by the highest number that any of them has.
(docs/convergence.md, section 12.)
"""

from typing import Any, Final, NamedTuple

import msgpack

from headgate.origin.operation import packed
from headgate.origin.shard_memory import MemoryPart

SHARDS: Final = b"shards"
"""Name of the hash in which a shard keeps the placement, and how far its own records have been moved."""
PLACED_FOR_MS: Final = 86_400_000
"""Time for which a shard keeps it without a heartbeat. A region that was down for longer begins with the list of its
settings, whatever it had before."""


class Placement(NamedTuple):
    """The list of shards in force, by its number among all that the region had; number 0 is none that was agreed."""

    number: int = 0
    shards: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    """Shards that keys may still have to be moved from; empty: all are where they belong."""

    def overrules(self, other: "Placement") -> bool:
        """Say if it comes after another one: a later list, or the end of the same move. Two lists of one number there
        are only after shards have lost their memory; then all go by the same of both."""
        if self.number != other.number:
            return self.number > other.number
        if self.shards != other.shards:
            return self.told()[1] > other.told()[1]
        return bool(other.before and not self.before)

    def told(self) -> tuple[int, bytes, bytes]:
        """Return its fields for a script."""
        return self.number, packed([*self.shards]), packed([*self.before]) if self.before else b""


NO_PLACEMENT: Final = Placement()


def placement_of(number: Any, shards: Any, before: Any) -> Placement:
    """Read the fields as a script returns them."""
    if not number:
        return Placement()
    return Placement(int(number), tuple(msgpack.unpackb(shards)), tuple(msgpack.unpackb(before)) if before else ())


class KeptPlacement(MemoryPart):
    """The placement as a shard in memory keeps it."""

    def __init__(self) -> None:
        self.placement = Placement()
        self.fence = 0
        """Highest number of a list that anybody has placed a key by here: by an earlier one nothing begins any more."""
        self.walked = 0
        """Number of the list that all records were moved for."""
        self.walk = 0
        """Number of the list that they are moved for; then where that is, who does it, and until when."""
        self.cursor = b""
        self.walker = b""
        self.walker_until_ms = 0

    def hear(self, placement: Placement) -> None:
        """Keep a placement that comes after what is kept."""
        if placement.overrules(self.placement):
            self.placement = placement
            self.fence = max(self.fence, placement.number)

    def goes_by(self, number: int) -> bool:
        """Say if somebody goes by the latest list that was heard of here; from now on nothing begins by an earlier
        one.
        """
        self.fence = max(self.fence, number)
        return number == self.fence

    def has(self, number: int) -> bool:
        """Say if this list is the latest that was heard of here. Whoever has no say in the list asks so: nodes must not
        wait for a list that they do not have, as after a region has lost everything.
        """
        return number == self.fence

    @property
    def keys_leave(self) -> bool:
        """True while keys may move to other shards, and not all have."""
        return bool(self.placement.before) and self.walked != self.placement.number
