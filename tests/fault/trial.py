"""One outage from beginning to end, under load: what was seen, and what of it must not be.

Tight keys are warmed by one node after the other and get no load before the fault is
there, so that what every node knew to be left is known exactly. All other keys are
under load all the time.
"""

import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.limiter.limit import OnError
from headgate.region.shard_link import CALL_TIMEOUT_S

from tests.fault.faults import ALL, Outage
from tests.fault.keys import LOCAL_LIMIT, OPEN_LIMIT, Key, weighted
from tests.fault.region import NODES, Numbers, Region
from tests.fault.traffic import Request, Traffic
from tests.support.waiting import PATIENCE_S, undisturbed, wait_until

RECOVERY_S: Final = 3.0
"""Within which decisions are as before: the longest cooldown (2.4 s) and one probe."""
MOST_LATE: Final = 0.01
"""Of affected requests: 99% stay within the deadline and the slack."""
WARM_ROUNDS: Final = 2
ENOUGH: Final = 10
"""Requests on each tight key during the fault: even if one node got them all, its bound would be seen."""


@dataclass(frozen=True, slots=True)
class Load:
    per_s: float
    before: int
    """Requests before the fault: the yardstick."""
    during: int
    """Requests while every breaker is open."""
    after: int
    deadline_s: float
    slack_s: float = 0.005
    """Beyond the deadline, for a decision that waited; up to a bound of the server's histogram."""


@dataclass(slots=True)
class Trial:
    """What happened. `problems` says what of it should not have."""

    outage: Outage
    requests: int
    failed: dict[str, int]
    """RPCs without an answer, by how they failed."""
    hung: int
    healthy: int
    """Requests on healthy shards during the fault."""
    healthy_degraded: int
    healthy_denied: int
    closed_denied: int
    """Of exact `closed` keys on sick shards, while all breakers were open."""
    closed_admitted: int
    """Of these, though the same node had denied one before. Until then it may spend what the shard had
    charged for requests that it answered too late."""
    closed_by_policy: int
    """Admissions that the policy `closed` made, at any time: there can be none."""
    open_admitted: list[int]
    local_admitted: list[int]
    """Of each tight key on a sick shard, from the beginning until it was healed."""
    waits_when_open: int
    affected: int
    """Decisions that policies made."""
    long_waits: int
    """Waits longer than the deadline and the slack."""
    latency_before_s: float
    latency_during_s: float
    affected_latency_s: float
    recovery_s: float
    degraded_after: int
    miscounted: dict[str, int]
    """What the origin counts more than was admitted, by key."""

    def problems(self) -> list[str]:
        """What no machine excuses: decisions and counts."""
        return [
            *_complaints(
                (self.failed, "RPCs failed"),
                (self.hung, "calls hung"),
                (self.closed_by_policy, "admissions by the policy that admits nothing"),
                (self.closed_admitted if self.outage.silent else 0, "requests of a closed rule were admitted"),
                (self.waits_when_open, "requests waited for a shard whose breaker was open"),
                (self.miscounted, "keys are miscounted (origin − admitted)"),
                (self.outage.felt and not self.affected, "nothing was affected: was there a fault at all?"),
            ),
            *self._bounds(),
        ]

    def delays(self) -> list[str]:
        """What took too long, for a machine that has nothing else to do."""
        late_credit = 0 if self.outage.silent else self.closed_admitted
        return [
            *_complaints((late_credit, "requests of a closed rule were admitted when all answers should have come")),
            *self._times(),
        ]

    def side_effects(self) -> list[str]:
        """What a fault must not do either, but a machine that is too busy for the deadline does without one."""
        return _complaints(
            (self.healthy_degraded, "decisions on healthy shards were degraded"),
            (self.healthy_denied, "requests on healthy shards were denied"),
            (self.degraded_after, "decisions were degraded after the recovery"),
        )

    @property
    def late_share(self) -> float:
        """Waits that were too long, as if all of them were affected requests' own."""
        return self.long_waits / self.affected if self.affected else 0.0

    @property
    def open_bound(self) -> int:
        """Each node its part of one and a half times the limit; or what `local` admits, if that is more."""
        # A node that restarts does not know what its former self admitted.
        parts = NODES * (OPEN_LIMIT * 3 // 2 // NODES) + (0 if self.outage.restarts is None else WARM_ROUNDS)
        return max(parts, self._bound_by_knowledge(OPEN_LIMIT))

    @property
    def local_bound(self) -> int:
        return self._bound_by_knowledge(LOCAL_LIMIT)

    def _bound_by_knowledge(self, limit: int) -> int:
        left = _known_left(self.outage, limit)
        # While answers come now and then, what a node was heard to admit counts as one again, and
        # others do not know of it yet: then each is bound by what it knows itself.
        return WARM_ROUNDS * NODES + (sum(left) // 2 if self.outage.silent else sum(left))

    def _bounds(self) -> Iterable[str]:
        steady = self.outage.steady
        # A slow shard's answers come too late for who asked, and bring units for who asks next.
        if steady and self.outage.silent and not self.closed_denied:
            yield "closed: nothing was denied"
        if max(self.open_admitted) > self.open_bound:
            yield f"open: {self.open_admitted} admitted, at most {self.open_bound} each"
        if steady and min(self.open_admitted) <= OPEN_LIMIT:
            yield f"open: {self.open_admitted} admitted, and the nodes together should exceed {OPEN_LIMIT}"
        if max(self.local_admitted) > self.local_bound:
            yield f"local: {self.local_admitted} admitted, at most {self.local_bound} each"
        if min(self.local_admitted) <= LOCAL_LIMIT / 2:
            yield f"local: {self.local_admitted} admitted of {LOCAL_LIMIT}, which is too few"

    def _times(self) -> Iterable[str]:
        if self.recovery_s > RECOVERY_S:
            yield f"recovered after {self.recovery_s:.2f} s"
        if self.late_share > MOST_LATE:
            yield f"of the affected requests {self.late_share:.1%} waited longer than the deadline and the slack"


def run_trial(region: Region, outage: Outage, load: Load, case: str) -> Trial:
    """`case` gives the keys their names: each trial has its own."""
    traffic, keys = _warmed(region, load, case)
    stamps = _Stamps(region, outage.sick)
    try:
        _live_through(region, outage, load, traffic, keys, stamps)
    finally:
        traffic.stop()
    miscounted = _count(region, traffic, keys)
    return _judge(outage, load, keys, traffic.log, stamps, miscounted)


def _warmed(region: Region, load: Load, case: str) -> tuple[Traffic, Sequence[Key]]:
    """Not by a policy: then a node would not know what the others admitted."""
    prepared: list[tuple[Traffic, Sequence[Key]]] = []

    def attempt(number: int) -> int:
        traffic, keys = Traffic(per_s=load.per_s), region.make_keys(f"{case}-{number}")
        before = region.numbers()
        _warm(region, traffic, keys)
        prepared.append((traffic, keys))
        pairs = list(zip(before, region.numbers(), strict=True))
        return sum(b.of_shard("degraded", shard) - a.of_shard("degraded", shard) for a, b in pairs for shard in ALL)

    undisturbed(attempt)
    return prepared[-1]


def _warm(region: Region, traffic: Traffic, keys: Sequence[Key]) -> None:
    """Every node knows the tight keys, with what the nodes before it admitted."""
    tight = [key for key in keys if key.tight]
    for _ in range(WARM_ROUNDS):
        for node, address in enumerate(region.addresses):
            asked = traffic.ask(address, node, tight)
            assert all(request.admitted for request in asked), "all should be well before the fault"
            wait_until(lambda: not _differences(region, traffic, tight), "the totals of the warm-up")


class _Stamps:
    """Numbers and times at the turning points."""

    def __init__(self, region: Region, sick: Sequence[int]) -> None:
        self._region = region
        self.sick = sick
        self.numbers: dict[str, list[Numbers]] = {}
        self.times: dict[str, float] = {}
        self.recovery_s = 0.0

    def take(self, name: str) -> None:
        self.numbers[name] = self._region.numbers()
        self.times[name] = time.monotonic()

    def grown(self, name: str, shards: Iterable[int], since: str, until: str) -> int:
        """By how much a number of these shards has grown, over all nodes."""
        pairs = list(zip(self.numbers[since], self.numbers[until], strict=True))
        return sum(b.of_shard(name, shard) - a.of_shard(name, shard) for shard in shards for a, b in pairs)

    def admitted_by(self, path: str, since: str, until: str) -> int:
        pairs = zip(self.numbers[since], self.numbers[until], strict=True)
        return sum(b.decisions(path, "admitted") - a.decisions(path, "admitted") for a, b in pairs)

    def waits_over(self, bound_s: float, since: str, until: str) -> int:
        def over(numbers: Numbers) -> int:
            name = "headgate_origin_wait_seconds_bucket"
            return numbers.get(name, le="+Inf") - numbers.get(name, le=f"{bound_s:g}")

        return sum(over(b) - over(a) for a, b in zip(self.numbers[since], self.numbers[until], strict=True))


def _live_through(
    region: Region, outage: Outage, load: Load, traffic: Traffic, keys: Sequence[Key], stamps: _Stamps
) -> None:
    try:
        _suffer(region, outage, load, traffic, keys, stamps)
    finally:
        outage.heal(region)  # whatever came of it: other trials follow in this region
    stamps.times["healed"] = time.monotonic()
    stamps.recovery_s = region.wait_until_closed(outage.sick)
    stamps.take("recovered")
    traffic.wait_for_more(load.after)
    stamps.take("after")


def _suffer(region: Region, outage: Outage, load: Load, traffic: Traffic, keys: Sequence[Key], stamps: _Stamps) -> None:
    # Exact `closed` keys are new to all nodes when it begins: what nobody holds a unit of needs the shard each time.
    wide = [key for key in keys if not key.tight and key.rule != "closed-exact"]
    if outage.restarts is None:
        traffic.start(region.addresses, wide)
        traffic.wait_for_more(load.before)
        stamps.take("fault")
        outage.begin(region)
        traffic.keys = weighted(keys, outage.sick)
    else:
        outage.begin(region)
        stamps.take("fault")
        traffic.start(region.addresses, weighted(keys, outage.sick))
    if outage.steady:
        region.wait_until_open(outage.sick)
    elif outage.felt:
        region.wait_until_degraded(outage.sick, stamps.numbers["fault"])
    stamps.take("open")
    traffic.wait_for_more(load.during)
    traffic.wait_for_each([key for key in keys if key.tight and key.shard in outage.sick], WARM_ROUNDS * NODES + ENOUGH)
    stamps.take("heal")


def _differences(region: Region, traffic: Traffic, keys: Sequence[Key]) -> dict[str, int]:
    totals = region.totals(keys)
    found = {
        f"{key.rule} on {key.shard}": total - traffic.admitted(key) for key, total in zip(keys, totals, strict=True)
    }
    return {name: difference for name, difference in found.items() if difference}


def _count(region: Region, traffic: Traffic, keys: Sequence[Key]) -> dict[str, int]:
    """What is still different when everything is reported and all credit is spent.

    A charge for a request that was decided without it pays for the node's next admission on
    that key, so every node is asked again while the origin counts more than was admitted. What
    was counted twice stays, however often they are asked.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        differences = _differences(region, traffic, keys)
        if not differences:
            return {}
        owing = [key for key in keys if differences.get(f"{key.rule} on {key.shard}", 0) > 0]
        for node, address in enumerate(region.addresses):
            traffic.ask(address, node, owing)
    return _differences(region, traffic, keys)


def _judge(
    outage: Outage, load: Load, keys: Sequence[Key], log: Sequence[Request], stamps: _Stamps, miscounted: dict[str, int]
) -> Trial:
    sick = outage.sick
    healthy = [shard for shard in {key.shard for key in keys} if shard not in sick]
    at = stamps.times
    before = [r for r in log if r.key.shard in healthy and r.answered_s and r.sent_s < at["fault"]]
    during = [r for r in log if at["fault"] <= r.sent_s < at["heal"]]
    when_open = [r for r in during if r.sent_s >= at["open"] and r.answered_s < at["heal"]]
    until_healed = [r for r in log if r.answered_s < at["heal"]]
    waits_when_open = stamps.grown("wants", sick, "open", "heal") if outage.steady else 0
    # What a slow shard still answers when breakers are open is credit, and pays for one more admission.
    settled_s = at["open"] + (0.0 if outage.silent else CALL_TIMEOUT_S)
    closed = [
        r
        for r in when_open
        if outage.steady and r.key.rule == "closed-exact" and r.key.shard in sick and r.sent_s >= settled_s
    ]
    return Trial(
        outage=outage,
        requests=len(log),
        failed=dict(Counter(r.failed for r in log if r.failed)),
        hung=sum(not r.answered_s for r in log),
        healthy=sum(r.key.shard in healthy for r in during),
        healthy_degraded=stamps.grown("degraded", healthy, "fault", "after"),
        healthy_denied=sum(not r.admitted for r in log if r.key.shard in healthy and not r.key.tight),
        closed_denied=sum(not r.admitted for r in closed),
        closed_admitted=_admitted_after_denial(closed),
        closed_by_policy=stamps.admitted_by("degraded_closed", "fault", "after"),
        open_admitted=_admitted(until_healed, keys, sick, OnError.OPEN),
        local_admitted=_admitted(until_healed, keys, sick, OnError.LOCAL),
        waits_when_open=waits_when_open,
        affected=stamps.grown("degraded", sick, "fault", "after"),
        long_waits=stamps.waits_over(load.deadline_s + load.slack_s, "fault", "after"),
        latency_before_s=_median(r.took_s for r in before),
        latency_during_s=_median(r.took_s for r in during if r.key.shard in healthy and r.answered_s),
        affected_latency_s=_p99(r.took_s for r in during if r.key.shard in sick and r.answered_s),
        recovery_s=stamps.recovery_s,
        degraded_after=stamps.grown("degraded", sick, "recovered", "after"),
        miscounted=miscounted,
    )


def _admitted(log: Sequence[Request], keys: Sequence[Key], sick: Sequence[int], on_error: OnError) -> list[int]:
    """Of each tight key of that policy on a sick shard."""
    tight = [key for key in keys if key.tight and key.on_error is on_error and key.shard in sick]
    return [sum(r.admitted for r in log if r.key is key) for key in tight]


def _admitted_after_denial(requests: Sequence[Request]) -> int:
    found, denied = 0, set()
    for request in requests:
        which = (request.node, request.key)
        if not request.admitted:
            denied.add(which)
        found += request.admitted and which in denied
    return found


def _known_left(outage: Outage, limit: int) -> list[int]:
    """What each node knew to be left of a tight key: it has heard of all hits before its own last one."""
    left = [limit - WARM_ROUNDS * NODES + (NODES - 1 - node) for node in range(NODES)]
    if outage.restarts is not None:
        left[outage.restarts] = limit
    return left


def _complaints(*found: tuple[object, str]) -> list[str]:
    return [f"{what}: {value}" for value, what in found if value]


def _median(values: Iterable[float]) -> float:
    known = list(values)
    return statistics.median(known) if known else 0.0


def _p99(values: Iterable[float]) -> float:
    known = sorted(values)
    return known[len(known) * 99 // 100] if known else 0.0
