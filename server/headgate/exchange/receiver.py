"""Takes a peer's batches in: checks them, and merges them into the own region's origin.

Everything merges by max and is named by its cell, so a batch may come late, twice or in part. A batch
is acknowledged when the origin has it; what makes no sense is left out and counted, because it would
make no more sense the next time. (docs/convergence.md, section 9.)

A peer says what it has counted on keys that all regions count together by the rules here, and nothing else: neither of
other keys, nor what this region itself has counted, unless it was asked for that after a loss. What is more than its
share is not acknowledged, and comes again.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, NamedTuple

from headgate.errors import Misconfigured, NotReady
from headgate.exchange.cut_off import CutRegions
from headgate.exchange.extension import ExchangeExtension
from headgate.exchange.fill import again, is_lost, mark_of, marks_in, walk_of
from headgate.exchange.judging import LONGEST_WINDOW_MS, ResetPace, cells_of, makes_sense
from headgate.exchange.messages import Ack, Batch, Entry
from headgate.exchange.peers import PeerStatus
from headgate.exchange.site import ExchangeSite
from headgate.origin.exchange_protocol import ForeignCount, NewKeys, Stamp
from headgate.origin.interface import OriginError, firsts_of, owners_of
from headgate.origin.names import exchange_name, split_exchange_key
from headgate.origin.operations.begin_walk import BeginWalk
from headgate.origin.operations.import_counts import ImportCounts
from headgate.origin.operations.mark_filled import MarkFilled
from headgate.origin.operations.read_mark import ReadMark
from headgate.origin.operations.write_map import WriteMap
from headgate.origin.region_map import MAP_KEY
from headgate.origin.told_resets import entry_of
from headgate.telemetry.bounded import BoundedLogger

MOVING_S: Final = 0.01
"""Seconds until a record that is on its way to another shard is looked for again: about a millisecond would do."""
MOVING_ATTEMPTS: Final = 20
"""Attempts to find a record that moves. After that the batch is not acknowledged, and comes again."""
IMPORT_TIMEOUT_S: Final = 2.0
"""Seconds for one call to a shard. Only the peer waits for it, and sends again."""
MAX_COUNTS: Final = 256
"""Per call to a shard: two or three milliseconds of its time."""
JUDGED_AT_ONCE: Final = 250
"""Entries that are judged before the loop gets its turn again: two or three milliseconds."""
MOST_RESETS: Final = 10_000
"""Keys whose resets are remembered as announced; of more, the first are announced once more."""
MOST_TOLD: Final = 500
"""Resets written into the map at once. Operators reset keys one by one; nodes hear of others with their calls."""
REMARK_MS: Final = 10_000
"""Milliseconds between actions on a `filled`, which comes with every batch."""
MARK_AGAIN_MS: Final = 5_000
"""Milliseconds until the next attempt after a shard could not be marked: one that hangs delays a batch only now and
then.
"""
MOST_WALKS: Final = 4
WALKS_MS: Final = 20_000
"""Walks that a peer may begin in so many milliseconds: telling everything is work, and it may ask for no more of it.
Who has lost something once more asks again with every batch."""
LONGEST_FILL_MS: Final = 600_000
"""Milliseconds for which a peer may bring back what this region had counted, from when it first did: a million keys
take two minutes. One that never says that it is done can't go on for ever."""
NAME_BYTES: Final = 8
LOGGED_S: Final = 60.0
"""Seconds between lines about what one peer says too much of, or of what."""


class PlacedCount(NamedTuple):
    """A count to merge."""

    place: bytes
    """Bytes that choose its key's shard."""
    cell: ForeignCount


class PlacedEntry(NamedTuple):
    """An entry of a batch that was found good: its counts."""

    place: bytes
    """Bytes that choose its key's shard."""
    cells: list[ForeignCount]


@dataclass(slots=True)
class Judged:
    """Entries of one batch, after they were judged."""

    entries: list[PlacedEntry] = field(default_factory=list)
    """Entries to merge."""
    refused: int = 0
    """Entries that made no sense."""
    unshared: int = 0
    """Entries of keys that regions don't count together, by the rules here."""
    held_back: int = 0
    """Entries with a reset, of which there were too many: they come again."""


@dataclass(slots=True)
class MergedCounts:
    """Result of merging counts: what was not."""

    left_out: int = 0
    """Number of those for which there was no room."""
    elsewhere: list[PlacedCount] = field(default_factory=list)
    """Those whose records are not where they were looked for."""
    moving: list[PlacedCount] = field(default_factory=list)
    """Those whose records are on their way."""
    failed: list[BaseException] = field(default_factory=list)
    """Reasons why shards merged nothing."""

    def add(self, other: "MergedCounts") -> None:
        """Add what another part of the counts came to."""
        self.left_out += other.left_out
        self.elsewhere += other.elsewhere
        self.moving += other.moving
        self.failed += other.failed


@dataclass(slots=True)
class PeerMemory:
    """Memory of one peer, in one receiver."""

    logger: BoundedLogger
    """Bounded, because a peer goes on saying the same; its own, because no peer hides another."""
    resets: ResetPace = field(default_factory=ResetPace)
    filled: tuple[bytes, int] = b"", 0
    """The `filled` that was acted on, and until when that is enough."""
    walk: bytes = b""
    """The walk that the peer began last."""
    walks_ms: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_WALKS))
    """Times at which it began the last ones."""
    brought_back: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    """Mark that each shard is to have which lost something, and the time since when the peer brings that back."""
    left_out: bool = False
    """True if something was left out because of the rules."""


class OriginReceiver:
    """Merges batches into one region's origin. Any number of these may work at the same time."""

    def __init__(
        self,
        site: ExchangeSite,
        peers: Mapping[str, PeerStatus],
        quotas: ExchangeExtension | None = None,
        cut: CutRegions | None = None,
    ) -> None:
        self._site = site
        self._peers = peers
        self._quotas = quotas
        self._cut = cut
        self._memory: dict[str, PeerMemory] = {}
        """Memory of each peer that was heard."""
        self._rules: object = site.scopes.version
        self._placement = site.origin.placement
        """The list of shards by which resets were announced."""
        self._resets: OrderedDict[bytes, int] = OrderedDict()
        """The latest reset of each key that was heard of, as far as remembered."""
        self._untold: dict[bytes, int] = {}
        """Resets of these that could not be announced."""

    def forget(self, region: str) -> None:
        """Forget a peer that is none any more. What it told stays in the origin."""
        self._memory.pop(region, None)

    def _of(self, region: str) -> PeerMemory:
        memory = self._memory.get(region)
        if memory is None:
            logger = BoundedLogger(self._site.logger, self._site.clock, burst=1, interval_s=LOGGED_S)
            memory = self._memory[region] = PeerMemory(logger)
        return memory

    async def check(self, region: str) -> None:
        """Raises Misconfigured for a region that is no peer any more, Forbidden for one that an operator has cut off;
        OriginError while that is not known.
        """
        if region not in self._peers:
            raise Misconfigured(f"{region!r} is no peer of region {self._site.region!r} any more")
        if self._cut is not None:
            await self._cut.check(region)

    async def receive(self, region: str, batch: Batch) -> Ack:
        await self.check(region)
        status, now_ms = self._peers[region], self._site.clock.now_ms()
        if batch.quota is not None:
            taken_in = await self._quotas.receive(region, batch.quota) if self._quotas is not None else b""
            status.received_batches += 1
            return Ack(batch.number, 0, taken_in)
        self._judge_time(status, batch, now_ms)
        await self._follow_rules()
        theirs = await self._judge(batch.entries, region, region, now_ms)
        ours = await self._judge(batch.returned, region, self._site.region, now_ms)
        asked = await self._asked_for(region, ours.entries, now_ms)
        status.unasked_entries += len(ours.entries) - len(asked)
        left_out = await self._merge(theirs.entries + asked, Stamp(region.encode(), batch.beat_ms))
        await self._tell_resets(theirs.entries, now_ms)
        if batch.fill_wanted:
            await self._begin_walk(region, batch.fill_wanted, now_ms)
        self._note(status, batch, theirs, now_ms)
        status.refused_entries += ours.refused
        if left_out or theirs.held_back or ours.held_back:
            self._over_budget(status, left_out, theirs.held_back + ours.held_back)
        if batch.filled:
            await self._mark(region, batch.filled, now_ms)
        return Ack(batch.number, theirs.refused + ours.refused)

    # Judging

    async def _judge(self, entries: Iterable[Entry], peer: str, region: str, now_ms: int) -> Judged:
        """Judge what a peer says of a region's components: its own, or this region's."""
        judged = Judged()
        for number, entry in enumerate(entries, 1):
            self._judge_entry(judged, entry, peer, region.encode(), now_ms)
            if number % JUDGED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return judged

    def _judge_entry(self, judged: Judged, entry: Entry, peer: str, region: bytes, now_ms: int) -> None:
        try:
            key, place = split_exchange_key(entry.key)
        except ValueError:
            judged.refused += 1
            return
        if not makes_sense(entry, now_ms):
            judged.refused += 1
        elif not self._site.scopes.is_global(key, place, entry.window_ms):
            judged.unshared += 1
            self._of(peer).left_out = True
        elif entry.reset > self._resets.get(key, 0) and not self._may_reset(peer, key, entry.reset):
            judged.held_back += 1
        else:
            name = exchange_name(key, place, entry.window_ms)
            judged.entries.append(PlacedEntry(place, list(cells_of(entry, key, region, name))))

    def _may_reset(self, peer: str, key: bytes, number: int) -> bool:
        return self._of(peer).resets.take(key, number, self._site.clock.monotonic())

    async def _asked_for(self, peer: str, entries: list[PlacedEntry], now_ms: int) -> list[PlacedEntry]:
        """Entries of this region, as far as their shards have lost something and the peer was asked for it."""
        if not entries:
            return []
        owners = {entry.place: owners_of(self._site.origin, entry.place) for entry in entries}
        shards = sorted({shard for those in owners.values() for shard in those})
        read = ReadMark(peer.encode())
        marks = await asyncio.gather(*(self._site.origin.run(shard, read, IMPORT_TIMEOUT_S) for shard in shards))
        wanting = set()
        for shard, found in zip(shards, marks, strict=True):
            right = mark_of(found.generation, found.epoch)
            if found.generation and is_lost(found.mark, right) and self._in_time(peer, shard, right, now_ms):
                wanting.add(shard)
        return [entry for entry in entries if not wanting.isdisjoint(owners[entry.place])]

    def _in_time(self, peer: str, shard: int, right: bytes, now_ms: int) -> bool:
        brought_back = self._of(peer).brought_back
        mark, since_ms = brought_back.get(shard, (b"", 0))
        if mark != right:
            since_ms = now_ms
            brought_back[shard] = right, since_ms
        return now_ms - since_ms < LONGEST_FILL_MS

    async def _follow_rules(self) -> None:
        """Have peers tell everything again of which something was left out by rules that were in force before."""
        version = self._site.scopes.version
        if version is self._rules:
            return
        self._rules = version
        for region, memory in list(self._memory.items()):
            if memory.left_out:
                memory.left_out = False
                asking = MarkFilled(region.encode(), again(self._site.random.randbytes(NAME_BYTES)))
                shards = self._site.origin.placed_on
                await _failures(self._site.origin.run(shard, asking, IMPORT_TIMEOUT_S) for shard in shards)

    # Merging

    async def _merge(self, entries: Sequence[PlacedEntry], stamp: Stamp) -> int:
        """Merge counts where nodes count their keys; return how many had no room. Raises OriginError, if not all others
        were merged: they come again, and what the shards have of them changes nothing.
        """
        room = NewKeys(stamp.region, self._site.new_keys_bytes // len(self._site.origin.placed_on))
        left_out, waiting = 0, [PlacedCount(place, cell) for place, cells in entries for cell in cells]
        for _ in range(MOVING_ATTEMPTS):
            merged = await self._merge_once(waiting, ImportCounts((), stamp, room))
            left_out, waiting = left_out + merged.left_out, merged.moving
            if not waiting:
                return left_out
            await asyncio.sleep(MOVING_S)
        raise OriginError(f"{len(waiting)} records are on their way to other shards")

    async def _merge_once(self, counts: Sequence[PlacedCount], like: ImportCounts) -> MergedCounts:
        """Merge counts, those of keys that move where they leave, and where they belong if they are not there."""
        origin = self._site.origin
        like, firsts = replace(like, number=origin.placement.number), firsts_of(origin)
        home = {placed.place: origin.shard_of(placed.place) for placed in counts}
        before = {place: origin.shard_before(place) for place in home}
        moving = {place for place, shard in before.items() if shard != home[place]}
        leaving = [placed for placed in counts if placed.place in moving]
        merged = await self._import(leaving, before, (), replace(like, leaving=True))
        at_home = [placed for placed in counts if placed.place not in moving] + merged.elsewhere
        rest = await self._import(at_home, home, firsts, like)
        if rest.elsewhere:
            merged.failed.append(OriginError("the region has another list of shards by now"))
        merged.add(rest)
        for error in merged.failed:
            raise error
        return merged

    async def _import(
        self, counts: Sequence[PlacedCount], shards: Mapping[bytes, int], stamped: Sequence[int], like: ImportCounts
    ) -> MergedCounts:
        """Merge counts into the shards of their places, and the stamp into those that keep it, also without counts."""
        by_shard: dict[int, list[PlacedCount]] = {shard: [] for shard in stamped}
        for placed in counts:
            by_shard.setdefault(shards[placed.place], []).append(placed)
        importing = [
            self._import_at(shard, found, like if shard in stamped else replace(like, stamp=None))
            for shard, found in by_shard.items()
        ]
        merged = MergedCounts()
        for result in await asyncio.gather(*importing, return_exceptions=True):
            if isinstance(result, MergedCounts):
                merged.add(result)
            else:
                merged.failed.append(result)  # what the other shards have got comes again, and changes nothing
        return merged

    async def _import_at(self, shard: int, counts: Sequence[PlacedCount], like: ImportCounts) -> MergedCounts:
        merged = MergedCounts()
        for at in range(0, max(1, len(counts)), MAX_COUNTS):
            page = counts[at : at + MAX_COUNTS]
            operation = replace(like, counts=[count for _, count in page])
            said = await self._site.origin.run(shard, operation, IMPORT_TIMEOUT_S)
            elsewhere, moving = [page[place] for place in said.elsewhere], [page[place] for place in said.moving]
            merged.add(MergedCounts(said.left_out, elsewhere, moving))
        return merged

    async def _tell_resets(self, entries: Sequence[PlacedEntry], now_ms: int) -> None:
        """Announce resets that are new here to the region's nodes, because a node that denies from memory makes no
        call.

        If they can't be written the batch is taken in all the same, and the next one tries again.
        """
        found = {cell.key: cell.reset for _, cells in entries for cell in cells if cell.reset}
        new = {key: number for key, number in found.items() if number > self._resets.get(key, 0)}
        self._resets.update(new)
        while len(self._resets) > MOST_RESETS:
            self._resets.popitem(last=False)
        if self._site.origin.placement is not self._placement:
            # Another shard may keep the map now: what was written into the former one last, nobody may have read.
            self._placement, self._untold = self._site.origin.placement, dict(self._resets)
        untold = self._untold | new
        self._untold = {}
        told = [entry for key, number in untold.items() if (entry := entry_of(key, number, now_ms)) is not None]
        if told:
            shard, drawn = self._site.origin.shard_of(MAP_KEY), now_ms.to_bytes(8, "big")
            try:
                await self._site.origin.run(shard, WriteMap(told[:MOST_TOLD], drawn), IMPORT_TIMEOUT_S)
            except OriginError:
                self._untold = dict(islice(untold.items(), MOST_TOLD))

    # Fills

    async def _begin_walk(self, region: str, wanted: bytes, now_ms: int) -> None:
        """Begin to tell the peer everything, unless it has begun too many walks lately: then it asks again."""
        memory = self._of(region)
        if memory.walk != wanted:
            if len(memory.walks_ms) == MOST_WALKS and 0 <= now_ms - memory.walks_ms[0] < WALKS_MS:
                return
            memory.walk = wanted
            memory.walks_ms.append(now_ms)
        walk = BeginWalk(region.encode(), walk_of(wanted, self._site.origin.placement))
        # Where it fails it is asked for again with the next batch: nothing is filled before all have begun.
        shards = self._site.origin.placed_on
        await _failures(self._site.origin.run(shard, walk, IMPORT_TIMEOUT_S) for shard in shards)

    async def _mark(self, region: str, filled: bytes, now_ms: int) -> None:
        memory = self._of(region)
        known, until_ms = memory.filled
        if known == filled and now_ms < until_ms <= now_ms + REMARK_MS:
            return
        marks, shards = marks_in(filled), self._site.origin.placed_on
        failed = await _failures(self._mark_shard(shard, region.encode(), marks) for shard in shards)
        memory.filled = filled, now_ms + (MARK_AGAIN_MS if failed else REMARK_MS)

    async def _mark_shard(self, shard: int, peer: bytes, marks: frozenset[bytes]) -> None:
        """Mark a shard, if the mark that its memory is to have is among these: another one would ask for a fill."""
        found = await self._site.origin.run(shard, ReadMark(peer), IMPORT_TIMEOUT_S)
        mark = mark_of(found.generation, found.epoch)
        if mark in marks:
            await self._site.origin.run(shard, MarkFilled(peer, mark), IMPORT_TIMEOUT_S)

    # For people

    def _judge_time(self, status: PeerStatus, batch: Batch, now_ms: int) -> None:
        shortest_ms = min((entry.window_ms for entry in batch.entries), default=LONGEST_WINDOW_MS)
        if status.note_skew(batch.time_ms - now_ms, shortest_ms):
            self._site.logger.warning(
                "peer_clock_skewed",
                region=status.region,
                ahead_ms=status.skew_ms,
                reason="its windows and ours begin at different times; counts still merge by window",
            )

    def _note(self, status: PeerStatus, batch: Batch, judged: Judged, now_ms: int) -> None:
        status.received_batches += 1
        status.received_entries += len(batch.entries)
        status.imported_ms = now_ms
        logger = self._of(status.region).logger
        if judged.refused:
            logger.warning("peer_entries_refused", region=status.region, entries=judged.refused)
        if judged.unshared:
            logger.warning("peer_entries_unshared", region=status.region, entries=judged.unshared)
        status.refused_entries += judged.refused
        status.unshared_entries += judged.unshared
        if batch.heard_beat_ms:
            status.lag_ms = max(0, now_ms - batch.heard_beat_ms)

    def _over_budget(self, status: PeerStatus, new_keys: int, resets: int) -> None:
        """Refuse to acknowledge a batch of which something had no room. Raises NotReady."""
        status.over_budget += 1
        logger = self._of(status.region).logger
        logger.warning("peer_over_budget", region=status.region, new_keys=new_keys, resets=resets)
        raise NotReady(
            f"more than region {status.region!r} may make this one keep at once: {new_keys} counts of new keys and "
            f"{resets} resets are left; send them again later"
        )


async def _failures(calls: Iterable[Coroutine[Any, Any, None]]) -> list[OriginError]:
    """Run calls to several shards at once, each to its end; return the errors of those that failed."""
    found = []
    for failed in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(failed, OriginError):
            found.append(failed)
        elif failed is not None:
            raise failed
    return found
