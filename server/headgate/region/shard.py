"""One shard of the region's origin, as the counters of its keys need it: its time, what it is good for now, and to be
told. session.py is the one that there is; what a counter is, only counters.py says.
"""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from headgate.heirs import mypyc_attr
from headgate.limiter.limit import Limit
from headgate.origin.protocol import WindowTerms
from headgate.region.interned import Interned
from headgate.region.shard_clock import ShardClock
from headgate.region.urgency import Urgency

C = TypeVar("C")
"""The counters that are reported to it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Shard(ABC, Generic[C]):
    """One shard of the region's origin, as counters need it."""

    def __init__(self, index: int, time: ShardClock) -> None:
        self.index = index
        """Its place among the origin's shards; for people and metrics."""
        self.time = time
        """Its time, as far as it is known."""
        self.available = True
        """False while asking would only wait for nothing: then the failure policies decide at once."""
        self.within = True
        """True while allowances must stay within `P`: beside nodes of a version that counts on it, in a drain, and
        after a loss, until every node has noticed that the shard has forgotten what it held."""
        self._interned = Interned()

    def now_ms(self) -> int:
        """Return the least that the shard's time may be now."""
        return self.time.now_ms()

    def interned(self, number: int) -> int:
        """Return the same number as one object for all counters."""
        return self._interned.number(number)

    def window_terms(self, limit: Limit, component: bytes, leaving: bool) -> WindowTerms:
        """Return what reports of a component under a limit have in common, as one object."""
        return self._interned.window_terms(limit, component, leaving, self.within)

    @abstractmethod
    def new_component(self) -> bytes:
        """Return the name of a component that this run has never used: for a counter that begins anew."""

    @abstractmethod
    def remembers(self, now_s: float) -> bool:
        """Return whether it knows what there is to give back: not while a loss of its memory may not be refilled."""

    @abstractmethod
    def flush(self, counter: C, urgency: Urgency) -> None:
        """Have the counter reported with the delay of its urgency."""

    @abstractmethod
    def report_at(self, counter: C, due_s: float) -> None:
        """Have the counter reported at that time, or sooner."""
