"""The decision engine: charges in, one decision out. No I/O, no clock of its own, no lock.

It promises all or nothing: a request is charged only if every enforced descriptor
admits it, and a denied request charges nothing. It relies on being called from one
thread, and on a clock that it asks once per request.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from headgate.clock import Clock
from headgate.limiter.algorithm import OVER, AlgorithmRules
from headgate.limiter.cells import Cell, CellTable
from headgate.limiter.fixed_window import FixedWindow
from headgate.limiter.gcra import Gcra
from headgate.limiter.limit import Algorithm, Limit
from headgate.limiter.sliding_window import SlidingWindow

ALGORITHMS: Final[dict[Algorithm, AlgorithmRules]] = {
    Algorithm.SLIDING_WINDOW: SlidingWindow(),
    Algorithm.FIXED_WINDOW: FixedWindow(),
    Algorithm.GCRA: Gcra(),
}


class Path(StrEnum):
    """Which way a decision was made."""

    LOCAL = "local"
    DENY_CACHE = "deny_cache"
    SHADOW = "shadow"
    UNLIMITED = "unlimited"
    NO_RULE = "no_rule"


class Charge:
    """One descriptor's part of a request: what it costs, on which key, under which limit."""

    __slots__ = ("algorithm", "cost", "key", "limit", "quota", "shadow")

    def __init__(self, key: bytes, limit: Limit, cost: int, *, shadow: bool = False) -> None:
        self.key = key
        self.limit = limit
        self.cost = cost
        self.algorithm = ALGORITHMS[limit.algorithm]
        self.shadow = shadow or limit.shadow
        self.quota = limit.quota and not self.shadow


Verdict = tuple[bool, int, int]
"""One charge's outcome: is it over its limit, what remains, and the time in ms to come back
(over) or to the reset (not over). A tuple, because one is made per descriptor of every request."""


class Decision(NamedTuple):
    admitted: bool
    path: Path
    verdicts: list[Verdict]


class Engine:
    def __init__(self, clock: Clock, *, max_cells: int) -> None:
        self.cells = CellTable(max_cells)
        self._clock_ms = clock.now_ms
        self._now_ms = 0

    def sweep(self, max_steps: int) -> bool:
        """Drop expired cells, in a bounded slice; True while more are due."""
        return self.cells.sweep(self._now(), max_steps)

    def decide(self, charges: tuple[Charge, ...]) -> Decision:
        now_ms = self._now()
        find, touch = self.cells.find, self.cells.touch
        taken: list[tuple[Cell, int]] = []
        verdicts: list[Verdict] = []
        over = False
        for charge in charges:
            key, limit, algorithm = charge.key, charge.limit, charge.algorithm
            cell = find(key)
            if cell is None:
                cell = algorithm.new_cell(key, limit, now_ms)
                self.cells.add(cell, now_ms)
            else:
                touch(key)
            if now_ms < cell.deny_until_ms and _denied_before(cell, charge):
                remaining = OVER
            else:
                remaining = algorithm.take(cell, limit, now_ms, charge.cost)
            taken.append((cell, remaining))
            if remaining < 0:
                over = True
            else:
                verdicts.append((False, remaining, algorithm.reset_ms(cell, limit, now_ms)))
        if over:
            return self._decide_over(charges, taken, now_ms)
        return Decision(True, Path.LOCAL, verdicts)

    def _now(self) -> int:
        # What was decided stays decided: a clock that goes back is taken to stand still.
        now_ms = self._clock_ms()
        if now_ms < self._now_ms:
            return self._now_ms
        self._now_ms = now_ms
        return now_ms

    def _decide_over(
        self, charges: tuple[Charge, ...], taken: list[tuple[Cell, int]], now_ms: int
    ) -> Decision:
        """At least one charge does not fit: deny and release all, or admit in spite of it."""
        admitted = not _denies(charges, taken)
        if not admitted:
            for charge, (cell, remaining) in zip(charges, taken, strict=True):
                if remaining >= 0:
                    charge.algorithm.release(cell, charge.limit, charge.cost)
        path = Path.SHADOW if admitted and _only_shadow_over(charges, taken) else Path.LOCAL
        verdicts: list[Verdict] = []
        ahead: dict[bytes, int] = {}
        for charge, (cell, remaining) in zip(charges, taken, strict=True):
            limit, algorithm = charge.limit, charge.algorithm
            before = ahead.get(charge.key, 0)
            ahead[charge.key] = before + charge.cost
            if remaining >= 0:
                left = remaining if admitted else algorithm.remaining(cell, limit, now_ms)
                verdicts.append((False, left, algorithm.reset_ms(cell, limit, now_ms)))
                continue
            cached = now_ms < cell.deny_until_ms and _denied_before(cell, charge)
            if cached and cell.deny_cost == charge.cost:
                retry_ms = cell.deny_until_ms - now_ms
            else:
                # The same key may stand in a request twice: then it is their sum that must fit.
                unpaid = 0 if admitted else before
                retry_ms = algorithm.retry_ms(cell, limit, now_ms, charge.cost + unpaid)
                if not cached and not unpaid:
                    _remember_denial(cell, charge, now_ms + retry_ms)
            if cached and not admitted:
                path = Path.DENY_CACHE
            verdicts.append((True, 0, retry_ms))
        return Decision(admitted, path, verdicts)


def _denied_before(cell: Cell, charge: Charge) -> bool:
    return charge.cost >= cell.deny_cost and charge.limit is cell.deny_limit


def _remember_denial(cell: Cell, charge: Charge, until_ms: int) -> None:
    cell.deny_until_ms = until_ms
    cell.deny_cost = charge.cost
    cell.deny_limit = charge.limit


def _denies(charges: tuple[Charge, ...], taken: list[tuple[Cell, int]]) -> bool:
    """Over, unless nothing but shadow rules is, or some quota descriptor still has room."""
    quotas = quotas_over = 0
    for charge, (_, remaining) in zip(charges, taken, strict=True):
        if charge.shadow:
            continue
        if charge.quota:
            quotas += 1
            quotas_over += remaining < 0
        elif remaining < 0:
            return True
    return quotas > 0 and quotas == quotas_over


def _only_shadow_over(charges: tuple[Charge, ...], taken: list[tuple[Cell, int]]) -> bool:
    return all(charge.shadow for charge, (_, remaining) in zip(charges, taken, strict=True) if remaining < 0)
