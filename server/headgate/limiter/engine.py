"""The decision engine of a single node: charges in, one decision out. No I/O, no lock.

It promises all or nothing: a request is charged only if every enforced descriptor
admits it, and a denied request charges nothing. It relies on being called from one
thread, and on a clock that it asks once per request. Its counters are all there is to
know; `region/engine.py` decides where a region counts together.
"""

from headgate.clock import Clock
from headgate.limiter.algorithm import OVER
from headgate.limiter.counter_table import CounterTable
from headgate.limiter.counters import KeyCounter
from headgate.limiter.decision import (
    Charge,
    Decision,
    DecisionPath,
    Kind,
    Verdict,
    denies,
    only_shadow_over,
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

    def decide(self, charges: tuple[Charge, ...], caller: str = "") -> Decision:
        """Decide all charges of one request together: charge every one of them, or none.

        Late costs are charged and refunds given back whatever the others say, and peeks are never charged; the rest is
        charged only if every late cost fitted and every peek found room (decision.py, `Kind`).
        """
        now_ms = self._now()
        counters: list[KeyCounter] = []
        outcomes: list[int] = []
        verdicts: list[Verdict] = []
        fits = True
        for charge in charges:
            counter = self._counter(charge, now_ms)
            remaining = self._outcome(counter, charge, now_ms)
            counters.append(counter)
            outcomes.append(remaining)
            if remaining < 0:
                fits = False
            else:
                verdicts.append((False, remaining, charge.algorithm.reset_ms(counter, charge.limit, now_ms)))
        if fits:
            return Decision(True, DecisionPath.LOCAL, verdicts)
        # As verdicts see it: of a late cost only whether there is room for one more unit.
        return self._decide_over(tuple([charge.peek for charge in charges]), counters, outcomes, now_ms)

    def uncharge(self, charges: tuple[Charge, ...]) -> None:
        """Take costs that were charged out of their counters again, as far as they still count there."""
        now_ms = self._now()
        for charge in charges:
            counter = self.counters.find(charge.key)
            if counter is not None:
                self._refund(counter, charge, now_ms)

    def reset(self, key: bytes) -> bool:
        """Forget all that was counted on a key, at once. False: nothing was."""
        return self.counters.drop(key)

    def _refund(self, counter: KeyCounter, charge: Charge, now_ms: int) -> int:
        """Give the cost back, as far as it still counts; return what remains then."""
        limit, algorithm = charge.limit, charge.algorithm
        algorithm.room(counter, limit, now_ms)  # comes to the time
        algorithm.refund(counter, limit, now_ms, charge.cost)
        counter.forget_denial()
        return algorithm.remaining(counter, limit, now_ms)

    def _outcome(self, counter: KeyCounter, charge: Charge, now_ms: int) -> int:
        """Return what remains of one charge's limit, or OVER; a late cost is charged in any case, a peek is not."""
        kind, cost, limit, algorithm = charge.kind, charge.cost, charge.limit, charge.algorithm
        if kind is Kind.REFUND:
            return self._refund(counter, charge, now_ms)
        if kind is not Kind.LATE and counter.denies(cost, limit, now_ms):
            return OVER
        if kind is Kind.PEEK:
            room = algorithm.room(counter, limit, now_ms)
            return room if room >= cost else OVER
        remaining = algorithm.take(counter, limit, now_ms, cost)
        if remaining < 0 and kind is Kind.LATE:
            algorithm.overdraw(counter, limit, now_ms, cost)
            counter.forget_denial()  # it holds for longer now
        return remaining

    def _counter(self, charge: Charge, now_ms: int) -> KeyCounter:
        """Return the key's counter, as the most recently used one."""
        counter = self.counters.find(charge.key)
        if counter is None:
            counter = charge.algorithm.new_counter(charge.key, charge.limit, now_ms)
            self.counters.add(counter, now_ms)
        else:
            self.counters.order.touch(counter)
        return counter

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
        """Deny and release all where a charge does not fit, or admit in spite of it. Late costs and peeks stay."""
        admitted = not denies(charges, outcomes)
        if not admitted:
            for charge, counter, remaining in zip(charges, counters, outcomes, strict=True):
                if remaining >= 0 and charge.kind is Kind.TAKE:
                    charge.algorithm.release(counter, charge.limit, charge.cost)
        shadow = admitted and min(outcomes) < 0 and only_shadow_over(charges, outcomes)
        path = DecisionPath.SHADOW if shadow else DecisionPath.LOCAL
        verdicts: list[Verdict] = []
        ahead: dict[bytes, int] = {}
        for charge, counter, remaining in zip(charges, counters, outcomes, strict=True):
            limit, algorithm = charge.limit, charge.algorithm
            before = ahead.get(charge.key, 0)
            ahead[charge.key] = before + (charge.cost if charge.kind is Kind.TAKE else 0)
            if remaining >= 0:
                left = remaining if admitted else algorithm.remaining(counter, limit, now_ms)
                verdicts.append((False, left, algorithm.reset_ms(counter, limit, now_ms)))
                continue
            cached = counter.denies(charge.cost, limit, now_ms)
            # The same key may stand in a request twice: then it is their sum that must fit.
            unpaid = 0 if admitted else before
            if cached and not unpaid and counter.deny_cost == charge.cost:
                retry_ms = counter.deny_until_ms - now_ms
            else:
                retry_ms = algorithm.retry_ms(counter, limit, now_ms, charge.cost + unpaid)
                if not cached and not unpaid:
                    counter.keep_denial(charge.cost, limit, now_ms + retry_ms)
            if cached and not admitted:
                path = DecisionPath.DENY_CACHE
            verdicts.append((True, 0, retry_ms))
        return Decision(admitted, path, verdicts)
