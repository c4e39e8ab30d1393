"""What an algorithm promises the engine: pure arithmetic on one counter, in whole milliseconds.

`take` is the decision. The rest answers the questions that come with it: what is
left, when to come back, when all is new. Costs and limits are checked by the time
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
        """A counter for the key, with nothing admitted yet."""
        ...

    def take(self, counter: Any, limit: Limit, now_ms: int, cost: int) -> int:
        """Charge the cost if it fits and say what remains after it, else OVER."""
        ...

    def release(self, counter: Any, limit: Limit, cost: int) -> None:
        """Undo a `take` of the same instant: another descriptor of the request was over."""
        ...

    def overdraw(self, counter: Any, limit: Limit, now_ms: int, cost: int) -> None:
        """Charge a late cost that did not fit: follows a `take` of the same instant that said OVER."""
        ...

    def give_back(self, counter: Any, limit: Limit, now_ms: int, cost: int) -> None:
        """Undo what was charged before, as far as it counts: of this window, then of the one before."""
        ...

    def remaining(self, counter: Any, limit: Limit, now_ms: int) -> int:
        """What a request could still cost now; follows a `take` of the same instant."""
        ...

    def standing(self, counter: Any, limit: Limit, now_ms: int) -> tuple[int, int]:
        """`remaining` and `reset_ms` together: what every admission is told."""
        ...

    def retry_ms(self, counter: Any, limit: Limit, now_ms: int, cost: int) -> int:
        """How long until this cost fits if nothing else comes.

        A cost above the limit never fits; it is told to wait for the end of the window (gcra:
        for a window's length), so that a caller that can't know better comes back rarely.
        """
        ...

    def reset_ms(self, counter: Any, limit: Limit, now_ms: int) -> int:
        """How long until the end of the window (gcra: until the bucket is full)."""
        ...
