"""The origin in memory: the whole protocol, in this process, exact and synchronous.

It is the reference for the Lua that runs in Redis (one table of cases runs over both),
the shard of the simulation, and, as `memory://`, the embedded default: then the node
in this process is its only one, and `exclusive` says so.
"""

from collections.abc import Sequence
from typing import Any

from headgate.clock import Clock
from headgate.origin.operation import Operation, R
from headgate.origin.placement import NO_PLACEMENT, Placement
from headgate.origin.shard_memory import ShardMemory


class MemoryOrigin:
    """One shard in this process: exact, and never away."""

    shards = 1
    listed: tuple[str, ...] = ()
    placement = NO_PLACEMENT
    placed_on = (0,)

    def __init__(
        self, clock: Clock, *, region: bytes = b"local", epoch: bytes = b"memory", exclusive: bool = False
    ) -> None:
        self.exclusive = exclusive
        self.memory = ShardMemory(clock, region=region, epoch=epoch)

    def __len__(self) -> int:
        return len(self.memory.records)

    def shard_of(self, key: bytes) -> int:
        return 0

    def shard_before(self, key: bytes) -> int:
        return 0

    def place_by(self, placement: Placement) -> None:
        raise AssertionError("one shard in memory is all there is")

    def shard_named(self, name: str) -> int:
        raise AssertionError("a shard in memory has no name")

    async def leave(self, shard: int) -> None: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def describe(self) -> Sequence[Any]:
        return []

    async def run(self, shard: int, operation: Operation[R], timeout_s: float) -> R:
        return self.apply(operation)

    def apply(self, operation: Operation[R]) -> R:
        """Carry an operation out, here and now."""
        return operation.apply(self.memory)

    def wipe(self, epoch: bytes | None = None) -> None:
        """Lose everything, as a flush does; a restart also has another epoch."""
        self.memory.wipe(epoch)
