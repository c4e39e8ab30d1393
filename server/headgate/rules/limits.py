"""One `rate_limit` block as a `Limit`: every field checked, every combination that makes no sense refused.

Nothing here stops at the first problem: all of a block's problems are reported, each at
the line of its field.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headgate.limiter.limit import (
    DEFAULT_PRECISION_MILLIONTHS,
    GLOBAL_FROM_MS,
    MAX_UINT32,
    UNIT_MS,
    Algorithm,
    Limit,
    OnError,
    Scope,
    TrafficClass,
    Unit,
)
from headgate.rules import fields as kinds
from headgate.rules.defaults import PROGRAM, Defaults
from headgate.rules.fields import FieldError
from headgate.rules.yaml_events import Event, is_null, line_of

Report = Callable[[int, str], None]
T = TypeVar("T")

MAX_WINDOW_MS = 10 * UNIT_MS[Unit.YEAR]
"""Ten years: every time in milliseconds stays far below 2^53, where Lua's numbers end, and the exact
arithmetic of common.lua takes windows under 2^39 ms."""

MAX_FILL_MS = 100_000 * UNIT_MS[Unit.YEAR]
"""A bucket's arrival time may be this far ahead, and by `precision` as far again: together under 2^53 ms."""

QUOTA_LEAST = 10
"""A region's slice never falls below 10% of the limit; under ten that is less than one request."""

UNITS: Mapping[str, Unit] = {
    name: Unit[name.upper()] for name in ("second", "minute", "hour", "day", "week", "month", "year")
}
ALGORITHMS: Mapping[str, Algorithm] = {item.value: item for item in Algorithm}
ON_ERROR: Mapping[str, OnError] = {item.value: item for item in OnError}
CLASSES: Mapping[str, TrafficClass] = {item.value: item for item in TrafficClass}
SCOPES: Mapping[str, Scope] = {item.value: item for item in Scope}

CLASS_ON_ERROR: Mapping[TrafficClass, OnError] = {
    TrafficClass.ABUSE: OnError.CLOSED,
    TrafficClass.PAID: OnError.OPEN,
    TrafficClass.FREE: OnError.LOCAL,
}

MODES: Mapping[str, str] = {
    "shadow_mode": "shadow",
    "quota_mode": "quota",
    "detailed_metric": "detailed_metric",
    "value_to_metric": "value_to_metric",
}
"""Flags of a descriptor, and what `Limit` calls them."""

WHEN_UNLIMITED = ("unlimited", "requests_per_unit", "name", "replaces")
"""Fields that have a meaning, or are let be, beside `unlimited: true`."""


@dataclass(slots=True)
class RateLimitBlock:
    """A `rate_limit` as it was read: scalars as events, `replaces` as names."""

    line: int
    scalars: dict[str, Event]
    replaces: tuple[str, ...] = ()
    broken: frozenset[str] = frozenset()
    """Fields whose problems were reported while it was read: checks go on, but it gives no limit."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Fields that a limit was built from, to build it again with others laid over them."""

    block: RateLimitBlock
    beside: Mapping[str, Any]


@dataclass(slots=True)
class _Checker:
    """Reads fields of one block; a refused field is reported, and reads as its default from then on."""

    block: RateLimitBlock
    report: Report
    defaults: Defaults
    failed: bool = field(default=False)

    def line(self, name: str) -> int:
        event = self.block.scalars.get(name)
        return self.block.line if event is None else line_of(event)

    def fail(self, name: str, reason: str) -> None:
        self.failed = True
        self.report(self.line(name), reason)

    def get(self, name: str, kind: Callable[[str, Event], T], default: T) -> T:
        event = self.block.scalars.get(name)
        if event is None:
            return default
        try:
            return kind(name, event)
        except FieldError as refused:
            self.fail(name, str(refused))
            return default


def build_limit(
    block: RateLimitBlock, beside: Mapping[str, Any], report: Report, defaults: Defaults = PROGRAM
) -> Limit | None:
    """The limit, or None when anything was reported. `beside` are its fields that stand beside the block."""
    # A field with nothing behind it is a field that is not there, as in Go's decoder; a name is text.
    block.scalars = {name: event for name, event in block.scalars.items() if name == "name" or not is_null(event)}
    checker = _Checker(block, report, defaults, failed=bool(block.broken))
    name: str = checker.get("name", lambda _, event: event.value, "")
    if name and name in block.replaces:
        checker.fail("name", f"the rule named {kinds.shown(name)} replaces itself")
    unlimited = checker.get("unlimited", kinds.boolean, False)
    values = _unlimited(checker) if unlimited else _limited(checker)
    if checker.failed:
        return None
    return Limit(**values, **beside, name=name, unlimited=unlimited, replaces=block.replaces)


def _unlimited(checker: _Checker) -> dict[str, Any]:
    for name in checker.block.scalars:
        if name not in WHEN_UNLIMITED:
            checker.fail(name, f"`{name}` has no meaning beside unlimited: true")
    # Checked and then left unused, as the field's own service does.
    checker.get("requests_per_unit", _uint32, 0)
    return {"requests_per_unit": MAX_UINT32, "unit": Unit.UNKNOWN}


def _uint32(name: str, event: Event) -> int:
    return kinds.whole(name, event, 0, MAX_UINT32)


def _positive(name: str, event: Event) -> int:
    return kinds.whole(name, event, 1, MAX_UINT32)


def _limited(checker: _Checker) -> dict[str, Any]:
    given = checker.block.scalars.keys() | checker.block.broken
    if "unit" not in given:
        checker.fail("", f"rate_limit has no `unit`: one of {', '.join(UNITS)} (or unlimited: true)")
    if "requests_per_unit" not in given:
        checker.fail("", "rate_limit has no `requests_per_unit` (0 denies always)")
    unit = checker.get("unit", lambda name, event: kinds.one_of(name, event, UNITS, any_case=True), Unit.SECOND)
    requests = checker.get("requests_per_unit", _uint32, QUOTA_LEAST)
    traffic_class = checker.get("class", lambda n, e: kinds.one_of(n, e, CLASSES), None)
    on_error = checker.defaults.on_error if traffic_class is None else CLASS_ON_ERROR[traffic_class]
    scope = checker.get("scope", lambda n, e: kinds.one_of(n, e, SCOPES), None)
    algorithm = _algorithm(checker, requests, scope)
    values: dict[str, Any] = {
        "requests_per_unit": requests,
        "unit": unit,
        "unit_multiplier": _multiplier(checker, unit),
        "algorithm": algorithm or Algorithm.SLIDING_WINDOW,
        "burst": _burst(checker, algorithm, requests),
        "precision_millionths": checker.get("precision", kinds.percentage, DEFAULT_PRECISION_MILLIONTHS),
        "traffic_class": traffic_class,
        "on_error": checker.get("on_error", lambda n, e: kinds.one_of(n, e, ON_ERROR), on_error),
        "scope": scope,
        "overdraft": checker.get("overdraft", kinds.boolean, None),
        "refund": checker.get("refund", kinds.boolean, None),
    }
    forced = checker.get("force_global", kinds.boolean, False)
    if not checker.failed:
        _check_together(checker, Limit(**values), forced=forced)
    return values


def _multiplier(checker: _Checker, unit: Unit) -> int:
    most = MAX_WINDOW_MS // UNIT_MS[unit]
    event = checker.block.scalars.get("unit_multiplier")
    if event is None:
        return 1
    try:
        return kinds.whole("unit_multiplier", event, 1, most)
    except FieldError as refused:
        checker.fail("unit_multiplier", f"{refused} (a window is at most ten years)")
        return 1


def _algorithm(checker: _Checker, requests: int, scope: Scope | None) -> Algorithm | None:
    """None when the field was refused: what depends on it can't be judged."""
    if "algorithm" in checker.block.broken:
        return None
    if "algorithm" not in checker.block.scalars:
        return checker.defaults.algorithm_for(requests, scope)
    return checker.get("algorithm", lambda name, event: kinds.one_of(name, event, ALGORITHMS), None)


def _burst(checker: _Checker, algorithm: Algorithm | None, requests: int) -> int:
    if algorithm is None:
        return 0
    if algorithm is Algorithm.GCRA:
        return checker.get("burst", _positive, requests)
    if "burst" in checker.block.scalars:
        checker.fail("burst", "`burst` has a meaning with algorithm: gcra only")
    return 0


def _check_together(checker: _Checker, limit: Limit, *, forced: bool) -> None:
    gcra = limit.algorithm is Algorithm.GCRA
    if gcra and limit.requests_per_unit == 0:
        checker.fail(
            "requests_per_unit",
            "algorithm: gcra needs a `requests_per_unit` of at least 1 (to deny always, use sliding_window with 0)",
        )
    elif limit.scope is Scope.QUOTA and limit.requests_per_unit < QUOTA_LEAST:
        checker.fail(
            "requests_per_unit",
            f"scope: quota needs a `requests_per_unit` of at least {QUOTA_LEAST}:"
            " a region keeps at least 10% of it, which must be one request or more",
        )
    elif limit.scope is Scope.QUOTA and gcra and limit.burst < QUOTA_LEAST:
        checker.fail(
            "burst",
            f"scope: quota needs a `burst` of at least {QUOTA_LEAST}:"
            " a region keeps at least 10% of it, which must be one request or more",
        )
    if gcra and 0 < limit.requests_per_unit * MAX_FILL_MS < limit.burst * limit.window_ms:
        checker.fail(
            "burst",
            f"`burst` must be at most {limit.requests_per_unit * MAX_FILL_MS // limit.window_ms} at this rate,"
            f" found `{limit.burst}`: an empty bucket would take more than 100,000 years to fill",
        )
    if forced and limit.scope is not Scope.GLOBAL:
        checker.fail("force_global", "`force_global` has a meaning with scope: global only")
    if limit.scope is Scope.GLOBAL and limit.window_ms < GLOBAL_FROM_MS and not forced:
        checker.fail(
            "scope",
            "scope: global needs a window of at least 60 seconds: regions hear of each other about once a second;"
            " use scope: quota or cell, or say force_global: true",
        )
    if gcra and limit.scope is Scope.GLOBAL:
        checker.fail(
            "scope",
            "scope: global can't be used with algorithm: gcra, whose state is not a counter;"
            " accepted with gcra: region, quota, cell",
        )
