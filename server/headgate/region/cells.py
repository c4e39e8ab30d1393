"""One cell as a node of a region knows it: its own part, and what the shard told of the rest.

Everything here merges by max, so a late, lost or doubled answer changes nothing that a later
one would not. Only `total` and `reserved` are this node's to lower: `total` when a request is
denied in the same instant after all, `reserved` when a waiting request is decided.
(docs/convergence.md, sections 3 and 6.)
"""

from typing import Final

from headgate.limiter.limit import Limit
from headgate.origin.protocol import CellReport

_new: Final = tuple.__new__
"""Makes a named tuple without asking its class: one is made per cell of every report."""


class CellView:
    """A node's view of one limit key in one window."""

    __slots__ = (
        "foreign",
        "highest_sent",
        "highest_total_seen",
        "others",
        "others_at_least",
        "own",
        "reserved",
        "sequence",
        "total",
    )

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        """The window: unix time in ms, divided by the window's length."""
        self.total = 0
        """The cost that this node has admitted here. The engine raises it with every admission."""
        self.reserved = 0
        """The cost of this node's requests that wait: theirs until they are committed or released."""
        self.own = 0
        """This node's component as the shard has it. Answers raise it; it never falls. It is above
        `total` where the shard charged a request that was not admitted after all: that is credit."""
        self.others = 0
        """All other components of the region, as far as told. Answers raise it; it never falls."""
        self.others_at_least = 0
        """Cost that others had for certain, also if the shard has lost it since. Answers raise it; it never falls."""
        self.foreign = 0
        """All other regions together. Answers raise it; it never falls."""
        self.highest_total_seen = 0
        """The highest region total that was told, or that is known to have been there. It never falls."""
        self.highest_sent = 0
        """The most that any call may have told the shard of this node: total + reserved + wants. It never falls."""

    @property
    def known(self) -> int:
        """Cost that counts here, by all that this node knows. Its unspent credit counts too."""
        return self.others + self.foreign + max(self.own, self.total + self.reserved)

    @property
    def unacked(self) -> int:
        """This node's cost that the shard has not acknowledged."""
        return max(0, self.total + self.reserved - self.own)

    @property
    def uncovered(self) -> int:
        """Reserved cost that the shard has not charged."""
        return max(0, self.total + self.reserved - max(self.own, self.total))

    def learn(self, own: int, total: int, foreign: int) -> bool:
        """Merge what the shard told, as a `Count` has it. False: it knows less than it once did."""
        if not total and not own and not foreign:
            return not self.highest_total_seen  # nothing to merge: every field is at least as high
        # Comparisons for `max`, which is called: this is done for every cell of every answer.
        if own > self.own:
            self.own = own
            if own > self.highest_sent:
                self.highest_sent = own
        # After a loss the shard may know less of this node than it was told: the rest is in its total, once.
        others = total - self.own
        if others > self.others:
            self.others = others
        if foreign > self.foreign:
            self.foreign = foreign
        remembers = total >= self.highest_total_seen
        # A shard that lost its memory may count new hits of this node as lost ones that came back. But no more
        # than `highest_sent` of any total was this node's: the rest was others' for certain.
        at_least = total - self.highest_sent
        if at_least > self.others_at_least:
            self.others_at_least = at_least
        at_least = self.others_at_least + self.own
        if at_least > total:
            total = at_least
        if total > self.highest_total_seen:
            self.highest_total_seen = total
        return remembers

    @property
    def says_something(self) -> bool:
        """False while a report of this cell would be all zeros: of a key that nobody here has asked for before."""
        return bool(self.total or self.reserved or self.highest_sent or self.highest_total_seen)

    def report(self) -> CellReport:
        """Return the report that the next call carries of this cell."""
        cell = self.sequence, self.total, self.reserved, self.highest_total_seen, self.highest_sent
        return _new(CellReport, cell)

    def note_sent(self, wanted: int) -> None:
        """A call tells the shard of the cell as it is now, and asks for `wanted` more."""
        sent = self.total + self.reserved + wanted
        if sent > self.highest_sent:
            self.highest_sent = sent


class Hold:
    """A reservation: cost that a waiting request will commit or release where it was made."""

    __slots__ = ("cell", "component", "cost", "limit", "used")

    def __init__(self, component: bytes, cell: CellView | None, cost: int, used: int, limit: Limit) -> None:
        self.component = component
        """The counter's component when it was made: if it is another one by now, the counter has begun anew."""
        self.cell = cell
        """The cell in which it was made; None for buckets, which have none."""
        self.cost = cost
        self.used = used
        """Units of the allowance that it took, which come back if it is released under the same limit."""
        self.limit = limit

    def ended_before(self, sequence: int) -> bool:
        """Return whether the window in which it was made is over in window `sequence`."""
        return self.cell is not None and self.cell.sequence < sequence
