"""Counters of a limit key that a whole region counts: what both kinds have in common.

The counts that the algorithms read (`current`, `previous`, `tat`) are all that is known of the region, this node's own
unacknowledged cost included. Beside them stands this node's own part. A counter is told what happens to its reports
(`sent`, `answered`, `failed`), and it alone changes its fields. It is created cold: without a grant.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from headgate.heirs import mypyc_attr
from headgate.limiter.counters import KeyCounter
from headgate.limiter.decision import Charge, Verdict
from headgate.limiter.limit import Algorithm, Limit
from headgate.origin.protocol import NO_GRANT, UNBOUND, Answer, Demand, Report, WindowTerms
from headgate.region.cells import Hold
from headgate.region.interned import Interned
from headgate.region.pause import AskPause, most_prefetched, pause_ms
from headgate.region.refunds import Refunds
from headgate.region.shard_clock import ShardClock
from headgate.region.urgency import CALM, LATER, SOON, Urgency

NEXT_TO_NOTHING: Final = 16
"""While less than one part in so many of the grant is unacknowledged, nobody minds hearing of it late. Larger lets
fewer keys be reported rarely; smaller lets a node that is killed take more with it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Shard(ABC):
    """One shard of the region's origin, as counters need it."""

    def __init__(self, index: int, time: ShardClock) -> None:
        self.index = index
        """Its place among the origin's shards; for people and metrics."""
        self.time = time
        """Its time, as far as it is known."""
        self.available = True
        """False while asking would only wait for nothing: then the failure policies decide at once."""
        self._interned = Interned()

    def now_ms(self) -> int:
        """Return the least that the shard's time may be now."""
        return self.time.now_ms()

    def interned(self, number: int) -> int:
        """Return the same number as one object for all counters."""
        return self._interned.number(number)

    def window_terms(self, limit: Limit, component: bytes, leaving: bool) -> WindowTerms:
        """Return what reports of a component under a limit have in common, as one object."""
        return self._interned.window_terms(limit, component, leaving)

    @abstractmethod
    def new_component(self) -> bytes:
        """Return the name of a component that this run has never used: for a counter that begins anew."""

    @abstractmethod
    def remembers(self, now_s: float) -> bool:
        """Return whether it knows what there is to give back: not while a loss of its memory may not be refilled."""

    @abstractmethod
    def flush(self, counter: "SharedCounter", urgency: Urgency) -> None:
        """Have the counter reported with the delay of its urgency."""


class SharedCounter(KeyCounter, ABC):
    """One limit key on one node: its component, its grant, and its dealings with the shard."""

    __slots__ = (
        "_by_own_clock",
        "_clock_steps",
        "ahead_of_shard",
        "allowance",
        "component",
        "credit_offered",
        "first_wanted",
        "flush_due_s",
        "grant",
        "has_answer",
        "pause",
        "pins",
        "place",
        "refill",
        "refunds",
        "reset",
        "shard",
        "usable_until_s",
    )

    sequence: int
    """The current window; 0 for buckets, which have none."""

    def __init__(self, key: bytes, place: bytes, component: bytes, shard: Shard, limit: Limit) -> None:
        KeyCounter.__init__(self, key, limit)
        self.place = place
        """The bytes that chose the shard: the key, unless its domain says otherwise. Other regions place it so too."""
        self.component = component
        """The owner of this total: the node's run, and the key's incarnation in it."""
        self.shard = shard
        time = shard.time
        self._clock_steps = time.steps
        """Steps of the shard's clock when the counter last looked: one more, and the time may have gone back."""
        self._by_own_clock = not time.known
        """True until the first answer if the counter was made by this node's own clock."""
        self.flush_due_s = 0.0
        """The time at which the next report is due; 0 while none is."""
        self.pins = 0
        """Calls and waiting requests that hold on to the counter: it is not evicted meanwhile."""
        self.reset = UNBOUND
        """The reset of the key that the counter belongs to; none until its first answer."""
        self._become_cold()

    def _become_cold(self) -> None:
        """Know nothing of the shard, and have no grant of it."""
        self.has_answer = False
        """True once the shard has answered for this counter."""
        self.grant = 0
        """The cost that the node may have unacknowledged, by the last answer."""
        self.usable_until_s = 0.0
        """Until then the view is fresh and the grant may be used: 5 s from sending the last answered call."""
        self.refill = False
        """The shard has lost something: the next report names every live cell, acknowledged or not."""
        self.credit_offered = 0
        """Credit that the call under way lets the shard spend on its charge requests: nobody else may, meanwhile."""
        self.first_wanted = 0
        """Before the first answer, the most that a call asked for: it is charged in the window of the shard's time."""
        self.pause: AskPause | None = None
        """The demand for the key, and when the node may ask for it again; None while it was never at its limit."""
        self.allowance = 0
        """Cost that may be admitted with nothing else to look at (`from_allowance`); 0 while that is unknown."""
        self.refunds: Refunds | None = None
        """Refunds that were demanded and given; None while no limit of the key had refunds."""
        self.ahead_of_shard = False
        """No answer from this window yet: the shard may still charge in the one before, and must be told of it."""

    def come_to(self, limit: Limit, now_s: float) -> int:
        """Come under the limit, and to the shard's time at `now_s`; return that time."""
        self.limit = limit
        return self.advance(self.shard.time.at_ms(now_s))

    def held(self, now_s: float) -> int:
        """Return the grant that may be in use: none once its time is up, and no more than the rule allows now."""
        return min(self.grant, self.limit.precision) if now_s < self.usable_until_s else 0

    def missing(self, cost: int) -> int:
        """Return the part of a cost that no credit covers."""
        return cost - min(cost, self.credit)

    def is_paused(self, missing: int, now_s: float) -> bool:
        """Return whether the node must not ask for so much now, because the last call brought too little."""
        return self.pause is not None and self.pause.denies(missing, self.limit, self.sequence, now_s)

    def pause_left_ms(self, cost: int, now_s: float) -> int:
        """Return how long the node will not ask for this cost; 0 if it may."""
        if self.pause is None or not self.is_paused(self.missing(cost), now_s):
            return 0
        return self.pause.left_ms(now_s)

    def note_near(self, cost: int, now_s: float) -> None:
        """Count demand from now on, if that helps: a request must ask because the limit is near."""
        if self.pause is None and most_prefetched(self.limit):
            self.pause = AskPause(self.limit)
            self.pause.count(cost, now_s)

    def from_allowance(self, charge: Charge, now_ms: int, now_s: float) -> Verdict | None:
        """Admit the charge out of the key's allowance; None, and nothing changed: the plain rule must decide."""
        return None

    def return_to_allowance(self, charge: Charge) -> None:
        """Undo a `from_allowance` of the same instant."""
        raise AssertionError("a counter without an allowance admits nothing from it")

    def pin(self, by: int) -> None:
        """Add a waiting request (1) that keeps the counter from being evicted, or take it away (-1)."""
        self.pins += by

    def flush(self, remaining: int) -> None:
        """Have it reported if there is something to report, as soon as the limit or the grant's end is near."""
        unacked = self.unacked
        if unacked:
            if unacked * 2 >= self.grant or remaining <= 2 * self.limit.precision:
                urgency = SOON
            elif unacked * NEXT_TO_NOTHING <= self.grant and not self.limit.refund:
                urgency = CALM
            else:
                urgency = LATER
            self.shard.flush(self, urgency)

    def due_by(self, due_s: float, *, sooner: bool) -> bool:
        """Have the next report due at `due_s`. False: one is due already, by then, or `sooner` is not asked for."""
        if self.flush_due_s and (not sooner or self.flush_due_s <= due_s):
            return False
        self.flush_due_s = due_s
        return True

    def demand(self, cost: int, now_ms: int, now_s: float) -> None:
        """Demand so much back, later than an ordinary report: the shard gives back only what it has heard of."""
        if self.refunds is None:
            self.refunds = Refunds()
        self.refunds.demand(cost, now_ms, now_s)
        self.shard.flush(self, Urgency.REFUND)

    @property
    def unreported(self) -> bool:
        """True while the shard has yet to hear of something."""
        return bool(self.unacked) or (self.refunds is not None and self.refunds.waiting)

    def pressing(self, now_s: float) -> bool:
        """Return whether the next report tells the shard something: a demand may have to wait for its time."""
        if self.refill or self.unacked:
            return True
        return self.refunds is not None and self.refunds.telling and self.shard.remembers(now_s)

    def flush_rest(self, now_s: float) -> None:
        """Have it reported again after a call that did not settle all of it."""
        self.shard.flush(self, SOON if self.pressing(now_s) else LATER)

    def demands(self, sequence: int, leaving: bool, now_s: float) -> tuple[Demand, ...] | None:
        """Return what a report demands back; None where there are no refunds."""
        if self.refunds is None:
            if not self.limit.refund:
                return None
            self.refunds = Refunds()
        self.refunds.come_due(now_s, leaving=leaving)
        return self.refunds.report(sequence, remembers=leaving or self.shard.remembers(now_s))

    # Events of the shard session

    def sent(self, number: int, wanted: int, leaving: bool, now_s: float) -> Report:
        """Return the report for a call that goes out now, and that asks for `wanted` on top of it."""
        self.allowance = 0
        report = self.report(number, wanted, leaving, now_s)
        # From here on an admission is one that this call does not carry.
        self.flush_due_s = 0.0
        self.pins += 1
        return report

    def answered(self, answer: Any, usable_until_s: float, sent_s: float) -> bool:
        """Take in the answer to a call. False: the shard has forgotten something that this report did not restore."""
        self.allowance = 0
        if self.refunds is not None:
            self.refunds.asked_s = sent_s
        reset: int = answer.reset
        if reset != self.reset:
            if self.reset != UNBOUND:
                self._meet(reset)
                return True
            self.reset = reset
        remembers = self.learn(answer) or self.refill
        self.has_answer = True
        grant: int = answer.grant
        if grant != NO_GRANT:
            if grant != self.grant:
                self.grant = self.shard.interned(grant)
            self.usable_until_s = usable_until_s
        self.refill = self.lacks(answer)
        self.credit_offered = 0
        self.pins -= 1
        return remembers

    def begin_pause(
        self, limit: Limit, hoped: int, refused: int, time_ms: int, sent_s: float, chance: Callable[[], float]
    ) -> None:
        """Pause if a call brought less than it prefetched (`hoped`), or than the highest cost that was `refused`."""
        if limit is not self.limit:
            return
        if limit.algorithm is not Algorithm.GCRA and time_ms // limit.window_ms != self.sequence:
            return  # the answer was of another window
        # The shard knows nothing of what requests hold here and it has not charged, so its room is no less.
        room = max(0, self.room(time_ms)) + self.unacked
        if self.credit < hoped or self.missing(refused) > room:
            drawn = chance()
            if pause_ms(limit):
                self.pause = self.pause or AskPause(limit)
                self.pause.begin(limit, room, self.sequence, sent_s, drawn)

    def _meet(self, reset: int) -> None:
        """Take in an answer of another reset: an earlier one means nothing, a later one empties the counter."""
        self.failed()
        if reset > self.reset:
            self.reset_to(reset)

    def reset_to(self, number: int) -> None:
        """Forget all that this node has of the key, reported or not: the key was reset."""
        self.begin_anew()
        self.reset = number

    def failed(self) -> None:
        """Note that the call is over, whether or not anybody knows what came of it."""
        self.credit_offered = 0
        self.pins -= 1

    def unreadable(self) -> None:
        """Note that the shard could not read the key's record: nothing was merged, and nothing is known of it."""
        self.failed()
        self.allowance = 0
        self.usable_until_s = 0.0

    def shard_forgot(self) -> None:
        """Tell the shard everything with the next report: it lost its memory."""
        self.refill = True

    def clock_was_set(self) -> bool:
        """Return whether the shard's clock was set since this was last asked."""
        steps, self._clock_steps = self._clock_steps, self.shard.time.steps
        return steps != self._clock_steps

    def begin_anew(self) -> None:
        """Become cold, and owner of a new component: what calls and requests under way bring is not its own."""
        self.component = self.shard.new_component()
        self._by_own_clock = False
        self.forget_denial()
        self._become_cold()

    @property
    @abstractmethod
    def credit(self) -> int:
        """Cost that the shard charged for this node and nobody has spent yet."""

    @property
    @abstractmethod
    def unacked(self) -> int:
        """This node's cost that the shard has not acknowledged."""

    @property
    @abstractmethod
    def reserved(self) -> int:
        """Cost that this node's waiting requests hold."""

    @property
    @abstractmethod
    def own_admitted(self) -> int:
        """Cost that this node itself admitted and that still counts: `on_error: open` is bounded by it."""

    @property
    def is_over_limit(self) -> bool:
        """True if more was admitted than the limit and its precision allow, by all that is known."""
        return False

    @abstractmethod
    def advance(self, now_ms: int) -> int:
        """Come to `now_ms`, or stay where an answer has already brought the counter; return the time it is there."""

    @abstractmethod
    def room(self, now_ms: int) -> int:
        """Return the highest cost that fits now by all that is known, as the algorithm's `room`; follows `come_to`."""

    @abstractmethod
    def reset_ms(self, now_ms: int) -> int:
        """Return how long until the end of the window (gcra: until the bucket is full)."""

    @abstractmethod
    def spend(self, cost: int, missing: int, now_ms: int) -> None:
        """Admit a cost that fits, and of which credit does not cover `missing`."""

    @abstractmethod
    def overdraw(self, cost: int, missing: int, now_ms: int) -> None:
        """Admit a late cost that does not fit."""

    @abstractmethod
    def countable(self, cost: int, now_ms: int) -> int:
        """Return how much of a late cost still makes a difference: late costs have no limit, but what is kept has."""

    @abstractmethod
    def uncharge(self, cost: int, now_ms: int) -> None:
        """Undo so much of what was spent before, as far as it is this node's and still counts."""

    @abstractmethod
    def unspend(self, cost: int) -> None:
        """Undo a `spend` of the same instant."""

    @abstractmethod
    def hold(self, cost: int, now_ms: int, charged: Answer | None = None) -> Hold:
        """Reserve: where the shard charged it, else at `now_ms`."""

    @abstractmethod
    def settle(self, hold: Hold, *, commit: bool) -> None:
        """End a reservation: admit its cost, or give it up."""

    @property
    @abstractmethod
    def own_unacked(self) -> int:
        """Unacknowledged cost that `on_error: local` counts once for every 1.5 live nodes."""

    @abstractmethod
    def fits_instead(self, cost: int, now_ms: int) -> bool:
        """Return whether a cost fits beside all that is known, in place of `own_unacked`."""

    @abstractmethod
    def report(self, number: int, wanted: int, leaving: bool, now_s: float) -> Report:
        """Return the report for a call that asks for `wanted` on top."""

    @abstractmethod
    def learn(self, answer: Any) -> bool:
        """Merge an answer. False: the shard knows less than it once did."""

    @abstractmethod
    def lacks(self, answer: Any) -> bool:
        """Return, after `learn`, whether the shard has less than was certainly there, and must be told so."""
