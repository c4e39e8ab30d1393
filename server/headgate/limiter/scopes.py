"""What a rule's limit comes to in one of several regions.

A rule set says what a limit is; how many regions share it is known where it is enforced. Bound limits are
made once per limit and number of regions, and kept: a plan for a new request only looks them up.
"""

import dataclasses
from collections.abc import Callable
from typing import Final

from headgate.limiter.limit import Limit, Scope

MOST_KEPT: Final = 10_000
"""Bound limits: more different ones than rule sets have. When there are more, all are made anew."""


class LimitsOfRegion:
    """Binds limits to the regions there are."""

    def __init__(self, regions: int = 1) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when what was bound before no longer holds."""
        self._regions = regions
        self._active = regions
        self._bound: dict[int, tuple[Limit, Limit]] = {}

    @property
    def active(self) -> int:
        """How many regions are heard, this one included: those that share a limit of scope `cell`."""
        return self._active

    @active.setter
    def active(self, active: int) -> None:
        if active != self._active:
            self._active = active
            self._bound.clear()
            self.on_change()

    def bind(self, limit: Limit) -> Limit:
        """The limit as this region enforces it."""
        if self._regions == 1:
            return limit
        # By identity: limits are shared by rules, and comparing them takes longer than binding one.
        known = self._bound.get(id(limit))
        if known is not None:
            return known[1]
        if len(self._bound) >= MOST_KEPT:
            self._bound.clear()
        bound = self._in_region(limit)
        self._bound[id(limit)] = (limit, bound)  # the first keeps the identity from being used again
        return bound

    def _in_region(self, limit: Limit) -> Limit:
        # A quota's slice is an even part of all regions there are; it does not follow the traffic yet.
        parts = {Scope.CELL: self._active, Scope.QUOTA: self._regions}.get(limit.scope_in_force, 1)
        return dataclasses.replace(
            limit,
            requests_per_unit=part(limit.requests_per_unit, parts),
            burst=part(limit.burst, parts),
            regions=self._regions,
        )


def part(amount: int, regions: int) -> int:
    """An even part; at least 1 of what is not 0, or nobody would ever be let in."""
    return max(1, amount // regions) if amount else 0
