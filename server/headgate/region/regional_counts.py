"""Counts of a limit key as a node of a region knows them: what its counter asks of its kind, a window or a bucket.

The counts that the algorithms read (`current`, `previous`, `tat`) are all that is known of the region, this node's own
unacknowledged cost included. Beside them stands this node's own part. (window_counter.py, bucket_counter.py.)
"""

from abc import ABC, abstractmethod
from typing import Any

from headgate.limiter.counters import KeyCounter
from headgate.origin.protocol import Answer, Report
from headgate.region.cells import Hold


class RegionalCounts(KeyCounter, ABC):
    """One limit key's counts, with this node's own part in them."""

    __slots__ = ()

    sequence: int
    """The current window; 0 for buckets, which have none."""

    @property
    @abstractmethod
    def credit(self) -> int:
        """Cost that the shard charged for this node and nobody has spent yet."""

    @property
    @abstractmethod
    def unacked(self) -> int:
        """This node's cost that the shard has not acknowledged."""

    @property
    @abstractmethod
    def uncovered(self) -> int:
        """Cost that waiting requests hold and the shard has not charged: units of the allowance until then."""

    @property
    @abstractmethod
    def most(self) -> int:
        """Most that may be in use at a time: the limit, of a bucket its burst."""

    @property
    @abstractmethod
    def spare(self) -> int:
        """Cost that is left at least, by all that is known."""

    @property
    @abstractmethod
    def reserved(self) -> int:
        """Cost that this node's waiting requests hold."""

    @property
    @abstractmethod
    def own_admitted(self) -> int:
        """Cost that this node itself admitted and that still counts: `on_error: open` is bounded by it."""

    @abstractmethod
    def has_room_by(self, time_ms: int) -> bool:
        """Return whether a unit is free at a time to come, by what is counted now: else there is nothing to ask for."""

    @property
    def is_over_limit(self) -> bool:
        """True if more was admitted than the limit and its precision allow, by all that is known."""
        return False

    @abstractmethod
    def advance(self, now_ms: int) -> int:
        """Come to `now_ms`, or stay where an answer has already brought the counter; return the time it is there."""

    @abstractmethod
    def room(self, now_ms: int) -> int:
        """Return the highest cost that fits now by all that is known, as the algorithm's `room`; follows `come_to`."""

    @abstractmethod
    def reset_ms(self, now_ms: int) -> int:
        """Return how long until the end of the window (gcra: until the bucket is full)."""

    @abstractmethod
    def spend(self, cost: int, missing: int, now_ms: int) -> None:
        """Admit a cost that fits, and of which credit does not cover `missing`."""

    @abstractmethod
    def overdraw(self, cost: int, missing: int, now_ms: int) -> None:
        """Admit a late cost that does not fit."""

    @abstractmethod
    def countable(self, cost: int, now_ms: int) -> int:
        """Return how much of a late cost still makes a difference: late costs have no limit, but what is kept has."""

    @abstractmethod
    def uncharge(self, cost: int, now_ms: int) -> None:
        """Undo so much of what was spent before, as far as it is this node's and still counts."""

    @abstractmethod
    def unspend(self, cost: int) -> None:
        """Undo a `spend` of the same instant."""

    @abstractmethod
    def hold(self, cost: int, now_ms: int, charged: Answer | None = None) -> Hold:
        """Reserve: where the shard charged it, else at `now_ms`."""

    @abstractmethod
    def settle(self, hold: Hold, *, commit: bool) -> None:
        """End a reservation: admit its cost, or give it up."""

    @property
    @abstractmethod
    def own_unacked(self) -> int:
        """Unacknowledged cost that `on_error: local` counts once for every 1.5 live nodes."""

    @abstractmethod
    def fits_instead(self, cost: int, now_ms: int) -> bool:
        """Return whether a cost fits beside all that is known, in place of `own_unacked`."""

    @abstractmethod
    def report(self, number: int, wanted: int, want: int, leaving: bool, now_s: float) -> Report:
        """Return the report for a call that asks for `wanted` on top, and would like to hold `want`."""

    @abstractmethod
    def learn(self, answer: Any) -> bool:
        """Merge an answer. False: the shard knows less than it once did."""

    @abstractmethod
    def lacks(self, answer: Any) -> bool:
        """Return, after `learn`, whether the shard has less than was certainly there, and must be told so."""
