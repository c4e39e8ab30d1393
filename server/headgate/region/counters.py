"""Counters of a limit key that a whole region counts: the allowance and the dealings with the shard, which both kinds
have in common.

A counter is told what happens to its reports (`sent`, `answered`, `failed`), and it alone changes its fields. It is
created cold: without an allowance. What it counts, its kind says (regional_counts.py).
"""

import math
from collections.abc import Callable
from typing import Any, Final

from headgate.limiter.decision import Charge, Verdict
from headgate.limiter.limit import Limit
from headgate.origin.protocol import NOW_AND_THEN, PLENTY, UNBOUND, Answer, Demand, Report, WindowAnswer
from headgate.region.allowance import (
    BRIEF_S,
    MARGIN_S,
    MEASURED_S,
    SLOW_PER_S,
    SMALL,
    SMALL_LIMIT,
    measured,
    turn_ms,
    turn_s,
    wanted_far,
    wanted_near,
)
from headgate.region.pause import Pause
from headgate.region.refunds import Refunds
from headgate.region.regional_counts import RegionalCounts
from headgate.region.shard import Shard
from headgate.region.urgency import CALM, LATER, SOON

NEXT_TO_NOTHING: Final = 640
"""While no more than one part in so many of the limit is unacknowledged, nobody minds hearing of it late. Larger lets
fewer keys be reported rarely; smaller lets a node that is killed take more with it."""
ONE: Final = 1.0
"""The mean cost of requests on most keys: one number for all of them, as each of its own would be 24 bytes."""


class SharedCounter(RegionalCounts):
    """One limit key on one node: its component, its allowance, and its dealings with the shard."""

    __slots__ = (
        "_by_own_clock",
        "_clock_steps",
        "ahead_of_shard",
        "allowance",
        "allowance_until_s",
        "asked",
        "component",
        "cost_per_request",
        "credit_offered",
        "first_wanted",
        "flush_below",
        "flush_due_s",
        "half",
        "has_answer",
        "measured_s",
        "pause",
        "pins",
        "place",
        "refill",
        "refunds",
        "requests",
        "requests_per_s",
        "reset",
        "shard",
        "usable_until_s",
    )

    def __init__(self, key: bytes, place: bytes, component: bytes, shard: "Shard[SharedCounter]", limit: Limit) -> None:
        RegionalCounts.__init__(self, key, limit)
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
        """Know nothing of the shard, and have no allowance of it."""
        self.has_answer = False
        """True once the shard has answered for this counter."""
        self.usable_until_s = 0.0
        """Until then the view is fresh: 5 s from sending the last answered call."""
        self.allowance = 0
        """Units that the shard has set aside for this node, and that nobody has spent yet."""
        self.allowance_until_s = 0.0
        """Until then they may be spent: never longer than the view is fresh."""
        self.half = 0
        """Half of the allowance when it was last given: the shard hears of it soon when less is left."""
        self.flush_below = 0
        """Another report may be due, sooner, when less than so much is left of the allowance."""
        self.asked = 0
        """Cost of all requests since their rate was last measured, whatever became of them."""
        self.requests = 0
        """Number of these."""
        self.requests_per_s = 0.0
        """Requests per second, as last measured."""
        self.cost_per_request = ONE
        """Mean cost of one, as last measured."""
        self.measured_s = 0.0
        """The time of that."""
        self.refill = False
        """The shard has lost something: the next report names every live cell, acknowledged or not."""
        self.credit_offered = 0
        """Credit that the call under way lets the shard spend on its charge requests: nobody else may, meanwhile."""
        self.first_wanted = 0
        """Before the first answer, the most that a call asked for: it is charged in the window of the shard's time."""
        self.pause: Pause | None = None
        """The next report of the key, and what is denied until then; None while its limit is far."""
        self.refunds: Refunds | None = None
        """Refunds that were demanded and given; None while no limit of the key had refunds."""
        self.ahead_of_shard = False
        """No answer from this window yet: the shard may still charge in the one before, and must be told of it."""

    def come_to(self, limit: Limit, now_s: float) -> int:
        """Come under the limit, and to the shard's time at `now_s`; return that time."""
        if limit is not self.limit:
            if limit != self.limit:
                self.void()
            self.limit = limit
        return self.advance(self.shard.time.at_ms(now_s))

    def void(self) -> None:
        """Spend nothing more of what the shard set aside: it did so under another limit, or has forgotten it."""
        self.allowance = 0

    def ask(self, cost: int) -> None:
        """Count a request on the key, whatever becomes of it; of a cost that never fits nothing is wanted."""
        if cost <= self.most:
            self.asked += cost
            self.requests += 1

    def spendable(self, now_s: float) -> int:
        """Return how much of the allowance may be spent now: nothing once its time is up."""
        return self.allowance if now_s < self.allowance_until_s else 0

    def use(self, cost: int) -> int:
        """Take a cost out of the allowance, as far as it goes; return how much that was."""
        used = min(cost, self.allowance)
        self.allowance -= used
        return used

    def missing(self, cost: int) -> int:
        """Return the part of a cost that no credit covers."""
        return cost - min(cost, self.credit)

    def is_paused(self, missing: int, now_s: float) -> bool:
        """Return whether the node must not ask for so much: its allowance does not cover it, and nothing was left."""
        if self.pause is None or missing <= self.spendable(now_s):
            return False
        return self.pause.denies(missing, self.limit, self.sequence, now_s)

    def pause_left_ms(self, cost: int, now_s: float) -> int:
        """Return how long the node will not ask for this cost; 0 if it may."""
        pause = self.pause
        if pause is None or now_s >= pause.ends_s or not self.is_paused(self.missing(cost), now_s):
            return 0
        return pause.left_ms(now_s)

    def from_allowance(self, charge: Charge, now_ms: int, now_s: float) -> Verdict | None:
        """Admit the charge out of the key's allowance; None, and nothing changed: the plain rule must decide.

        It decides the same. What this leaves out is what has nothing to say far from a limit.
        (tests/unit/region/test_allowance.py holds both equal.)
        """
        return None

    def return_to_allowance(self, charge: Charge) -> None:
        """Undo a `from_allowance` of the same instant."""
        raise AssertionError("a counter without an allowance admits nothing from it")

    def pin(self, by: int) -> None:
        """Add a waiting request (1) that keeps the counter from being evicted, or take it away (-1)."""
        self.pins += by

    def flush(self) -> None:
        """Have it reported if there is something to report, soon if half of the allowance is spent."""
        if self.pause is not None and self.flush_due_s and self.flush_due_s == self.pause.ends_s:
            return  # the report at the end of the pause tells it
        unacked, allowance = self.unacked, self.allowance
        if unacked:
            calm = 0 if self.limit.refund else self.most // NEXT_TO_NOTHING
            if allowance < self.half or not allowance:
                urgency, self.flush_below = SOON, 0
            elif unacked <= calm:
                urgency, self.flush_below = CALM, max(self.half, allowance - calm + unacked)
            else:
                urgency, self.flush_below = LATER, self.half
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
        self.shard.report_at(self, self.refunds.report_s)

    @property
    def unreported(self) -> bool:
        """True while the shard has yet to hear of something."""
        return bool(self.unacked) or (self.refunds is not None and self.refunds.waiting)

    @property
    def has_news(self) -> bool:
        """True if a report that is due has something to say, or to give back, or somebody asks."""
        return self.unreported or self.refill or self.allowance > 0 or self.asked > 0

    def pressing(self, now_s: float) -> bool:
        """Return whether the next report tells the shard something: a demand may have to wait for its time."""
        if self.refill or self.unacked:
            return True
        return self.refunds is not None and self.refunds.telling and self.shard.remembers(now_s)

    def flush_rest(self, now_s: float) -> None:
        """Have it reported again after a call that did not settle all of it."""
        if self.pressing(now_s):
            self.shard.flush(self, SOON)
            return
        report_s = math.inf if self.refunds is None else self.refunds.report_s
        if now_s < report_s < math.inf:
            self.shard.report_at(self, report_s)
        else:
            self.shard.flush(self, LATER)  # the shard does not remember yet what there is to give back

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
        """Return the report for a call that goes out now, and that asks for `wanted` on top of it.

        What is beyond the need is given up first: the shard hands it to others as soon as it hears of it.
        """
        want = 0 if leaving else self._want(now_s)
        # What a call asks for comes first: it may need what is held, and what is wanted is given again.
        if self.allowance:
            self.allowance = 0 if wanted else min(self.spendable(now_s), abs(want))  # NOW_AND_THEN is for one
        report = self.report(number, wanted, want, leaving, now_s)
        # From here on an admission is one that this call does not carry.
        self.flush_due_s = 0.0
        self.pins += 1
        return report

    def _want(self, now_s: float) -> int:
        """Measure the rate, if it is time; return how much to hold by it: nothing if nobody asked."""
        passed_s, cost = now_s - self.measured_s, self.cost_per_request
        if self.requests:
            cost = ONE if self.asked == self.requests else self.asked / self.requests
        if passed_s >= MEASURED_S:
            self.requests_per_s = rate = measured(self.requests_per_s, self.requests, passed_s)
            self.cost_per_request, self.measured_s = cost, now_s
            self.asked = self.requests = 0
        else:
            rate = max(self.requests_per_s, self.requests / MEASURED_S)
        if not rate or self.most < SMALL_LIMIT:
            return 0
        if rate < SLOW_PER_S:
            return NOW_AND_THEN if cost <= 1 else 0  # a unit does not pay for more
        if self.pause is None:
            return wanted_far(rate * cost, self.limit)
        return wanted_near(rate * cost, self.limit, short=self.pause.short)

    def answered(self, answer: Any, limit: Limit, usable_until_s: float, sent_s: float) -> bool:
        """Take in the answer to a report under a limit. False: the shard has forgotten something that this report did
        not restore."""
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
        more: int = answer.more
        if more >= 0:
            self.usable_until_s = usable_until_s
            if limit is self.limit or limit == self.limit:
                self._receive(more, answer.left == PLENTY, sent_s)
        self.refill = self.lacks(answer)
        self.credit_offered = 0
        self.pins -= 1
        return remembers

    def _receive(self, more: int, plenty: bool, sent_s: float) -> None:
        """Hold more, and the rest of what was held, for as long as that harms nobody."""
        self.allowance = allowance = self.shard.interned(self.allowance + more)
        if not plenty:
            until_s = sent_s + 2 * turn_s(self.limit)
        elif self.requests_per_s < SLOW_PER_S or self.allowance * SMALL <= self.spare:
            until_s = self.usable_until_s
        else:
            until_s = sent_s + BRIEF_S
        if until_s < self.usable_until_s:
            self.allowance_until_s = until_s
            if self.allowance:
                self.shard.report_at(self, until_s - MARGIN_S)  # to be renewed, or given back
        else:
            self.allowance_until_s = self.usable_until_s
        self.half, self.flush_below = self.shard.interned((allowance + 1) // 2), allowance

    def conclude(
        self, report: Report, answer: Answer, limit: Limit, refused: int, sent_s: float, chance: Callable[[], float]
    ) -> None:
        """Be near the limit or far from it, after all of a call was taken in; pause if it brought too little.

        `refused` is the highest cost that the shard did not charge.
        """
        left = answer.left
        if left == PLENTY:
            self.pause = None
            return
        if limit is not self.limit or (isinstance(answer, WindowAnswer) and answer.sequence != self.sequence):
            return  # of another limit, or of another window
        self.pause = self.pause or Pause(limit)
        short = refused > 0 or report.rest + answer.more < report.want
        pausing = self.pause.answered(limit, self.sequence, left, refused, short=short)
        pausing = pausing and self.requests_per_s * turn_s(limit) >= 1  # else asking for each costs no more calls
        due_s = self.pause.next_report_s(sent_s, chance(), pausing=pausing)
        soon_ms = self.shard.now_ms() + turn_ms(limit)
        if self.allowance or self.unacked or (report.want > 0 and self.has_room_by(soon_ms)):
            self.shard.report_at(self, due_s)

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
        self.void()
        self.usable_until_s = 0.0

    def shard_forgot(self) -> None:
        """Tell the shard everything with the next report: it lost its memory, and what it had set aside with it."""
        self.void()
        self.refill = True

    def move_to(self, shard: "Shard[SharedCounter]") -> None:
        """Belong to another shard, where the key's record is now. That is told everything: should the former one have
        lost its memory on the way, it comes back so."""
        self.shard = shard
        self._clock_steps = shard.time.steps
        self.flush_due_s = 0.0
        self.shard_forgot()
        if self.has_answer or self.unreported:
            shard.flush(self, SOON)

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
