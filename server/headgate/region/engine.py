"""The decision engine of a node whose region counts together. No I/O, no timer: time is passed in.

A denial that follows from what is known needs nobody. An admission is made here while the view
is fresh, the remainder is above `P` and the grant covers it; else a shard decides, and the
request waits (waiting.py). (docs/convergence.md, sections 3 and 4.)

It relies on being called from one thread, on shards that answer or fail every question, and on
its caller to say when a waiting request's time is up.
"""

from collections.abc import Callable

from headgate.limiter.counters import CounterTable
from headgate.limiter.decision import Charge, Decision, DecisionPath, Kind, Verdict, denied_before, denies
from headgate.limiter.limit import Algorithm
from headgate.region import lane
from headgate.region.alone import Alone
from headgate.region.bucket_counter import SharedBucket
from headgate.region.counters import SharedCounter
from headgate.region.outcomes import COLD, NEAR, OVER, admitted, must_ask
from headgate.region.overflow import Overflow
from headgate.region.refunds import DENIAL_MS
from headgate.region.stats import RegionalStats
from headgate.region.turns import note_near
from headgate.region.verdicts import decision_of, denial, denied_from_memory
from headgate.region.waiting import Asking, FreeLeg, Leg, Region, Waiting
from headgate.region.window_counter import SharedWindow


class RegionalEngine:
    """Decides requests from the counters of one node. See the module for what it relies on."""

    def __init__(self, region: Region, *, monotonic: Callable[[], float], max_cells: int) -> None:
        self.counters: CounterTable[SharedCounter] = CounterTable(max_cells, _evictable)
        self.stats = RegionalStats()
        self._region = region
        self._overflow = Overflow()
        self._monotonic = monotonic
        self._asking = Asking(region, self.stats, monotonic, self._try_again)
        self._incarnation = -1
        self._component = b""

    def sweep(self, max_steps: int) -> bool:
        """Drop expired counters, in a bounded slice; True while more are due."""
        return self.counters.sweep(self._region.earliest_ms(), max_steps)

    def decide(self, charges: tuple[Charge, ...]) -> Decision | Waiting | Alone:
        """All or nothing: the decision, or a request that waits for shards.

        By the lanes where they are open, else by the plain rule.
        """
        if len(charges) == 1:
            return self.decide_one(charges[0])
        verdicts = lane.through_all(self.counters, charges, self._monotonic())
        if verdicts is not None:
            return Decision(True, DecisionPath.LOCAL, verdicts)
        return self._ask(self._plain(charges))

    def _ask(self, decided: Decision | tuple[Leg, ...]) -> Decision | Waiting:
        """Ask for what is not decided yet."""
        if isinstance(decided, Decision):
            return decided
        waiting = Waiting(self._asking, decided, self._monotonic())
        decision = waiting.begin()
        return waiting if decision is None else decision

    def quick(self, charge: Charge) -> Verdict | None:
        """One charge by what is kept with its key, its free lane or its last denial; None: `decide` must.

        For charges that are `quick` only, and for requests that consist of one. It is noted as a use of the key only
        when its lane is opened, every 2 s at the latest; and what denies is kept anyway.
        """
        counter: SharedCounter | None = charge.counter
        if counter is None or counter.wheel_slot is None:
            counter = charge.counter = self.counters.find(charge.key)
            if counter is None:
                return None
        now_s = self._monotonic()
        return self._through_lane(counter, charge, now_s) or self._denied_again(counter, charge, now_s)

    def _through_lane(self, counter: SharedCounter, charge: Charge, now_s: float) -> Verdict | None:
        """Admit it through the key's lane, which is opened for it if that is possible."""
        if not counter.lane_left:
            if not lane.open_unused(counter, charge, now_s):
                return None
            self.counters.touch(counter.key)
        return lane.through(counter, charge, now_s)

    def _denied_again(self, counter: SharedCounter, charge: Charge, now_s: float) -> Verdict | None:
        """A charge that is `quick`, denied as the same one was before, or because it is not the node's turn to ask.

        As the plain rule would. None, and nothing noted: that must decide.
        """
        limit, turns = charge.limit, counter.turns
        known = counter.deny_until_ms and charge.cost == counter.deny_cost and limit is counter.deny_limit
        if (not known and turns is None) or counter.limit is not limit:
            return None
        now_ms = counter.advance(counter.shard.time.at_ms(now_s))
        turns = counter.turns  # gone, if the counter has begun anew
        denied = known and now_ms < counter.deny_until_ms
        if turns is None:
            return (True, 0, counter.deny_until_ms - now_ms) if denied else None
        waits = turns.denies(counter, counter.missing(charge.cost), now_s)
        if not denied and not waits:
            return None
        turns.count(charge.cost, now_s)
        return denial(charge, counter, now_ms, turns.left_ms(now_s) if waits else 0)

    def quick_all(self, charges: tuple[Charge, ...]) -> list[Verdict] | None:
        """All charges of a request through their lanes; None, and nothing charged: `decide` must."""
        return lane.through_all(self.counters, charges, self._monotonic(), kept=True)

    def _plain(self, charges: tuple[Charge, ...]) -> Decision | tuple[Leg, ...]:
        """The decision, or the legs of which some must be asked for; what was admitted is charged."""
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
            verdicts.append(self._admitted(counter, charge, remaining, now_s))
        return Decision(True, DecisionPath.LOCAL, verdicts)

    def decide_one(self, charge: Charge) -> Decision | Waiting | Alone:
        """`decide` for the usual request, which has one charge."""
        now_s = self._monotonic()
        counter = self.counters.find(charge.key)
        if counter is None:
            counter = self._new_counter(charge, now_s)
            if not self.counters.put(counter) and not self._make_room_for(counter):
                return self._unplaced((charge,), [], [])
            outcome = COLD if counter.fits_when_new(charge.cost) else self._try(counter, charge, now_s)
        else:
            verdict = self._through_lane(counter, charge, now_s) if charge.quick else None
            if verdict is not None:
                return Decision(True, DecisionPath.LOCAL, [verdict])
            self.counters.touch(charge.key)
            verdict = self._denied_again(counter, charge, now_s) if charge.quick else None
            if verdict is not None:
                return Decision(False, DecisionPath.DENY_CACHE, [verdict])
            outcome = self._try(counter, charge, now_s)
        if outcome >= 0:
            return Decision(True, DecisionPath.LOCAL, [self._admitted(counter, charge, outcome, now_s)])
        if outcome == OVER:
            return self._ask(self._not_local((Leg(charge, counter, outcome),)))
        alone = Alone(self._asking, charge, counter, outcome, now_s)
        decision = alone.begin()
        return alone if decision is None else decision

    def _admitted(self, counter: SharedCounter, charge: Charge, remaining: int, now_s: float) -> Verdict:
        """What follows from an admission here: a report, and if the key is in use a lane."""
        in_use = counter.flush_due_s
        counter.flush(remaining)
        if in_use:
            lane.open_lane(counter, remaining, now_s)
        return False, remaining, charge.algorithm.reset_ms(counter, charge.limit, counter.shard.now_ms())

    def _try(self, counter: SharedCounter, charge: Charge, now_s: float) -> int:
        """Admit here if that is allowed: what remains, or why not (outcomes.py)."""
        limit = counter.limit = charge.limit
        now_ms = counter.advance(counter.shard.now_ms())
        turns = counter.turns
        if turns is not None:
            turns.count(charge.cost, now_s)
        if now_ms < counter.deny_until_ms and denied_before(counter, charge):
            return OVER
        missing = counter.missing(charge.cost)
        if turns is not None and turns.denies(counter, missing, now_s):
            return OVER
        remaining = charge.algorithm.take(counter, limit, now_ms, missing)
        if remaining < 0:
            return COLD if limit.refund and _may_have_room(counter, now_s) else OVER
        why = self._must_ask(counter, charge, missing, remaining, now_s)
        if why:
            charge.algorithm.release(counter, limit, missing)
            if why == NEAR:
                note_near(counter, charge.cost, now_s)
            return why
        counter.spend(charge.cost, now_ms)
        return remaining

    def give_back(self, charges: tuple[Charge, ...]) -> None:
        """What was charged and came to less: a refund, where the limit has them; else, of what this node charged
        itself, credit again, which pays for the next here."""
        for charge in charges:
            counter = self._counter(charge) if charge.limit.refund else self.counters.find(charge.key)
            if counter is not None and charge.limit.refund:
                self._refund(counter, charge)
            elif counter is not None:
                counter.limit = charge.limit
                counter.give_back(charge.cost, counter.advance(counter.shard.now_ms()))
                counter.deny_until_ms = 0

    def decide_late(self, charges: tuple[Charge, ...]) -> Decision | Waiting:
        """Like `decide`, where some charges are late costs, looks or refunds (limiter/decision.py, `Kind`).

        A late cost is in this node's total at once, whatever the others say, and is reported as any total: it takes
        no grant and waits for nobody. A look is decided as a cost of 1 would be, and charges nothing. A refund is
        demanded whatever the others say, and denies nothing.
        """
        now_s = self._monotonic()
        legs: list[Leg | None] = [self._late_leg(charge, now_s) for charge in charges]
        placed = [leg for leg in legs if leg is not None]
        if len(placed) < len(charges):
            return self._unplaced_late(charges, legs)
        if min([leg.outcome for leg in placed]) < 0:
            return self._ask(self._not_local(tuple(placed)))
        for leg in placed:
            leg.counter.flush(leg.outcome)
        return decision_of(placed, True, DecisionPath.LOCAL, now_s)

    def _late_leg(self, charge: Charge, now_s: float) -> Leg | None:
        """None: there is no room for the key."""
        counter = self._counter(charge)
        if counter is None:
            return None
        if charge.kind is Kind.TAKE:
            return Leg(charge, counter, self._try(counter, charge, now_s))
        if charge.kind is Kind.REFUND:
            self._refund(counter, charge)
            return FreeLeg(charge, counter, 0)
        outcome = self._late(counter, charge) if charge.kind is Kind.LATE else self._look(counter, charge, now_s)
        return FreeLeg(charge.look, counter, outcome)

    def _try_again(self, leg: Leg, now_s: float) -> int:
        """A leg that must ask, by what is known now."""
        decide = self._try if leg.takes else self._look
        return decide(leg.counter, leg.charge, now_s)

    def _late(self, counter: SharedCounter, charge: Charge) -> int:
        """Charge it here and now; what remains, or OVER if it did not fit by what is known."""
        limit = counter.limit = charge.limit
        now_ms = counter.advance(counter.shard.now_ms())
        cost = counter.countable(charge.cost, now_ms)
        missing = counter.missing(cost)
        remaining = charge.algorithm.take(counter, limit, now_ms, missing)
        if remaining < 0:
            charge.algorithm.overdraw(counter, limit, now_ms, missing)
            counter.deny_until_ms = 0  # a denial holds for longer now
        counter.spend(cost, now_ms)
        counter.flush(max(0, remaining))
        return remaining if cost == charge.cost else OVER

    def _refund(self, counter: SharedCounter, charge: Charge) -> None:
        """Demand it back, whatever else the request comes to. The shard says how much of it there is to give."""
        counter.limit = charge.limit
        counter.demand(charge.cost, counter.advance(counter.shard.now_ms()), self._monotonic())

    def _look(self, counter: SharedCounter, look: Charge, now_s: float) -> int:
        """What remains if one more unit may be admitted here, or why not (outcomes.py)."""
        limit = counter.limit = look.limit
        now_ms = counter.advance(counter.shard.now_ms())
        if now_ms < counter.deny_until_ms and denied_before(counter, look):
            return OVER
        missing = counter.missing(look.cost)
        if counter.turns is not None and counter.turns.denies(counter, missing, now_s):
            return OVER
        remaining = look.algorithm.take(counter, limit, now_ms, missing)
        if remaining < 0:
            return COLD if limit.refund and _may_have_room(counter, now_s) else OVER
        look.algorithm.release(counter, limit, missing)
        return self._must_ask(counter, look, missing, remaining, now_s) or remaining + missing

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

    def _not_local(self, legs: tuple[Leg, ...]) -> Decision | tuple[Leg, ...]:
        """Something is over, or must be asked for."""
        charges = tuple([leg.charge for leg in legs])
        if denies(charges, [OVER if leg.outcome == OVER else 0 for leg in legs]):
            return self._deny(legs)
        if not any(must_ask(leg.outcome) for leg in legs):
            for leg in legs:
                if admitted(leg.outcome):
                    leg.counter.flush(leg.outcome)
            return decision_of(legs, True, DecisionPath.LOCAL, self._monotonic())
        return legs

    def _deny(self, legs: tuple[Leg, ...]) -> Decision:
        """By what is known: nobody is asked, and nothing is charged."""
        cached = any(leg.outcome == OVER and denied_from_memory(leg, self._monotonic()) for leg in legs)
        for leg in legs:
            if admitted(leg.outcome):
                if leg.takes:
                    leg.counter.unspend(leg.charge.cost)
            elif must_ask(leg.outcome):
                leg.outcome = 0  # as far as this node knows it had room
        path = DecisionPath.DENY_CACHE if cached else DecisionPath.LOCAL
        return decision_of(legs, False, path, self._monotonic())

    def _counter(self, charge: Charge) -> SharedCounter | None:
        """The key's counter, as the most recently used one; None when there is no room for a new one."""
        counter = self.counters.find(charge.key)
        if counter is not None:
            self.counters.touch(charge.key)
            return counter
        counter = self._new_counter(charge, self._monotonic())
        return counter if self.counters.put(counter) or self._make_room_for(counter) else None

    def _make_room_for(self, counter: SharedCounter) -> bool:
        """Put a new counter in another's place. False: there is none to be had."""
        # What may go is what has expired by every shard's time.
        return self.counters.add(counter, self._region.earliest_ms())

    def reset_to(self, key: bytes, number: int) -> None:
        """The key was reset: a counter of an earlier reset begins anew. One that is not there will hear of it."""
        counter = self.counters.find(key)
        if counter is not None and counter.reset < number:
            counter.reset_to(number)

    def component_name(self) -> bytes:
        """What a key that is created now calls its component: one object for all keys of an incarnation."""
        incarnation = self.counters.stats.incarnation
        if incarnation != self._incarnation:
            self._incarnation = incarnation
            self._component = b"%s.%d" % (self._region.run, incarnation)
        return self._component

    def next_component_name(self) -> bytes:
        """The same for a counter that begins anew where it is."""
        self.counters.stats.restarted += 1
        self.counters.stats.incarnation += 1
        return self.component_name()

    def _new_counter(self, charge: Charge, now_s: float) -> SharedCounter:
        place, limit = charge.shard_key, charge.limit
        shard = self._region.shard_of(place)
        # A key that went and comes back owns a new component: it can't start at 0 in the old one.
        component = self._component
        if self.counters.stats.incarnation != self._incarnation:
            component = self.component_name()
        counter: SharedCounter
        if limit.algorithm is Algorithm.GCRA:
            counter = SharedBucket(charge.key, component, shard, limit)
        else:
            counter = SharedWindow(charge.key, component, shard, limit, shard.time.at_ms(now_s))
        counter.place = place
        return counter

    def _unplaced(self, charges: tuple[Charge, ...], counters: list[SharedCounter], outcomes: list[int]) -> Decision:
        """No room for a new key while every counter holds something unacknowledged: the policies decide."""
        self.stats.unplaced += 1
        for charge, counter, outcome in zip(charges, counters, outcomes, strict=False):
            if admitted(outcome):
                counter.unspend(charge.cost)
        over = [outcome == OVER for outcome in outcomes] + [False] * (len(charges) - len(outcomes))
        return self._overflow.decide(charges, tuple(over), self._region.earliest_ms())

    def _unplaced_late(self, charges: tuple[Charge, ...], legs: list[Leg | None]) -> Decision:
        """The same for `decide_late`: a late cost counts with its own key if that has room, else with the others'."""
        self.stats.unplaced += 1
        for leg in legs:
            if leg is not None and leg.takes and admitted(leg.outcome):
                leg.counter.unspend(leg.charge.cost)
        over = tuple([leg is not None and leg.outcome == OVER for leg in legs])
        return self._overflow.decide(charges, over, self._region.earliest_ms())


def _evictable(counter: SharedCounter) -> bool:
    return not counter.unreported and not counter.pins


def _may_have_room(counter: SharedCounter, now_s: float) -> bool:
    """Where what was charged may be given back, what is known denies only while it is new; then the shard is asked."""
    if not counter.limit.requests_per_unit or not counter.shard.available:
        return False
    return counter.refunds is None or now_s >= counter.refunds.asked_s + DENIAL_MS / 1000
