"""Parts of a window's record: the region's counts of a cell, and the counts of each run and each other region."""

from headgate.origin.allowances import Holding


class CellRecord:
    """The region's counts of one cell."""

    __slots__ = ("foreign", "foreign_refunded", "refunded", "region_total", "unattributed")

    def __init__(self) -> None:
        self.region_total = 0
        """All components, and `unattributed`. Never falls while the record lives."""
        self.unattributed = 0
        """Part of the total that was counted once and that no component here explains: lost by this
        shard, vouched for by a node or a peer. Falls as components come back."""
        self.foreign = 0
        """All other regions together. Never falls."""
        self.refunded = 0
        """Refunded part of the region's total: never more than that."""
        self.foreign_refunded = 0
        """Refunded part of the other regions' counts. Never falls."""

    @property
    def net(self) -> int:
        """Part of the region's total that still counts: as much as can be refunded."""
        return self.region_total - self.refunded

    @property
    def used(self) -> int:
        """Cost that counts against the limit, of all regions."""
        return self.net + self.foreign - self.foreign_refunded

    def restore(self, seen: int) -> None:
        """A node was told of more than is here: the difference was lost, whoever's it was."""
        if seen > self.region_total:
            self.unattributed += seen - self.region_total
            self.region_total = seen

    def raise_component(self, before: int, after: int, sent: int) -> None:
        """A component rises; up to `sent`, what it had sent before, may be what was lost."""
        explained = min(self.unattributed, max(0, min(after, sent) - before))
        self.unattributed -= explained
        self.region_total += after - before - explained


class NodeComponent(Holding):
    """Counts of one run of a node in the current and in the previous cell. Each only grows."""

    __slots__ = (
        "demanded",
        "own",
        "previous_demanded",
        "previous_own",
        "previous_refunded",
        "refunded",
        "sequence",
    )

    def __init__(self, sequence: int) -> None:
        super().__init__()
        self.sequence = sequence
        self.own = 0
        self.previous_own = 0
        self.refunded = 0
        self.previous_refunded = 0
        """Refunds that were taken out of each cell for this run."""
        self.demanded = 0
        self.previous_demanded = 0
        """Part of the run's demands in each window that was dealt with."""

    @property
    def counts(self) -> bool:
        """True if it has anything in either cell."""
        return bool(
            self.own or self.previous_own or self.refunded or self.previous_refunded or self.demanded
            or self.previous_demanded
        )  # fmt: skip

    def roll(self, sequence: int) -> None:
        """Go on to a later window; an earlier one changes nothing."""
        if sequence > self.sequence:
            follows = sequence == self.sequence + 1
            self.previous_own = self.own if follows else 0
            self.previous_refunded = self.refunded if follows else 0
            self.previous_demanded = self.demanded if follows else 0
            self.own = self.refunded = self.demanded = 0
            self.sequence = sequence


class ForeignComponent:
    """Counts of another region in the previous, the current and the next cell, as its exchanger said.

    The next one, because the other region's clock may be ahead: what it says once it need not say again.
    """

    __slots__ = ("ahead", "current", "previous", "refunded", "sequence")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.ahead = 0
        self.current = 0
        self.previous = 0
        self.refunded: dict[int, int] = {}
        """Refunded part of these, by window."""

    def roll(self, sequence: int) -> None:
        """Go on to a later window; an earlier one changes nothing."""
        known = {self.sequence + 1: self.ahead, self.sequence: self.current}
        if sequence > self.sequence:
            self.current, self.previous = known.get(sequence, 0), known.get(sequence - 1, 0)
            self.ahead = 0
            self.sequence = sequence
            self.refunded = {at: amount for at, amount in self.refunded.items() if at >= sequence - 1}
