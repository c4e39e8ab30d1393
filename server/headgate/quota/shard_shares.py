"""The keeper's step on every shard of its region: which shares are in force there, and what is used of them.

A step writes which shares are in force, and reads what is used and offered of the same keys, at one instant of the
shard. All shards are asked at the same time, so one that hangs holds up nobody else's keys for longer than a call.

Promises: a share is in force at most until the ledger's deadline, whatever happens to the keeper; a shard that lost its
memory has its deadline renewed only when it has every share again. While a key moves its share is written at both
shards that may have it, and what is used of it counts as read only when both have it. (docs/convergence.md, 12.12.)
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from headgate.exchange.site import ExchangeSite
from headgate.limiter.shares import WHOLE
from headgate.origin.interface import OriginError, OriginTimeout, owners_of
from headgate.origin.names import split_exchange_key, split_name
from headgate.quota.key_plan import Enforced
from headgate.quota.ledger import QuotaLedger
from headgate.quota.operations.step import UNTOUCHED, StepQuotas
from headgate.quota.protocol import NOT_USED, QuotaKind, QuotaSeen

TIMEOUT_S: Final = 2.0
"""Patience with one call to a shard. Nobody waits for it."""
HOLD_MS: Final = 25_000
"""For how long a key's own share holds unless it is written again. Under the 30 s that an epoch's overlap has beyond
its windows: a key that nobody looks at any more falls to its floor before others count on what it had."""
HOLD_TAKEN_MS: Final = 3_000
"""Hold of a share that has something of lost regions: they may come back at any time."""
LONGEST_MS: Final = 86_400_000
"""For longer nothing is said to hold; it is said again every second."""
SHARES_PER_STEP: Final = 250
"""Keys per call to a shard: about three milliseconds of its time."""
MOST_PER_TICK: Final = 5_000
"""Keys per tick and shard. When more are busy, each is looked at in a later tick, and gives nothing away meanwhile."""
BUSY_TICKS: Final = 4
"""Busy keys that a shard names: as many as are looked at in so many ticks, within which a share is renewed."""
QUIET_S: Final = 2.0
"""Pause between looks at a shard that has no quota in use: on a Cluster there are many."""
HANGING_S: Final = 5.0
"""For so long a shard is left alone that did not answer: a tick waits for all that it asks. Under the 20 s for which
what the others were told holds."""
FORGOTTEN_PER_TICK: Final = 500
"""Shares that are looked at per tick and shard, whether their keys are still known."""


class Replaced(Exception):
    """Another keeper is there, or the store was lost."""


@dataclass(slots=True)
class KeeperCounts:
    """For metrics: what was refused, or hit a bound."""

    ticks: int = 0
    failures: int = 0
    posted: int = 0
    """Messages that were left for another process."""
    refused: int = 0
    """Entries of peers that name no key."""
    waiting: int = 0
    """Busy keys that had to wait for a later tick."""


@dataclass(slots=True)
class KnownShard:
    """One shard, as the keeper knows it."""

    generation: bytes = b""
    epoch: bytes = b""
    unwritten: dict[bytes, None] = field(default_factory=dict)
    """Known keys whose shares the shard may not have: until all are there, its deadlines are not renewed."""
    written: dict[bytes, int] = field(default_factory=dict)
    """Names that have a share of their own there, and what it was."""
    busy: tuple[bytes, ...] = ()
    dropped: int = 0
    looked_s: float = -1e9
    left_until_s: float = 0.0
    first: int = 0
    """Place among too many keys where the next tick begins."""


@dataclass(slots=True)
class BucketUse:
    """Usage of a bucket: it falls as the bucket drains, and not because its rate was lowered."""

    at_ms: int
    used: int
    share: int


class ShardShares:
    """All shards of a region, for its keeper."""

    def __init__(self, site: ExchangeSite, counts: KeeperCounts, now_ms: Callable[[], int]) -> None:
        """`now_ms` is the keeper's time: that of the first shard."""
        self._site = site
        self._counts = counts
        self._now_ms = now_ms
        self._shards: dict[int, KnownShard] = {}
        self._buckets: dict[bytes, BucketUse] = {}
        self._number = 0
        """Number of the list of shards by which shares are told."""
        self._moving: dict[bytes, list[tuple[Enforced, QuotaSeen | None]]] = {}
        """Writings of this step for each key that moves: what was written at a shard, and what was read there."""
        self.begin()

    def begin(self) -> None:
        """With another ledger, or by another list of shards: nothing is known of any shard but what to forget there."""
        self._buckets.clear()
        self._number = self._site.origin.placement.number
        written = {shard: known.written for shard, known in self._shards.items()}
        self._shards = {shard: KnownShard(written=written.get(shard, {})) for shard in self._site.origin.placed_on}

    @property
    def dropped(self) -> int:
        """Times that a busy key was not noted, because there were too many."""
        return sum(known.dropped for known in self._shards.values())

    def enforced(self) -> Mapping[bytes, int]:
        """The shares that were written, by name."""
        return {name: share for known in self._shards.values() for name, share in known.written.items()}

    async def step_all(self, ledger: QuotaLedger, fence: int) -> None:
        """Take one step on every shard. Raises Replaced."""
        by_shard: dict[int, dict[bytes, None]] = {shard: {} for shard in self._shards}
        busy = [name for known in self._shards.values() for name in known.busy]
        for name in (*ledger.watched(), *busy):
            for shard in self._owners(name):
                by_shard[shard][name] = None
        self._moving.clear()
        steps = [self._step_shard(ledger, fence, shard, names) for shard, names in by_shard.items()]
        results = await asyncio.gather(*steps, return_exceptions=True)
        for known, failed in zip(self._shards.values(), results, strict=True):
            if isinstance(failed, OriginError):
                self._counts.failures += 1  # the others' keys are not held up by it
                hangs = isinstance(failed, OriginTimeout)
                known.left_until_s = self._site.clock.monotonic() + HANGING_S if hangs else 0.0
            elif failed is not None:
                raise failed
        for name, found in self._moving.items():
            self._observe_moving(ledger, name, found)

    def _owners(self, name: bytes) -> tuple[int, ...]:
        """Return the shards that may have a key, of those that are kept here; none where it is no name of ours."""
        place = shard_place(name)
        owners = owners_of(self._site.origin, place) if place is not None else ()
        return tuple([shard for shard in owners if shard in self._shards])

    async def _step_shard(self, ledger: QuotaLedger, fence: int, shard: int, names: dict[bytes, None]) -> None:
        known = self._shards[shard]
        now_s = self._site.clock.monotonic()
        is_quiet = not names and not known.unwritten and not known.written
        if now_s < known.left_until_s or (known.generation and is_quiet and now_s < known.looked_s + QUIET_S):
            return
        if not known.generation:
            await self._step(ledger, fence, shard, (), with_deadlines=False)  # it says what its memory is called
        chosen = self._chosen(known, list(names))
        chosen += [name for name in islice(known.unwritten, MOST_PER_TICK) if name not in names]
        pages = [chosen[at : at + SHARES_PER_STEP] for at in range(0, len(chosen), SHARES_PER_STEP)] or [[]]
        for page in pages:
            generation = known.generation
            await self._step(ledger, fence, shard, page, with_deadlines=page is pages[-1])
            if known.generation != generation:
                return
        known.looked_s = now_s

    def _chosen(self, known: KnownShard, names: list[bytes]) -> list[bytes]:
        if len(names) <= MOST_PER_TICK:
            return names
        self._counts.waiting += len(names) - MOST_PER_TICK
        begin = known.first % len(names)
        known.first = begin + MOST_PER_TICK
        return (names[begin:] + names[:begin])[:MOST_PER_TICK]

    async def _step(
        self, ledger: QuotaLedger, fence: int, shard: int, names: Sequence[bytes], *, with_deadlines: bool
    ) -> None:
        known, now_ms = self._shards[shard], self._now_ms()
        shares = [(name, ledger.enforced(name, split_name(name)[0], now_ms)) for name in names]
        deadlines, unknown = ledger.deadlines(now_ms), ledger.unknown(now_ms)
        complete = with_deadlines and len(known.unwritten.keys() - set(names)) == 0
        step = StepQuotas(
            fence=fence,
            generation=known.generation,
            drawn=self._site.random.randbytes(16),
            taken_ms=_left_ms(deadlines.taken_until_ms, now_ms),
            until_ms=_left_ms(deadlines.until_ms, now_ms) if complete else UNTOUCHED,
            share=unknown.share,
            settled_ago_ms=min(now_ms - unknown.settled_ms, now_ms),
            shares=tuple((name, *enforced, _hold_ms(enforced)) for name, enforced in shares),
            forgotten=tuple(self._forgotten(ledger, shard)) if with_deadlines else (),
            most=BUSY_TICKS * MOST_PER_TICK if with_deadlines else 0,
            number=self._number,
        )
        stepped = await self._site.origin.run(shard, step, TIMEOUT_S)
        if not stepped.kept:
            self._lost(ledger, shard, stepped.generation)
            return
        if stepped.epoch != known.epoch and known.epoch:
            self._begin_shard(ledger, shard)  # a copy may have taken over, that lacks what was written last
        known.epoch = stepped.epoch
        for (name, enforced), seen in zip(shares, stepped.seen, strict=True):
            known.unwritten.pop(name, None)
            known.written[name] = enforced.share
            if len(self._owners(name)) > 1:
                self._moving.setdefault(name, []).append((enforced, seen))
            elif seen is not None:
                self._observe(ledger, name, enforced, seen)
        for name in step.forgotten:
            known.written.pop(name, None)
            self._buckets.pop(name, None)
        if with_deadlines:
            known.busy, known.dropped = stepped.busy, stepped.dropped

    def _lost(self, ledger: QuotaLedger, shard: int, generation: bytes) -> None:
        """The shard has another memory, and with it no shares and no deadlines; or a later keeper was there, or it has
        heard of another list of shards.
        """
        known = self._shards[shard]
        if generation == known.generation:
            raise Replaced
        known.generation = generation
        self._begin_shard(ledger, shard)

    def _begin_shard(self, ledger: QuotaLedger, shard: int) -> None:
        known = self._shards[shard]
        known.unwritten = {name: None for name in ledger.known() if shard in self._owners(name)}

    def _forgotten(self, ledger: QuotaLedger, shard: int) -> Iterator[bytes]:
        """Names of which nothing is known any more, or that have left, of some that are looked at."""
        known = self._shards[shard]
        busy = set(known.busy)
        for name in list(islice(known.written, FORGOTTEN_PER_TICK)):
            if (name in ledger or name in busy) and shard in self._owners(name):
                known.written[name] = known.written.pop(name)  # it is looked at again when all others were
            else:
                yield name

    def _observe_moving(
        self, ledger: QuotaLedger, name: bytes, found: Sequence[tuple[Enforced, QuotaSeen | None]]
    ) -> None:
        """Take in what is used of a key that moves, if its share was written at both shards, and one of them has it."""
        used = [seen for _, seen in found if seen not in (None, NOT_USED)]
        if len(found) == len(self._owners(name)) and len(used) == 1 and used[0] is not None:
            self._observe(ledger, name, max(enforced for enforced, _ in found), used[0])

    def _observe(self, ledger: QuotaLedger, name: bytes, enforced: Enforced, seen: QuotaSeen) -> None:
        window_ms = split_name(name)[0]
        limit, used = max(1, seen.limit), seen.used
        if seen != NOT_USED and seen.window_ms != window_ms:
            return
        if seen.kind is QuotaKind.BUCKET:
            used = self._used_of_bucket(name, enforced.share, seen)
        ledger.observe(
            name,
            limit=limit,
            window_ms=window_ms,
            enforced=enforced.share,
            used=used,
            offered=seen.offered,
            now_ms=self._now_ms(),
        )

    def _used_of_bucket(self, name: bytes, share: int, seen: QuotaSeen) -> int:
        """Return the usage as a cost, by the rate. A bucket's rate and burst change with the share: what was
        used by a larger share is gone when it has drained, not when the share has become smaller."""
        now_ms, full_ms = self._now_ms(), max(1, seen.burst * seen.window_ms // max(1, seen.limit))
        used = -(-share * min(seen.used, full_ms) // full_ms)
        before = self._buckets.get(name)
        if before is not None:
            used = max(used, before.used - before.share * max(0, now_ms - before.at_ms) // full_ms)
        self._buckets[name] = BucketUse(now_ms, used, share)
        return -(-seen.limit * used // WHOLE)


def shard_place(name: bytes) -> bytes | None:
    """Return what chooses the shard of a key, from its name between regions; None where that is no name of ours."""
    try:
        return split_exchange_key(split_name(name)[1])[1]
    except ValueError:
        return None


def _left_ms(until_ms: int, now_ms: int) -> int:
    return min(LONGEST_MS, max(0, until_ms - now_ms))


def _hold_ms(enforced: Enforced) -> int:
    return HOLD_MS if enforced.share == enforced.lasting else HOLD_TAKEN_MS
