"""How many regions share limits of scope `cell`, while regions are heard, come and go."""

from headgate.limiter.scopes import LimitsOfRegion
from headgate.origin.interface import REGION_GONE_MS
from headgate.region.active import ActiveRegions

from tests.support.clock import ManualClock


def test_a_region_that_is_added_counts_until_it_has_had_the_time_to_be_heard() -> None:
    clock, told = ManualClock(), list[int]()
    active = ActiveRegions(LimitsOfRegion(2), 2, clock, told.append)
    clock.advance(REGION_GONE_MS)
    active.heard(1)
    active.follow(joined=1, left=0)
    assert (active.count, active.configured) == (3, 3)
    active.heard(1)
    assert active.count == 3
    clock.advance(REGION_GONE_MS)
    active.heard(1)
    assert active.count == 2
    active.heard(2)
    assert (active.count, told) == (3, [3, 2, 3])


def test_a_region_that_is_removed_shares_nothing_any_more() -> None:
    clock = ManualClock()
    active = ActiveRegions(LimitsOfRegion(3), 3, clock, lambda active: None)
    active.follow(joined=0, left=1)
    active.heard(2)  # its last beat is not old enough yet
    assert (active.count, active.configured, active.factor) == (2, 2, 1.0)
    active.follow(joined=1, left=1)
    assert (active.count, active.configured) == (2, 2)
