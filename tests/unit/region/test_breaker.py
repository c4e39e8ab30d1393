"""The breaker, on a clock that stands until it is moved and randomness that is given."""

import random

import pytest
from headgate.region.breaker import Breaker, BreakerSettings, BreakerState

from tests.support.clock import ManualClock


class Given(random.Random):
    """Randomness by hand."""

    value = 0.0

    def random(self) -> float:
        return self.value


class World:
    def __init__(self, settings: BreakerSettings | None = None) -> None:
        self.clock = ManualClock()
        self.random = Given()
        self.changes: list[BreakerState] = []
        self.breaker = Breaker(
            settings or BreakerSettings(),
            monotonic=self.clock.monotonic,
            random=self.random,
            on_change=lambda state, reason: self.changes.append(state),
        )

    def record(self, *results: bool) -> BreakerState:
        for ok in results:
            self.breaker.record(ok, "it failed")
        return self.breaker.state


def test_one_failure_in_twenty_samples_opens_it() -> None:
    world = World()
    assert world.record(*[True] * 18, False) is BreakerState.CLOSED, "nineteen are too few to have a rate"
    assert world.record(False) is BreakerState.OPEN


def test_under_one_percent_stays_closed() -> None:
    world = World()
    assert world.record(*[True] * 200, False) is BreakerState.CLOSED
    assert world.record(False) is BreakerState.CLOSED, "2 of 202"
    assert world.record(False) is BreakerState.OPEN, "3 of 203 is more than one percent"


def test_the_window_slides() -> None:
    world = World()
    world.record(*[False, True] * 2)
    world.clock.advance(1_001)
    assert world.record(*[True] * 20) is BreakerState.CLOSED
    world.clock.advance(500)
    assert world.record(*[True] * 99, False) is BreakerState.CLOSED, "1 of 120"


def test_five_failures_in_a_row_open_it_under_light_load() -> None:
    world = World()
    assert world.record(False, False, False, False, True, False, False, False, False) is BreakerState.CLOSED
    assert world.record(False) is BreakerState.OPEN


@pytest.mark.parametrize(("jitter", "cooldown_ms"), [(0.0, 500), (0.5, 550), (0.999, 599)])
def test_the_cooldown_is_jittered_upwards(jitter: float, cooldown_ms: int) -> None:
    world = World()
    world.random.value = jitter
    world.record(*[False] * 5)
    world.clock.advance(cooldown_ms - 1)
    assert not world.breaker.begin_probe()
    world.clock.advance(2)
    assert world.breaker.begin_probe()


def test_exactly_one_probe_passes() -> None:
    world = World()
    world.record(*[False] * 5)
    world.clock.advance(500)
    assert [world.breaker.begin_probe() for _ in range(3)] == [True, False, False]


def test_the_cooldown_doubles_up_to_its_most_and_starts_over_after_a_success() -> None:
    world = World()
    world.record(*[False] * 5)
    waited = []
    for _ in range(4):
        waited.append(world.breaker.wait_s())
        world.clock.advance(2_000)
        assert world.breaker.begin_probe()
        world.record(False)
    assert waited == [0.5, 1.0, 2.0, 2.0]
    world.clock.advance(2_000)
    assert world.breaker.begin_probe()
    assert world.record(True) is BreakerState.CLOSED
    world.record(*[False] * 5)
    assert world.breaker.wait_s() == 0.5, "armed again, from the beginning"


def test_what_was_sent_before_it_opened_changes_nothing() -> None:
    world = World()
    world.record(*[False] * 5)
    assert world.record(True, False, False) is BreakerState.OPEN
    assert world.breaker.trips == 1


def test_it_is_armed_again_on_every_trip() -> None:
    world = World()
    for trip in range(1, 4):
        world.record(*[False] * 5)
        assert (world.breaker.state, world.breaker.trips) == (BreakerState.OPEN, trip)
        world.clock.advance(500)
        assert world.breaker.begin_probe()
        world.record(True)
    assert world.changes == [BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED] * 3


def test_rate_samples_and_cooldown_are_settings() -> None:
    world = World(BreakerSettings(error_rate=0.5, min_samples=4, cooldown_s=3.0, max_cooldown_s=4.0))
    assert world.record(True, True, True, False, False) is BreakerState.CLOSED
    assert world.record(False) is BreakerState.OPEN
    assert world.breaker.wait_s() == 3.0
