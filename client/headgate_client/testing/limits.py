"""Limits as Headgate keeps them, for one process and a test's clock: the three algorithms, in whole milliseconds.

Tests of Headgate hold these against the server's own: what a test of a service learns here is so there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

UNIT_MS: Final[Mapping[str, int]] = {
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 7 * 86_400_000,
    "month": 30 * 86_400_000,
    "year": 365 * 86_400_000,
}
ALGORITHMS: Final = ("sliding_window", "fixed_window", "gcra")
_COUNTED: Final = frozenset({"unit", "requests_per_unit", "unit_multiplier", "algorithm", "burst", "unlimited"})
_KNOWN: Final = _COUNTED | {"name", "replaces", "overdraft", "refund"}
_IGNORED: Final = frozenset({"precision", "on_error", "class", "scope", "force_global"})
"""They mean nothing on one node."""


@dataclass(frozen=True, slots=True)
class FakeLimit:
    """One rule's limit."""

    requests_per_unit: int = 0
    unit: str = "second"
    unit_multiplier: int = 1
    name: str = ""
    algorithm: str = "sliding_window"
    burst: int = 0
    unlimited: bool = False
    overdraft: bool = False
    """Costs are charged beyond the limit too; a cost of 0 looks whether 1 would fit."""
    refund: bool = False
    """What was charged may be given back."""
    shadow: bool = False
    replaces: tuple[str, ...] = ()

    @property
    def window_ms(self) -> int:
        return UNIT_MS[self.unit] * self.unit_multiplier

    def is_smaller(self, other: "FakeLimit") -> bool:
        """Return true if it gives less: by rate, whatever the units; of equal rates, the smaller count."""
        if other.unlimited:
            return True
        rates = self.requests_per_unit * other.window_ms, other.requests_per_unit * self.window_ms
        return (rates[0], self.requests_per_unit) < (rates[1], other.requests_per_unit)

    @classmethod
    def of(cls, where: str, given: Mapping[str, Any], *, shadow: bool) -> "FakeLimit":
        """From the `rate_limit` of a rules file. Fields that mean nothing on one node are passed over."""
        for field in given.keys() - _KNOWN - _IGNORED:
            raise ValueError(f"{where}: the fake knows no {field!r} in rate_limit")
        rate = int(given.get("requests_per_unit", 0))
        limit = cls(
            requests_per_unit=rate,
            unit=str(given.get("unit", "second")).lower(),
            unit_multiplier=int(given.get("unit_multiplier", 1)),
            name=str(given.get("name", "")),
            algorithm=given.get("algorithm", "sliding_window"),
            burst=int(given.get("burst", rate)),
            unlimited=bool(given.get("unlimited", False)),
            overdraft=bool(given.get("overdraft", False)),
            refund=bool(given.get("refund", False)),
            shadow=shadow,
            replaces=tuple(one["name"] for one in given.get("replaces", ())),
        )
        if limit.unit not in UNIT_MS:
            raise ValueError(f"{where}: unit: one of {', '.join(UNIT_MS)}, got {limit.unit!r}")
        if limit.algorithm not in ALGORITHMS:
            raise ValueError(f"{where}: algorithm: one of {', '.join(ALGORITHMS)}, got {limit.algorithm!r}")
        if not limit.unlimited and "requests_per_unit" not in given:
            raise ValueError(f"{where}: rate_limit has no requests_per_unit")
        return limit


class Counter:
    """What was admitted for one key."""

    def __init__(self, limit: FakeLimit) -> None:
        self.limit = limit
        self._sequence = 0
        self._current = 0
        self._previous = 0
        self._tat = 0

    def room(self, now_ms: int, cost: int) -> int:
        """What would be left after this cost; negative when it does not fit."""
        limit = self.limit
        if not limit.requests_per_unit:
            return -1
        if limit.algorithm == "gcra":
            return (limit.burst - cost) * limit.window_ms - self._used(now_ms)
        self._roll(now_ms)
        return limit.requests_per_unit - self._current - self._faded(now_ms) - cost

    def remaining(self, now_ms: int, cost: int) -> int:
        left = self.room(now_ms, cost)
        return max(0, left // self.limit.window_ms if self.limit.algorithm == "gcra" else left)

    def charge(self, now_ms: int, cost: int) -> None:
        self._roll(now_ms)
        self._current += cost
        self._tat = max(self._tat, now_ms * self.limit.requests_per_unit) + cost * self.limit.window_ms

    def overdraw(self, now_ms: int, cost: int) -> None:
        """Charge what does not fit; a bucket owes a window's worth beyond its burst at most."""
        limit, before = self.limit, self._tat
        self.charge(now_ms, cost)
        most = now_ms * limit.requests_per_unit + (limit.burst + limit.requests_per_unit) * limit.window_ms
        self._tat = max(before, min(self._tat, most))

    def release(self, cost: int) -> None:
        """Take a charge of the same request back."""
        self._current -= cost
        self._tat -= cost * self.limit.window_ms

    def make_up(self, now_ms: int, difference: int) -> None:
        """What a reservation came to beyond its estimate, or gives back of it; never below nothing."""
        if difference >= 0:
            self.charge(now_ms, difference)
            return
        self._roll(now_ms)
        of_this = min(-difference, self._current)
        self._current -= of_this
        self._previous -= min(-difference - of_this, self._previous)
        # What has drained is back already.
        drained = min(self._tat, now_ms * self.limit.requests_per_unit)
        self._tat = max(drained, self._tat + difference * self.limit.window_ms)

    def reset_ms(self, now_ms: int) -> int:
        limit = self.limit
        if limit.algorithm == "gcra":
            rate = limit.requests_per_unit
            return max(0, -(-self._tat // rate) - now_ms) if rate else limit.window_ms
        return limit.window_ms - now_ms % limit.window_ms

    def retry_ms(self, now_ms: int, cost: int) -> int:
        """Until that cost would fit; the reset when it never will."""
        limit, window_ms = self.limit, self.limit.window_ms
        if limit.algorithm == "gcra":
            if cost > limit.burst or not limit.requests_per_unit:
                return window_ms
            fits = self._tat + (cost - limit.burst) * window_ms
            return max(0, -(-fits // limit.requests_per_unit) - now_ms)
        if limit.algorithm == "fixed_window" or cost > limit.requests_per_unit or not limit.requests_per_unit:
            return self.reset_ms(now_ms)
        start_ms = self._sequence * window_ms
        room = limit.requests_per_unit - self._current - cost
        if room >= 0:
            return max(0, start_ms + _faded_after_ms(self._previous, room, window_ms) - now_ms)
        fades_ms = _faded_after_ms(self._current, limit.requests_per_unit - cost, window_ms)
        return start_ms + window_ms + fades_ms - now_ms

    def _used(self, now_ms: int) -> int:
        return max(0, self._tat - now_ms * self.limit.requests_per_unit)

    def _faded(self, now_ms: int) -> int:
        if self.limit.algorithm == "fixed_window":
            return 0
        window_ms = self.limit.window_ms
        return self._previous * (window_ms - now_ms % window_ms) // window_ms

    def _roll(self, now_ms: int) -> None:
        sequence = now_ms // self.limit.window_ms
        if sequence != self._sequence:
            self._previous = self._current if sequence == self._sequence + 1 else 0
            self._current = 0
            self._sequence = sequence


def _faded_after_ms(count: int, room: int, window_ms: int) -> int:
    """The least time into a window at which `count` of the one before weighs no more than `room`."""
    if count <= room:
        return 0
    return window_ms - (-(-(room + 1) * window_ms // count) - 1)
