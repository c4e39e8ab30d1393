"""Counters of a limit key that a whole region counts: what both kinds have in common.

The counts that the algorithms read (`current`, `previous`, `tat`) are all that is known of the
region, this node's own unacknowledged cost included. Beside them stands this node's own part.
A counter is told what happens to its reports (`sent`, `answered`, `failed`) and keeps its own
fields. It is created cold: not fresh, without a grant, and owner of a new component.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.limiter.counters import KeyCounter
from headgate.limiter.limit import Limit
from headgate.origin.protocol import NO_GRANT, UNBOUND, Answer, Demand, Report
from headgate.region.cells import CellView
from headgate.region.refunds import Refunds
from headgate.region.shard import Shard

if TYPE_CHECKING:
    from headgate.region.turns import Turns

NEXT_TO_NOTHING: Final = 16
"""While less than one part in so many of the grant is unacknowledged, nobody minds hearing of it late. Larger lets
fewer keys be reported rarely; smaller lets a node that is killed take more with it."""


MOST_SHARED: Final = 4_096
"""Numbers that counters share: windows and grants. There are few at a time; when there are more, all are let go."""
_shared_numbers: dict[int, int] = {}


def shared(number: int) -> int:
    """The same number, as one object for all counters: each of its own would be another 32 bytes per key."""
    if len(_shared_numbers) >= MOST_SHARED:
        _shared_numbers.clear()
    return _shared_numbers.setdefault(number, number)


class Hold(NamedTuple):
    """A reservation: cost that a waiting request will commit or release where it was made."""

    counter: Any
    component: bytes
    """The counter's component when it was made: another one by now, and the counter has begun anew."""
    cell: CellView | None
    """The cell in which it was made; None for buckets, which have none."""
    cost: int

    @property
    def closed(self) -> bool:
        """Whether the window in which it was made is over."""
        return self.cell is not None and self.cell.sequence < self.counter.sequence


class SharedCounter(KeyCounter, ABC):
    """What a node keeps of one limit key: its component, its grant, and its dealings with the shard."""

    __slots__ = (
        "_clock_steps",
        "ahead_of_shard",
        "component",
        "credit_offered",
        "first_wanted",
        "flush_due_s",
        "grant",
        "has_answer",
        "lane_ends_ms",
        "lane_left",
        "own_time",
        "pins",
        "place",
        "refill",
        "refunds",
        "reset",
        "shard",
        "turns",
        "usable_until_s",
    )

    sequence: int
    """The current window; 0 for buckets, which have none."""

    def __init__(self, key: bytes, component: bytes, shard: Shard, limit: Limit) -> None:
        # What KeyCounter begins with, without another call: counters are made for every new key.
        self.key = key
        self.limit = limit
        self.wheel_slot = None
        self.deny_until_ms = 0
        self.deny_cost = 0
        self.deny_limit = None
        self.component = component
        """Whose total this is: the node's run, and the key's incarnation in it."""
        self.shard = shard
        self._clock_steps = shard.clock_steps
        """Of the shard's clock when the counter last looked: one more, and the time may have gone back."""
        self.own_time = shard.own_time
        """Set until the first answer if the counter was made by this node's own clock."""
        self.has_answer = False
        """Whether the shard has ever answered for this counter."""
        self.grant = 0
        """What the node may have unacknowledged, by the last answer."""
        self.usable_until_s = 0.0
        """Until when the view is fresh and the grant may be used: 5 s from sending the last answered call."""
        self.flush_due_s = 0.0
        """When the next report is due; 0 while none is. Written by FlushQueues, and when a report is sent."""
        self.refill = False
        """The shard has lost something: the next report names every live cell, acknowledged or not."""
        self.credit_offered = 0
        """Credit that the call under way lets the shard spend on its wants: nobody else may, meanwhile."""
        self.pins = 0
        """Calls and waiting requests that hold on to the counter: it is not evicted meanwhile."""
        self.first_wanted = 0
        """Before the first answer, the most that a call asked for: it is charged in the window of the shard's time."""
        self.place = key
        """What chose the shard: the key, unless its domain says otherwise. Other regions place it by that too."""
        self.turns: Turns | None = None
        """What is asked of the key, and when the node may ask for it again; None while it was never at its limit."""
        self.lane_left = 0
        """What the free lane (lane.py) still lets through; 0 while it is closed."""
        self.lane_ends_ms = 0
        """When the window ends for which the lane is open."""
        self.refunds: Refunds | None = None
        """What was demanded and given back; None while no limit of the key had refunds."""
        self.reset = UNBOUND
        """To which reset of the key the counter belongs; to none until its first answer."""
        self.ahead_of_shard = False
        """No answer from this window yet: the shard may still charge in the one before, and must be told of it."""

    def held(self, now_s: float) -> int:
        """The grant that may be in use: none once its time is up, and no more than the rule allows now."""
        return min(self.grant, self.limit.precision) if now_s < self.usable_until_s else 0

    def missing(self, cost: int) -> int:
        """What of a cost no credit covers."""
        return cost - min(cost, self.credit)

    def flush(self, remaining: int) -> None:
        """Have it reported if there is something to report: soon where the limit or the grant's end is near,
        when it is convenient while next to nothing of the grant is used; not so late where it may be given back."""
        unacked = self.unacked
        if unacked:
            soon = unacked * 2 >= self.grant or remaining <= 2 * self.limit.precision
            calm = not soon and unacked * NEXT_TO_NOTHING <= self.grant and not self.limit.refund
            self.shard.flush(self, soon=soon, calm=calm)

    def demand(self, cost: int, now_ms: int, now_s: float) -> None:
        """Demand so much back. Later than an ordinary report: what it is for may have been admitted at another node,
        and the shard gives back only what it has heard of."""
        if self.refunds is None:
            self.refunds = Refunds()
        self.refunds.demand(cost, now_ms, now_s)
        self.shard.flush(self, soon=False, back=True)

    @property
    def unreported(self) -> bool:
        """Whether the shard has yet to hear of something."""
        return bool(self.unacked) or (self.refunds is not None and self.refunds.waiting)

    def pressing(self, now_s: float) -> bool:
        """Whether the next report tells the shard something: what is demanded back may have to wait for its time."""
        if self.refill or self.unacked:
            return True
        return self.refunds is not None and self.refunds.telling and self.shard.remembers(now_s)

    def demands(self, sequence: int, leaving: bool, now_s: float) -> tuple[Demand, ...] | None:
        """For a report: what is demanded back; None where there are no refunds."""
        if self.refunds is None:
            if not self.limit.refund:
                return None
            self.refunds = Refunds()
        self.refunds.come_due(now_s, leaving=leaving)
        return self.refunds.report(sequence, remembers=leaving or self.shard.remembers(now_s))

    # What the shard link tells it

    def sent(self, number: int, wanted: int, leaving: bool, now_s: float) -> Report:
        """A call goes out with this report, and asks for `wanted` on top of it."""
        self.lane_left = 0
        report = self.report(number, wanted, leaving, now_s)
        # From here on an admission is one that this call does not carry.
        self.flush_due_s = 0.0
        self.pins += 1
        return report

    def answered(self, answer: Any, usable_until_s: float) -> bool:
        """The call was answered. False: the shard has forgotten something, and this report did not restore it."""
        self.lane_left = 0
        if answer.reset != self.reset:
            if self.reset != UNBOUND:
                self._meet(answer.reset)
                return True
            self.reset = answer.reset
        remembers = self.learn(answer) or self.refill
        self.has_answer = True
        if answer.grant != NO_GRANT:
            if answer.grant != self.grant:
                self.grant = shared(answer.grant)
            self.usable_until_s = usable_until_s
        self.refill = self.lacks(answer)
        self.credit_offered = 0
        self.pins -= 1
        return remembers

    def _meet(self, reset: int) -> None:
        """An answer is of another reset: an earlier one does not concern the counter, a later one empties it."""
        self.failed()
        if reset > self.reset:
            self.reset_to(reset)

    def reset_to(self, number: int) -> None:
        """The key was reset: what this node has of it, reported or not, is from before, and goes."""
        self.begin_anew()
        self.reset = number

    def failed(self) -> None:
        """The call is over, whether or not anybody knows what came of it."""
        self.credit_offered = 0
        self.pins -= 1

    def unreadable(self) -> None:
        """The shard could not read the key's record: nothing was merged, and nothing is known of it."""
        self.failed()
        self.lane_left = 0
        self.usable_until_s = 0.0

    def shard_forgot(self) -> None:
        """The shard lost its memory: the next report tells it everything."""
        self.refill = True

    def clock_was_set(self) -> bool:
        """Whether the shard's clock was set since this was last asked."""
        steps, self._clock_steps = self._clock_steps, self.shard.clock_steps
        return steps != self._clock_steps

    def begin_anew(self) -> None:
        """As if the key had been dropped and came back: cold, and owner of a new component.

        What lies ahead of a clock that was set back would never age. Calls and requests under way keep
        the counter; what they bring is of another component, and is not taken for this one's.
        """
        self.component = self.shard.new_component()
        self.lane_left = 0
        self.has_answer = False
        self.own_time = None
        self.grant = 0
        self.usable_until_s = 0.0
        self.refill = False
        self.credit_offered = 0
        self.first_wanted = 0
        self.ahead_of_shard = False
        self.deny_until_ms = 0
        self.turns = None
        self.refunds = None

    # What each kind of counter does its own way

    @abstractmethod
    def fits_when_new(self, cost: int) -> bool:
        """Whether the limit has room for the cost in a counter that is empty: if not, nobody need be asked."""

    @property
    @abstractmethod
    def credit(self) -> int:
        """What the shard charged for this node and nobody has spent yet."""

    @property
    @abstractmethod
    def unacked(self) -> int:
        """This node's cost that the shard has not acknowledged."""

    @property
    @abstractmethod
    def reserved(self) -> int:
        """What this node's waiting requests hold."""

    @property
    @abstractmethod
    def own_admitted(self) -> int:
        """What this node itself admitted and still counts: what `on_error: open` is bounded by."""

    @property
    def is_over_limit(self) -> bool:
        """Whether more was admitted than the limit and its precision allow, by all that is known."""
        return False

    @abstractmethod
    def advance(self, now_ms: int) -> int:
        """Come to `now_ms`, or stay where an answer has already brought the counter; the time it is there."""

    @abstractmethod
    def spend(self, cost: int, now_ms: int) -> None:
        """Commit at once. The counts have the missing part already, from the algorithm's `take`."""

    @abstractmethod
    def countable(self, cost: int, now_ms: int) -> int:
        """What of a late cost still makes a difference: late costs have no limit, but what is kept of them has."""

    @abstractmethod
    def give_back(self, cost: int, now_ms: int) -> None:
        """Undo so much of what was spent before, as far as it is this node's and still counts."""

    @abstractmethod
    def unspend(self, cost: int) -> None:
        """Undo a `spend` of the same instant, with its `take`."""

    @abstractmethod
    def hold(self, cost: int, now_ms: int, charged: Answer | None = None) -> Hold:
        """Reserve: where the shard charged it, else at `now_ms`."""

    @abstractmethod
    def settle(self, hold: Hold, *, commit: bool) -> None:
        """End a reservation: its cost is admitted, or given up."""

    def commit(self, cost: int, now_ms: int, charged: Answer) -> int:
        """Admit what the shard has just charged: `hold` and `settle` in one. The window in which it counts."""
        hold = self.hold(cost, now_ms, charged)
        self.settle(hold, commit=True)
        self.flush(0)
        return self.sequence if hold.cell is None else hold.cell.sequence

    @abstractmethod
    def report(self, number: int, wanted: int, leaving: bool, now_s: float) -> Report:
        """What to tell the shard in a call that asks for `wanted` on top."""

    @abstractmethod
    def learn(self, answer: Any) -> bool:
        """Merge an answer. False: the shard knows less than it once did."""

    @abstractmethod
    def lacks(self, answer: Any) -> bool:
        """After `learn`: whether the shard has less than was certainly there, and must be told so."""
