"""Values that nodes and the regional origin say to each other: plain tuples, the same for every origin.

A node calls a shard with reports (its own totals, which are merged by max) and with
requests (costs to be charged if they fit); the reply is what the region knows. Every
call is idempotent in what it reports, carries a number that rises per run, and is
never sent twice: a retry is a new call with a new number.

All messages are tuples of numbers and bytes, so that they cross to Lua as they are.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Self, TypeAlias

UNBOUND: Final = -1
"""Stands in a report's place for the reset: the counter has had no answer yet, and belongs to whatever the record
has."""


NOW_AND_THEN = -1
"""Stands in a report's place for what is wanted: a unit is needed from time to time, where there is plenty."""


class CellReport(NamedTuple):
    """A node's own part of one window of one limit key."""

    sequence: int
    total: int
    """The node's cumulative admitted cost in this cell."""
    reserved: int
    """Cost of requests that wait for other answers; counts as the node's own until released."""
    highest_total_seen: int
    """The highest region total of this cell that the node was told, or knows to have been there."""
    highest_sent: int
    """The highest total + reserved + wants of any earlier call, and of every `own` that was told."""


class Demand(NamedTuple):
    """Refunds that a node demands of one limit key, which are counted apart from all that is charged."""

    sequence: int
    """The window in which it was demanded; 0 of a bucket."""
    demanded: int
    """Cost that this component has demanded back in that window; of a bucket, ever."""
    settled: int
    """Part of that which the shard is known to have dealt with: one that lost its memory must not do so again."""
    refunded: int
    """Cost that the shard took out of this cell for the component, by its answers: it comes back with this report
    after a loss, and with nothing else. Of a bucket: the `region` of the last answer, to which its arrival time
    belongs."""


class Refund(NamedTuple):
    """Refunds of one cell, as the region knows them."""

    settled: int = 0
    """Part of the component's demands that was dealt with: given back, or found to be more than there was."""
    own: int = 0
    """Cost that was taken out of this cell for the component."""
    region: int = 0
    """Refunded cost of all components of the region. Of a bucket: all that its arrival time was ever put back by."""
    foreign: int = 0
    """All other regions together."""


class WindowTerms(NamedTuple):
    """Terms that reports of many keys have in common: the component, and the limit."""

    component: bytes
    """Owner of these totals: the node's run and the keys' incarnation in it."""
    limit: int
    window_ms: int
    precision: int
    sliding: bool
    leaving: bool
    """The node drains and gives its allowances back."""
    publish_at: int = 0
    """Region total from which on a key is published to other regions; 0: never."""
    urgent: bool = False
    """Published in the priority that exchangers read more often."""
    within: bool = False
    """All allowances together stay within `P`: there are nodes of a version that counts on it."""


class _FlatWindowReport(NamedTuple):
    key: bytes
    terms: WindowTerms
    number: int
    rest: int
    """Units of its allowance that the node may still spend, or holds for requests that wait."""
    want: int
    """Units that it would like to hold; NOW_AND_THEN if it needs one from time to time."""
    cells: tuple[CellReport, ...]
    name: bytes = b""
    """Name of the key between regions (exchange_name); empty while it is not published."""
    reset: int = UNBOUND
    """Number of the key's reset to which this belongs; 0: it was never reset. A higher number than the record's
    empties the record; a lower one is from before a reset, and counts nothing."""
    demands: tuple[Demand, ...] | None = None
    """Refunds demanded, by window; None: the limit has no refunds, and none are answered."""


class WindowReport(_FlatWindowReport):
    """One limit key under a sliding or fixed window. Whoever has its terms makes the tuple from those."""

    __slots__ = ()

    def __new__(
        cls,
        key: bytes,
        component: bytes,
        number: int,
        rest: int,
        want: int,
        limit: int,
        window_ms: int,
        precision: int,
        sliding: bool,
        leaving: bool,
        cells: tuple[CellReport, ...],
        publish_at: int = 0,
        name: bytes = b"",
        urgent: bool = False,
        reset: int = UNBOUND,
        demands: tuple[Demand, ...] | None = None,
        within: bool = False,
    ) -> Self:
        """Make the report and its terms from all their fields."""
        terms = WindowTerms(component, limit, window_ms, precision, sliding, leaving, publish_at, urgent, within)
        return tuple.__new__(cls, (key, terms, number, rest, want, cells, name, reset, demands))

    def _replace(self, **changes: Any) -> Self:
        """Return a copy with other fields, those of its terms among them."""
        terms = {name: changes.pop(name) for name in WindowTerms.__annotations__ if name in changes}
        if terms:
            changes["terms"] = self.terms._replace(**terms)
        return super()._replace(**changes)

    @property
    def component(self) -> bytes:
        """Field of `WindowTerms`, as all that follow."""
        return self.terms.component

    @property
    def limit(self) -> int:
        """The most that may be admitted in a window."""
        return self.terms.limit

    @property
    def window_ms(self) -> int:
        """Length of a window."""
        return self.terms.window_ms

    @property
    def precision(self) -> int:
        """`P`: how much of all allowances together is in nobody's way."""
        return self.terms.precision

    @property
    def sliding(self) -> bool:
        """True if the window slides."""
        return self.terms.sliding

    @property
    def leaving(self) -> bool:
        """True if the node drains, and its allowance ends."""
        return self.terms.leaving

    @property
    def publish_at(self) -> int:
        """Region total from which on other regions are told."""
        return self.terms.publish_at

    @property
    def urgent(self) -> bool:
        """True if they are told sooner."""
        return self.terms.urgent

    @property
    def within(self) -> bool:
        """True if allowances stay within `P`."""
        return self.terms.within


class BucketReport(NamedTuple):
    """One limit key under GCRA. Times of arrival are (whole ms, rest in 1/rate ms)."""

    key: bytes
    component: bytes
    number: int
    rest: int
    want: int
    """Units left of the allowance and wanted, as in a window's report."""
    rate: int
    window_ms: int
    burst: int
    precision: int
    leaving: bool
    total: int
    reserved: int
    acknowledged: int
    """The highest `own` that the node was told: what a wiped origin must not count again."""
    answered_ms: int
    answered_rest: int
    """The arrival time in the last answer, never one that the node advanced itself."""
    since_ms: int
    """Time at which the node admitted the first cost that is not acknowledged yet; 0 when there is none."""
    debt: int = 0
    """Requests by which late costs may take the bucket beyond its burst and `P`; 0 without overdraft."""
    reset: int = UNBOUND
    """Number of the key's reset, as in a window's report."""
    demands: tuple[Demand] | None = None
    """Refund demanded, one for all time."""
    within: bool = False
    """Allowances stay within `P`, as in a window's terms."""


Report = WindowReport | BucketReport


PEEK: Final = -1
"""Stands in a charge request's place for the cost: decided as a cost of 1 would be, and not charged."""


ChargeRequest: TypeAlias = tuple[int, int]
"""One cost that waits for the origin's decision: the position of its key's report in the call, and the cost."""


def costs_by_report(wants: Iterable[ChargeRequest]) -> dict[int, int]:
    """Add up the costs of one request by report; PEEK where it charges nothing."""
    costs: dict[int, int] = {}
    for report, cost in wants:
        known = costs.get(report, PEEK)
        costs[report] = PEEK if known == cost == PEEK else max(0, known) + max(0, cost)
    return costs


OVERTAKEN: Final = -1
"""Stands in an answer's place for the allowance: a later call was there first, or the report is from before a reset, so
that nothing was charged or set aside."""
UNREADABLE: Final = -2
"""Stands in an answer's place for the allowance: the shard can't read the key's record, and did nothing for the key.
What else the answer says means nothing."""
ELSEWHERE: Final = -3
"""Stands in an answer's place for the allowance: there is no record of the key, and none may begin here, because the
region has another list of shards, or the key leaves this one. Nothing was done for the key."""
SEALED: Final = -4
"""Stands in an answer's place for the allowance: the key's record is on its way to another shard."""
PLENTY = -1
"""Stands in an answer's place for what is left: the limit is far."""


class Count(NamedTuple):
    """One cell as the region knows it."""

    own: int
    """The reporting component: all that the shard has charged to it or was told of it."""
    region_total: int
    """All components of the region, and what is known to have been counted and lost."""
    foreign: int
    """All other regions together."""


class _FlatWindowAnswer(NamedTuple):
    sequence: int
    """The current cell by the shard's time."""
    own: int
    region_total: int
    foreign: int
    """Counts of the current cell, as in `Count`."""
    previous_own: int
    previous_region_total: int
    previous_foreign: int
    """Counts of the previous one."""
    more: int
    """Units that were set aside for the node beyond those that it had left; or why none."""
    left: int
    """Units that may still be charged or set aside; PLENTY while the limit is far."""
    reset: int = 0
    """Number of the key's reset to which the counts belong. Above the report's: that was ignored, with what was
    wanted."""
    refunds: tuple[Refund, Refund] | None = None
    """Refunds of the current and of the previous cell, for a report with demands."""


class WindowAnswer(_FlatWindowAnswer):
    """Answer of a shard for a key under a window: its two cells, and what was set aside for the node.

    Flat, because one is made per report of every call: what makes it from a shard's numbers has no more to make.
    """

    __slots__ = ()

    def __new__(
        cls,
        sequence: int,
        current: Count,
        previous: Count,
        more: int,
        left: int = PLENTY,
        reset: int = 0,
        refunds: tuple[Refund, Refund] | None = None,
    ) -> Self:
        """Make the answer from whole cells."""
        return tuple.__new__(cls, (sequence, *current, *previous, more, left, reset, refunds))

    @property
    def current(self) -> Count:
        """The current cell."""
        return Count(self.own, self.region_total, self.foreign)

    @property
    def previous(self) -> Count:
        """The one before."""
        return Count(self.previous_own, self.previous_region_total, self.previous_foreign)


class BucketAnswer(NamedTuple):
    """Answer of a shard for a key under GCRA: its arrival time, and what was set aside for the node."""

    own: int
    """The reporting component, as in `Count`."""
    arrival_ms: int
    arrival_rest: int
    """The key's theoretical arrival time."""
    more: int
    left: int = PLENTY
    """Units set aside and left, as in a window's answer."""
    reset: int = 0
    """Number of the key's reset, as in a window's answer."""
    refund: Refund | None = None
    """Refunds, for a report with demands."""


Answer = WindowAnswer | BucketAnswer
