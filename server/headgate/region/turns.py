"""Turns: how a node asks for a key that is at its limit.

Without them every request on such a key asks its shard for whatever has just become free, on every
node. Instead, a call that asks for a request on the key asks *ahead* as well: for about as many
requests as the node will have until it asks next. What is charged ahead is credit, which pays for the
next admissions. When a call brought less than it asked for, the node does not ask again before its *turn* is over;
until then it denies, from memory, what credit does not cover. (docs/convergence.md, section 10.)

Pure: time and chance are passed in. What became free in a turn is late by up to a turn, and no more.
"""

from typing import Final

from headgate.limiter.decision import ALGORITHMS
from headgate.limiter.limit import Algorithm, Limit
from headgate.region.counters import SharedCounter
from headgate.region.refunds import DENIAL_MS

WINDOW_TURNS: Final = 100
"""Turns in a window: what becomes free is late by up to 1% of it. More turns ask more often."""
BURST_TURNS: Final = 10
"""Turns in the time that a bucket's burst takes to refill."""
LONGEST_MS: Final = 1_000
"""However long the window: a caller who waits a second for what is free already is not served well."""
LONGEST_BUCKET_MS: Final = 100
"""A bucket loses for good what is charged ahead and not spent: with a second, demand that moves between nodes every
second got 97% of what it could."""
SHORTEST_MS: Final = 10
"""Below this there are no turns: a node would ask at nearly every request anyway."""
NEVER_ASKED: Final = 1 << 40
"""No cost is as high."""


def turn_ms(limit: Limit) -> int:
    """The longest turn of a key under this limit; 0: it has none."""
    if limit.algorithm is Algorithm.GCRA:
        refill_ms = limit.burst * limit.window_ms // max(1, limit.requests_per_unit)
        length_ms = min(refill_ms // BURST_TURNS, LONGEST_BUCKET_MS)
    else:
        length_ms = limit.window_ms // WINDOW_TURNS
    if limit.refund:
        length_ms = min(length_ms, DENIAL_MS)  # what is given back is not denied for longer
    return min(length_ms, LONGEST_MS) if length_ms >= SHORTEST_MS else 0


def most_ahead(limit: Limit) -> int:
    """The most that a node may ask ahead for: what becomes free in a turn."""
    return limit.requests_per_unit * turn_ms(limit) // limit.window_ms


class Turns:
    """What a node knows of one key that is, or was, at its limit: how much is asked of it, and the turn."""

    __slots__ = (
        "_asked",
        "_last",
        "_last_least",
        "_least",
        "_since_s",
        "ends_s",
        "length_s",
        "limit",
        "room",
        "sequence",
    )

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        """Under which it was short: another one ends the turn."""
        self.length_s = turn_ms(limit) / 1000
        self.ends_s = 0.0
        """By the node's monotonic clock: no setting of a clock makes a turn longer."""
        self.room = 0
        """What was left at the shard when the turn began. What needs no more than that may still ask."""
        self.sequence = 0
        """The window in which it began: a fixed window's turn ends with it."""
        self._since_s = 0.0
        self._asked = self._last = 0
        """What requests would have cost, since then, and in the turn before."""
        self._least = self._last_least = NEVER_ASKED
        """The least that one of them would have."""

    def count(self, cost: int, now_s: float) -> None:
        """A request on the key, whatever becomes of it."""
        if now_s - self._since_s >= self.length_s:
            self._roll(now_s)
        self._asked += cost
        if 0 < cost < self._least:
            self._least = cost

    def _roll(self, now_s: float) -> None:
        lately = now_s - self._since_s < 2 * self.length_s
        self._last, self._last_least = (self._asked, self._least) if lately else (0, NEVER_ASKED)
        self._asked, self._least = 0, NEVER_ASKED
        self._since_s = now_s

    def demand(self, now_s: float, asking: int) -> tuple[int, int]:
        """What was asked for within a turn lately, beside what the call asks for itself; and the least of it."""
        if now_s - self._since_s >= self.length_s:
            self._roll(now_s)
        return max(self._last, self._asked - asking), min(self._least, self._last_least)

    def denies(self, counter: SharedCounter, missing: int, now_s: float) -> bool:
        """Whether it is not this node's turn to ask for so much."""
        if now_s >= self.ends_s or missing <= self.room or counter.limit is not self.limit:
            return False
        return counter.sequence == self.sequence or self.limit.algorithm is not Algorithm.FIXED_WINDOW

    def left_ms(self, now_s: float) -> int:
        """How long the turn still lasts, rounded up."""
        return max(0, -int((now_s - self.ends_s) * 1000 // 1))


def note_near(counter: SharedCounter, cost: int, now_s: float) -> None:
    """A request must ask because the limit is near: from now on the key's requests are counted, if that helps."""
    if counter.turns is None and most_ahead(counter.limit):
        counter.turns = Turns(counter.limit)
        counter.turns.count(cost, now_s)


def requests_ahead(counter: SharedCounter, asking: int, now_s: float) -> tuple[int, int]:
    """For how many requests, of which cost, a call that asks for `asking` should ask beyond that.

    Whole requests: a part of one would be kept from everybody until the rest of it is free. Of the least cost that
    was asked for lately: nothing that one of them could use stays behind. And no more than come before the
    window ends: what is charged and not spent by then is lost.
    """
    turns, limit = counter.turns, counter.limit
    if turns is None:
        return 0, 0
    demand, cost = turns.demand(now_s, asking)
    length_ms = turn_ms(limit)
    if limit.algorithm is not Algorithm.GCRA and length_ms:
        left_ms = limit.window_ms - counter.shard.now_ms() % limit.window_ms
        demand = demand * min(length_ms, left_ms) // length_ms
    # Turns take three quarters of their length on average: what came in a whole one would be too much.
    return min(demand * 3 // 4, most_ahead(limit)) // cost, cost


def begin_turn(counter: SharedCounter, limit: Limit, room: int, sent_s: float, chance: float) -> None:
    """A call brought less than it asked for; `room` was left. Nodes must not come again all at once: hence a chance.

    From sending: so what did not fit did not within the last turn, however long the answer took.
    """
    length_s = turn_ms(limit) / 1000
    if not length_s or counter.limit is not limit:
        return
    turns = counter.turns
    if turns is None:
        turns = counter.turns = Turns(limit)
    turns.limit, turns.length_s, turns.room = limit, length_s, room
    turns.sequence = counter.sequence
    turns.ends_s = sent_s + length_s * (1 + chance) / 2


def room_at(counter: SharedCounter, limit: Limit, time_ms: int) -> int | None:
    """What the shard had left at `time_ms`, by the answer that it gave then; None if that was in another window.

    It knows nothing of what requests hold here and it has not charged, so that is no less.
    """
    if limit.algorithm is not Algorithm.GCRA and time_ms // limit.window_ms != counter.sequence:
        return None
    return ALGORITHMS[limit.algorithm].remaining(counter, limit, time_ms) + counter.unacked
