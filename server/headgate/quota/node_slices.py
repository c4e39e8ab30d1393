"""A node's quotas: which slice of each is in force here, and what it was offered.

A quota's slice is known to the shard, and told with every answer; until the first one, and when the time of the last
one is up, the floor is in force. What is offered, admitted and denied, denials from memory too, is added up per
key and goes with the reports that are sent anyway; a key that only denies is reported about once a second.

Only requests that meet a quota come here: a decision without one does not know that there are any. (docs/quota.md.)
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from headgate.limiter.by_key import ByKey
from headgate.limiter.counter_table import CounterTable
from headgate.limiter.decision import Charge, Kind
from headgate.limiter.limit import Algorithm, Limit
from headgate.limiter.scopes import slice_of
from headgate.limiter.shares import floor_share
from headgate.origin.interface import Origin
from headgate.origin.names import exchange_name
from headgate.origin.operations.call import Call, Reply
from headgate.quota.operations.call import QuotaCall, QuotaReply
from headgate.quota.operations.ready import SharesReady
from headgate.quota.protocol import QuotaKind, QuotaReport
from headgate.region.counters import SharedCounter
from headgate.region.extension import CameBy
from headgate.region.urgency import Urgency

REPORT_S: Final = 1.0
"""Time that what was offered may wait for a report: as often as slices are reckoned anew."""
BUSY_PARTS: Final = 5
"""A key is busy from two fifths of an even slice on: 1.25 times that, its need, is half of the slice, and published."""
READY_TIMEOUT_S: Final = 1.0
"""For a look whether a shard is ready for keys that come: nobody waits for it."""
LOOKED_AT: Final = 2
"""Slices that are looked at per new one: those of keys that are gone go."""

KINDS: Final = {
    Algorithm.SLIDING_WINDOW: QuotaKind.SLIDING,
    Algorithm.FIXED_WINDOW: QuotaKind.FIXED,
    Algorithm.GCRA: QuotaKind.BUCKET,
}


class KeySlice:
    """One quota of a node, beside its counter: its slice, and what was offered."""

    __slots__ = ("_charge", "_source", "due_s", "floor", "limit", "offered", "sent", "share", "until_s", "whole")

    def __init__(self, whole: Limit) -> None:
        self.offered = 0
        """Cost that no report has carried yet."""
        self.sent = 0
        """Cost that the call under way carries."""
        self.due_s = 0.0
        """From when on a report is asked for, if there is none anyway."""
        self.restate(whole)

    def restate(self, whole: Limit) -> None:
        """The rule has changed, or the key is new: its slice is not known."""
        self.whole = whole
        self.floor = floor_share(whole.regions)
        self.take(self.floor, 0.0)

    def take(self, share: int, until_s: float) -> None:
        """Take the share that is in force until `until_s`."""
        self.until_s = until_s
        self.share = share
        self.limit = slice_of(self.whole, share)
        self._source: Charge | None = None
        self._charge: Charge | None = None

    def charge(self, source: Charge) -> Charge:
        """Return the charge with the slice as its limit."""
        if self._charge is None or self._source is not source:
            self._source, self._charge = source, charge_on(source, self.limit)
        return self._charge

    def report(self, position: int, counter: SharedCounter, came_by: int) -> QuotaReport:
        whole = self.whole
        self.sent += self.offered
        self.offered = 0
        return QuotaReport(
            position,
            exchange_name(counter.key, counter.place, whole.window_ms),
            KINDS[whole.algorithm],
            whole.requests_per_unit,
            whole.burst,
            whole.window_ms,
            self.sent,
            self.floor,
            max(1, 2 * whole.requests_per_unit // (BUSY_PARTS * whole.regions)),
            came_by,
        )


class NodeSlices:
    """All quotas of one node, by limit key. The region's `CallExtension`."""

    def __init__(self, counters: CounterTable[SharedCounter], *, monotonic: Callable[[], float], most: int) -> None:
        self._counters = counters
        self._monotonic = monotonic
        self._most = most
        self._slices: ByKey[KeySlice] = ByKey(most)
        self._to_look_at: deque[bytes] = deque()
        """Their keys, in the order in which they were looked at last."""

    def __len__(self) -> int:
        return len(self._slices)

    def in_force(self, charges: tuple[Charge, ...]) -> tuple[Charge, ...]:
        """Return the charges with each quota cut to its slice. All of them are offered, whatever comes of it."""
        now_s = self._monotonic()
        return tuple([self._cut(charge, now_s) if charge.limit.sliced else charge for charge in charges])

    def _cut(self, charge: Charge, now_s: float) -> Charge:
        slice_ = self._slices.find(charge.key)
        if slice_ is None:
            slice_ = self._add(charge)
        elif slice_.whole is not charge.limit:
            slice_.restate(charge.limit)
        slice_.offered += _offered(charge)
        if now_s >= slice_.until_s and slice_.share != slice_.floor:
            slice_.take(slice_.floor, 0.0)
        if now_s >= slice_.due_s:
            self._have_reported(charge.key, slice_, now_s)
        return slice_.charge(charge)

    def _have_reported(self, key: bytes, slice_: KeySlice, now_s: float) -> None:
        counter = self._counters.find(key)
        if counter is not None:  # else it is cold, and asks anyway
            slice_.due_s = now_s + REPORT_S
            counter.shard.flush(counter, Urgency.LATER)

    def _add(self, charge: Charge) -> KeySlice:
        for _ in range(min(LOOKED_AT, len(self._slices))):
            key = self._to_look_at.popleft()
            if self._counters.find(key) is None:
                self._slices.forget(key)
            else:
                self._to_look_at.append(key)  # again when all others were
        while len(self._slices) >= self._most:
            self._slices.forget(self._to_look_at.popleft())
        slice_ = KeySlice(charge.limit)
        self._slices.keep(charge.key, slice_)
        self._to_look_at.append(charge.key)
        return slice_

    # What the shard sessions call

    def extend(
        self, call: Call, counters: Sequence[SharedCounter], now_s: float, came_by: CameBy
    ) -> "ExtendedByQuotas | None":
        """Return the call with the quotas among its counters; None: there are none."""
        if not len(self._slices):
            return None
        slices: list[KeySlice] = []
        quotas: list[QuotaReport] = []
        for position, counter in enumerate(counters):
            slice_ = self._slices.find(counter.key) if counter.limit.sliced else None
            if slice_ is not None:
                slice_.due_s = now_s + REPORT_S
                slices.append(slice_)
                quotas.append(slice_.report(position, counter, came_by(counter)))
        return ExtendedByQuotas(QuotaCall(call, tuple(quotas)), slices) if quotas else None

    async def may_come(self, origin: Origin, shard: int, number: int) -> bool:
        """Say if the keeper has told the shard all its shares by the list of this number, or none is in force there.

        Raises OriginError.
        """
        return await origin.run(shard, SharesReady(number), READY_TIMEOUT_S)


class ExtendedByQuotas:
    """A call that reports quotas: the region's `ExtendedCall`."""

    def __init__(self, operation: QuotaCall, slices: list[KeySlice]) -> None:
        self.operation = operation
        self._slices = slices
        """The slices that the call reports, in the order of its quotas."""

    def reply_of(self, result: QuotaReply) -> Reply:
        """Return the call's own reply."""
        return result.reply

    def learn(self, result: QuotaReply, sent_s: float) -> None:
        """Take the shares that are in force."""
        for slice_, (share, until_ms) in zip(self._slices, result.shares, strict=True):
            slice_.sent = 0
            until_s = sent_s + (until_ms - result.reply.time_ms) / 1000
            if share != slice_.share:
                slice_.take(share, until_s)
            slice_.until_s = until_s

    def failed(self) -> None:
        """Offer what the call carried again."""
        for slice_ in self._slices:
            slice_.offered, slice_.sent = slice_.offered + slice_.sent, 0


def charge_on(source: Charge, limit: Limit) -> Charge:
    """Return the same charge, on another limit of its key."""
    return Charge(
        source.key,
        limit,
        0 if source.kind is Kind.PEEK else source.cost,
        shadow=source.shadow,
        shard_key=source.shard_key,
        late=source.kind is not Kind.TAKE,
        refund=source.kind is Kind.REFUND,
        rule=source.rule,
        entries=source.entries,
    )


def _offered(charge: Charge) -> int:
    """A look costs nothing: what it looks for comes later. What is given back was offered before."""
    return 0 if charge.kind in (Kind.PEEK, Kind.REFUND) else charge.cost
