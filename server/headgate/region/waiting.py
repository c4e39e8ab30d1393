"""A request that must ask shards before it is decided: its legs, its questions, its end.

A leg is one charge of the request. What may be admitted here is reserved at once; what a shard
must decide is asked, and reserved as the answers come. Then all legs are committed together, or
all are released: there is no second wait. (docs/convergence.md, section 3.)

No I/O and no timer: shards are asked through `Shard`, and whoever called the engine says when
the time is up. A question is answered, failed, or left over when the time is up, once.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

from headgate.limiter.algorithm import OVER
from headgate.limiter.decision import Charge, Decision, DecisionPath, denies
from headgate.origin.protocol import Answer
from headgate.region import policy
from headgate.region.counters import Hold, SharedCounter
from headgate.region.outcomes import NEAR, admitted, must_ask
from headgate.region.shard import Shard
from headgate.region.stats import WAIT_BOUNDS_S, RegionalStats
from headgate.region.verdicts import decision_of

OnDecided = Callable[[Decision], None]


def _nobody(_decision: Decision) -> None:
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


class Question:
    """What one request asks of one shard: the costs of some of its legs, charged all or none."""

    __slots__ = ("_waiting", "legs", "shard")

    def __init__(self, waiting: "Waiting", shard: Shard, legs: list[Leg]) -> None:
        self._waiting = waiting
        self.shard = shard
        self.legs = legs

    @property
    def open(self) -> bool:
        """False: the request has been decided without an answer."""
        return not self._waiting.decided

    def look_again(self) -> bool:
        """Before it is sent: whether the shard must still be asked, by what it has said meanwhile."""
        return self._waiting.look_again(self)

    def answer(self, charged: bool, answers: list[Answer]) -> None:
        """The shard charged all legs, or none; their counters have learnt from these answers already."""
        if self.open:
            self._waiting.answered(self, charged, answers)

    def fail(self) -> None:
        """The shard was not reached, or nobody knows whether it was."""
        if self.open:
            self._waiting.unanswered(self)


class Waiting:
    """A request between its questions and its decision."""

    __slots__ = (
        "_began_s",
        "_monotonic",
        "_path",
        "_pending",
        "_region",
        "_stats",
        "_try_again",
        "decided",
        "legs",
        "on_decided",
    )

    def __init__(
        self,
        region: Region,
        stats: RegionalStats,
        monotonic: Callable[[], float],
        legs: tuple[Leg, ...],
        try_again: Callable[[Leg, float], int],
    ) -> None:
        self.legs = legs
        self._try_again = try_again
        self.decided = False
        self._region = region
        self._stats = stats
        self._monotonic = monotonic
        self._began_s = monotonic()
        self._path = DecisionPath.EXACT if NEAR in [leg.outcome for leg in legs] else DecisionPath.ORIGIN
        self._pending: list[Question] = []
        self.on_decided: OnDecided = _nobody
        """Whom the decision is handed to, once."""

    def begin(self) -> Decision | None:
        """Reserve what is admissible here and ask for the rest; the decision, if nobody could be asked."""
        if len(self.legs) == 1:
            return self._begin_alone(self.legs[0])
        self._reserve_local()
        for question in self._questions():
            if question.shard.available:
                self._pending.append(question)
                question.shard.ask(question)
            else:
                self._by_policy(question.legs)
        if not self._pending:
            return self._decide()
        self._stats.asked += 1
        return None

    def _begin_alone(self, leg: Leg) -> Decision | None:
        """`begin` for a request of one charge: it must ask, or it would not wait."""
        leg.counter.pins += 1
        shard = leg.counter.shard
        if not shard.available:
            self._by_policy([leg])
            return self._decide()
        question = Question(self, shard, [leg])
        self._pending.append(question)
        shard.ask(question)
        self._stats.asked += 1
        return None

    def look_again(self, question: Question) -> bool:
        """An answer came for one of the keys: it may have brought credit, or the reason to deny.

        True: the shard must be asked all the same, for all legs.
        """
        legs, now_s = question.legs, self._monotonic()
        outcomes = [self._try_again(leg, now_s) for leg in legs]
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
        if charged and len(self.legs) == 1:
            self._charged_alone(self.legs[0], answers[0])
            return
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

    def _charged_alone(self, leg: Leg, answer: Answer) -> None:
        """What the rest of this class comes to for the usual wait: one charge, and the shard has charged it."""
        counter, charge = leg.counter, leg.charge
        limit, algorithm, now_ms = charge.limit, charge.algorithm, counter.shard.now_ms()
        leg.outcome = 0
        counted_in = counter.commit(charge.cost, now_ms, answer) if leg.takes else counter.sequence
        counter.pins -= 1
        self.decided = True
        now_ms = counter.advance(now_ms)
        remaining, reset_ms = algorithm.remaining(counter, limit, now_ms), algorithm.reset_ms(counter, limit, now_ms)
        if counted_in < counter.sequence:
            reset_ms = 0  # its window has just ended
        self._hand_on(Decision(True, self._path, [(False, remaining, reset_ms)]))

    def unanswered(self, question: Question) -> None:
        """One shard can't decide: the rules' failure policies do."""
        self._by_policy(question.legs)
        self._close(question)

    def time_is_up(self, *, own_fault: bool = False) -> None:
        """At the deadline: what no shard has decided yet is decided by policy.

        `own_fault`: this process was too busy to read answers in time, so no shard is to blame.
        """
        self._stats.deadline_missed += 1
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
            self._stats.degraded[counter.shard.index] += 1
            self._path = policy.PATHS[limit.on_error]
            if limit.refund and _known_outcome(leg) < 0:
                leg.outcome = OVER  # it was asked only because something may have been given back
            elif policy.admits(counter, limit, cost, now_ms, self._region.live_nodes):
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
        waited_s = self._monotonic() - self._began_s
        self._stats.waits[bisect_left(WAIT_BOUNDS_S, waited_s)] += 1
        self._stats.waits_sum_s += waited_s
        # The queue of deadlines keeps it until its time would have been up: without what hangs on it. And no question
        # that knows it may be known to it: they would be left for the garbage collector, which looks at few of them.
        on_decided, self.on_decided, self.legs = self.on_decided, _nobody, ()
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
        decision = decision_of(self.legs, admits, self._path, self._monotonic())
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
