"""Limits where they are enforced: in one of several regions, by this process's settings.

A rule set says what a limit is; how many regions share it, and what holds where it says nothing, is known where it is
enforced. Bound limits are made once per limit, and kept: a plan for a new request only looks them up.

A quota stays whole here: which slice of it is in force changes from second to second, and from key to key
(quota/node_slices.py).
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Final

from headgate.limiter.decision import Charge
from headgate.limiter.limit import Limit, Scope
from headgate.limiter.shares import cost_within

MOST_KEPT: Final = 10_000
"""Bound limits: more different ones than rule sets have. When there are more, all are made anew."""


class LimitsOfRegion:
    """Binds limits to the regions there are, and to what holds for rules that don't say it: `overdraft`, `refund`."""

    def __init__(self, regions: int = 1, *, overdraft: bool = False, refund: bool = False) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when what was bound before no longer holds."""
        self._regions = regions
        self._overdraft = overdraft
        self._refund = refund
        self._as_written = False
        self._active = regions
        self.divides = False
        """At least one limit of scope `cell` was bound: each region enforces a part of it."""
        self._bound: dict[int, tuple[Limit, Limit]] = {}
        self._note_regions(regions)

    def _note_regions(self, regions: int) -> None:
        self._regions = regions
        self._as_written = regions == 1 and not self._overdraft and not self._refund

    def follow(self, regions: int, active: int) -> None:
        """Take in that there are so many regions now, of which so many share limits of scope `cell`."""
        if (regions, active) != (self._regions, self._active):
            self._note_regions(regions)
            self._active = active
            self._bound.clear()
            self.on_change()

    @property
    def active(self) -> int:
        """Number of regions that are heard, this one included: those that share a limit of scope `cell`."""
        return self._active

    @active.setter
    def active(self, active: int) -> None:
        self.follow(self._regions, active)

    def bind(self, limit: Limit) -> Limit:
        """Return the limit as this region enforces it."""
        if self._as_written:
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
        divided = limit.scope_in_force is Scope.CELL
        parts = self._active if divided else 1
        bound = dataclasses.replace(
            limit,
            requests_per_unit=part(limit.requests_per_unit, parts),
            burst=part(limit.burst, parts),
            regions=self._regions,
            overdraft=self._overdraft if limit.overdraft is None else limit.overdraft,
            refund=self._refund if limit.refund is None else limit.refund,
        )
        self.divides = self.divides or divided
        object.__setattr__(bound, "whole", limit.whole)
        return bound


def part(amount: int, regions: int) -> int:
    """Return an even part; at least 1 of what is not 0, or nobody would ever be let in."""
    return max(1, amount // regions) if amount else 0


class SlicedCharges(tuple[Charge, ...]):
    """The charges of a request of which at least one is a quota's: its limit is yet to be cut to its slice."""

    __slots__ = ()


def charges_of(charges: Iterable[Charge]) -> tuple[Charge, ...]:
    """Return all charges of one request."""
    together = tuple(charges)
    return SlicedCharges(together) if any(charge.limit.sliced for charge in together) else together


def slice_of(limit: Limit, share: int) -> Limit:
    """Return so many millionths of a quota. What nodes may hold unacknowledged is an even part of the whole one's."""
    slice_ = dataclasses.replace(
        limit,
        requests_per_unit=cost_within(limit.requests_per_unit, share),
        burst=cost_within(limit.burst, share),
    )
    object.__setattr__(slice_, "precision", limit.precision)
    return slice_
