"""The seam for a feature that rides along with the calls to a shard: it cuts charges, and adds to calls.

Quota is one (docs/quota.md). The region knows no more of it than this.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from headgate.limiter.counter_table import CounterTable
from headgate.limiter.decision import Charge
from headgate.origin.interface import Origin
from headgate.origin.operation import Operation
from headgate.origin.operations.call import Call, Reply
from headgate.region.counters import SharedCounter

CameBy = Callable[[SharedCounter], int]
"""Finds the number of the list by which a counter's key came to its shard; 0 if it was there before."""


class ExtendedCall(Protocol):
    """One call with what a feature added to it."""

    @property
    def operation(self) -> Operation[Any]:
        """The operation that is sent in place of the call."""

    def reply_of(self, result: Any) -> Reply:
        """Return the call's own reply out of the operation's result."""

    def learn(self, result: Any, sent_s: float) -> None:
        """Take in the feature's part of the result of an operation that was sent at `sent_s`."""

    def failed(self) -> None:
        """Take back what the call carried: it brought nothing."""


class CallExtension(Protocol):
    """A feature of one node, as its shard sessions call it."""

    def in_force(self, charges: tuple[Charge, ...]) -> tuple[Charge, ...]:
        """Return the charges as the feature lets them be decided."""

    def extend(
        self, call: Call, counters: Sequence[SharedCounter], now_s: float, came_by: CameBy
    ) -> ExtendedCall | None:
        """Return the call with what the feature adds to it; None: nothing."""

    async def may_come(self, origin: Origin, shard: int, number: int) -> bool:
        """Say if records may come to a shard by the list of a number: what the feature keeps for them is there.

        Raises OriginError.
        """


MakeExtension = Callable[[CounterTable[SharedCounter]], CallExtension]
"""Makes the feature of a node, whose counters it may look at."""


class NoExtension:
    """Stands in the place of a feature where there is none: calls go as they are."""

    def __init__(self, counters: CounterTable[SharedCounter]) -> None:
        """Take the place that `MakeExtension` gives."""

    def in_force(self, charges: tuple[Charge, ...]) -> tuple[Charge, ...]:
        """Raise LookupError: charges with a quota come only where there is the feature that knows their slices."""
        raise LookupError("a quota, and nothing that knows its slice")

    def extend(
        self, call: Call, counters: Sequence[SharedCounter], now_s: float, came_by: CameBy
    ) -> ExtendedCall | None:
        """Return None: nothing is added."""
        return None

    async def may_come(self, origin: Origin, shard: int, number: int) -> bool:
        """Return True: there is nothing to wait for."""
        return True
