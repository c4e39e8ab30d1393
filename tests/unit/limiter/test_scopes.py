"""What a limit comes to in one of several regions."""

import pytest
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Algorithm, Limit, Scope, Unit
from headgate.limiter.scopes import MOST_KEPT, LimitsOfRegion, SlicedCharges, charges_of, slice_of

MINUTE = Limit(1_000, Unit.MINUTE)


def bound(limit: Limit, regions: int, active: int | None = None) -> Limit:
    limits = LimitsOfRegion(regions)
    limits.active = regions if active is None else active
    return limits.bind(limit)


def test_alone_a_limit_is_what_it_says() -> None:
    for scope in (None, *Scope):
        limit = Limit(1_000, Unit.MINUTE, scope=scope)
        assert bound(limit, 1) is limit
        assert (limit.precision, limit.publish_at) == (50, 0)


def test_what_a_rule_does_not_say_the_process_does() -> None:
    written = [Limit(10, Unit.MINUTE, overdraft=said) for said in (None, False, True)]
    assert [LimitsOfRegion(overdraft=True).bind(limit).overdraft for limit in written] == [True, False, True]
    assert [LimitsOfRegion(2).bind(limit).overdraft for limit in written] == [False, False, True]


@pytest.mark.parametrize(
    ("limit", "scope"),
    [
        (Limit(10, Unit.MINUTE), Scope.GLOBAL),
        (Limit(10, Unit.SECOND, 60), Scope.GLOBAL),
        (Limit(10, Unit.SECOND, 59), Scope.REGION),
        (Limit(10, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=10), Scope.REGION),
        (Limit(10, Unit.MINUTE, scope=Scope.REGION), Scope.REGION),
        (Limit(10, Unit.UNKNOWN, unlimited=True), Scope.REGION),
    ],
)
def test_without_a_word_long_windows_count_everywhere(limit: Limit, scope: Scope) -> None:
    assert bound(limit, 3).scope_in_force is scope
    assert limit.scope_in_force in (limit.scope, Scope.REGION), "alone there is nobody to count with"


@pytest.mark.parametrize(
    ("scope", "regions", "active", "enforced", "precision", "publish_at"),
    [
        (Scope.REGION, 3, 3, 1_000, 50, 0),
        (Scope.GLOBAL, 3, 3, 1_000, 16, 67),
        (Scope.GLOBAL, 10, 2, 1_000, 5, 20),
        (Scope.QUOTA, 3, 1, 1_000, 16, 0),
        (Scope.CELL, 3, 3, 333, 16, 0),
        (Scope.CELL, 3, 2, 500, 25, 0),
        (Scope.CELL, 3, 1, 1_000, 50, 0),
    ],
)
def test_what_each_scope_enforces(
    scope: Scope, regions: int, active: int, enforced: int, precision: int, publish_at: int
) -> None:
    limit = bound(Limit(1_000, Unit.MINUTE, scope=scope), regions, active)
    assert (limit.requests_per_unit, limit.precision, limit.publish_at) == (enforced, precision, publish_at)


@pytest.mark.parametrize("regions", [2, 3, 10, 50])
def test_what_all_regions_keep_to_themselves_is_below_a_fifth_of_the_limit(regions: int) -> None:
    limit = bound(Limit(1_000, Unit.MINUTE), regions)
    assert regions * (limit.publish_at - 1) < 200


def test_a_burst_is_divided_with_its_rate_and_something_is_left_of_everything() -> None:
    bucket = bound(Limit(9, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=2, scope=Scope.CELL), 3)
    assert (bucket.requests_per_unit, bucket.burst) == (3, 1)
    assert bound(Limit(0, Unit.MINUTE, scope=Scope.CELL), 3).requests_per_unit == 0


def test_limits_are_bound_once_and_anew_when_regions_come_and_go() -> None:
    limits = LimitsOfRegion(3)
    told = []
    limits.on_change = lambda: told.append(limits.active)
    cell = Limit(90, Unit.SECOND, scope=Scope.CELL)
    assert limits.bind(cell) is limits.bind(cell)
    limits.active = 3
    assert told == []
    limits.active = 2
    assert (told, limits.bind(cell).requests_per_unit) == ([2], 45)


def test_more_limits_than_there_is_room_for_are_bound_all_the_same() -> None:
    limits = LimitsOfRegion(2)
    for number in range(MOST_KEPT + 5):
        assert limits.bind(Limit(number, Unit.MINUTE)).regions == 2


def test_a_slice_of_a_quota_keeps_an_even_part_of_the_whole_precision() -> None:
    quota = bound(Limit(1_000, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=100, scope=Scope.QUOTA), 3)
    part = slice_of(quota, 123_456)
    assert (part.requests_per_unit, part.burst, part.precision, part.sliced) == (123, 12, quota.precision, True)
    assert not Limit(1_000, Unit.MINUTE, scope=Scope.QUOTA).sliced, "alone there is nobody to share with"


def test_only_requests_that_meet_a_quota_are_cut() -> None:
    plain, quota = Limit(10, Unit.MINUTE), bound(Limit(1_000, Unit.MINUTE, scope=Scope.QUOTA), 3)
    assert type(charges_of([Charge(b"a", plain, 1)])) is tuple
    assert type(charges_of([Charge(b"a", plain, 1), Charge(b"b", quota, 1)])) is SlicedCharges


def test_regions_that_come_and_go_bind_limits_anew() -> None:
    limits, told = LimitsOfRegion(1), list[int]()
    limits.on_change = lambda: told.append(limits.active)
    assert limits.bind(MINUTE) is MINUTE
    limits.follow(3, 3)
    assert (limits.bind(MINUTE).regions, limits.bind(MINUTE).publish_at) == (3, 67)
    limits.follow(3, 3)
    limits.follow(2, 2)
    assert limits.bind(MINUTE).publish_at == 100
    limits.follow(1, 1)
    assert limits.bind(MINUTE) is MINUTE
    assert told == [3, 2, 1]
