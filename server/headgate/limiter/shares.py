"""Shares of a limit, in millionths: what a region begins with, and what it never falls under. Whole numbers only."""

from typing import Final

WHOLE: Final = 1_000_000
"""All of a limit."""

FLOOR: Final = WHOLE // 10
"""Share that every region keeps, whatever the others need: its first requests are admitted without asking anybody."""

ALL_FLOORS: Final = WHOLE // 2
"""All floors together are at most half of the limit: with more than five regions each floor is less than a tenth."""


def even_share(regions: int) -> int:
    """Return the share that each region begins with."""
    return WHOLE // regions


def floor_share(regions: int) -> int:
    return min(FLOOR, ALL_FLOORS // regions, even_share(regions))


def cost_within(limit: int, share: int) -> int:
    """A share as a cost, rounded down: the parts of all regions together stay within the limit."""
    return limit * share // WHOLE


def share_of(cost: int, limit: int) -> int:
    """A cost as a share, rounded up: what is in use is never taken for less."""
    return -(-cost * WHOLE // limit)


def can_be_shared(limit: int, regions: int) -> bool:
    """Return whether a floor admits anything at all. Other quotas are refused when they are loaded."""
    return cost_within(limit, floor_share(regions)) >= 1
