"""The regional origin as a node sees it: shards that are called, and that may fail.

Every implementation passes tests/conformance/origin. A call raises OriginError for
whatever went wrong below: drivers' exceptions end at this seam.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from headgate.origin.protocol import Call, ForeignCount, Pulse, Reply

HEARTBEAT_S = 1.0
"""How often a node says that it lives. A wipe is noticed within one of these, traffic or not."""

NODE_GONE_MS = 5_000
"""After how long without a heartbeat a node no longer counts: five of them, so that a slow
moment does not change what the failure policies divide by."""


class OriginError(Exception):
    """A shard could not be asked, or answered with an error; the message says which and how."""


class OriginTimeout(OriginError):
    """No answer in time: the call may have been carried out, or not."""


class Origin(Protocol):
    """The shards of one region. What a node calls, whatever is behind it."""

    exclusive: bool
    """This node is the origin's only one and lives in its process: the node's own cells are the
    region's counts, there is nobody to converge with, and no call is ever needed."""

    @property
    def shards(self) -> int:
        """How many shards there are; they are numbered from 0, the same way on every node."""
        ...

    def shard_of(self, key: bytes) -> int:
        """Which shard owns a limit key; the same on every node of the region."""
        ...

    async def open(self) -> None:
        """Connect as far as possible. A shard that does not answer is no error: calls to it will fail."""
        ...

    def describe(self) -> Sequence[Any]:
        """What is behind the shards, and how it is doing, as dataclasses; nothing that is secret."""
        ...

    async def call(self, shard: int, call: Call, timeout_s: float) -> Reply:
        """Report, charge and read, in one round trip, sent once: never retried below this seam."""
        ...

    async def heartbeat(self, shard: int, run: bytes, timeout_s: float) -> Pulse:
        """Say that this run lives; the shard says how many do, and whether it remembers this one."""
        ...

    async def import_foreign(self, shard: int, counts: Sequence[ForeignCount], timeout_s: float) -> None:
        """Merge what other regions have said; never published again."""
        ...

    async def close(self) -> None:
        """Give up all connections; nothing is called after this."""
        ...
