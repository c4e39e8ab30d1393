"""The decision engine of a single node: charges in, one decision out. No I/O, no lock.

It promises all or nothing: a request is charged only if every enforced descriptor
admits it, and a denied request charges nothing. It relies on being called from one
thread, and on a clock that it asks once per request. Its counters are all there is to
know; `region/engine.py` decides where a region counts together.
"""

from headgate.clock import Clock
from headgate.limiter.algorithm import OVER
from headgate.limiter.counters import CounterTable, KeyCounter
from headgate.limiter.decision import (
    Charge,
    Decision,
    DecisionPath,
    Verdict,
    denied_before,
    denies,
    only_shadow_over,
    remember_denial,
)


class Engine:
    """Decides requests from the counters of this process alone."""

    def __init__(self, clock: Clock, *, max_cells: int) -> None:
        self.counters: CounterTable[KeyCounter] = CounterTable(max_cells)
        self._clock_ms = clock.now_ms
        self._now_ms = 0

    def sweep(self, max_steps: int) -> bool:
        """Drop expired counters, in a bounded slice; True while more are due."""
        return self.counters.sweep(self._now(), max_steps)

    def decide(self, charges: tuple[Charge, ...]) -> Decision:
        """Decide all charges of one request together: charge every one of them, or none."""
        now_ms = self._now()
        find, touch = self.counters.find, self.counters.touch
        counters: list[KeyCounter] = []
        outcomes: list[int] = []
        verdicts: list[Verdict] = []
        over = False
        for charge in charges:
            key, limit, algorithm = charge.key, charge.limit, charge.algorithm
            counter = find(key)
            if counter is None:
                counter = algorithm.new_counter(key, limit, now_ms)
                self.counters.add(counter, now_ms)
            else:
                touch(key)
            if now_ms < counter.deny_until_ms and denied_before(counter, charge):
                remaining = OVER
            else:
                remaining = algorithm.take(counter, limit, now_ms, charge.cost)
            counters.append(counter)
            outcomes.append(remaining)
            if remaining < 0:
                over = True
            else:
                verdicts.append((False, remaining, algorithm.reset_ms(counter, limit, now_ms)))
        if over:
            return self._decide_over(charges, counters, outcomes, now_ms)
        return Decision(True, DecisionPath.LOCAL, verdicts)

    def _now(self) -> int:
        # What was decided stays decided: a clock that goes back is taken to stand still.
        now_ms = self._clock_ms()
        if now_ms < self._now_ms:
            return self._now_ms
        self._now_ms = now_ms
        return now_ms

    def _decide_over(
        self, charges: tuple[Charge, ...], counters: list[KeyCounter], outcomes: list[int], now_ms: int
    ) -> Decision:
        """At least one charge does not fit: deny and release all, or admit in spite of it."""
        admitted = not denies(charges, outcomes)
        if not admitted:
            for charge, counter, remaining in zip(charges, counters, outcomes, strict=True):
                if remaining >= 0:
                    charge.algorithm.release(counter, charge.limit, charge.cost)
        path = DecisionPath.SHADOW if admitted and only_shadow_over(charges, outcomes) else DecisionPath.LOCAL
        verdicts: list[Verdict] = []
        ahead: dict[bytes, int] = {}
        for charge, counter, remaining in zip(charges, counters, outcomes, strict=True):
            limit, algorithm = charge.limit, charge.algorithm
            before = ahead.get(charge.key, 0)
            ahead[charge.key] = before + charge.cost
            if remaining >= 0:
                left = remaining if admitted else algorithm.remaining(counter, limit, now_ms)
                verdicts.append((False, left, algorithm.reset_ms(counter, limit, now_ms)))
                continue
            cached = now_ms < counter.deny_until_ms and denied_before(counter, charge)
            if cached and counter.deny_cost == charge.cost:
                retry_ms = counter.deny_until_ms - now_ms
            else:
                # The same key may stand in a request twice: then it is their sum that must fit.
                unpaid = 0 if admitted else before
                retry_ms = algorithm.retry_ms(counter, limit, now_ms, charge.cost + unpaid)
                if not cached and not unpaid:
                    remember_denial(counter, charge, now_ms + retry_ms)
            if cached and not admitted:
                path = DecisionPath.DENY_CACHE
            verdicts.append((True, 0, retry_ms))
        return Decision(admitted, path, verdicts)
