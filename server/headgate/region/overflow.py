"""Keys that found no room in a full table: one shared count per limit, never unlimited.

While every counter of a node holds something unacknowledged, because its shards are away, a new key gets
none. Its requests are decided by policy: `closed` denies; `local` and `open` admit, and all such keys
of one limit together no more than one key might. So a flood of new keys gets through once, not once each.
"""

from typing import Final

from headgate.limiter.counters import KeyCounter
from headgate.limiter.decision import Charge, Decision, DecisionPath, Kind, Verdict, denies
from headgate.limiter.limit import Limit, OnError
from headgate.region import policy
from headgate.region.outcomes import OVER

MAX_LIMITS: Final = 1_024
"""Limits with a shared count at once; of more, the one that was begun first begins anew."""


class Overflow:
    """The shared counts of one node."""

    def __init__(self) -> None:
        self._counters: dict[int, tuple[Limit, KeyCounter]] = {}

    def decide(self, charges: tuple[Charge, ...], over: tuple[bool, ...], now_ms: int) -> Decision:
        """Decide all or nothing by the shared counts; `over` says which charges their own counters deny already."""
        outcomes = [self._take(charge, denied, now_ms) for charge, denied in zip(charges, over, strict=True)]
        admitted = not denies(charges, outcomes)
        verdicts: list[Verdict] = []
        for charge, outcome in zip(charges, outcomes, strict=True):
            if outcome >= 0 and not admitted and charge.kind is Kind.TAKE:
                charge.algorithm.release(self._counter(charge.limit, now_ms), charge.limit, charge.cost)
            verdicts.append((outcome < 0, max(0, outcome), policy.DEGRADED_RETRY_MS))
        return Decision(admitted, self._path(charges, outcomes), verdicts)

    def _take(self, charge: Charge, denied: bool, now_ms: int) -> int:
        if charge.kind is Kind.REFUND:
            return 0  # nobody knows of what: nothing is given back
        if charge.kind is not Kind.LATE and (denied or charge.limit.on_error is OnError.CLOSED):
            return OVER
        counter, algorithm = self._counter(charge.limit, now_ms), charge.algorithm
        remaining = algorithm.take(counter, charge.limit, now_ms, charge.cost)
        if charge.kind is Kind.LATE:
            return self._late(charge, counter, remaining, now_ms)
        if charge.kind is Kind.PEEK and remaining >= 0:
            algorithm.release(counter, charge.limit, charge.cost)
        return remaining

    def _late(self, charge: Charge, counter: KeyCounter, remaining: int, now_ms: int) -> int:
        """Charge a late cost in any case; whether it fitted is nothing that `closed` would say."""
        if remaining < 0:
            charge.algorithm.overdraw(counter, charge.limit, now_ms, charge.cost)
        return OVER if charge.limit.on_error is OnError.CLOSED else remaining

    def _counter(self, limit: Limit, now_ms: int) -> KeyCounter:
        known = self._counters.get(id(limit))
        if known is not None:
            return known[1]
        if len(self._counters) >= MAX_LIMITS:
            del self._counters[next(iter(self._counters))]
        counter = Charge(b"overflow", limit, 0).algorithm.new_counter(b"overflow", limit, now_ms)
        self._counters[id(limit)] = (limit, counter)
        return counter

    def _path(self, charges: tuple[Charge, ...], outcomes: list[int]) -> DecisionPath:
        """Return the path of the charge that denies, or of the first that asks for something."""
        asking = next((charge for charge in charges if charge.kind is not Kind.REFUND), charges[0])
        told = next((charge for charge, outcome in zip(charges, outcomes, strict=True) if outcome < 0), asking)
        return policy.PATHS[told.limit.on_error]
