"""A request that must ask shards before it is decided: its legs, its questions, its end.

What may be admitted here is reserved at once; what a shard must decide is asked, and reserved as the answers come.
Then all legs are committed together, or all are released: there is no second wait. Nearly every request asks one
shard: then it is its own question. Else it has a question per shard. (docs/convergence.md, section 3.)

No I/O and no timer: shards are asked through `Region`, and whoever called the engine says when
the time is up. A question is answered, fails, or is left over when the time is up, once. Whatever completes the
request returns its decision, with whom it is for, and never calls anybody.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from headgate.limiter.algorithm import OVER
from headgate.limiter.decision import Decision, DecisionPath, OnDecided, denies
from headgate.origin.protocol import PEEK, Answer, ChargeRequest
from headgate.region import policy
from headgate.region.counters import SharedCounter
from headgate.region.leg import Leg
from headgate.region.outcomes import NEAR, admitted, must_ask
from headgate.region.shard import Shard
from headgate.region.stats import WAIT_BOUNDS_S, RegionalStats
from headgate.region.verdicts import decision_of

ORIGIN: Final = DecisionPath.ORIGIN
Decided = tuple[OnDecided, Decision]
"""A decision that is still to be handed on, and to whom."""


def nobody(_decision: Decision) -> None:
    """Take the decision of a request whose caller has not said yet whom it is for, or that is decided."""


class Question:
    """The costs that one request asks of one shard: charged all or none."""

    __slots__ = ("asked", "places", "shard")

    def __init__(self, shard: Shard[SharedCounter], asked: list[Leg]) -> None:
        self.shard = shard
        self.asked = asked
        """The legs that the shard is asked for."""
        self.places: list[int] = []
        """Positions of its counters' reports in the call that carries it, by leg."""

    @property
    def request(self) -> "WaitingRequest":
        """The request that asks."""
        raise AssertionError("every question belongs to a request")

    def join(self, wanted: dict[SharedCounter, int], most: int) -> bool:
        """Add its costs to what a call wants of each counter. False: the call has no room for its counters."""
        new = 0
        for leg in self.asked:
            new += leg.counter not in wanted
        if wanted and len(wanted) + new > most:
            return False
        for leg in self.asked:
            wanted[leg.counter] = wanted.get(leg.counter, 0) + (leg.charge.cost if leg.takes else 0)
        return True

    def charge_requests(self, positions: dict[SharedCounter, int]) -> tuple[ChargeRequest, ...]:
        """Return its costs for a call in which its counters' reports have these positions."""
        requests: list[ChargeRequest] = []
        places: list[int] = []
        for leg in self.asked:
            place = positions[leg.counter]
            places.append(place)
            requests.append((place, leg.charge.cost if leg.takes else PEEK))
        self.places = places
        return tuple(requests)

    def meets(self, positions: dict[SharedCounter, int]) -> bool:
        """Return whether a call had one of its counters."""
        for leg in self.asked:  # noqa: SIM110 - a generator would be made for every request that waits
            if leg.counter in positions:
                return True
        return False

    @property
    def lies_elsewhere(self) -> bool:
        """True if a counter of it belongs to another shard by now."""
        return any(leg.counter.shard is not self.shard for leg in self.asked)

    def answered(self, charged: bool, answers: Sequence[Answer], now_s: float) -> Decided | None:
        """Take in that the shard charged all legs, or none; their counters have learnt from the answers already."""
        request = self.request
        if request.decided:
            return None
        if charged:
            now_ms = self.shard.time.at_ms(now_s)
            for index, leg in enumerate(self.asked):
                leg.outcome = 0
                if leg.takes:
                    leg.hold = leg.counter.hold(leg.charge.cost, now_ms, answers[self.places[index]])
        else:
            self._refused(now_s)
        return request.close(self, now_s)

    def _refused(self, now_s: float) -> None:
        fits = True
        for leg in self.asked:
            leg.outcome = _known_outcome(leg, now_s)
            fits = fits and admitted(leg.outcome)
        if fits:
            # What the shard saw at that instant has passed since, but it said no.
            for leg in self.asked:
                leg.outcome = OVER

    def unanswered(self, now_s: float) -> Decided | None:
        """Let the rules' failure policies decide: the shard was not reached, or nobody knows whether it was."""
        request = self.request
        if request.decided:
            return None
        request.by_policy(self.asked, now_s)
        return request.close(self, now_s)

    def try_again(self, now_s: float) -> tuple[bool, Decided | None]:
        """Decide it by what the shard has said since it was asked: credit may have come, or the reason to deny.

        Returns whether the shard must be asked all the same, for all legs; and the decision, if that ends the request.
        """
        request, asked = self.request, self.asked
        outcomes = [request.waits.plain_rule(leg, now_s) for leg in asked]
        for leg, outcome in zip(asked, outcomes, strict=True):
            if admitted(outcome) and leg.takes:
                leg.counter.unspend(leg.charge.cost)
        if OVER not in outcomes and any(map(must_ask, outcomes)):
            return True, None
        for leg, outcome in zip(asked, outcomes, strict=True):
            leg.outcome = OVER if outcome == OVER else 0
            if OVER not in outcomes and leg.takes:
                leg.hold = leg.counter.hold(leg.charge.cost, self.shard.time.at_ms(now_s))
        return False, request.close(self, now_s)


class Region(Protocol):
    """The region, as the engine and its waiting requests need it."""

    run: bytes
    """This run of this node: the owner of its components."""
    live_nodes: int
    """Nodes that the region has, as last heard."""

    def shard_of(self, key: bytes) -> Shard[SharedCounter]:
        """Return the shard that owns a limit key."""

    def earliest_ms(self) -> int:
        """Return the earliest of all shards' times: what has expired by it has expired by its own shard's."""

    def ask(self, question: Question) -> None:
        """Put the question into the next call to its shard; it is answered or fails later."""

    def missed_deadline(self, shard: Shard[SharedCounter]) -> None:
        """Note that a question was not answered by its request's deadline."""


class Waits:
    """The node's side of all its waiting requests: its region, its counts, and its plain rule."""

    __slots__ = ("plain_rule", "region", "stats")

    def __init__(self, region: Region, stats: RegionalStats, plain_rule: Callable[[Leg, float], int]) -> None:
        self.region = region
        self.stats = stats
        self.plain_rule = plain_rule
        """Decides a leg by what is known now: the room that remains, or one of outcomes.py."""


class WaitingRequest(Question):
    """A request between its questions and its decision. Implements the limiter's `PendingDecision`."""

    __slots__ = ("_parts", "_path", "began_s", "caller", "decided", "legs", "on_decided", "waits")

    def __init__(self, waits: Waits, legs: list[Leg], began_s: float, caller: str) -> None:
        super().__init__(legs[0].counter.shard, legs)
        self.waits = waits
        self.legs = legs
        self.began_s = began_s
        self.caller = caller
        """Who asks: callers take turns at a shard."""
        self.decided = False
        self.on_decided: OnDecided = nobody
        """The receiver of the decision, called once."""
        self._path = ORIGIN
        self._parts: list[PartialQuestion] = []
        """Open questions, where it asks several shards, or for costs that stand or fall alone."""

    @property
    def request(self) -> "WaitingRequest":
        return self

    def begin(self) -> Decision | None:
        """Reserve what is admissible here and ask for the rest; return the decision if nobody could be asked."""
        now_s = self.began_s
        for leg in self.legs:
            leg.counter.pin(1)
            if leg.outcome == NEAR:
                self._path = DecisionPath.EXACT
            elif admitted(leg.outcome) and leg.takes:
                leg.counter.unspend(leg.charge.cost)
                leg.hold = leg.counter.hold(leg.charge.cost, leg.counter.shard.time.at_ms(now_s))
        pending = 0
        for question in self._questions():
            if question.shard.available:
                pending += 1
                self.waits.region.ask(question)
            else:
                self.by_policy(question.asked, now_s)
                if isinstance(question, PartialQuestion):
                    self._parts.remove(question)
        if not pending:
            return self._decide(now_s)
        self.waits.stats.asked += 1
        return None

    def _questions(self) -> Sequence[Question]:
        """Split what must be asked: enforced charges of one shard stand or fall together, a shadow or a quota alone."""
        if len(self.legs) == 1:
            return (self,)
        asking = [leg for leg in self.legs if must_ask(leg.outcome)]
        together: dict[int, list[Leg]] = {}
        alone: list[list[Leg]] = []
        for leg in asking:
            if leg.charge.fails_alone:
                alone.append([leg])
            else:
                together.setdefault(leg.counter.shard.index, []).append(leg)
        groups = [*together.values(), *alone]
        if len(groups) == 1:
            self.asked, self.shard = asking, asking[0].counter.shard
            return (self,)
        self._parts = [PartialQuestion(self, legs[0].counter.shard, legs) for legs in groups]
        return tuple(self._parts)

    def ask_again(self, question: Question, now_s: float) -> Decided | None:
        """Ask for the legs of a question where their records are now; return the decision if that was the end."""
        if self.decided:
            return None
        decided: Decided | None = None
        for part in self._by_shard(question):
            if part.shard.available:
                self.waits.region.ask(part)
            else:
                decided = part.unanswered(now_s) or decided
        return decided

    def _by_shard(self, question: Question) -> Sequence[Question]:
        """Split a question by the shards of its counters."""
        groups: dict[int, list[Leg]] = {}
        for leg in question.asked:
            groups.setdefault(leg.counter.shard.index, []).append(leg)
        if len(groups) == 1:
            question.shard = question.asked[0].counter.shard
            return (question,)
        parts = [PartialQuestion(self, legs[0].counter.shard, legs) for legs in groups.values()]
        if isinstance(question, PartialQuestion):
            self._parts.remove(question)
        self._parts += parts
        return parts

    def close(self, question: Question, now_s: float) -> Decided | None:
        """End one question; return the decision if it was the last one."""
        if isinstance(question, PartialQuestion):
            self._parts.remove(question)
            if self._parts:
                return None
        return self._finish(now_s)

    def time_is_up(self, now_s: float, *, own_fault: bool) -> Decided:
        """Decide by policy, at the deadline, what no shard has decided yet.

        `own_fault`: this process was too busy to read answers in time, so no shard is to blame.
        """
        self.waits.stats.deadline_missed += 1
        late: Sequence[Question] = self._parts or (self,)
        self._parts = []
        for question in late:
            self.by_policy(question.asked, now_s)
        decided = self._finish(now_s)
        if not own_fault:
            for question in late:
                self.waits.region.missed_deadline(question.shard)
        return decided

    def by_policy(self, legs: list[Leg], now_s: float) -> None:
        """Let the rules' failure policies decide these legs."""
        for leg in legs:
            counter, limit, cost = leg.counter, leg.charge.limit, leg.charge.cost
            now_ms = counter.come_to(limit, now_s)
            self.waits.stats.degraded[counter.shard.index] += 1
            self._path = policy.PATHS[limit.on_error]
            leg.outcome = OVER
            if limit.refund and _known_outcome(leg, now_s) < 0:
                continue  # it was asked only because something may have been given back
            if policy.admits(counter, limit, cost, now_ms, self.waits.region.live_nodes):
                leg.outcome = 0
                if leg.takes:
                    leg.hold = counter.hold(cost, now_ms)

    def _finish(self, now_s: float) -> Decided:
        stats, waited_s = self.waits.stats, now_s - self.began_s
        stats.waits[bisect_left(WAIT_BOUNDS_S, waited_s)] += 1
        stats.waits_sum_s += waited_s
        decided = self.on_decided, self._decide(now_s)
        # The queue of deadlines keeps the request until its time would have been up: without what hangs on it.
        self.on_decided = nobody
        self.legs = self.asked = []
        return decided

    def _decide(self, now_s: float) -> Decision:
        """Commit all that is held, or release it."""
        self.decided = True
        legs, admits = self.legs, self._admits()
        for leg in legs:
            counter = leg.counter
            if leg.hold is not None:
                counter.settle(leg.hold, commit=admits)
                if admits:
                    counter.flush()
            counter.pin(-1)
        decision = decision_of(legs, admits, self._path, now_s)
        for index, leg in enumerate(legs):
            if admits and leg.hold is not None and leg.hold.ended_before(leg.counter.sequence):
                over, remaining, _ = decision.verdicts[index]
                decision.verdicts[index] = (over, remaining, 0)  # its window has just ended
        return decision

    def _admits(self) -> bool:
        """Return whether nothing denies it, now that every leg has an outcome."""
        for leg in self.legs:
            if not admitted(leg.outcome):
                return not denies(tuple([leg.charge for leg in self.legs]), [leg.outcome for leg in self.legs])
        return True


class PartialQuestion(Question):
    """One of several questions of a request."""

    __slots__ = ("_request",)

    def __init__(self, request: WaitingRequest, shard: Shard[SharedCounter], asked: list[Leg]) -> None:
        super().__init__(shard, asked)
        self._request = request

    @property
    def request(self) -> WaitingRequest:
        return self._request


def _known_outcome(leg: Leg, now_s: float) -> int:
    """Return the room that the cost would leave by all that is known now, or OVER; nothing is taken."""
    counter, charge = leg.counter, leg.charge
    remaining = counter.room(counter.come_to(charge.limit, now_s)) - counter.missing(charge.cost)
    return remaining if remaining >= 0 else OVER
