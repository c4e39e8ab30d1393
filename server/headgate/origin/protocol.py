"""What nodes and the regional origin say to each other: plain values, the same for every origin.

A node calls a shard with reports (its own totals, which are merged by max) and with
requests (costs to be charged if they fit); the reply is what the region knows. Every
call is idempotent in what it reports, carries a number that rises per run, and is
never sent twice: a retry is a new call with a new number.

All messages are tuples of numbers and bytes, so that they cross to Lua as they are.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple, Self

from headgate.origin.book import BookMark
from headgate.origin.quota_protocol import QuotaReport, Share

UNBOUND = -1
"""In a report's place for the reset: the counter has had no answer yet, and belongs to whatever the record has."""


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
    """What a node demands back of one limit key: refunds, which are counted apart from all that is charged."""

    sequence: int
    """The window in which it was demanded; 0 of a bucket."""
    demanded: int
    """What this component has demanded back in that window; of a bucket, ever."""
    settled: int
    """Of that, what the shard is known to have dealt with: one that lost its memory must not do so again."""
    refunded: int
    """What the shard took out of this cell for the component, by its answers: it comes back with this report after a
    loss, and with nothing else. Of a bucket: the `region` of the last answer, to which its arrival time belongs."""


class Refund(NamedTuple):
    """What was given back in one cell, as the region knows it."""

    settled: int = 0
    """Of the component's demands, what was dealt with: given back, or found to be more than there was."""
    own: int = 0
    """What was taken out of this cell for the component."""
    region: int = 0
    """The same for all components of the region. Of a bucket: all that its arrival time was ever put back by."""
    foreign: int = 0
    """All other regions together."""


class WindowTerms(NamedTuple):
    """What reports of many keys have in common: whose they are, and the limit."""

    component: bytes
    """Whose totals these are: the node's run and the keys' incarnation in it."""
    limit: int
    window_ms: int
    precision: int
    sliding: bool
    leaving: bool
    """The node drains and gives its grants back."""
    publish_at: int = 0
    """From which region total on a key is published to other regions; 0: never."""
    urgent: bool = False
    """Published in the lane that exchangers read more often."""


class _FlatWindowReport(NamedTuple):
    key: bytes
    terms: WindowTerms
    number: int
    held: int
    """The grant that the node may still be using."""
    cells: tuple[CellReport, ...]
    name: bytes = b""
    """What the key is called between regions (exchange_name); empty while it is not published."""
    reset: int = UNBOUND
    """To which reset of the key this belongs; 0: it was never reset. A higher number than the record's empties the
    record; a lower one is from before a reset, and counts nothing."""
    demands: tuple[Demand, ...] | None = None
    """By window; None: the limit has no refunds, and none are answered."""


class WindowReport(_FlatWindowReport):
    """One limit key under a sliding or fixed window. Whoever has its terms makes the tuple from those."""

    __slots__ = ()

    def __new__(
        cls,
        key: bytes,
        component: bytes,
        number: int,
        held: int,
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
    ) -> Self:
        """From all that it says, for whoever has no terms."""
        terms = WindowTerms(component, limit, window_ms, precision, sliding, leaving, publish_at, urgent)
        return tuple.__new__(cls, (key, terms, number, held, cells, name, reset, demands))

    def _replace(self, **changes: Any) -> Self:
        """The same with other fields, those of its terms among them."""
        terms = {name: changes.pop(name) for name in WindowTerms.__annotations__ if name in changes}
        if terms:
            changes["terms"] = self.terms._replace(**terms)
        return super()._replace(**changes)

    @property
    def component(self) -> bytes:
        """As in `WindowTerms`, and so are all that follow."""
        return self.terms.component

    @property
    def limit(self) -> int:
        """The most that may be admitted in a window."""
        return self.terms.limit

    @property
    def window_ms(self) -> int:
        """How long a window is."""
        return self.terms.window_ms

    @property
    def precision(self) -> int:
        """`P`: what all grants together may be."""
        return self.terms.precision

    @property
    def sliding(self) -> bool:
        """Whether the window slides."""
        return self.terms.sliding

    @property
    def leaving(self) -> bool:
        """Whether the grant is given back."""
        return self.terms.leaving

    @property
    def publish_at(self) -> int:
        """From where on other regions are told."""
        return self.terms.publish_at

    @property
    def urgent(self) -> bool:
        """Whether they are told sooner."""
        return self.terms.urgent


class BucketReport(NamedTuple):
    """One limit key under GCRA. Times of arrival are (whole ms, rest in 1/rate ms)."""

    key: bytes
    component: bytes
    number: int
    held: int
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
    """When the node admitted the first cost that is not acknowledged yet; 0 when there is none."""
    debt: int = 0
    """By how many requests late costs may take the bucket beyond its burst and `P`; 0 without overdraft."""
    reset: int = UNBOUND
    """As of a window."""
    demands: tuple[Demand] | None = None
    """As of a window, but one for all time."""


Report = WindowReport | BucketReport


PEEK = -1
"""In a want's place for the cost: decided as a cost of 1 would be, and not charged."""


class ChargeRequest(NamedTuple):
    """One cost that waits for the origin's decision, on the key of the call's `report`-th report."""

    report: int
    cost: int


class Prefetch(NamedTuple):
    """Requests to come, on the key of the call's `report`-th report: charged when all wants are, as many as fit."""

    report: int
    requests: int
    """How many at most. Only whole ones are charged, and what the run's credit covers already is not charged again."""
    cost: int
    """Of each."""


def costs_by_report(wants: Iterable[ChargeRequest]) -> dict[int, int]:
    """What one request wants of each report: the sum of its costs, or PEEK where it only looks."""
    costs: dict[int, int] = {}
    for report, cost in wants:
        known = costs.get(report, PEEK)
        costs[report] = PEEK if known == cost == PEEK else max(0, known) + max(0, cost)
    return costs


class Call(NamedTuple):
    """One round trip to a shard: what this node reports, and what its requests want to be charged."""

    reports: tuple[Report, ...]
    requests: tuple[tuple[ChargeRequest, ...], ...]
    """Wants by request: those of one request are charged all or none."""
    quotas: tuple[QuotaReport, ...] = ()
    """Of the reported keys those whose limit is a quota: before anything is charged, each is cut to its slice."""
    ahead: tuple[Prefetch, ...] = ()
    """What is to be charged beyond the requests, at most once per report."""


NO_GRANT = -1
"""In an answer's place for the grant: the call was overtaken by a later one, so it renews nothing."""
UNREADABLE = -2
"""In an answer's place for the grant: the shard can't read the key's record, and did nothing for the key.
What else the answer says means nothing."""


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
    """Of the current cell, as in `Count`."""
    previous_own: int
    previous_region_total: int
    previous_foreign: int
    """Of the previous one."""
    grant: int
    reset: int = 0
    """To which reset of the key the counts belong. Above the report's: that was ignored, with what was wanted."""
    refunds: tuple[Refund, Refund] | None = None
    """Of the current and of the previous cell, for a report with demands."""


class WindowAnswer(_FlatWindowAnswer):
    """What a shard says of a key under a window: its two cells and the node's new grant.

    Flat, because one is made per report of every call: what makes it from a shard's numbers has no more to make.
    """

    __slots__ = ()

    def __new__(
        cls,
        sequence: int,
        current: Count,
        previous: Count,
        grant: int,
        reset: int = 0,
        refunds: tuple[Refund, Refund] | None = None,
    ) -> Self:
        """From whole cells, for whoever has them."""
        return tuple.__new__(cls, (sequence, *current, *previous, grant, reset, refunds))

    @property
    def current(self) -> Count:
        """The current cell."""
        return Count(self.own, self.region_total, self.foreign)

    @property
    def previous(self) -> Count:
        """The one before."""
        return Count(self.previous_own, self.previous_region_total, self.previous_foreign)


class BucketAnswer(NamedTuple):
    """What a shard says of a key under GCRA: its arrival time and the node's new grant."""

    own: int
    """The reporting component, as in `Count`."""
    arrival_ms: int
    arrival_rest: int
    """The key's theoretical arrival time."""
    grant: int
    reset: int = 0
    """As of a window."""
    refund: Refund | None = None
    """For a report with demands."""


Answer = WindowAnswer | BucketAnswer


class Reply(NamedTuple):
    """The answer to a call: one answer per report, and per request whether it was charged."""

    time_ms: int
    """The shard's time: the time of every limit key on it."""
    epoch: bytes
    """Another one means that the shard may have lost its memory."""
    answers: tuple[Answer, ...]
    charged: tuple[bool, ...]
    shares: tuple[Share, ...] = ()
    """Per quota of the call: what is in force of it."""


class Pulse(NamedTuple):
    """The answer to a heartbeat."""

    time_ms: int
    epoch: bytes
    live_nodes: int
    known: bool
    """False: the run's last heartbeat is gone, so its reports may be gone with it."""
    regions_heard: int = 0
    """Other regions that have said something lately, where they say it."""
    book: BookMark = BookMark()
    """How far the region's book has come, on the shard that keeps it."""


class ForeignCount(NamedTuple):
    """A region's component of one cell, as the exchanger received it: another one's, or this one's that comes back."""

    key: bytes
    window_ms: int
    sequence: int
    region: bytes
    total: int
    name: bytes = b""
    """What the key is called between regions: the own component is published from now on. Empty: it is not."""
    reset: int = 0
    """To which reset of the key it belongs: a later one than is known empties the record, an earlier one is ignored."""
    refunded: int = 0
    """What of the total was given back. Nothing of the own region's: refunds come back from the nodes alone."""


class Lane(IntEnum):
    """Changes to be published, by how often exchangers look for them."""

    NORMAL = 0
    URGENT = 1


class Changes(NamedTuple):
    """What one peer has not acknowledged yet of one shard and lane, the oldest change first."""

    time_ms: int
    epoch: bytes
    leased: bool
    """False: another exchanger of this region serves the peer at present, and is told the names. The rest is so."""
    since: int
    """Up to which change the peer has acknowledged all."""
    until: int
    """The change of the last name here: what to acknowledge."""
    latest: int
    """The newest change of all."""
    names: tuple[bytes, ...]
    generation: bytes
    """Drawn when the shard's memory began: another one means that it was lost."""
    mark: bytes
    """What `mark_filled` wrote last for this peer."""
    walk: bytes
    """What the peer asked for with `begin_walk`, last."""
    walk_until: int
    """Names up to this change go with the peer's own components; the walk is over when they are acknowledged."""
    beat_ms: int
    """The latest beat of the peer's region."""


class Published(NamedTuple):
    """A published key's components, as the shard has them. Cells are named by `sequence`: nothing is rolled over."""

    sequence: int
    current: int
    previous: int
    """This region's own; all 0 when the key has none."""
    peer_sequence: int
    peer_current: int
    peer_previous: int
    """The peer's; all 0 when none is known."""
    reset: int = 0
    """To which reset of the key all of these belong; 0: it was never reset."""
    current_refunded: int = 0
    previous_refunded: int = 0
    """What of this region's own was given back."""


class Stamp(NamedTuple):
    """A sign of life of another region, kept beside its counts."""

    region: bytes
    beat_ms: int


def exchange_name(key: bytes, place: bytes, window_ms: int) -> bytes:
    """What a key is called between regions: its window, what chooses its shard if that is not the key, the key."""
    return b"%x:" % window_ms + exchange_key(key, place)


def exchange_key(key: bytes, place: bytes) -> bytes:
    """The part of the name that a cell's identity has beside the window."""
    return b":" + key if place == key else b"%x:" % len(place) + place + key


def split_name(name: bytes) -> tuple[int, bytes]:
    """The window, and the exchange key. Raises ValueError where it is no name of ours."""
    window, colon, key = name.partition(b":")
    if not colon:
        raise ValueError("no window")
    return int(window, 16), key


def split_exchange_key(key: bytes) -> tuple[bytes, bytes]:
    """The key, and what chooses its shard. Raises ValueError where it is none of ours."""
    length, colon, rest = key.partition(b":")
    if not colon:
        raise ValueError("no length")
    if not length:
        return rest, rest
    size = int(length, 16)
    if not 0 < size < len(rest):
        raise ValueError("a length that is not there")
    return rest[size:], rest[:size]


def key_of_name(name: bytes) -> bytes:
    """The limit key that is called so between regions."""
    return split_exchange_key(split_name(name)[1])[0]
