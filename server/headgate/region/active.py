"""The number of regions that share limits of scope `cell`, as a node knows it."""

from collections.abc import Callable

from headgate.clock import Clock
from headgate.limiter.scopes import LimitsOfRegion
from headgate.origin.interface import REGION_GONE_MS


class ActiveRegions:
    """Tells the limits how many regions share them: those that were heard lately, and this one.

    After a start all count as active until they have had the time to be heard: a node that believed its region
    alone would enforce the whole of a limit that others enforce parts of.
    """

    def __init__(self, limits: LimitsOfRegion, regions: int, clock: Clock, changed: Callable[[int], None]) -> None:
        self._limits = limits
        self._regions = regions
        self._clock = clock
        self._changed = changed
        self._believed_until_s = clock.monotonic() + REGION_GONE_MS / 1000

    def follow(self, joined: int, left: int) -> None:
        """Take in that so many regions were added, and so many removed.

        Those that were added count as active until they have had the time to be heard, as at a start.
        """
        self._regions += joined - left
        if joined:
            self._believed_until_s = self._clock.monotonic() + REGION_GONE_MS / 1000
        active = min(self._regions, self._limits.active + joined)
        changed = active != self._limits.active
        self._limits.follow(self._regions, active)
        if changed:
            self._changed(active)

    def heard(self, others: int) -> None:
        """Take in how many other regions the origin heard lately."""
        active = min(self._regions, 1 + others)
        if active < self._limits.active and self._clock.monotonic() < self._believed_until_s:
            return
        if active != self._limits.active:
            self._limits.active = active
            self._changed(active)

    @property
    def count(self) -> int:
        """Regions that share limits now."""
        return self._limits.active

    @property
    def configured(self) -> int:
        """Regions that there are."""
        return self._regions

    @property
    def factor(self) -> float:
        """Factor by which limits of scope `cell` may be exceeded, all regions together: 1.0 while all are heard."""
        return self._regions / self._limits.active
