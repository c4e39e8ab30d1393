"""What a `rate_limit` and the modes beside it become: every field, its spellings and defaults."""

from typing import Any

import pytest
from headgate.limiter.limit import (
    MAX_UINT32,
    Algorithm,
    Limit,
    OnError,
    Scope,
    TrafficClass,
    Unit,
)

from tests.unit.rules.support import compile_text

DAY_MS = 86_400_000


def limit_of(rate_limit: str, descriptor: str = "") -> Limit:
    rules = compile_text(f"domain: d\ndescriptors: [{{key: k, {descriptor} rate_limit: {{{rate_limit}}}}}]")
    match = rules.match("d", [("k", "v")])
    assert match is not None
    return match.limit


def test_the_least_that_a_limit_needs() -> None:
    assert limit_of("unit: second, requests_per_unit: 5") == Limit(requests_per_unit=5, unit=Unit.SECOND)


@pytest.mark.parametrize(
    ("unit", "window_ms"),
    [
        ("second", 1_000),
        ("minute", 60_000),
        ("hour", 3_600_000),
        ("day", DAY_MS),
        ("week", 7 * DAY_MS),
        ("month", 30 * DAY_MS),
        ("year", 365 * DAY_MS),
        ("SECOND", 1_000),
        ("Minute", 60_000),
        ('"hOuR"', 3_600_000),
    ],
)
def test_units_in_any_case(unit: str, window_ms: int) -> None:
    assert limit_of(f"unit: {unit}, requests_per_unit: 5").window_ms == window_ms


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("0", 0),
        ("1_000", 1000),
        ("0x10", 16),
        ("0o10", 8),
        ("+7", 7),
        ("1e3", 1000),
        ("100.0", 100),
        ("4294967295", MAX_UINT32),
        ("!!int 5", 5),
    ],
)
def test_whole_numbers(written: str, value: int) -> None:
    assert limit_of(f"unit: second, requests_per_unit: {written}").requests_per_unit == value


@pytest.mark.parametrize(
    ("written", "millionths"),
    [("5%", 50_000), ("0.5%", 5_000), ("0", 0), ("0%", 0), ("100%", 1_000_000), ("0.0001%", 1), ('"5%"', 50_000)],
)
def test_precision(written: str, millionths: int) -> None:
    assert limit_of(f"unit: second, requests_per_unit: 1, precision: {written}").precision_millionths == millionths


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("", {"on_error": OnError.LOCAL, "traffic_class": None}),
        ("class: abuse", {"on_error": OnError.CLOSED, "traffic_class": TrafficClass.ABUSE}),
        ("class: paid", {"on_error": OnError.OPEN, "traffic_class": TrafficClass.PAID}),
        ("class: free", {"on_error": OnError.LOCAL, "traffic_class": TrafficClass.FREE}),
        ("class: abuse, on_error: open", {"on_error": OnError.OPEN, "traffic_class": TrafficClass.ABUSE}),
        ("on_error: closed", {"on_error": OnError.CLOSED, "traffic_class": None}),
        ("algorithm: fixed_window", {"algorithm": Algorithm.FIXED_WINDOW, "burst": 0}),
        ("algorithm: sliding_window", {"algorithm": Algorithm.SLIDING_WINDOW, "burst": 0}),
        ("algorithm: gcra", {"algorithm": Algorithm.GCRA, "burst": 20}),
        ("algorithm: gcra, burst: 1", {"algorithm": Algorithm.GCRA, "burst": 1}),
        ("unit_multiplier: 5256000, algorithm: gcra, burst: 200000", {"burst": 200_000}),
        ("unit_multiplier: 5", {"unit_multiplier": 5, "window_ms": 300_000}),
        ("unit_multiplier: 5256000", {"window_ms": 10 * 365 * DAY_MS}),
        ("", {"overdraft": None, "debt": 0}),
        ("overdraft: true", {"overdraft": True, "debt": 0}),
        ("overdraft: no", {"overdraft": False}),
        ("", {"refund": None}),
        ("refund: true", {"refund": True}),
        ("refund: no", {"refund": False}),
        ("overdraft: true, algorithm: gcra, burst: 5", {"overdraft": True, "debt": 20}),
        ("scope: region", {"scope": Scope.REGION}),
        ("scope: global", {"scope": Scope.GLOBAL}),
        ("scope: quota", {"scope": Scope.QUOTA}),
        ("scope: cell, algorithm: gcra", {"scope": Scope.CELL}),
        ("scope: quota, algorithm: gcra", {"scope": Scope.QUOTA, "burst": 20}),
        ("name: gold", {"name": "gold"}),
        ("name: 7", {"name": "7"}),
        ("replaces: [{name: a}, {name: b}, {name: a}]", {"replaces": ("a", "b")}),
        ("replaces: [], burst: ", {"replaces": ()}),
        ("replaces: , unlimited: no", {"replaces": (), "unlimited": False}),
    ],
)
def test_fields_of_rate_limit(fields: str, expected: dict[str, Any]) -> None:
    limit = limit_of(f"unit: minute, requests_per_unit: 20, {fields}")
    assert {name: getattr(limit, name) for name in expected} == expected


@pytest.mark.parametrize("unlimited", ["unlimited: true", "unlimited: yes, requests_per_unit: 5"])
def test_unlimited(unlimited: str) -> None:
    limit = limit_of(f"{unlimited}, name: free, replaces: [{{name: a}}]")
    assert limit == Limit(requests_per_unit=MAX_UINT32, unit=Unit.UNKNOWN, unlimited=True, name="free", replaces=("a",))
    assert limit.window_ms == 0


@pytest.mark.parametrize(
    ("descriptor", "expected"),
    [
        ("shadow_mode: true,", {"shadow": True}),
        ("shadow_mode: off,", {"shadow": False}),
        ("shadow_mode: ,", {"shadow": False}),
        ("quota_mode: true,", {"quota": True, "shadow": False}),
        ("detailed_metric: Yes,", {"detailed_metric": True}),
        ("value_to_metric: on,", {"value_to_metric": True}),
        ("metadata: ,", {"metadata": {}}),
        (
            "metadata: {a: 1, b: [x, 1.5, yes, null, 'no', 007], c: {d: 1e400}, 9: -2},",
            {"metadata": {"a": 1, "b": ["x", 1.5, True, None, "no", "007"], "c": {"d": "1e400"}, "9": -2}},
        ),
    ],
)
def test_modes_beside_rate_limit(descriptor: str, expected: dict[str, Any]) -> None:
    limit = limit_of("unit: second, requests_per_unit: 1", descriptor)
    assert {name: getattr(limit, name) for name in expected} == expected


def test_modes_without_a_limit_are_accepted() -> None:
    rules = compile_text(
        "domain: d\ndescriptors: [{key: k, shadow_mode: true, quota_mode: true, detailed_metric: true,"
        " value_to_metric: true, metadata: {a: b}}]"
    )
    assert rules.match("d", [("k", "v")]) is None
