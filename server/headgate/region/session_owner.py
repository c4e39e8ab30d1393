"""Those whom a shard session works with: the node that owns it, the driver that it tells what happens, and chance."""

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from headgate.region.counters import SharedCounter
from headgate.region.extension import CallExtension


class SessionOwner(Protocol):
    """The node, as its sessions need it."""

    extension: CallExtension
    """The feature that rides along with its calls."""
    numbers: Iterator[int]
    """Call numbers, of all its sessions together."""

    def live_counters(self) -> Iterable[SharedCounter]:
        """Return all counters of the node, whatever their shard."""

    def new_component(self) -> bytes:
        """Return the name of a component that this run has never used."""

    def heard_reset(self, counter: SharedCounter, number: int) -> None:
        """Note that an answer tells of a reset; its counter knows by then."""

    @property
    def list_number(self) -> int:
        """Number of the list of shards by which the region places keys."""

    def leaving(self, index: int, counters: Sequence[SharedCounter]) -> tuple[int, ...]:
        """Return the positions of those counters whose keys leave the shard."""

    def came_by(self, counter: SharedCounter) -> int:
        """Return the number of the list by which a counter's key came to its shard; 0 if it was there before."""

    def not_here(self, counter: SharedCounter, *, sealed: bool) -> None:
        """Find the shard where a counter's record is, its own having none; `sealed`: it is on its way."""

    def lost_memory(self, index: int) -> None:
        """Note that a shard lost its memory."""


class SessionEvents(Protocol):
    """The driver, as the session tells it what happens."""

    def work_waits(self) -> None:
        """Note that there is something to say at once."""

    def flush_due(self, due_s: float) -> None:
        """Note that a counter is to be reported at `due_s` of the monotonic clock."""

    def clock_set(self, by_ms: int) -> None:
        """Note that the shard's clock was set by so much."""

    def memory_lost(self, reason: str, *, again: bool) -> None:
        """Note that the shard lost its memory; `again`: during a refill."""

    def record_unreadable(self, key: bytes, now_s: float) -> None:
        """Note that the shard can't read the record of a key."""


class Chances(NamedTuple):
    """Sources of randomness, apart so that what one draws does not change what the other does."""

    usable: random.Random
    """For how long an answer is usable."""
    pauses: random.Random
    """For how long a key pauses."""
