"""The decision engine of a node whose region counts together. No I/O, no timer: time is passed in.

A denial that follows from what is known needs nobody. An admission is made here while the view
is fresh, the remainder is above `P` and the grant covers it; else a shard decides, and the
request waits (waiting.py). (docs/convergence.md, sections 3 and 4.)

It relies on being called from one thread, on shards that answer or fail every question, and on
its caller to say when a waiting request's time is up.
"""

from collections.abc import Callable

from headgate.limiter.counters import CounterTable
from headgate.limiter.decision import Charge, Decision, DecisionPath, Verdict, denied_before, denies
from headgate.limiter.limit import Algorithm
from headgate.region.bucket_counter import SharedBucket
from headgate.region.counters import SharedCounter
from headgate.region.outcomes import COLD, NEAR, OVER, admitted, must_ask
from headgate.region.overflow import Overflow
from headgate.region.stats import RegionalStats
from headgate.region.verdicts import decision_of, denied_from_memory
from headgate.region.waiting import Leg, Region, Waiting
from headgate.region.window_counter import SharedWindow


class RegionalEngine:
    """Decides requests from the counters of one node. See the module for what it relies on."""

    def __init__(self, region: Region, *, monotonic: Callable[[], float], max_cells: int) -> None:
        self.counters: CounterTable[SharedCounter] = CounterTable(max_cells, _evictable)
        self.stats = RegionalStats()
        self._region = region
        self._overflow = Overflow()
        self._monotonic = monotonic

    def sweep(self, max_steps: int) -> bool:
        """Drop expired counters, in a bounded slice; True while more are due."""
        return self.counters.sweep(self._region.earliest_ms(), max_steps)

    def decide(self, charges: tuple[Charge, ...]) -> Decision | Waiting:
        """All or nothing: the decision, or a request that waits for shards."""
        now_s = self._monotonic()
        counters: list[SharedCounter] = []
        outcomes: list[int] = []
        local = True
        for charge in charges:
            counter = self._counter(charge)
            if counter is None:
                return self._unplaced(charges, counters, outcomes)
            outcome = self._try(counter, charge, now_s)
            local &= outcome >= 0
            counters.append(counter)
            outcomes.append(outcome)
        if not local:
            return self._not_local(tuple(map(Leg, charges, counters, outcomes)))
        verdicts: list[Verdict] = []
        for charge, counter, remaining in zip(charges, counters, outcomes, strict=True):
            counter.flush(remaining)
            reset_ms = charge.algorithm.reset_ms(counter, charge.limit, counter.shard.now_ms())
            verdicts.append((False, remaining, reset_ms))
        return Decision(True, DecisionPath.LOCAL, verdicts)

    def _try(self, counter: SharedCounter, charge: Charge, now_s: float) -> int:
        """Admit here if that is allowed: what remains, or why not (outcomes.py)."""
        limit = counter.limit = charge.limit
        now_ms = counter.advance(counter.shard.now_ms())
        if now_ms < counter.deny_until_ms and denied_before(counter, charge):
            return OVER
        missing = counter.missing(charge.cost)
        remaining = charge.algorithm.take(counter, limit, now_ms, missing)
        if remaining < 0:
            return OVER
        why = self._must_ask(counter, charge, missing, remaining, now_s)
        if why:
            charge.algorithm.release(counter, limit, missing)
            return why
        counter.spend(charge.cost, now_ms)
        return remaining

    def _must_ask(self, counter: SharedCounter, charge: Charge, missing: int, remaining: int, now_s: float) -> int:
        """Why the shard must be asked although the cost fits by what is known: COLD or NEAR; 0 if it need not."""
        limit = charge.limit
        if now_s >= counter.usable_until_s or not counter.shard.certain(limit.window_ms):
            return COLD
        if counter.credit_offered:
            return NEAR
        if not missing:
            return 0
        if remaining + missing <= limit.precision or counter.unacked + missing > counter.held(now_s):
            return NEAR
        return 0

    def _not_local(self, legs: tuple[Leg, ...]) -> Decision | Waiting:
        """Something is over, or must be asked for."""
        charges = tuple([leg.charge for leg in legs])
        if denies(charges, [OVER if leg.outcome == OVER else 0 for leg in legs]):
            return self._deny(legs)
        if not any(must_ask(leg.outcome) for leg in legs):
            for leg in legs:
                if admitted(leg.outcome):
                    leg.counter.flush(leg.outcome)
            return decision_of(legs, True, DecisionPath.LOCAL)
        waiting = Waiting(self._region, self.stats, self._monotonic, legs)
        decision = waiting.begin()
        return waiting if decision is None else decision

    def _deny(self, legs: tuple[Leg, ...]) -> Decision:
        """By what is known: nobody is asked, and nothing is charged."""
        cached = any(leg.outcome == OVER and denied_from_memory(leg) for leg in legs)
        for leg in legs:
            if admitted(leg.outcome):
                leg.counter.unspend(leg.charge.cost)
            elif must_ask(leg.outcome):
                leg.outcome = 0  # as far as this node knows it had room
        return decision_of(legs, False, DecisionPath.DENY_CACHE if cached else DecisionPath.LOCAL)

    def _counter(self, charge: Charge) -> SharedCounter | None:
        """The key's counter, as the most recently used one; None when there is no room for a new one."""
        counter = self.counters.find(charge.key)
        if counter is not None:
            self.counters.touch(charge.key)
            return counter
        counter = self._new_counter(charge)
        return counter if self.counters.add(counter, self._region.earliest_ms()) else None

    def component_name(self) -> bytes:
        """What a key that is created now calls its component."""
        return b"%s.%d" % (self._region.run, self.counters.stats.incarnation)

    def next_component_name(self) -> bytes:
        """The same for a counter that begins anew where it is."""
        self.counters.stats.restarted += 1
        return self.component_name()

    def _new_counter(self, charge: Charge) -> SharedCounter:
        shard = self._region.shard_of(charge.shard_key)
        # A key that went and comes back owns a new component: it can't start at 0 in the old one.
        component = self.component_name()
        now_ms = shard.now_ms()
        counter: SharedCounter
        if charge.limit.algorithm is Algorithm.GCRA:
            counter = SharedBucket(charge.key, component, shard, charge.limit)
        else:
            counter = SharedWindow(charge.key, component, shard, charge.limit, now_ms)
        counter.place = charge.shard_key
        return counter

    def _unplaced(self, charges: tuple[Charge, ...], counters: list[SharedCounter], outcomes: list[int]) -> Decision:
        """No room for a new key while every counter holds something unacknowledged: the policies decide."""
        self.stats.unplaced += 1
        for charge, counter, outcome in zip(charges, counters, outcomes, strict=False):
            if admitted(outcome):
                counter.unspend(charge.cost)
        over = [outcome == OVER for outcome in outcomes] + [False] * (len(charges) - len(outcomes))
        return self._overflow.decide(charges, tuple(over), self._region.earliest_ms())


def _evictable(counter: SharedCounter) -> bool:
    return not counter.unacked and not counter.pins
