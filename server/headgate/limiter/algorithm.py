"""The interface of an algorithm: pure arithmetic on one counter, in whole milliseconds.

`room` is the measure: how much may still be admitted. Everything else follows from it: `take` charges a cost that
fits, the rest says what is left, when to come back, and when all is new. Costs and limits are checked by the time
they get here; the time never goes back.
"""

from typing import Any, Final, Protocol

from headgate.limiter.counters import KeyCounter
from headgate.limiter.limit import Limit

OVER: Final = -1
"""`take`'s answer when the cost does not fit. Nothing was charged."""


class AlgorithmRules(Protocol):
    """One algorithm. A counter only ever meets the algorithm that made it: keys name theirs."""

    def new_counter(self, key: bytes, limit: Limit, now_ms: int) -> KeyCounter:
        """Make a counter for the key, with nothing admitted yet."""

    def room(self, counter: Any, limit: Limit, now_ms: int) -> int:
        """Bring the counter to `now_ms`; return the highest cost that fits now. Below 0: more was admitted than fits.

        A limit of 0 has a room of -1: it denies a cost of 0 too.
        """

    def take(self, counter: Any, limit: Limit, now_ms: int, cost: int) -> int:
        """Charge the cost if it fits; return the room after it, else OVER."""

    def release(self, counter: Any, limit: Limit, cost: int) -> None:
        """Undo a charge of the same instant: another descriptor of the request was over."""

    def overdraw(self, counter: Any, limit: Limit, now_ms: int, cost: int) -> None:
        """Charge a late cost that does not fit; follows a `room` of the same instant."""

    def refund(self, counter: Any, limit: Limit, now_ms: int, cost: int) -> None:
        """Give back what was charged before, as far as it still counts: of this window, then of the one before."""

    def remaining(self, counter: Any, limit: Limit, now_ms: int) -> int:
        """Return what a request may still cost now, at least 0."""

    def retry_ms(self, counter: Any, limit: Limit, now_ms: int, cost: int) -> int:
        """Return how long until this cost fits if nothing else comes.

        A cost above the limit never fits; it is told to wait for the end of the window (gcra:
        for a window's length), so that a caller that can't know better comes back rarely.
        """

    def reset_ms(self, counter: Any, limit: Limit, now_ms: int) -> int:
        """Return how long until the end of the window (gcra: until the bucket is full)."""
