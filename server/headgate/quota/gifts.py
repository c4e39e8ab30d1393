"""Gifts: how much of one key's limit each region has given to each other one, and the slices that follow.

`give[i→j]` only grows, is written by region i alone and merged by max, so it may be told late, twice, in any order
and by anybody. The giver is smaller from the moment it writes, the receiver is larger when it hears. So the slices,
each as its own region knows it, never add up to more than the limit, whatever is under way.

Gifts belong to an epoch. A new epoch begins with even slices, and the old one's rows go when nothing rests on
them any more: for two windows and 30 s into a new epoch a slice is the smaller of both epochs', and gifts are written
in both. Before and during that time each region hands what the new epoch has too much for it to those who have too
little there (`carried_over`), so that a change of epoch moves no slice.

Relies on: regions' clocks agree to within `CLOCK_SLACK_MS`.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from headgate.limiter.shares import even_share

EPOCH_MS: Final = 3_600_000
"""The shortest epoch. Rows of a key that nobody uses any more are kept for as long."""

EPOCH_WINDOWS: Final = 10
"""An epoch is at least so many windows: the overlap takes two of them."""

OVERLAP_WINDOWS: Final = 2
"""After two windows nothing counts that was admitted by the old epoch's slice."""

OVERLAP_MS: Final = 30_000
"""On top of the windows: clocks differ, and a region that is cut off goes on for a while before it is at its floor."""

CARRY_MS: Final = 30_000
"""Time before an epoch begins at which its rows are made equal to the present ones. A gift needs a few seconds."""

CLOCK_SLACK_MS: Final = 10_000
"""Time by which a peer may be ahead or behind: its rows of an epoch that is not yet, or no longer, are taken in."""

HIGHEST_TOTAL: Final = 1 << 50
"""More than all of a limit given every second of a ten-year epoch: what is above was never written by anybody."""


def epoch_ms(window_ms: int) -> int:
    return max(EPOCH_MS, EPOCH_WINDOWS * window_ms)


def overlap_ms(window_ms: int) -> int:
    return OVERLAP_WINDOWS * window_ms + OVERLAP_MS


Given = dict[tuple[int, int], int]
"""(epoch, receiver) to the share that one region has given."""


class EpochRows:
    """One epoch of one key: who gave how much to whom. Regions are numbers, in the order of their names."""

    __slots__ = ("totals",)

    def __init__(self) -> None:
        self.totals: dict[tuple[int, int], int] = {}

    def give(self, giver: int, receiver: int, share: int) -> None:
        self.totals[giver, receiver] = self.totals.get((giver, receiver), 0) + share

    def merge(self, giver: int, receiver: int, total: int) -> bool:
        """Raise a total; return True if that was news."""
        if total <= self.totals.get((giver, receiver), 0):
            return False
        self.totals[giver, receiver] = total
        return True

    def slices(self, regions: int) -> list[int]:
        slices = [even_share(regions)] * regions
        for (giver, receiver), total in self.totals.items():
            slices[giver] -= total
            slices[receiver] += total
        return slices


NO_ROWS: Final = EpochRows()
"""Rows of an epoch in which nobody has given anything. Never written to."""


class GiveRows:
    """All that one region knows of the gifts of one key."""

    __slots__ = ("_slices", "epochs", "regions", "window_ms")

    def __init__(self, window_ms: int, regions: int) -> None:
        self.window_ms = window_ms
        self.regions = regions
        self.epochs: dict[int, EpochRows] = {}
        self._slices: tuple[tuple[int, ...], list[int]] | None = None
        """Epochs, and the slices by them: rows change seldom, and slices are asked for every second."""

    def counting(self, now_ms: int) -> tuple[int, ...]:
        """The epochs that slices follow now, the newest last."""
        number, within_ms = divmod(now_ms, epoch_ms(self.window_ms))
        return (number - 1, number) if within_ms < overlap_ms(self.window_ms) else (number,)

    def accepted(self, now_ms: int) -> range:
        """The epochs whose rows are kept and taken in: what counts, and what counts for a peer whose clock differs."""
        length_ms = epoch_ms(self.window_ms)
        first = (now_ms - overlap_ms(self.window_ms) - CLOCK_SLACK_MS) // length_ms
        return range(first, (now_ms + CARRY_MS + CLOCK_SLACK_MS) // length_ms + 1)

    def slices(self, now_ms: int) -> list[int]:
        """Every region's, as far as is known here; of the own row everything is known."""
        counting = self.counting(now_ms)
        if self._slices is None or self._slices[0] != counting:
            several = [self._epoch_slices(number) for number in counting]
            self._slices = counting, [min(slices) for slices in zip(*several, strict=True)]
        return self._slices[1]

    def give(self, giver: int, receiver: int, share: int, now_ms: int) -> None:
        """Write a gift. Called by the giver's own region alone."""
        for number in self.counting(now_ms):
            self._rows(number).give(giver, receiver, share)

    def merge(self, epoch: int, giver: int, receiver: int, total: int) -> bool:
        """Raise a total; return True if that was news. The epoch is one of `accepted`."""
        return self._rows(epoch).merge(giver, receiver, total)

    def merge_all(self, rows: Iterable[tuple[int, int, int, int]], now_ms: int) -> set[int]:
        """Take in rows as `flat` gives them; those of epochs that nobody needs now are left out. Whose were raised."""
        accepted = self.accepted(now_ms)
        return {
            giver
            for epoch, giver, receiver, total in rows
            if epoch in accepted and self.merge(epoch, giver, receiver, total)
        }

    def is_turning(self, now_ms: int) -> bool:
        """Return True if an epoch begins, or has just begun, and the one before it has gifts to be carried over."""
        earlier = (now_ms + CARRY_MS) // epoch_ms(self.window_ms) - 1
        return earlier in self.epochs and earlier in self.counting(now_ms)

    def carry_over(self, giver: int, now_ms: int) -> None:
        """Make the epoch that begins, or has just begun, say of the own slice what the present one does."""
        if self.is_turning(now_ms):
            later = (now_ms + CARRY_MS) // epoch_ms(self.window_ms)
            for receiver, share in carried_over(giver, self._epoch_slices(later - 1), self._epoch_slices(later)):
                self._rows(later).give(giver, receiver, share)

    def given(self, giver: int) -> Given:
        """Return what one region has given, by epoch and receiver."""
        return {(epoch, receiver): total for epoch, by, receiver, total in self.flat() if by == giver}

    def take_back(self, giver: int, before: Given, after: Given) -> None:
        """Undo gifts that nobody has heard of. A row that was raised since is somebody else's gift, and stays."""
        now = self.given(giver)
        for (epoch, receiver), total in after.items():
            if now.get((epoch, receiver)) == total:
                totals = self._rows(epoch).totals
                totals[giver, receiver] = before.get((epoch, receiver), 0)
                if not totals[giver, receiver]:
                    del totals[giver, receiver]

    def forget_old(self, now_ms: int) -> bool:
        """Drop rows that no longer matter to anybody; return True if there were any."""
        kept = self.accepted(now_ms)
        old = [number for number in self.epochs if number not in kept]
        for number in old:
            del self.epochs[number]
        self._slices = None
        return bool(old)

    def flat(self) -> Iterator[tuple[int, int, int, int]]:
        """All rows as (epoch, giver, receiver, total)."""
        for number, rows in self.epochs.items():
            for (giver, receiver), total in rows.totals.items():
                yield number, giver, receiver, total

    def _epoch_slices(self, number: int) -> list[int]:
        return self.epochs.get(number, NO_ROWS).slices(self.regions)

    def _rows(self, number: int) -> EpochRows:
        """To be written to."""
        self._slices = None
        return self.epochs.setdefault(number, EpochRows())


def carried_over(giver: int, present: list[int], coming: list[int]) -> list[tuple[int, int]]:
    """Return a region's gifts in the coming epoch alone, as (receiver, share): slices there become the present ones.

    It gives only what is above its present slice: the smaller of both stays what it is.
    """
    excess = coming[giver] - present[giver]
    lacks = [max(0, now - then) for now, then in zip(present, coming, strict=True)]
    return in_proportion(excess, lacks)


def in_proportion(share: int, lacks: list[int]) -> list[tuple[int, int]]:
    """Divide a share among those who lack, by how much each lacks and never more; as (region, share), none empty."""
    lacking = sum(lacks)
    share = min(share, lacking)
    if share <= 0:
        return []
    divided = [(region, share * lack // lacking) for region, lack in enumerate(lacks)]
    return [(region, given) for region, given in divided if given]
