"""The decision engine of a single node: charges in, one decision out. No I/O, no lock.

It promises all or nothing: a request is charged only if every enforced descriptor
admits it, and a denied request charges nothing. It relies on being called from one
thread, and on a clock that it asks once per request. Its counters are all there is to
know; `region/engine.py` decides where a region counts together.
"""

from typing import Final

from headgate.clock import Clock
from headgate.limiter.algorithm import OVER
from headgate.limiter.counters import CounterTable, KeyCounter
from headgate.limiter.decision import (
    Charge,
    Decision,
    DecisionPath,
    Kind,
    Verdict,
    denied_before,
    denies,
    only_shadow_over,
    remember_denial,
)

_new: Final = tuple.__new__
_LOCAL: Final = DecisionPath.LOCAL
_DENY_CACHE: Final = DecisionPath.DENY_CACHE
_TAKE: Final = Kind.TAKE


class Engine:
    """Decides requests from the counters of this process alone."""

    def __init__(self, clock: Clock, *, max_cells: int) -> None:
        self.counters: CounterTable[KeyCounter] = CounterTable(max_cells)
        self._clock_ms = clock.now_ms
        self._now_ms = 0

    def sweep(self, max_steps: int) -> bool:
        """Drop expired counters, in a bounded slice; True while more are due."""
        return self.counters.sweep(self._now(), max_steps)

    def quick(self, charge: Charge) -> Verdict | None:
        """One charge that is `quick`, if it fits or was denied before; None: `ask` must decide."""
        counter = self.counters.find(charge.key)
        if counter is None:
            return None
        now_ms = self._now()
        cost, limit, algorithm = charge.cost, charge.limit, charge.algorithm
        if now_ms < counter.deny_until_ms and denied_before(counter, charge):
            if cost != counter.deny_cost:
                return None
            self.counters.touch(charge.key)
            return True, 0, counter.deny_until_ms - now_ms
        remaining = algorithm.take(counter, limit, now_ms, cost)
        if remaining < 0:
            return None
        self.counters.touch(charge.key)
        return False, remaining, algorithm.reset_ms(counter, limit, now_ms)

    def decide(self, charges: tuple[Charge, ...]) -> Decision:
        """Decide all charges of one request together: charge every one of them, or none."""
        if len(charges) == 1 and charges[0].quick:
            verdict = self.quick(charges[0])
            if verdict is not None:
                over = verdict[0]
                return _new(Decision, (not over, _DENY_CACHE if over else _LOCAL, [verdict]))
        for charge in charges:
            if charge.kind is not _TAKE:
                return self.decide_late(charges)
        return self._decide_taking(charges)

    def _decide_taking(self, charges: tuple[Charge, ...]) -> Decision:
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

    def decide_late(self, charges: tuple[Charge, ...]) -> Decision:
        """Like `decide`, where some charges are late costs, looks or refunds (decision.py, `Kind`).

        Late costs are charged and refunds given back whatever the others say, and looks are never charged; the rest is
        charged together or not at all, and only if every late cost fitted and every look found room.
        """
        now_ms = self._now()
        # As `_decide_over` and all verdicts see it: of a late cost only whether there is room for one more unit.
        seen = tuple([charge.look for charge in charges])
        counters: list[KeyCounter] = []
        outcomes: list[int] = []
        for charge in charges:
            counter = self._counter(charge, now_ms)
            counters.append(counter)
            outcomes.append(self._late_outcome(counter, charge, now_ms))
        return self._decide_over(seen, counters, outcomes, now_ms)

    def uncharge(self, charges: tuple[Charge, ...]) -> None:
        """Undo costs that were charged, as far as they still count."""
        self.give_back(charges)

    def give_back(self, charges: tuple[Charge, ...]) -> None:
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
        """Give the cost back, as far as it still counts; what remains then."""
        limit, algorithm = charge.limit, charge.algorithm
        algorithm.take(counter, limit, now_ms, 0)  # comes to the time, and charges nothing
        algorithm.give_back(counter, limit, now_ms, charge.cost)
        counter.deny_until_ms = 0
        return algorithm.remaining(counter, limit, now_ms)

    def _late_outcome(self, counter: KeyCounter, charge: Charge, now_ms: int) -> int:
        """What remains of one charge's limit, or OVER; a late cost is charged, a look is not."""
        limit, algorithm = charge.limit, charge.algorithm
        if charge.kind is Kind.REFUND:
            return self._refund(counter, charge, now_ms)
        if charge.kind is not Kind.LATE and now_ms < counter.deny_until_ms and denied_before(counter, charge):
            return OVER
        remaining = algorithm.take(counter, limit, now_ms, charge.cost)
        if charge.kind is Kind.LATE and remaining < 0:
            algorithm.overdraw(counter, limit, now_ms, charge.cost)
            counter.deny_until_ms = 0  # it holds for longer now
        elif charge.kind is Kind.PEEK and remaining >= 0:
            algorithm.release(counter, limit, charge.cost)
            remaining += charge.cost
        return remaining

    def _counter(self, charge: Charge, now_ms: int) -> KeyCounter:
        """The key's counter, as the most recently used one."""
        counter = self.counters.find(charge.key)
        if counter is None:
            counter = charge.algorithm.new_counter(charge.key, charge.limit, now_ms)
            self.counters.add(counter, now_ms)
        else:
            self.counters.touch(charge.key)
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
        """Where a charge does not fit: deny and release all, or admit in spite of it. Late costs and looks stay."""
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
            cached = now_ms < counter.deny_until_ms and denied_before(counter, charge)
            # The same key may stand in a request twice: then it is their sum that must fit.
            unpaid = 0 if admitted else before
            if cached and not unpaid and counter.deny_cost == charge.cost:
                retry_ms = counter.deny_until_ms - now_ms
            else:
                retry_ms = algorithm.retry_ms(counter, limit, now_ms, charge.cost + unpaid)
                if not cached and not unpaid:
                    remember_denial(counter, charge, now_ms + retry_ms)
            if cached and not admitted:
                path = DecisionPath.DENY_CACHE
            verdicts.append((True, 0, retry_ms))
        return Decision(admitted, path, verdicts)
