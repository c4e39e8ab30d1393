"""Takes a peer's batches in: checks them, and merges them into the own region's origin.

Everything merges by max and is named by its cell, so a batch may come late, twice or in part. A batch
is acknowledged when the origin has it; what makes no sense is left out and counted, because it would
make no more sense the next time. (docs/convergence.md, section 9.)
"""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from headgate.exchange.extension import ExchangeExtension
from headgate.exchange.fill import split_fill
from headgate.exchange.messages import Ack, Batch, Entry
from headgate.exchange.peers import PeerStatus
from headgate.exchange.site import ExchangeSite
from headgate.origin.exchange_protocol import ForeignCount, Stamp
from headgate.origin.interface import OriginError
from headgate.origin.names import exchange_name, split_exchange_key
from headgate.origin.operations.begin_walk import BeginWalk
from headgate.origin.operations.import_counts import ImportCounts
from headgate.origin.operations.mark_filled import MarkFilled
from headgate.origin.operations.write_map import WriteMap
from headgate.origin.region_map import MAP_KEY
from headgate.origin.told_resets import entry_of

IMPORT_TIMEOUT_S: Final = 2.0
"""Seconds for one call to a shard. Only the peer waits for it, and sends again."""
MAX_COUNTS: Final = 256
"""Per call to a shard: two or three milliseconds of its time."""
MOST: Final = 2**53
"""Beyond this Lua no longer counts one by one; no honest count comes near."""
LONGEST_WINDOW_MS: Final = 10 * 365 * 86_400_000
WINDOW_STEP_MS: Final = 1_000
"""Windows are whole seconds, at most ten years."""
LONGEST_KEY_BYTES: Final = 64 * 1024
"""Far above what a rule's key can be: long values stand in it by their digest."""
FUTURE_MS: Final = 60_000
"""A clock may be ahead by so much, and cells one window more: what lies further ahead would never age."""
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


class OriginReceiver:
    """Merges batches into one region's origin. Any number of these may work at the same time."""

    def __init__(
        self, site: ExchangeSite, peers: Mapping[str, PeerStatus], quotas: ExchangeExtension | None = None
    ) -> None:
        self._site = site
        self._peers = peers
        self._quotas = quotas
        self._filled: dict[str, tuple[bytes, int]] = {}
        self._resets: OrderedDict[bytes, int] = OrderedDict()
        """The latest reset of each key that was heard of, as far as remembered."""
        self._untold: dict[bytes, int] = {}
        """Resets of these that could not be announced."""

    async def receive(self, region: str, batch: Batch) -> Ack:
        status, now_ms = self._peers[region], self._site.clock.now_ms()
        if batch.quota is not None:
            taken_in = await self._quotas.receive(region, batch.quota) if self._quotas is not None else b""
            status.received_batches += 1
            return Ack(batch.number, 0, taken_in)
        self._judge_time(status, batch, now_ms)
        theirs = self._counts(batch.entries, region.encode(), now_ms)
        ours = self._counts(batch.returned, self._site.region.encode(), now_ms)
        await self._merge(theirs + ours, Stamp(region.encode(), batch.beat_ms))
        await self._tell_resets(theirs, now_ms)
        if batch.fill_wanted:
            shards = range(self._site.origin.shards)
            walk = BeginWalk(region.encode(), batch.fill_wanted)
            # Where it fails it is asked for again with the next batch: nothing is filled before all have begun.
            await _failures(self._site.origin.run(shard, walk, IMPORT_TIMEOUT_S) for shard in shards)
        if batch.filled:
            await self._mark(region, batch.filled, now_ms)
        refused = len(batch.entries) + len(batch.returned) - len(theirs) - len(ours)
        self._note(status, batch, refused, now_ms)
        return Ack(batch.number, refused)

    def _counts(self, entries: Iterable[Entry], region: bytes, now_ms: int) -> list[tuple[int, list[ForeignCount]]]:
        """Counts from the entries that make sense, each with its shard."""
        found = []
        for entry in entries:
            try:
                key, place = split_exchange_key(entry.key)
            except ValueError:
                continue
            if _makes_sense(entry, now_ms):
                name = exchange_name(key, place, entry.window_ms)
                found.append((self._site.origin.shard_of(place), list(_cells(key, entry, region, name))))
        return found

    async def _merge(self, counts: Sequence[tuple[int, list[ForeignCount]]], stamp: Stamp) -> None:
        by_shard: dict[int, list[ForeignCount]] = {0: []}  # shard 0 gets the stamp even without counts
        for shard, cells in counts:
            by_shard.setdefault(shard, []).extend(cells)
        merging = (self._merge_shard(shard, found, None if shard else stamp) for shard, found in by_shard.items())
        for failure in await _failures(merging):
            raise failure  # what the other shards have got comes again, and changes nothing

    async def _merge_shard(self, shard: int, counts: Sequence[ForeignCount], stamp: Stamp | None) -> None:
        for at in range(0, max(1, len(counts)), MAX_COUNTS):
            await self._site.origin.run(shard, ImportCounts(counts[at : at + MAX_COUNTS], stamp), IMPORT_TIMEOUT_S)

    async def _tell_resets(self, counts: Sequence[tuple[int, list[ForeignCount]]], now_ms: int) -> None:
        """Announce resets that are new here to the region's nodes, because a node that denies from memory makes no
        call.

        If they can't be written the batch is taken in all the same, and the next one tries again.
        """
        found = {count.key: count.reset for _, cells in counts for count in cells if count.reset}
        new = {key: number for key, number in found.items() if number > self._resets.get(key, 0)}
        self._resets.update(new)
        while len(self._resets) > MOST_RESETS:
            self._resets.popitem(last=False)
        untold = self._untold | new
        self._untold = {}
        told = [entry for key, number in untold.items() if (entry := entry_of(key, number, now_ms)) is not None]
        if told:
            shard, drawn = self._site.origin.shard_of(MAP_KEY), now_ms.to_bytes(8, "big")
            try:
                await self._site.origin.run(shard, WriteMap(told[:MOST_TOLD], drawn), IMPORT_TIMEOUT_S)
            except OriginError:
                self._untold = dict(islice(untold.items(), MOST_TOLD))

    async def _mark(self, region: str, filled: bytes, now_ms: int) -> None:
        known, until_ms = self._filled.get(region, (b"", 0))
        if known == filled and now_ms < until_ms <= now_ms + REMARK_MS:
            return
        name, origin = region.encode(), self._site.origin
        marks = enumerate(split_fill(filled, origin.shards))
        marking = (origin.run(shard, MarkFilled(name, mark), IMPORT_TIMEOUT_S) for shard, mark in marks if mark)
        failed = await _failures(marking)
        self._filled[region] = filled, now_ms + (MARK_AGAIN_MS if failed else REMARK_MS)

    def _judge_time(self, status: PeerStatus, batch: Batch, now_ms: int) -> None:
        shortest_ms = min((entry.window_ms for entry in batch.entries), default=LONGEST_WINDOW_MS)
        if status.note_skew(batch.time_ms - now_ms, shortest_ms):
            self._site.logger.warning(
                "peer_clock_skewed",
                region=status.region,
                ahead_ms=status.skew_ms,
                reason="its windows and ours begin at different times; counts still merge by window",
            )

    def _note(self, status: PeerStatus, batch: Batch, refused: int, now_ms: int) -> None:
        status.received_batches += 1
        status.received_entries += len(batch.entries)
        status.imported_ms = now_ms
        if refused and not status.refused_entries:
            self._site.logger.warning("peer_entries_refused", region=status.region, entries=refused)
        status.refused_entries += refused
        if batch.heard_beat_ms:
            status.lag_ms = max(0, now_ms - batch.heard_beat_ms)


async def _failures(calls: Iterable[Coroutine[Any, Any, None]]) -> list[OriginError]:
    """Run calls to several shards at once, each to its end; return the errors of those that failed."""
    found = []
    for failed in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(failed, OriginError):
            found.append(failed)
        elif failed is not None:
            raise failed
    return found


def _makes_sense(entry: Entry, now_ms: int) -> bool:
    window_ms = entry.window_ms
    return (
        0 < window_ms <= LONGEST_WINDOW_MS
        and window_ms % WINDOW_STEP_MS == 0
        and 0 < len(entry.key) <= LONGEST_KEY_BYTES
        and 0 <= entry.current <= MOST
        and 0 <= entry.previous <= MOST
        and 0 <= entry.reset <= MOST
        and 0 <= entry.current_refunded <= entry.current
        and 0 <= entry.previous_refunded <= entry.previous
        and 0 <= entry.sequence <= (now_ms + FUTURE_MS) // window_ms + 1
    )


def _cells(key: bytes, entry: Entry, region: bytes, name: bytes) -> Iterator[ForeignCount]:
    """The previous cell first: should the second call be lost, nothing is counted twice, and it comes again."""
    window_ms, sequence, reset = entry.window_ms, entry.sequence, entry.reset
    if entry.previous:
        back = entry.previous_refunded
        yield ForeignCount(key, window_ms, sequence - 1, region, entry.previous, name, reset, back)
    if entry.current or reset:
        yield ForeignCount(key, window_ms, sequence, region, entry.current, name, reset, entry.current_refunded)
