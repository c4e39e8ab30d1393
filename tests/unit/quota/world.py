"""Regions in simulated time: real ledgers, a network that loses and delays, stores that are lost, clocks that differ.

Each region has an origin that admits what it is offered within the share that was last written to it, as the
region's nodes would, also while its ledger is down; a store for the ledger; and demand. A step is half a second. At
each one the invariants of docs/quota.md are looked at, from outside, with all that every region knows.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from headgate.limiter.shares import WHOLE, cost_within, floor_share
from headgate.quota.key_plan import Enforced, SliceDeadlines
from headgate.quota.ledger import QuotaLedger
from headgate.quota.message import QuotaMessage
from headgate.quota.offered import Offered

STEP_MS: Final = 500
TICK_MS: Final = 1_000
TIMEOUT_MS: Final = 3_000
"""A message that was not acknowledged by then is given up, and the next one is sent."""
KEY: Final = b"key"
NOTHING_TOLD: Final = Enforced(0, 0)
NO_DEADLINES: Final = SliceDeadlines(0, 0)
EPOCH_END_MS: Final = 500_000 * 3_600_000
"""The end of an epoch, for every window whose epoch is an hour."""


Rows = tuple[tuple[int, int, int, int], ...]
"""(epoch, giver, receiver, total)"""


class Fault(NamedTuple):
    """Something that happens at a time, in ms from the start, to some regions."""

    at_ms: int
    kind: str
    regions: tuple[int, ...]
    for_ms: int = 0


@dataclass(frozen=True)
class History:
    """Everything that happens in one run."""

    regions: int
    window_ms: int
    limit: int
    start_ms: int
    length_ms: int
    demands: tuple[tuple[int, tuple[int, ...]], ...]
    """(from when, cost per window that each region is offered)"""
    offsets_ms: tuple[int, ...]
    faults: tuple[Fault, ...] = ()
    loss_percent: int = 0
    delay_ms: int = 100
    seed: int = 0
    sets: tuple[tuple[int, ...], ...] = ()
    """By region: with which set it starts, if not with all. One with an empty set is not there yet."""
    settled: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
    """(from when, until when, percent per region): what each enforces in that time, give or take 5."""


class Violation(NamedTuple):
    """What did not hold, when (ms from the start), and how it was."""

    invariant: str
    at_ms: int
    what: str


class Usage:
    """What one region admitted, in the two cells of a sliding window."""

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self.sequence = 0
        self.current = 0
        self.previous = 0

    def effective(self, now_ms: int) -> int:
        sequence, elapsed_ms = divmod(now_ms, self.window_ms)
        if sequence > self.sequence:
            self.previous = self.current if sequence == self.sequence + 1 else 0
            self.sequence, self.current = sequence, 0
        return self.current + self.previous * (self.window_ms - elapsed_ms) // self.window_ms


@dataclass
class Region:
    """One region: its origin, its store, its ledger, its clock."""

    number: int
    name: str
    offset_ms: int
    usage: Usage
    offered: Offered
    ledger: QuotaLedger | None = None
    names: tuple[str, ...] = ()
    """The set of regions that it is configured with."""
    other: QuotaLedger | None = None
    """A second one, that takes turns with the first."""
    store: dict[bytes, bytes] = field(default_factory=dict)
    mark: bytes = b""
    enforced: Enforced = NOTHING_TOLD
    enforced_by: QuotaLedger | None = None
    deadlines: SliceDeadlines = NO_DEADLINES
    admitted: int = 0
    saved_rows: Rows = ()
    under_way: dict[int, int] = field(default_factory=dict)
    """Peer to when the message to it was sent."""


class World:
    """One history, as it runs."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.names = tuple("abcdefgh"[: history.regions])
        self.random = random.Random(history.seed)
        self.now_ms = history.start_ms
        self.floor = floor_share(history.regions)
        self.precision = history.limit // 20 // history.regions
        """Each region's part of `P`."""
        self.regions = [
            Region(number, name, history.offsets_ms[number], Usage(history.window_ms), Offered(history.window_ms))
            for number, name in enumerate(self.names)
        ]
        self.blocked: dict[tuple[int, int], int] = {}
        """(from, to) to until when."""
        self.slow: dict[int, int] = {}
        self.held: dict[int, int] = {}
        self.down: dict[int, int] = {}
        self.stuck: dict[int, int] = {}
        self.violations: list[Violation] = []
        self.messages = 0
        self.entries = 0
        self._on_their_way: dict[int, Rows] = {}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._faults = sorted(history.faults)
        self.shares: list[tuple[int, tuple[int, ...]]] = []
        """(ms from the start, what each region enforces), at every second."""
        self.used: list[tuple[int, int]] = []
        for region in self.regions:
            members = history.sets[region.number] if history.sets else range(history.regions)
            region.names = tuple(self.names[number] for number in members)
            self._start(region)

    # Running

    def run(self) -> "World":
        for _ in range(self.history.length_ms // STEP_MS):
            self.step()
        return self

    def step(self) -> None:
        self.now_ms += STEP_MS
        self._happen()
        while self._queue and self._queue[0][0] <= self.now_ms:
            heapq.heappop(self._queue)[2]()
        for region in self.regions:
            self._offer(region)
            if region.ledger is None:
                if self.down.get(region.number, 0) <= self.now_ms:
                    self._start(region)
            elif (self.now_ms + region.number * STEP_MS) % TICK_MS == 0:
                if region.other is not None:
                    region.ledger, region.other = region.other, region.ledger
                self._tick(region)
        self._look()

    @property
    def at_ms(self) -> int:
        return self.now_ms - self.history.start_ms

    def clock(self, region: Region) -> int:
        return self.now_ms + region.offset_ms

    def in_force(self, region: Region) -> int:
        if not region.names:
            return 0
        now_ms = self.clock(region)
        if now_ms <= region.deadlines.taken_until_ms:
            return region.enforced.share
        return region.enforced.lasting if now_ms <= region.deadlines.until_ms else self.floor

    # What happens

    def _happen(self) -> None:
        while self._faults and self._faults[0].at_ms <= self.at_ms:
            fault = self._faults.pop(0)
            until_ms = self.now_ms + fault.for_ms
            getattr(self, f"_fault_{fault.kind}")(fault.regions, until_ms)

    def _fault_cut(self, regions: tuple[int, ...], until_ms: int) -> None:
        """Nothing gets from these to the others or back."""
        for one in regions:
            for other in set(range(len(self.regions))) - set(regions):
                self.blocked[one, other] = self.blocked[other, one] = until_ms

    def _fault_mute(self, regions: tuple[int, ...], until_ms: int) -> None:
        """Nothing gets from these to the others; what the others send arrives."""
        for one in regions:
            for other in set(range(len(self.regions))) - set(regions):
                self.blocked[one, other] = until_ms

    def _fault_link(self, regions: tuple[int, ...], until_ms: int) -> None:
        """Nothing gets from the first to the second."""
        self.blocked[regions[0], regions[1]] = until_ms

    def _fault_slow(self, regions: tuple[int, ...], until_ms: int) -> None:
        """What these send takes up to 4 s."""
        for one in regions:
            self.slow[one] = until_ms

    def _fault_held(self, regions: tuple[int, ...], until_ms: int) -> None:
        """What these send meanwhile arrives 8 s later."""
        for one in regions:
            self.held[one] = until_ms

    def _fault_crash(self, regions: tuple[int, ...], until_ms: int) -> None:
        """The ledger is gone; the origin goes on by what it was told."""
        for one in regions:
            self.regions[one].ledger = self.regions[one].other = None
            self.down[one] = until_ms

    def _fault_wipe(self, regions: tuple[int, ...], until_ms: int) -> None:
        """The store is empty, and so is the ledger that starts on it."""
        for one in regions:
            region = self.regions[one]
            region.store, region.mark, region.deadlines, region.saved_rows = {}, b"", NO_DEADLINES, ()
        self._fault_crash(regions, until_ms)

    def _fault_emptied(self, regions: tuple[int, ...], until_ms: int) -> None:
        """The store is empty, and the ledger that lives on is told so."""
        for one in regions:
            region = self.regions[one]
            if region.ledger is not None:
                region.store, region.mark, region.deadlines = {}, b"", NO_DEADLINES
                region.ledger.wiped(self.clock(region))
                if region.other is not None:
                    region.other.wiped(self.clock(region))

    def _fault_double(self, regions: tuple[int, ...], until_ms: int) -> None:
        """Two ledgers at once: they take turns, each hears and decides every other time."""
        for one in regions:
            region = self.regions[one]
            if region.ledger is not None and region.other is None:
                region.other = region.ledger
                self._start(region)
                self._after(until_ms, partial(setattr, region, "other", None))

    def _fault_stuck(self, regions: tuple[int, ...], until_ms: int) -> None:
        """The store can't be written; then the ledger is gone too."""
        for one in regions:
            self.stuck[one] = until_ms
        self._after(until_ms, lambda: self._fault_crash(regions, until_ms))

    def _fault_configure(self, regions: tuple[int, ...], until_ms: int) -> None:
        """The first of these starts with the set of all others that are named, itself included if it is among them."""
        region = self.regions[regions[0]]
        region.names = tuple(self.names[number] for number in regions[1:])
        self._start(region)

    def _start(self, region: Region) -> None:
        if not region.names:
            region.ledger = None
            return
        now_ms = self.clock(region)
        ledger = QuotaLedger(region.name, region.names, run=now_ms, now_ms=now_ms, mark=region.mark)
        for key, packed in region.store.items():
            ledger.table.load(key, packed, now_ms)
        region.ledger = ledger
        region.under_way = {}

    # One region

    def _offer(self, region: Region) -> None:
        now_ms, history = self.clock(region), self.history
        demand = next(rates for at_ms, rates in reversed(history.demands) if at_ms <= self.at_ms)[region.number]
        cost = demand * ((now_ms // STEP_MS) + 1) * STEP_MS // history.window_ms
        cost -= demand * (now_ms // STEP_MS) * STEP_MS // history.window_ms
        region.offered.add(cost, now_ms)
        # What nodes have admitted and not yet reported is at most P; the rest was decided by what the origin knows.
        room = cost_within(history.limit, self.in_force(region)) - region.usage.effective(now_ms)
        admitted = max(0, min(cost, room + self.precision))
        if room < 0:
            admitted = 0
        region.usage.current += admitted
        region.admitted += admitted

    def _tick(self, region: Region) -> None:
        ledger, now_ms, history = region.ledger, self.clock(region), self.history
        assert ledger is not None
        stored = region.store.get(KEY, b"")
        if stored != ledger.table.stored(KEY):
            ledger.table.overtaken(KEY, stored, now_ms)
        self._enforce(region)
        ledger.observe(
            KEY,
            limit=history.limit,
            window_ms=history.window_ms,
            enforced=region.enforced.share,
            used=max(0, region.usage.effective(now_ms) - self.precision),
            offered=region.offered.per_window(now_ms),
            now_ms=now_ms,
        )
        ledger.tick(now_ms)
        self._save(region)
        for peer in self.regions:
            if (
                peer is not region
                and peer.name in region.names
                and region.under_way.get(peer.number, 0) + TIMEOUT_MS <= self.now_ms
            ):
                region.under_way[peer.number] = self.now_ms
                self._send(region, peer, ledger.outgoing(peer.name, now_ms))

    def _enforce(self, region: Region) -> None:
        now_ms = self.clock(region)
        ledger = inside(region.ledger)
        region.enforced = ledger.enforced(KEY, self.history.window_ms, now_ms)
        region.deadlines, region.enforced_by = ledger.deadlines(now_ms), region.ledger

    def _save(self, region: Region) -> bool:
        """Whether the store could be written."""
        if self.stuck.get(region.number, 0) > self.now_ms:
            return False
        ledger = inside(region.ledger)
        for item in ledger.table.unsaved():
            stored = region.store.get(item.key, b"")
            if stored != item.before or self.in_force(region) > max(item.told, self.floor):
                ledger.table.overtaken(item.key, stored, self.clock(region))
                continue
            region.store[item.key] = item.packed
            if not item.packed:
                del region.store[item.key]
            ledger.table.saved(item)
        region.mark = ledger.mark
        region.saved_rows = self.rows(region)
        return True

    def _send(self, region: Region, peer: Region, message: QuotaMessage) -> None:
        self.messages += 1
        self.entries += len(message.entries)
        sender = region.ledger

        def receive() -> None:
            if peer.ledger is None or region.name not in peer.names:
                return
            peer.ledger.incoming(region.name, message, self.clock(peer))
            if self._save(peer):
                self._transmit(peer.number, region.number, acknowledge)

        def acknowledge() -> None:
            region.under_way.pop(peer.number, None)
            if sender is not None and sender in (region.ledger, region.other):
                sender.acknowledged(peer.name, message.mark.number, self.clock(region))

        self._transmit(
            region.number, peer.number, receive, tuple(row for entry in message.entries for row in entry.rows)
        )

    def _transmit(self, sender: int, receiver: int, deliver: Callable[[], None], rows: Rows = ()) -> None:
        if self.random.randrange(100) < self.history.loss_percent:
            return
        delay_ms = self.random.randint(1, self.history.delay_ms)
        if self.slow.get(sender, 0) > self.now_ms:
            delay_ms += self.random.randint(0, 4_000)
        if self.held.get(sender, 0) > self.now_ms:
            delay_ms += 8_000

        number = self._order
        self._on_their_way[number] = rows

        def arrive() -> None:
            del self._on_their_way[number]
            if self.blocked.get((sender, receiver), 0) <= self.now_ms:
                deliver()

        self._after(self.now_ms + delay_ms, arrive)

    def _after(self, at_ms: int, happen: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (at_ms, self._order, happen))

    # From outside

    def rows(self, region: Region) -> Rows:
        state = inside(region.ledger)._keys.get(KEY)
        return tuple(state.rows.flat()) if state else ()

    def all_rows(self) -> dict[tuple[int, int, int], int]:
        """What was ever given, as far as anybody has it or may still get it. What everybody has forgotten is void."""
        found: dict[tuple[int, int, int], int] = {}
        for rows in (*(region.saved_rows for region in self.regions), *self._on_their_way.values()):
            for *row, total in rows:
                epoch, giver, receiver = row
                found[epoch, giver, receiver] = max(total, found.get((epoch, giver, receiver), 0))
        return found

    def goes_by_slice(self, region: Region) -> bool:
        return bool(inside(region.ledger)._stand(self.clock(region)).goes_by_slice)

    def _look(self) -> None:
        shares = tuple(self.in_force(region) for region in self.regions)
        used = sum(region.usage.effective(self.clock(region)) for region in self.regions)
        if self.at_ms % 1_000 == 0:
            self.shares.append((self.at_ms, shares))
            self.used.append((self.at_ms, used))
        if sum(shares) > WHOLE:
            self._violate("shares", f"{shares} are {sum(shares)}")
        if min(share for share, region in zip(shares, self.regions, strict=True) if region.names) < self.floor:
            self._violate("floor", f"{shares} with a floor of {self.floor}")
        allowed = self.history.limit + self.precision * len(self.regions)
        if used > allowed:
            self._violate("usage", f"{used} in use, {allowed} allowed; shares {shares}")
        if not self.history.sets:  # regions have the same numbers in all sets only if the last one is added
            self._look_at_gifts(shares)
        for from_ms, until_ms, expected in self.history.settled:
            if from_ms <= self.at_ms <= until_ms and any(
                abs(share - percent * WHOLE // 100) > WHOLE // 20
                for share, percent in zip(shares, expected, strict=True)
            ):
                self._violate("settling", f"{shares} instead of {expected}")

    def _look_at_gifts(self, shares: tuple[int, ...]) -> None:
        """What is enforced and what is on its way to somebody who will enforce it."""
        under_way = 0
        # One that has just started may have forgotten what was given to it, and its nodes still use it.
        alive = [region for region in self.regions if region.ledger and region.ledger is region.enforced_by]
        taking = [
            region
            for region in self.regions
            if region.enforced.share > region.enforced.lasting and self.clock(region) <= region.deadlines.taken_until_ms
        ]
        if taking and len(self.regions) == 2:
            self._violate("majority", "one of two regions has taken from the other")
        if taking:  # of what is on its way to a lost region they have their parts
            return
        given = self.all_rows()
        for region in alive:
            if self.goes_by_slice(region):
                under_way += self._under_way_to(region, given)
        if sum(shares) + under_way > WHOLE:
            self._violate("gifts", f"{shares} and {under_way} under way")

    def _under_way_to(self, region: Region, given: dict[tuple[int, int, int], int]) -> int:
        """By each epoch that counts for it; the one with less, because the smaller slice counts."""
        state = inside(region.ledger)._keys.get(KEY)
        if state is None:
            return 0
        known = {row[:3]: row[3] for row in self.rows(region)}
        missing = dict.fromkeys(state.rows.counting(self.clock(region)), 0)
        for (number, giver, receiver), total in given.items():
            if receiver == region.number and number in missing:
                missing[number] += total - known.get((number, giver, receiver), 0)
        return min(missing.values())

    def _violate(self, invariant: str, what: str) -> None:
        if not any(violation.invariant == invariant for violation in self.violations):
            self.violations.append(Violation(invariant, self.at_ms, what))


def inside(ledger: QuotaLedger | None) -> Any:
    """A ledger's inside, which it never shows: only the tests look."""
    assert ledger is not None
    return ledger
