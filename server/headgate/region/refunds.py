"""What a node demands back of one limit key, and what it knows to have been given back: counted apart from all hits.

A node only demands. What there is to give the shard knows, and what it gave is in its answers; until then nothing
is subtracted here: two nodes that subtract by their own views give one hit back twice. A demand is the sum of all
demands in its window, never "give 5 back": it may be told late, twice, or again after a loss.
(docs/convergence.md, section 11.)
"""

from typing import Final

from headgate.origin.protocol import Demand, Refund

DENIAL_MS: Final = 200
"""For how long what a node knows denies, where others may give something back: then the shard is asked again. Longer
denies callers what is free; shorter asks more often for keys that are at their limit."""
GIVEN_UP_MS: Final = 10_000
"""A bucket has no windows by which an old demand would go. A record outlives its bucket by twice as long: a demand
whose answer was lost is not dealt with a second time by one that has forgotten it."""
MOST_DEMANDED: Final = 2**44
"""In one window: four thousand times the largest limit, and far below where Lua's numbers end."""


class CellRefunds:
    """Of one window; of a bucket for all time."""

    __slots__ = ("demanded", "foreign", "own", "region", "settled")

    def __init__(self) -> None:
        self.demanded = 0
        """What this node has demanded back."""
        self.settled = 0
        """Of that, what the shard has dealt with. Answers raise it; it never falls."""
        self.own = 0
        """What was taken out of this cell for this node: it tells a shard that lost its memory. It never falls."""
        self.region = 0
        """What was taken out of it for all nodes of the region, by the last answer: what a shard has lost, and nobody
        brings back, counts as used again. Of a bucket: to what its arrival time belongs."""
        self.foreign = 0
        """What other regions gave back of theirs, by the last answer."""

    @property
    def given(self) -> int:
        """What no longer counts of the cell."""
        return self.region + self.foreign

    @property
    def waiting(self) -> bool:
        """Whether the shard has not dealt with all of it."""
        return self.demanded > self.settled

    def learn(self, refund: Refund) -> None:
        """Merge what the shard told."""
        self.settled = max(self.settled, refund.settled)
        self.own = max(self.own, refund.own)
        self.region, self.foreign = refund.region, refund.foreign

    def join(self, other: "CellRefunds") -> None:
        """Take in what was demanded in a window that turned out to be this one."""
        self.demanded += other.demanded
        self.settled += other.settled
        self.own += other.own


class Refunds:
    """Of one counter. There are none where no limit had refunds."""

    __slots__ = ("asked_s", "current", "previous", "since_ms")

    def __init__(self) -> None:
        self.current = CellRefunds()
        self.previous = CellRefunds()
        self.asked_s = 0.0
        """When the last answered call was sent: what it said of room is as old as that."""
        self.since_ms = 0
        """When the first was demanded of what the shard has not dealt with."""

    @property
    def waiting(self) -> bool:
        """Whether there is something to tell the shard."""
        return self.current.waiting or self.previous.waiting

    def demand(self, cost: int, now_ms: int) -> None:
        """From now on so much more is demanded back."""
        if not self.waiting:
            self.since_ms = now_ms
        self.current.demanded = min(MOST_DEMANDED, self.current.demanded + cost)

    def roll(self, *, follows: bool) -> None:
        """Go on to a later window. What was demanded two windows ago was charged even before: it is over."""
        self.previous = self.current if follows else CellRefunds()
        self.current = CellRefunds()

    def join(self) -> None:
        """What was taken for the previous window is the current one."""
        self.current.join(self.previous)
        self.previous = CellRefunds()

    def report(self, sequence: int) -> tuple[Demand, ...]:
        """What the next call tells the shard, of the cells that have something to tell."""
        cells = ((sequence, self.current), (sequence - 1, self.previous))
        return tuple(
            [Demand(at, cell.demanded, cell.settled, cell.own) for at, cell in cells if cell.demanded or cell.own]
        )

    def give_up(self, now_ms: int) -> None:
        """Of a bucket: what could not be told for so long is no longer demanded."""
        if self.waiting and now_ms - self.since_ms >= GIVEN_UP_MS:
            self.current.settled = self.current.demanded
