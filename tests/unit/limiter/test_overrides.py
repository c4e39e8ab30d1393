"""What an override makes of a limit, and how it is written down."""

import dataclasses

import pytest
from headgate.limiter.limit import MAX_UINT32, Algorithm, Limit, Unit
from headgate.limiter.overrides import Override, Overrides

RULE = Limit(10, Unit.MINUTE, name="rule", precision_millionths=100_000)
BUCKET = Limit(10, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=4)


def override(limit: int | None = None, factor: float | None = None, key: bytes = b"k") -> Override:
    millionths = None if factor is None else round(factor * 1_000_000)
    return Override(key, "edge", (("user", "ann"),), 1_000, limit, millionths, "alice", "a launch", 7)


@pytest.mark.parametrize(
    ("rule", "change", "requests", "burst"),
    [
        (RULE, override(25), 25, 0),
        (RULE, override(0), 0, 0),
        (RULE, override(factor=2), 20, 0),
        (RULE, override(factor=0.01), 1, 0),
        (RULE, override(factor=0.25), 3, 0),
        (BUCKET, override(25), 25, 10),
        (BUCKET, override(1), 1, 1),
        (BUCKET, override(0), 0, 0),
        (BUCKET, override(factor=2.5), 25, 10),
        (Limit(MAX_UINT32, Unit.DAY), override(factor=2), MAX_UINT32, 0),
        (dataclasses.replace(BUCKET, requests_per_unit=0, burst=0), override(3), 3, 0),
    ],
)
def test_an_override_changes_the_number_and_a_buckets_burst_with_it(
    rule: Limit, change: Override, requests: int, burst: int
) -> None:
    after = change.apply(rule)
    assert (after.requests_per_unit, after.burst) == (requests, burst)
    assert dataclasses.replace(after, requests_per_unit=rule.requests_per_unit, burst=rule.burst) == rule


def test_what_follows_from_a_limit_follows_from_the_overridden_one() -> None:
    assert override(100).apply(RULE).precision == 10


def test_the_same_limit_is_always_the_same_object_so_denials_are_remembered() -> None:
    table = Overrides()
    table.change([override(25)])
    assert table.limit_of(b"k", RULE) is table.limit_of(b"k", RULE)
    assert table.limit_of(b"other", RULE) is RULE
    reloaded = dataclasses.replace(RULE, requests_per_unit=11)
    assert table.limit_of(b"k", reloaded).requests_per_unit == 25


def test_only_keys_whose_limits_changed_are_told() -> None:
    table, told = Overrides(), []
    table.on_change = lambda keys: told.append(sorted(keys))
    table.change([override(1, key=b"a"), override(2, key=b"b")])
    table.change([override(1, key=b"a"), override(3, key=b"b")], [b"unknown"])
    table.change([], [b"a"])
    table.change([], [b"a"])
    assert told == [[b"a", b"b"], [b"b"], [b"a"]]
    assert [item.key for item in table.all()] == [b"b"]


@pytest.mark.parametrize("change", [override(0), override(7), override(factor=0.5)])
def test_it_is_read_as_it_was_written(change: Override) -> None:
    assert Override.decode(b"k", change.encode(), 1_000) == change


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"nonsense",
        b"[]",
        b"{}",
        override().encode(),
        override(1, 2.0).encode(),
        override(-1).encode(),
        override(2**32).encode(),
        override(factor=1001).encode(),
        override(7).encode().replace(b'"limit":7', b'"limit":"7"'),
        override(7).encode().replace(b'"limit":7', b'"limit":true'),
    ],
)
def test_what_is_no_override_is_not_taken_for_one(value: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Override.decode(b"k", value, 1_000)
