"""The regional origin as its clients see it: shards that carry out operations, and that may fail.

Every implementation passes tests/conformance/origin. Whatever goes wrong below is
raised as OriginError: drivers' exceptions end at this seam.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from headgate.origin.operation import Operation, R
from headgate.origin.placement import Placement

HEARTBEAT_S = 1.0
"""Time between two heartbeats of a node. A wipe is noticed within one of these, traffic or not."""

NODE_GONE_MS = 5_000
"""Silence after which a node no longer counts: five heartbeats of them, so that a slow
moment does not change what the failure policies divide by."""

REGION_GONE_MS = 30_000
"""Silence after which another region no longer counts as active: several batches lost ones, or a restart of its
exchangers, do not change what limits of scope `cell` are divided by."""

LEASE_MS = 5_000
"""Time for which an exchanger has a peer to itself after it last read for it. Longer than a batch may take,
so that two rarely send the same; short enough that one that died is replaced soon."""


class OriginError(Exception):
    """A shard could not be asked, or answered with an error; the message says which and how."""


class OriginTimeout(OriginError):
    """No answer in time: the call may have been carried out, or not."""


class Origin(Protocol):
    """The shards of one region, whatever is behind them."""

    exclusive: bool
    """This node is the origin's only one and lives in its process: the node's own cells are the
    region's counts, there is nobody to converge with, and no call is ever needed."""

    @property
    def shards(self) -> int:
        """Number of shards that were ever named; they are numbered from 0."""

    listed: tuple[str, ...]
    """Names of the shards in its settings, by which keys are placed until the region has agreed on a list. Empty: keys
    are placed otherwise, in memory or by a Cluster, and there is nothing to agree on."""

    @property
    def placement(self) -> Placement:
        """The list of shards by which keys are placed; of number 0 while none was agreed."""

    @property
    def placed_on(self) -> Sequence[int]:
        """Numbers of the shards that may have keys: those of the list, in its order, then those that keys leave."""

    def shard_of(self, key: bytes) -> int:
        """Number of the shard that owns a limit key; the same on every node of the region."""

    def shard_before(self, key: bytes) -> int:
        """Number of the shard that owned it before keys began to move; the same one where none do."""

    def place_by(self, placement: Placement) -> None:
        """Place keys so from now on. Shards that are new get the next numbers. Raises ConfigError for a bad name."""

    def shard_named(self, name: str) -> int:
        """Number of a shard, which is a new one if nobody has named it yet. Raises ConfigError for a bad name."""

    async def leave(self, shard: int) -> None:
        """Give up the connections to a shard. It may be named again, and is connected to when it is next asked."""

    async def open(self) -> None:
        """Connect as far as possible. A shard that does not answer is no error: calls to it will fail."""

    def describe(self) -> Sequence[Any]:
        """State of what is behind the shards, as dataclasses; nothing that is secret."""

    async def run(self, shard: int, operation: Operation[R], timeout_s: float) -> R:
        """Have a shard carry an operation out, in one round trip, sent once: never retried below this seam.

        Raises OriginError, and OriginTimeout where it may have been carried out.
        """

    async def close(self) -> None:
        """Give up all connections; nothing is called after this."""


def owners_of(origin: Origin, key: bytes) -> tuple[int, ...]:
    """Return the shards that may have what belongs to a key, in the order in which to ask: two while it moves."""
    before, now = origin.shard_before(key), origin.shard_of(key)
    return (now,) if before == now else (before, now)


def firsts_of(origin: Origin) -> tuple[int, ...]:
    """Return the shards that may have what the region has once, in the order in which to ask: the first of its list;
    while keys move that of the former one before it.
    """
    first, before = origin.placed_on[0], origin.placement.before
    former = origin.shard_named(before[0]) if before else first
    return (first,) if former == first else (former, first)
