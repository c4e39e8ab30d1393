"""A request of one charge that waits for its shard: leg, question and request in one object.

Nearly all requests that wait are so, and nearly all of them are charged: that is done here, with as little as it takes.
Whatever else may become of it (it is denied, or fails, or is late, or looks again) goes the way of all
requests that wait: a `Waiting` of one leg is made, as if it had asked. (waiting.py says what that does;
tests/unit/region/test_alone.py holds both equal.)
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from headgate.limiter.decision import Charge, Decision, DecisionPath
from headgate.origin.protocol import Answer, ChargeRequest
from headgate.region.counters import SharedCounter
from headgate.region.outcomes import NEAR
from headgate.region.stats import WAIT_BOUNDS_S
from headgate.region.waiting import Asking, Handed, Leg, Now, OnDecided, Question, Waiting, nobody

_new: Final = tuple.__new__
"""Makes a named tuple without asking its class."""


class Alone(Leg):
    """Implements what a shard link needs of a question, and what deadlines need of a request."""

    __slots__ = ("_asking", "began_s", "decided", "on_decided", "places")

    def __init__(self, asking: Asking, charge: Charge, counter: SharedCounter, outcome: int, began_s: float) -> None:
        self.charge = charge
        self.counter = counter
        self.outcome = outcome
        self.hold = None
        self._asking = asking
        self.began_s = began_s
        self.decided = False
        self.on_decided: OnDecided = nobody
        """Whom the decision is handed to, once."""

    def begin(self) -> Decision | None:
        """Ask; the decision, if nobody can be asked."""
        counter = self.counter
        shard = counter.shard
        if not shard.available:
            self.decided = True
            return Waiting(self._asking, (Leg(self.charge, counter, self.outcome),), self.began_s).begin()
        counter.pins += 1
        shard.ask(self)
        self._asking.stats.asked += 1
        return None

    # What the shard link calls

    @property
    def legs(self) -> "tuple[Leg]":
        """Itself; not kept, because what knows itself waits for the garbage collector."""
        return (self,)

    def join(self, wanted: dict[SharedCounter, int], most: int) -> bool:
        """As a question does."""
        counter = self.counter
        known = wanted.get(counter)
        if known is not None:
            wanted[counter] = known + self.charge.cost
        elif len(wanted) < most:
            wanted[counter] = self.charge.cost
        else:
            return False
        return True

    def wants(self, positions: Mapping[SharedCounter, int]) -> tuple[ChargeRequest, ...]:
        """As a question does."""
        place = positions[self.counter]
        self.places = [place]
        return (_new(ChargeRequest, (place, self.charge.cost)),)

    def meets(self, positions: Mapping[SharedCounter, int]) -> bool:
        """As a question does."""
        return self.counter in positions

    def told(self, charged: bool, answers: Sequence[Answer], now: Now, decided: list[Handed]) -> None:
        """As a question is, at a time that the link has just read. What was charged is handed on by the link, after all
        of a reply is decided: the same work many times in a row is cheaper than different work in turns."""
        answer = answers[self.places[0]]
        if not charged:
            self.answer(False, [answer])
        elif not self.decided:
            decided.append((self.on_decided, self._charged(answer, *now)))
            self.on_decided = nobody

    def answer(self, charged: bool, answers: list[Answer]) -> None:
        """The shard charged it, or did not; its counter has learnt from the answer already."""
        if self.decided:
            return
        if charged:
            on_decided, self.on_decided = self.on_decided, nobody
            now_s = self._asking.monotonic()
            on_decided(self._charged(answers[0], now_s, self.counter.shard.time.at_ms(now_s)))
        else:
            waiting, question = self._as_waiting()
            waiting.answered(question, False, answers)

    def _charged(self, answer: Answer, now_s: float, now_ms: int) -> Decision:
        self.decided = True
        counter, charge = self.counter, self.charge
        counted_in = counter.commit(charge.cost, now_ms, answer)
        counter.pins -= 1
        now_ms = counter.advance(now_ms)
        remaining, reset_ms = charge.algorithm.standing(counter, charge.limit, now_ms)
        if counted_in < counter.sequence:
            reset_ms = 0  # its window has just ended
        path = DecisionPath.EXACT if self.outcome == NEAR else DecisionPath.ORIGIN
        # As `note_wait` does.
        stats, waited_s = self._asking.stats, now_s - self.began_s
        stats.waits[bisect_left(WAIT_BOUNDS_S, waited_s)] += 1
        stats.waits_sum_s += waited_s
        return _new(Decision, (True, path, [(False, remaining, reset_ms)]))

    def fail(self) -> None:
        """The shard was not reached, or nobody knows whether it was."""
        if not self.decided:
            waiting, question = self._as_waiting()
            waiting.unanswered(question)

    def look_again(self) -> bool:
        """Before it is sent: whether the shard must still be asked, by what it has said meanwhile."""
        waiting, question = self._as_waiting()
        return waiting.look_again(question)

    # What deadlines call

    def time_is_up(self, *, own_fault: bool = False) -> None:
        """At the deadline: its failure policy decides."""
        waiting, _ = self._as_waiting()
        waiting.time_is_up(own_fault=own_fault)

    def _as_waiting(self) -> tuple[Waiting, Question]:
        """The same request as all others are, in the same state."""
        leg = Leg(self.charge, self.counter, self.outcome)
        waiting = Waiting(self._asking, (leg,), self.began_s)
        waiting.on_decided = self._hand_on
        return waiting, waiting.has_asked(self.counter.shard)

    def _hand_on(self, decision: Decision) -> None:
        # The queue of deadlines keeps it until its time would have been up: without whom it was for.
        on_decided, self.on_decided, self.decided = self.on_decided, nobody, True
        on_decided(decision)
