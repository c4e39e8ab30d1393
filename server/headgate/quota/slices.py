"""Slices: which share of a limit each region should have, and what one region does about its own.

Pure functions of figures that one region has. Two regions may reckon differently, because they have heard different
things: that makes a gift too large or too small for its purpose, and never makes slices add up to more than the limit.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from headgate.limiter.shares import WHOLE, floor_share
from headgate.quota.gifts import in_proportion
from headgate.quota.membership import CONNECTED_MS, RETURNING_MS

LEAST_LACK: Final = WHOLE // 50
"""Nothing moves while all who are below their wanted slice lack less than this together: it would never rest."""


WANTED_KEPT: Final = 20_000
"""Answers that are kept, at about 300 bytes: needs are told anew only when they have changed by a hundredth."""


@lru_cache(WANTED_KEPT)
def wanted_slices(needs: tuple[int, ...]) -> tuple[int, ...]:
    """Return all wanted slices: need and an even share of the rest, or in proportion. Never under the floor."""
    floor = floor_share(len(needs))
    wanted = [0] * len(needs)
    open_regions = list(range(len(needs)))
    left = WHOLE
    while open_regions:
        for region, share in zip(open_regions, _parted([needs[region] for region in open_regions], left), strict=True):
            wanted[region] = share
        under = [region for region in open_regions if wanted[region] < floor]
        for region in under:
            wanted[region] = floor
            left -= floor
        open_regions = [region for region in open_regions if region not in under]
        if not under:
            break
    return tuple(wanted)


def _parted(needs: list[int], share: int) -> list[int]:
    together = sum(needs)
    if together <= share:
        even = (share - together) // len(needs)
        return [need + even for need in needs]
    return [share * need // together for need in needs]


def possible_slice(slices: Sequence[int], region: int) -> int:
    """Return a region's slice as gifts make it, but no more than is left when all others have theirs and their floors.

    That is the same while all tell of their own gifts alone, and only of what they have. A region that tells of others,
    or of more, brings nobody above that: all who have heard the same have the whole limit together, at most.
    """
    floor = floor_share(len(slices))
    others = sum(max(floor, share) for other, share in enumerate(slices) if other != region)
    return min(slices[region], WHOLE - others)


def enforced_share(own: int, wanted: int, lacking: int) -> int:
    """Return a region's share: its slice, or at once what it will keep of it when others lack and it has too much."""
    if lacking < LEAST_LACK or own <= wanted:
        return own
    return max(wanted, own - lacking)


def gifts(own: int, kept: int, lacks: list[int]) -> list[tuple[int, int]]:
    """Return a region's gifts of now, as (receiver, share): of its slice all that is above what it still keeps.

    Kept is the largest of its wanted slice, its usage, and what its nodes may still be enforcing.
    """
    if sum(lacks) < LEAST_LACK:
        return []
    return in_proportion(own - kept, lacks)


def still_in_use(share: int, ended_ms: int, window_ms: int) -> int:
    """Return how much of a share may still be in use, `ended_ms` after it could last be used.

    What was admitted last is in a cell that ends at most a window later, and decays over the next. When a region's
    cells begin is not relied on: its clock may differ.
    """
    decaying_ms = ended_ms - window_ms
    if decaying_ms <= 0:
        return share
    return -(-share * max(0, window_ms - decaying_ms) // window_ms)


def taken_share(lost_slice: int, silent_ms: int, window_ms: int, regions: int) -> int:
    """Return the share that each other region takes of a lost one's slice, `silent_ms` after that was last heard."""
    surplus = max(0, lost_slice - floor_share(regions))
    return (surplus - still_in_use(surplus, silent_ms - CONNECTED_MS, window_ms)) // (regions - 1)


def share_maybe_taken(own_slice: int, back_ms: int, window_ms: int, regions: int) -> int:
    """Return the most that one other may use of a returning region's slice, as long as it has not said how much.

    At the end of `RETURNING_MS` nobody takes any more.
    """
    share = max(0, own_slice - floor_share(regions)) // (regions - 1)
    return still_in_use(share, back_ms - RETURNING_MS, window_ms)
