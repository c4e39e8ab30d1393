"""What a region shows of its use of limits of scope `cell`: shares of the whole limit, by slots of keys."""

import dataclasses
from typing import Any

import pytest
from headgate.limiter.cell_scope import SLOTS, CellUse
from headgate.limiter.decision import Charge, Decision
from headgate.limiter.engine import Engine
from headgate.limiter.limit import Algorithm, Limit, Scope, Unit
from headgate.limiter.scopes import LimitsOfRegion

from tests.support.clock import ManualClock

NOW_MS = 1_700_000_040_000  # a minute's beginning


class Region:
    """A node on its own that enforces its region's part of limits."""

    def __init__(self, regions: int = 3) -> None:
        self.clock = ManualClock(NOW_MS)
        self.limits = LimitsOfRegion(regions)
        self.engine = Engine(self.clock, max_cells=1000)
        self.use = CellUse(self.engine.counters, self.limits, self.clock)

    def admit(self, key: bytes, limit: Limit, requests: int) -> int:
        """So many requests of cost 1; how many were admitted."""
        charges = (Charge(key, self.limits.bind(limit), 1),)
        return sum(self._admits(charges) for _ in range(requests))

    def _admits(self, charges: tuple[Charge, ...]) -> bool:
        decision = self.engine.decide(charges)
        assert isinstance(decision, Decision)
        return decision.admitted

    def used(self) -> list[float]:
        self.use.look()
        return sorted(self.use.by_slot().values())


def cell(requests: int, **more: Any) -> Limit:
    return Limit(requests, Unit.MINUTE, scope=Scope.CELL, **more)


@pytest.mark.parametrize("algorithm", [Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW, Algorithm.GCRA])
def test_a_full_part_is_its_share_of_the_whole(algorithm: Algorithm) -> None:
    region = Region()
    limit = cell(90, algorithm=algorithm, burst=90 if algorithm is Algorithm.GCRA else 0)
    assert region.admit(b"k", limit, 100) == 30
    assert region.used() == [pytest.approx(1 / 3)]


def test_a_region_that_hears_nobody_uses_the_whole() -> None:
    region = Region()
    region.admit(b"k", cell(90), 100)
    region.limits.active = 1
    assert region.admit(b"k", cell(90), 100) == 60
    assert region.used() == [1.0]


def test_a_limit_below_the_number_of_regions_is_used_as_a_whole_by_each() -> None:
    """Each admits at least 1: three regions together three times the limit, though all hear each other."""
    region = Region()
    assert region.admit(b"k", cell(1), 5) == 1
    assert region.used() == [1.0]


def test_a_window_that_is_over_is_shown_for_a_minute_or_two() -> None:
    """So scrapes see windows that are shorter than the time between them."""
    region = Region()
    region.admit(b"k", Limit(90, Unit.SECOND, scope=Scope.CELL), 100)
    region.use.look()
    region.clock.advance(59_000)
    assert region.used() == [pytest.approx(1 / 3)]
    region.clock.advance(60_000)
    assert region.used() == [pytest.approx(1 / 3)]
    region.clock.advance(61_000)
    assert region.used() == []


def test_what_the_window_before_held_is_not_lost_at_its_end() -> None:
    region, limit = Region(), cell(90, algorithm=Algorithm.FIXED_WINDOW)
    region.admit(b"k", limit, 100)
    region.clock.advance(60_000)
    region.admit(b"k", limit, 3)
    assert region.used() == [pytest.approx(1 / 3)]


def test_other_scopes_and_a_region_alone_show_nothing() -> None:
    region, alone = Region(), Region(regions=1)
    region.admit(b"k", dataclasses.replace(cell(90), scope=Scope.REGION), 5)
    alone.admit(b"k", cell(90), 5)
    assert region.used() == alone.used() == []
    assert not region.limits.divides


def test_a_slot_shows_its_busiest_key_and_there_are_so_many_slots() -> None:
    region = Region()
    for number in range(700):
        region.admit(b"key-%d" % number, cell(90), 1 + number % 2)
        if number % 100 == 99:
            region.use.look()
    used = region.use.by_slot()
    assert set(used) <= set(range(SLOTS))
    assert len(used) > 0.8 * SLOTS
    assert set(used.values()) == {1 / 90, 2 / 90}
