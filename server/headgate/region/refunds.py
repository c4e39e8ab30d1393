"""Refunds of one limit key: what a node demands back, and what was given back; counted apart from all hits.

A node only demands. What there is to give the shard knows, and what it gave is in its answers; until then nothing
is subtracted here: two nodes that subtract by their own views give one hit back twice. A demand is the sum of all
demands in its window, never "give 5 back": it may be told late, twice, or again after a loss.

It is told late on purpose. The shard drops what it has no hits for, so it must have heard of them before: of those that
another node has just charged, and of all that it lost with its memory. (docs/convergence.md, section 11.)
"""

import math
from typing import Final

from headgate.origin.protocol import Demand, Refund

DENIAL_MS: Final = 200
"""The time for which what a node knows denies, where others may give something back: then the shard is asked again.
Longer denies callers what is free; shorter asks more often for keys that are at their limit."""
GIVEN_UP_MS: Final = 10_000
"""A bucket has no windows by which an old demand would go. A record outlives its bucket by twice as long: a demand
whose answer was lost is not dealt with a second time by one that has forgotten it."""
TOLD_AFTER_S: Final = 0.5
"""The time that a demand waits before the shard is told: twice as long as a hit does where hits may be given back. With
less it comes before the hits that another node charged, and finds nothing to give; with more, room comes back later."""
GATHERED_S: Final = 0.2
"""The time from a demand in which others join it: all of them are told half a second after the last. Longer tells the
first of them later than within a second; shorter costs the shard a call more for each."""
TOGETHER_S: Final = 0.05
"""Demands of all keys are told at multiples of this: those of many keys go in one call. It comes on top of the wait."""
REFILL_S: Final = 3.0
"""The time for which demands wait after a shard was found to have lost its memory. By then every node has noticed, with
a heartbeat or after the longest cooldown of its breaker, and has told it again what there was to give back."""
MOST_DEMANDED: Final = 2**44
"""In one window: four thousand times the largest limit, and far below where Lua's numbers end."""
Wait = tuple[float, float, int]
"""Demands that wait together: when the first was made, and the last; and all that was demanded of the cell by then."""


class CellRefunds:
    """Refunds of one window; of a bucket for all time."""

    __slots__ = ("demanded", "due", "foreign", "own", "region", "settled", "waits")

    def __init__(self) -> None:
        self.demanded = 0
        """Cost that this node has demanded back."""
        self.due = 0
        """Part of it that has waited for long enough to be told to the shard. It never falls."""
        self.waits: tuple[Wait, ...] = ()
        """Demands that are not due, in the order in which they come to be; four entries at most."""
        self.settled = 0
        """Part of the demand that the shard has dealt with. Answers raise it; it never falls."""
        self.own = 0
        """Cost that was taken out of this cell for this node: it tells a shard that lost its memory. It never falls."""
        self.region = 0
        """Cost that was taken out of it for all nodes, by the last answer: what a shard has lost, and nobody
        brings back, counts as used again. Of a bucket: to what its arrival time belongs."""
        self.foreign = 0
        """Cost that other regions gave back of theirs, by the last answer."""

    @property
    def given(self) -> int:
        """Cost that no longer counts in the cell."""
        return self.region + self.foreign

    @property
    def waiting(self) -> bool:
        """True while the shard has not dealt with all of it."""
        return self.demanded > self.settled

    @property
    def tell_s(self) -> float:
        """Time at which the first of what waits is to be told; never, where nothing does."""
        return self.waits[0][1] + TOLD_AFTER_S if self.waits else math.inf

    def wait(self, cost: int, now_s: float) -> None:
        """Demand so much more, which waits for its time."""
        self.demanded = min(MOST_DEMANDED, self.demanded + cost)
        if self.waits and now_s < self.waits[-1][0] + GATHERED_S:
            self.waits = (*self.waits[:-1], (self.waits[-1][0], now_s, self.demanded))
        else:
            self.waits = (*self.waits, (now_s, now_s, self.demanded))

    def come_due(self, now_s: float, *, leaving: bool) -> None:
        """Make due what has waited for long enough, by a node that leaves all of it."""
        while self.waits and (leaving or now_s >= self.tell_s):
            self.due = self.waits[0][2]
            self.waits = self.waits[1:]

    def demand(self, sequence: int, refunded: int, *, remembers: bool) -> Demand:
        """Return the demand for a report: nothing to give now, unless the shard remembers what there is to give."""
        return Demand(sequence, self.due if remembers else self.settled, self.settled, refunded)

    def learn(self, refund: Refund) -> None:
        """Merge what the shard told."""
        self.settled = max(self.settled, refund.settled)
        self.own = max(self.own, refund.own)
        self.region, self.foreign = refund.region, refund.foreign

    def join(self, other: "CellRefunds") -> None:
        """Add the demands of a window that turned out to be this one; what waits does so for the last of it."""
        self.demanded += other.demanded
        self.due += other.due
        waits = self.waits + other.waits
        if waits:
            self.waits = ((max(first for first, _, _ in waits), max(last for _, last, _ in waits), self.demanded),)
        self.settled += other.settled
        self.own += other.own


class Refunds:
    """Refunds of one counter. There are none where no limit had refunds."""

    __slots__ = ("asked_s", "current", "previous", "since_ms")

    def __init__(self) -> None:
        self.current = CellRefunds()
        self.previous = CellRefunds()
        self.asked_s = 0.0
        """Time at which the last answered call was sent: what it said of room is as old as that."""
        self.since_ms = 0
        """Time of the first demand that the shard has not dealt with."""

    @property
    def waiting(self) -> bool:
        """True while there is something to tell the shard, now or when it has waited for long enough."""
        return self.current.waiting or self.previous.waiting

    @property
    def telling(self) -> bool:
        """True while there is something to tell the shard that has waited for long enough."""
        return self.current.due > self.current.settled or self.previous.due > self.previous.settled

    @property
    def report_s(self) -> float:
        """Time of the report that tells the first of what waits, and of other keys; never, where nothing does."""
        tell_s = min(self.current.tell_s, self.previous.tell_s)
        return tell_s if tell_s == math.inf else max(tell_s, math.ceil(tell_s / TOGETHER_S) * TOGETHER_S)

    def demand(self, cost: int, now_ms: int, now_s: float) -> None:
        """Demand so much more back."""
        if not self.waiting:
            self.since_ms = now_ms
        self.current.wait(cost, now_s)

    def come_due(self, now_s: float, *, leaving: bool) -> None:
        """Make due what has waited for long enough, by a node that leaves all of it: a report goes out."""
        self.current.come_due(now_s, leaving=leaving)
        self.previous.come_due(now_s, leaving=leaving)

    def roll(self, *, follows: bool) -> None:
        """Go on to a later window. What was demanded two windows ago was charged even before: it is over."""
        self.previous = self.current if follows else CellRefunds()
        self.current = CellRefunds()

    def join(self) -> None:
        """Join both windows: what was taken for the previous one is the current one."""
        self.current.join(self.previous)
        self.previous = CellRefunds()

    def report(self, sequence: int, *, remembers: bool) -> tuple[Demand, ...]:
        """Return what the next call demands, for the cells that have something to tell."""
        cells = ((sequence, self.current), (sequence - 1, self.previous))
        return tuple([cell.demand(at, cell.own, remembers=remembers) for at, cell in cells if cell.due or cell.own])

    def learn(self, told: tuple[Refund, Refund], shift: int) -> None:
        """Merge what the shard told of its current window, `shift` windows from this counter's, and the one before."""
        for at, refund in ((shift, told[0]), (shift - 1, told[1])):
            if at == 0:
                self.current.learn(refund)
            elif at == -1:
                self.previous.learn(refund)

    def give_up(self, now_ms: int) -> None:
        """Give up a bucket's demands that could not be told for too long."""
        if self.waiting and now_ms - self.since_ms >= GIVEN_UP_MS:
            self.current.settled = self.current.demanded
