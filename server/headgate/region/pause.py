"""The pause of a key that is at its limit: how a node asks its shard for it.

Without pauses every request on such a key asks its shard for whatever has just become free, on every
node. Instead, a call that asks for a request on the key *prefetches* as well: it asks for about as many
requests as the node will have until it asks next. What is charged for them is credit, which pays for the
next admissions. When a call brought less than it asked for, the node does not ask again before its pause is over;
until then it denies, from memory, what credit does not cover. (docs/convergence.md, section 10.)

Pure: time and chance are passed in. What became free during a pause is late by up to a pause, and no more.
"""

from typing import Final

from headgate.limiter.limit import Algorithm, Limit
from headgate.region.refunds import DENIAL_MS

WINDOW_PAUSES: Final = 100
"""Pauses in a window: what becomes free is late by up to 1% of it. More pauses ask more often."""
BURST_PAUSES: Final = 10
"""Pauses in the time that a bucket's burst takes to refill."""
LONGEST_MS: Final = 1_000
"""However long the window: a caller who waits a second for what is free already is not served well."""
LONGEST_BUCKET_MS: Final = 100
"""A bucket loses for good what is prefetched and not spent: with a second, demand that moves between nodes every
second got 97% of what it could."""
SHORTEST_MS: Final = 10
"""Below this there are no pauses: a node would ask at nearly every request anyway."""
NEVER_ASKED: Final = 1 << 40
"""No cost is as high."""


def pause_ms(limit: Limit) -> int:
    """Return the longest pause of a key under this limit; 0: it has none."""
    if limit.algorithm is Algorithm.GCRA:
        refill_ms = limit.burst * limit.window_ms // max(1, limit.requests_per_unit)
        length_ms = min(refill_ms // BURST_PAUSES, LONGEST_BUCKET_MS)
    else:
        length_ms = limit.window_ms // WINDOW_PAUSES
    if limit.refund:
        length_ms = min(length_ms, DENIAL_MS)  # what is given back is not denied for longer
    return min(length_ms, LONGEST_MS) if length_ms >= SHORTEST_MS else 0


def most_prefetched(limit: Limit) -> int:
    """Return the most that a node may prefetch: what becomes free in a pause."""
    return limit.requests_per_unit * pause_ms(limit) // limit.window_ms


class AskPause:
    """One key that is, or was, at its limit: how much is asked of it, and until when its node does not ask."""

    __slots__ = (
        "_asked",
        "_last",
        "_last_least",
        "_least",
        "_length_s",
        "_limit",
        "_room",
        "_sequence",
        "_since_s",
        "ends_s",
    )

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        """The limit under which the key was short: another one ends the pause."""
        self._length_s = pause_ms(limit) / 1000
        self.ends_s = 0.0
        """End of the pause by the node's monotonic clock: no setting of a clock makes a pause longer."""
        self._room = 0
        """Room that was left at the shard when the pause began. A request that needs no more may still ask."""
        self._sequence = 0
        """The window in which the pause began: a fixed window's pause ends with it."""
        self._since_s = 0.0
        self._asked = self._last = 0
        """Cost of all requests, since then, and in the pause before."""
        self._least = self._last_least = NEVER_ASKED
        """The lowest cost of one of them."""

    def count(self, cost: int, now_s: float) -> None:
        """Count a request on the key, whatever becomes of it."""
        if now_s - self._since_s >= self._length_s:
            self._roll(now_s)
        self._asked += cost
        if 0 < cost < self._least:
            self._least = cost

    def _roll(self, now_s: float) -> None:
        lately = now_s - self._since_s < 2 * self._length_s
        self._last, self._last_least = (self._asked, self._least) if lately else (0, NEVER_ASKED)
        self._asked, self._least = 0, NEVER_ASKED
        self._since_s = now_s

    def prefetch(self, limit: Limit, asking: int, time_ms: int, now_s: float) -> tuple[int, int]:
        """Return for how many requests, of which cost, a call that asks for `asking` should ask beyond that.

        Whole requests: a part of one would be kept from everybody until the rest of it is free. Of the least cost that
        was asked for lately: nothing that one of them could use stays behind. And no more than come before the
        window ends: what is charged and not spent by then is lost.
        """
        if now_s - self._since_s >= self._length_s:
            self._roll(now_s)
        demand, cost = max(self._last, self._asked - asking), min(self._least, self._last_least)
        length_ms = pause_ms(limit)
        if limit.algorithm is not Algorithm.GCRA and length_ms:
            left_ms = limit.window_ms - time_ms % limit.window_ms
            demand = demand * min(length_ms, left_ms) // length_ms
        # Pauses take three quarters of their length on average: what came in a whole one would be too much.
        return min(demand * 3 // 4, most_prefetched(limit)) // cost, cost

    def begin(self, limit: Limit, room: int, sequence: int, sent_s: float, chance: float) -> None:
        """Begin a pause after a call that brought less than it asked for and left `room`.

        Nodes must not come again all at once: hence a chance. From sending: so what did not fit did not within the
        last pause, however long the answer took.
        """
        self._limit, self._room, self._sequence = limit, room, sequence
        self._length_s = pause_ms(limit) / 1000
        self.ends_s = sent_s + self._length_s * (1 + chance) / 2

    def denies(self, missing: int, limit: Limit, sequence: int, now_s: float) -> bool:
        """Return whether the node must not ask for so much now."""
        if now_s >= self.ends_s or missing <= self._room or limit is not self._limit:
            return False
        return sequence == self._sequence or limit.algorithm is not Algorithm.FIXED_WINDOW

    def left_ms(self, now_s: float) -> int:
        """Return how long the pause still lasts, rounded up."""
        return max(0, -int((now_s - self.ends_s) * 1000 // 1))
