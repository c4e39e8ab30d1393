"""A request that must ask shards before it is decided: its legs, its questions, its end.

A leg is one charge of the request. What may be admitted here is reserved at once; what a shard
must decide is asked, and reserved as the answers come. Then all legs are committed together, or
all are released: there is no second wait. (docs/convergence.md, section 3.)

No I/O and no timer: shards are asked through `Shard`, and whoever called the engine says when
the time is up. A question is answered, failed, or left over when the time is up, once.

Most requests that wait have one charge, and it is charged. They do so in one object (alone.py); this is what they
would do here.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from headgate.limiter.algorithm import OVER
from headgate.limiter.decision import Charge, Decision, DecisionPath, denies
from headgate.origin.protocol import PEEK, Answer, ChargeRequest
from headgate.region import policy
from headgate.region.counters import Hold, SharedCounter
from headgate.region.outcomes import NEAR, admitted, must_ask
from headgate.region.shard import Shard
from headgate.region.stats import WAIT_BOUNDS_S, RegionalStats
from headgate.region.verdicts import decision_of

OnDecided = Callable[[Decision], None]
Handed = tuple[OnDecided, Decision]
"""A decision that is still to be handed on, and to whom."""
Now = tuple[float, int]
"""One instant: by the monotonic clock, in seconds, and by the shard's, in milliseconds."""


def nobody(_decision: Decision) -> None:
    """Until somebody says whom the decision is for."""


class Leg:
    """One charge of a request: on which counter, what has become of it, and what it holds meanwhile."""

    __slots__ = ("charge", "counter", "hold", "outcome")

    def __init__(self, charge: Charge, counter: SharedCounter, outcome: int) -> None:
        self.charge = charge
        self.counter = counter
        self.outcome = outcome
        """What remains, or one of outcomes.py."""
        self.hold: Hold | None = None

    takes = True
    """Whether the request's admission charges it: then it is held until all is decided."""


class FreeLeg(Leg):
    """A look, or a late cost that has been charged already: nothing hangs on the request's admission."""

    __slots__ = ()
    takes = False


class Region(Protocol):
    """What the engine and its waiting requests need of the region."""

    run: bytes
    """This run of this node: the owner of its components."""
    live_nodes: int
    """How many nodes the region has, as last heard."""

    def shard_of(self, key: bytes) -> Shard:
        """The shard that owns a limit key."""
        ...

    def earliest_ms(self) -> int:
        """The earliest of all shards' times: what has expired by it has expired by its own shard's."""
        ...


class Asking:
    """What all requests of a node need to wait: its region, its clock, its counts, and its plain rule."""

    __slots__ = ("monotonic", "region", "stats", "try_again")

    def __init__(
        self,
        region: Region,
        stats: RegionalStats,
        monotonic: Callable[[], float],
        try_again: Callable[[Leg, float], int],
    ) -> None:
        self.region = region
        self.stats = stats
        self.monotonic = monotonic
        self.try_again = try_again
        """A leg that must ask, by what is known now: what remains, or one of outcomes.py."""

    def note_wait(self, waited_s: float) -> None:
        """A request has waited so long, and is decided."""
        self.stats.waits[bisect_left(WAIT_BOUNDS_S, waited_s)] += 1
        self.stats.waits_sum_s += waited_s


class Question:
    """What one request asks of one shard: the costs of some of its legs, charged all or none."""

    __slots__ = ("_waiting", "legs", "places", "shard")

    def __init__(self, waiting: "Waiting", shard: Shard, legs: list[Leg]) -> None:
        self._waiting = waiting
        self.shard = shard
        self.legs = legs
        self.places: list[int] = []
        """Where its counters' reports stand in the call that carries it, by leg."""

    @property
    def decided(self) -> bool:
        """The request has been decided without an answer."""
        return self._waiting.decided

    def join(self, wanted: dict[SharedCounter, int], most: int) -> bool:
        """Add what it asks for to what a call wants of each counter. False: the call has no room for its counters."""
        new = 0
        for leg in self.legs:
            new += leg.counter not in wanted
        if wanted and len(wanted) + new > most:
            return False
        for leg in self.legs:
            wanted[leg.counter] = wanted.get(leg.counter, 0) + (leg.charge.cost if leg.takes else 0)
        return True

    def wants(self, positions: Mapping[SharedCounter, int]) -> tuple[ChargeRequest, ...]:
        """It goes with a call: what it asks for, by the positions of its counters' reports there."""
        self.places = [positions[leg.counter] for leg in self.legs]
        costs = [leg.charge.cost if leg.takes else PEEK for leg in self.legs]
        return tuple(map(ChargeRequest, self.places, costs))

    def meets(self, positions: Mapping[SharedCounter, int]) -> bool:
        """Whether a call had one of its counters."""
        return any(leg.counter in positions for leg in self.legs)

    def look_again(self) -> bool:
        """Before it is sent: whether the shard must still be asked, by what it has said meanwhile."""
        return self._waiting.look_again(self)

    def told(self, charged: bool, answers: Sequence[Answer], _now: Now, _decided: list[Handed]) -> None:
        """`answer`, from the answers to all reports of the call."""
        self.answer(charged, [answers[place] for place in self.places])

    def answer(self, charged: bool, answers: list[Answer]) -> None:
        """The shard charged all legs, or none; their counters have learnt from these answers already."""
        if not self.decided:
            self._waiting.answered(self, charged, answers)

    def fail(self) -> None:
        """The shard was not reached, or nobody knows whether it was."""
        if not self.decided:
            self._waiting.unanswered(self)


class Waiting:
    """A request between its questions and its decision."""

    __slots__ = ("_asking", "_path", "_pending", "began_s", "decided", "legs", "on_decided")

    def __init__(self, asking: Asking, legs: tuple[Leg, ...], began_s: float) -> None:
        self.legs = legs
        self.decided = False
        self._asking = asking
        self.began_s = began_s
        self._path = DecisionPath.EXACT if NEAR in [leg.outcome for leg in legs] else DecisionPath.ORIGIN
        self._pending: list[Question] = []
        self.on_decided: OnDecided = nobody
        """Whom the decision is handed to, once."""

    def begin(self) -> Decision | None:
        """Reserve what is admissible here and ask for the rest; the decision, if nobody could be asked."""
        self._reserve_local()
        for question in self._questions():
            if question.shard.available:
                self._pending.append(question)
                question.shard.ask(question)
            else:
                self._by_policy(question.legs)
        if not self._pending:
            return self._decide()
        self._asking.stats.asked += 1
        return None

    def has_asked(self, shard: Shard) -> Question:
        """It is as if it had begun, and asked this shard for all of its legs; the question."""
        question = Question(self, shard, list(self.legs))
        self._pending.append(question)
        return question

    def look_again(self, question: Question) -> bool:
        """An answer came for one of the keys: it may have brought credit, or the reason to deny.

        True: the shard must be asked all the same, for all legs.
        """
        legs, now_s = question.legs, self._asking.monotonic()
        outcomes = [self._asking.try_again(leg, now_s) for leg in legs]
        for leg, outcome in zip(legs, outcomes, strict=True):
            if admitted(outcome) and leg.takes:
                leg.counter.unspend(leg.charge.cost)
        if OVER not in outcomes and any(map(must_ask, outcomes)):
            return True
        for leg, outcome in zip(legs, outcomes, strict=True):
            leg.outcome = OVER if outcome == OVER else 0
            if OVER not in outcomes and leg.takes:
                leg.hold = leg.counter.hold(leg.charge.cost, leg.counter.shard.now_ms())
        self._close(question)
        return False

    def answered(self, question: Question, charged: bool, answers: list[Answer]) -> None:
        """One shard has decided its legs."""
        for leg, answer in zip(question.legs, answers, strict=True):
            if charged:
                leg.outcome = 0
                if leg.takes:
                    leg.hold = leg.counter.hold(leg.charge.cost, leg.counter.shard.now_ms(), answer)
            else:
                leg.outcome = _known_outcome(leg)
        if not charged and all(admitted(leg.outcome) for leg in question.legs):
            # What the shard saw at that instant has passed since, but it said no.
            for leg in question.legs:
                leg.outcome = OVER
        self._close(question)

    def unanswered(self, question: Question) -> None:
        """One shard can't decide: the rules' failure policies do."""
        self._by_policy(question.legs)
        self._close(question)

    def time_is_up(self, *, own_fault: bool = False) -> None:
        """At the deadline: what no shard has decided yet is decided by policy.

        `own_fault`: this process was too busy to read answers in time, so no shard is to blame.
        """
        self._asking.stats.deadline_missed += 1
        late, self._pending = self._pending, []
        for question in late:
            self._by_policy(question.legs)
        self._finish()
        if not own_fault:
            for question in late:
                question.shard.late()

    def _reserve_local(self) -> None:
        for leg in self.legs:
            leg.counter.pins += 1
            if admitted(leg.outcome) and leg.takes:
                leg.counter.unspend(leg.charge.cost)
                leg.hold = leg.counter.hold(leg.charge.cost, leg.counter.shard.now_ms())

    def _questions(self) -> list[Question]:
        """Enforced charges of one shard stand or fall together; a shadow or a quota fails alone."""
        together: dict[int, list[Leg]] = {}
        alone: list[Question] = []
        for leg in self.legs:
            if not must_ask(leg.outcome):
                continue
            if leg.charge.fails_alone:
                alone.append(Question(self, leg.counter.shard, [leg]))
            else:
                together.setdefault(leg.counter.shard.index, []).append(leg)
        return [Question(self, legs[0].counter.shard, legs) for legs in together.values()] + alone

    def _by_policy(self, legs: list[Leg]) -> None:
        for leg in legs:
            counter, limit, cost = leg.counter, leg.charge.limit, leg.charge.cost
            now_ms = counter.advance(counter.shard.now_ms())
            self._asking.stats.degraded[counter.shard.index] += 1
            self._path = policy.PATHS[limit.on_error]
            if limit.refund and _known_outcome(leg) < 0:
                leg.outcome = OVER  # it was asked only because something may have been given back
            elif policy.admits(counter, limit, cost, now_ms, self._asking.region.live_nodes):
                leg.outcome = 0
                if leg.takes:
                    leg.hold = counter.hold(cost, now_ms)
            else:
                leg.outcome = OVER

    def _close(self, question: Question) -> None:
        self._pending.remove(question)
        if not self._pending:
            self._finish()

    def _finish(self) -> None:
        self._hand_on(self._decide())

    def _hand_on(self, decision: Decision) -> None:
        self._asking.note_wait(self._asking.monotonic() - self.began_s)
        # The queue of deadlines keeps it until its time would have been up: without what hangs on it. And no question
        # that knows it may be known to it: they would be left for the garbage collector, which looks at few of them.
        on_decided, self.on_decided, self.legs = self.on_decided, nobody, ()
        self._pending.clear()
        on_decided(decision)

    def _decide(self) -> Decision:
        """Commit all that is held, or release it."""
        self.decided = True
        admits = not denies(tuple([leg.charge for leg in self.legs]), [leg.outcome for leg in self.legs])
        for leg in self.legs:
            if leg.hold is not None:
                leg.counter.settle(leg.hold, commit=admits)
                if admits:
                    leg.counter.flush(0)  # it had to ask, so its limit is near or it was cold
        for leg in self.legs:
            leg.counter.pins -= 1
        decision = decision_of(self.legs, admits, self._path, self._asking.monotonic())
        for index, leg in enumerate(self.legs):
            if admits and leg.hold is not None and leg.hold.closed:
                over, remaining, _ = decision.verdicts[index]
                decision.verdicts[index] = (over, remaining, 0)  # its window has just ended
        return decision


def _known_outcome(leg: Leg) -> int:
    """Whether the cost would fit by all that is known now; nothing is taken."""
    counter, charge = leg.counter, leg.charge
    now_ms = counter.advance(counter.shard.now_ms())
    missing = counter.missing(charge.cost)
    remaining = charge.algorithm.take(counter, charge.limit, now_ms, missing)
    if remaining >= 0:
        charge.algorithm.release(counter, charge.limit, missing)
    return remaining
