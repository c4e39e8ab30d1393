"""The decision engine of a node whose region counts together. No I/O, no timer: time is passed in.

A denial that follows from what is known needs nobody. An admission is made here while the view
is fresh and the key's allowance covers it; else a shard decides, and the
request waits (waiting.py). (docs/convergence.md, sections 3 and 4.)

It relies on being called from one thread, on shards that answer or fail every question, and on
its caller to say when a waiting request's time is up.
"""

from collections.abc import Callable
from typing import Final

from headgate.limiter.counter_table import CounterTable
from headgate.limiter.decision import TAKE, Charge, Decision, DecisionPath, Kind, Verdict, denies
from headgate.limiter.limit import Algorithm
from headgate.region.bucket_counter import SharedBucket
from headgate.region.counters import SharedCounter
from headgate.region.leg import Leg
from headgate.region.outcomes import COLD, NEAR, OVER, admitted, must_ask
from headgate.region.overflow import Overflow
from headgate.region.refunds import DENIAL_MS
from headgate.region.stats import RegionalStats
from headgate.region.verdicts import admission_of, decision_of, denied_again, denied_from_memory
from headgate.region.waiting import Region, WaitingRequest, Waits
from headgate.region.window_counter import SharedWindow

GCRA: Final = Algorithm.GCRA
LOCAL: Final = DecisionPath.LOCAL
DENY_CACHE: Final = DecisionPath.DENY_CACHE


class RegionalEngine:
    """Decides requests from the counters of one node. See the module for what it relies on."""

    def __init__(self, region: Region, *, monotonic: Callable[[], float], max_cells: int) -> None:
        self.counters: CounterTable[SharedCounter] = CounterTable(max_cells, _evictable)
        self.stats = RegionalStats()
        self._region = region
        self._overflow = Overflow()
        self._monotonic = monotonic
        self._waits = Waits(region, self.stats, self._try_again)
        self._incarnation = -1
        self._component = b""

    def sweep(self, max_steps: int) -> bool:
        """Drop expired counters, in a bounded slice; True while more are due."""
        return self.counters.sweep(self._region.earliest_ms(), max_steps)

    def decide(self, charges: tuple[Charge, ...], caller: str = "") -> Decision | WaitingRequest:
        """Decide all charges of a request together: the decision, or a request that waits for shards.

        A late cost is in this node's total at once, whatever the others say, and is reported as any total: it takes
        no allowance and waits for nobody. A peek is decided as a cost of 1 would be, and charges nothing. A refund is
        demanded whatever the others say, and denies nothing. (limiter/decision.py, `Kind`)
        """
        now_s = self._monotonic()
        decision = self._from_memory(charges, now_s)
        if decision is not None:
            return decision
        legs: list[Leg] = []
        for charge in charges:
            leg = self._leg(charge, now_s)
            if leg is None:
                return self._unplaced(charges, legs, now_s)
            legs.append(leg)
        return self._conclude(legs, now_s, caller)

    def _from_memory(self, charges: tuple[Charge, ...], now_s: float) -> Decision | None:
        """Decide by what is kept with the keys: admit all charges out of their allowances, or deny the only one as
        before. None, and nothing charged: the plain rule decides."""
        charge, table = charges[0], self.counters
        counter = table.find(charge.key)
        if counter is None:
            return None
        if len(charges) == 1 and charge.plain and (counter.deny_until_ms or counter.pause is not None):
            denied = denied_again(counter, charge, now_s)
            if denied is not None:
                return Decision(False, DENY_CACHE, [denied])
        verdicts: list[Verdict] = []
        counters: list[SharedCounter] = []
        found: SharedCounter | None = counter
        shard, now_ms = counter.shard, counter.shard.time.at_ms(now_s)
        for charge in charges:
            counter = table.find(charge.key) if found is None else found
            if counter is None or not charge.plain:
                break
            found = None
            if not counter.flush_due_s:
                # A use counts when it is the first one since a report: every 2 s at the latest.
                table.order.touch(counter)
            if counter.shard is not shard:
                shard, now_ms = counter.shard, counter.shard.time.at_ms(now_s)
            verdict = counter.from_allowance(charge, now_ms, now_s)
            if verdict is None:
                break
            counters.append(counter)
            verdicts.append(verdict)
        else:
            for counter in counters:
                if not counter.flush_due_s or counter.allowance < counter.flush_below:
                    counter.flush()
            return Decision(True, LOCAL, verdicts)
        for counter, charge in zip(counters, charges, strict=False):
            counter.return_to_allowance(charge)
        return None

    def _conclude(self, legs: list[Leg], now_s: float, caller: str) -> Decision | WaitingRequest:
        """Decide by the legs' outcomes; where a shard must be asked and nothing denies, the request waits."""
        over = asks = False
        for leg in legs:
            if leg.outcome == OVER:
                over = True
            elif must_ask(leg.outcome):
                asks = True
        if over:
            charges = tuple([leg.charge for leg in legs])
            if denies(charges, [OVER if leg.outcome == OVER else 0 for leg in legs]):
                return self._deny(legs, now_s)
        if asks:
            waiting = WaitingRequest(self._waits, legs, now_s, caller)
            return waiting.begin() or waiting
        for leg in legs:
            if admitted(leg.outcome):
                leg.counter.flush()
        if not over:
            verdicts = [admission_of(leg, leg.outcome, leg.counter.shard.time.at_ms(now_s)) for leg in legs]
            return Decision(True, LOCAL, verdicts)
        return decision_of(legs, True, LOCAL, now_s)

    def _deny(self, legs: list[Leg], now_s: float) -> Decision:
        """Deny by what is known: nobody is asked, and nothing is charged."""
        cached = False
        for leg in legs:
            if leg.outcome == OVER:
                cached = cached or denied_from_memory(leg, now_s)
            elif must_ask(leg.outcome):
                leg.outcome = 0  # as far as this node knows it had room
            elif leg.takes:
                leg.counter.unspend(leg.charge.cost)
        return decision_of(legs, False, DENY_CACHE if cached else LOCAL, now_s)

    # One charge

    def _leg(self, charge: Charge, now_s: float) -> Leg | None:
        """Do with one charge what its kind asks for, as far as that is possible here; None: its key has no room."""
        counter, kind = self._counter(charge, now_s), charge.kind
        if counter is None:
            return None
        if kind is TAKE:
            counter.ask(charge.cost)
            return Leg(charge, counter, self._take(counter, charge, now_s))
        if kind is Kind.REFUND:
            return Leg(charge, counter, self._refund(counter, charge, now_s))
        if kind is Kind.LATE:
            return Leg(charge.peek, counter, self._late(counter, charge, now_s))
        return Leg(charge, counter, self._peek(counter, charge, now_s))

    def _try_again(self, leg: Leg, now_s: float) -> int:
        """Decide a leg that had to ask by what is known now."""
        decide = self._take if leg.takes else self._peek
        return decide(leg.counter, leg.charge, now_s)

    def _take(self, counter: SharedCounter, charge: Charge, now_s: float) -> int:
        """Admit the cost here if that is allowed: return what remains, or why not (outcomes.py)."""
        cost = charge.cost
        now_ms = counter.come_to(charge.limit, now_s)
        room = self._room(counter, charge, now_ms, now_s)
        if room < 0:
            return room
        missing = counter.missing(cost)
        counter.spend(cost, missing, now_ms)
        return room - missing

    def _peek(self, counter: SharedCounter, charge: Charge, now_s: float) -> int:
        """Return what remains if one more unit may be admitted here, or why not (outcomes.py)."""
        return self._room(counter, charge, counter.come_to(charge.limit, now_s), now_s)

    def _room(self, counter: SharedCounter, charge: Charge, now_ms: int, now_s: float) -> int:
        """Return the room on a key if the cost may be admitted here, or why not: the plain rule."""
        cost, limit = charge.cost, charge.limit
        if counter.deny_until_ms and counter.denies(cost, limit, now_ms):
            return OVER
        missing = counter.missing(cost)
        if counter.is_paused(missing, now_s):
            return OVER
        room = counter.room(now_ms)
        if room < missing:
            return COLD if limit.refund and _may_have_room(counter, now_s) else OVER
        if counter.pause is None and charge.kind is Kind.PEEK and limit.overdraft:
            missing = 0  # a look spends nothing: far from the limit what is known decides it while that is new
        return self._must_ask(counter, missing, now_s) or room

    def _must_ask(self, counter: SharedCounter, missing: int, now_s: float) -> int:
        """Return why the shard must be asked although the cost fits by what is known: COLD or NEAR; 0: it need not."""
        if now_s >= counter.usable_until_s or not counter.shard.time.certain(counter.limit.window_ms):
            return COLD
        if counter.credit_offered:
            return NEAR
        return 0 if missing <= counter.spendable(now_s) else NEAR

    def _late(self, counter: SharedCounter, charge: Charge, now_s: float) -> int:
        """Charge a late cost here and now; return what remains, or OVER if it did not fit by what is known."""
        now_ms = counter.come_to(charge.limit, now_s)
        cost = counter.countable(charge.cost, now_ms)
        missing = counter.missing(cost)
        remaining = counter.room(now_ms) - missing
        if remaining >= 0:
            counter.spend(cost, missing, now_ms)
        else:
            counter.overdraw(cost, missing, now_ms)
            counter.forget_denial()  # it holds for longer now
        counter.flush()
        return remaining if remaining >= 0 and cost == charge.cost else OVER

    def _refund(self, counter: SharedCounter, charge: Charge, now_s: float) -> int:
        """Demand the cost back: the shard says how much of it there is to give. Returns what remains meanwhile."""
        now_ms = counter.come_to(charge.limit, now_s)
        counter.demand(charge.cost, now_ms, now_s)
        return max(0, counter.room(now_ms))

    def uncharge(self, charges: tuple[Charge, ...]) -> None:
        """Undo costs that came to less than was charged: a refund, where the limit has them; else, of what this node
        charged itself, credit again, which pays for the next admission here."""
        now_s = self._monotonic()
        for charge in charges:
            counter = self._counter(charge, now_s) if charge.limit.refund else self.counters.find(charge.key)
            if counter is not None and charge.limit.refund:
                self._refund(counter, charge, now_s)
            elif counter is not None:
                counter.uncharge(charge.cost, counter.come_to(charge.limit, now_s))

    # Counters

    def _counter(self, charge: Charge, now_s: float) -> SharedCounter | None:
        """Return the key's counter, as the most recently used one; None when there is no room for a new one."""
        counter = self.counters.find(charge.key)
        if counter is not None:
            self.counters.order.touch(counter)
            return counter
        counter = self._new_counter(charge, now_s)
        if self.counters.put(counter):
            return counter
        # In a full table, what may go is what has expired by every shard's time.
        return counter if self.counters.add(counter, self._region.earliest_ms()) else None

    def reset_to(self, key: bytes, number: int) -> None:
        """Have the key's counter begin anew, if it is of an earlier reset. One that is not there will hear of it."""
        counter = self.counters.find(key)
        if counter is not None and counter.reset < number:
            counter.reset_to(number)

    def component_name(self) -> bytes:
        """Return the name of the component of a key that is created now: one object for all keys of an incarnation."""
        incarnation = self.counters.stats.incarnation
        if incarnation != self._incarnation:
            self._incarnation = incarnation
            self._component = b"%s.%d" % (self._region.run, incarnation)
        return self._component

    def next_component_name(self) -> bytes:
        """Return a new name for the component of a counter that begins anew where it is."""
        self.counters.stats.restarted += 1
        self.counters.stats.incarnation += 1
        return self.component_name()

    def _new_counter(self, charge: Charge, now_s: float) -> SharedCounter:
        place, limit = charge.shard_key, charge.limit
        shard = self._region.shard_of(place)
        # A key that went and comes back owns a new component: it can't start at 0 in the old one.
        component = self.component_name()
        if limit.algorithm is GCRA:
            return SharedBucket(charge.key, place, component, shard, limit)
        return SharedWindow(charge.key, place, component, shard, limit, shard.time.at_ms(now_s))

    def _unplaced(self, charges: tuple[Charge, ...], placed: list[Leg], now_s: float) -> Decision:
        """Let the policies decide: a new key has no room, because every counter holds something unacknowledged.

        Late costs and refunds of keys that have room are charged and demanded there, whatever the others come to.
        """
        self.stats.unplaced += 1
        for leg in placed:
            if leg.takes and admitted(leg.outcome):
                leg.counter.unspend(leg.charge.cost)
        over = [leg.outcome == OVER for leg in placed]
        for charge in charges[len(placed) :]:
            late = None if charge.kind is TAKE else self._leg(charge, now_s)
            over.append(late is not None and late.outcome == OVER)
        return self._overflow.decide(charges, tuple(over), self._region.earliest_ms())


def _evictable(counter: SharedCounter) -> bool:
    return not counter.unreported and not counter.pins


def _may_have_room(counter: SharedCounter, now_s: float) -> bool:
    """Return whether something may have been given back since the shard was last asked: then it is asked again."""
    if not counter.limit.requests_per_unit or not counter.shard.available:
        return False
    return counter.refunds is None or now_s >= counter.refunds.asked_s + DENIAL_MS / 1000
