"""Sends one peer what this region has counted: reads the outbox, sends, and moves the cursor when it is acknowledged.

A page of changes goes in one batch, and the next one when that is acknowledged: the peer sets the pace. All shards are
read at the same time, and one that hangs delays no other's changes. Everything that outlives a failure is in the
origin: a sender that dies loses nothing, and two senders of the same changes do no harm. (docs/convergence.md, section
9.)
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.exchange.fill import UNKNOWN, join_fill, mark_of, wanted_of
from headgate.exchange.messages import Ack, Batch, Entry, LinkError, PeerLink, Refused
from headgate.exchange.peers import PeerStatus
from headgate.exchange.site import ExchangeSite
from headgate.origin.exchange_protocol import Changes, Priority, Published
from headgate.origin.interface import OriginError
from headgate.origin.names import split_name
from headgate.origin.operations.acknowledge import Acknowledge
from headgate.origin.operations.begin_walk import BeginWalk
from headgate.origin.operations.read_changes import ReadChanges
from headgate.origin.operations.read_components import ReadComponents

MAX_ENTRIES: Final = 4_000
"""Most entries of one batch, own and returned together: some hundred kilobytes."""
MAX_BYTES: Final = 2 * 1024 * 1024
"""Most bytes of the names in one batch, each counted twice: a peer takes 4 MiB. Keys are some ten bytes long, or some
thousand.
"""
PAGE: Final = 500
"""Names per call to a shard: two milliseconds of its time."""
READ_TIMEOUT_S: Final = 2.0
FRESH_S: Final = {Priority.NORMAL: 1.0, Priority.URGENT: 0.2}
"""Seconds between pages of the newest changes to a peer that is behind by more than a page, as in a fill."""
STRAGGLER_S: Final = 0.2
"""Seconds that a batch waits for a shard that is slow to answer; its changes go with a later one."""
SEND_TIMEOUT_S: Final = 3.0
"""Seconds for one batch. Below the lease, so that a sender that waits for a peer still serves it. Together with an
interval, for the peer's own batches, under 5 s: the time in which regions agree again after a connection has silently
died and come back (exchanger.py).
"""
SWEEPER: Final = b""
MAX_PAGES: Final = 50
"""Most pages per call of `exchange`: a resync lets other tasks run now and then, and urgent changes go in between."""


@dataclass(frozen=True, slots=True)
class ShardPage:
    """One shard's page for the peer: changed names, and their components."""

    shard: int
    changes: Changes
    components: Sequence[Published | None]
    fresh: bool
    """True for the newest changes, sent ahead of the backlog: they are sent again in order."""


@dataclass(slots=True)
class ShardView:
    """State last read of one shard and priority, whether this or another process serves the peer from there."""

    serving: bool = False
    """True if this process does."""
    epoch: bytes = b""
    """Epoch of the server when this process last served the peer."""
    mark: bytes = UNKNOWN
    """Mark that the shard should have."""
    present: bytes = b""
    """Mark that it has."""
    walk: bytes = b""
    walked: bool = False
    used: bool = False
    """True if there was ever a change."""
    fresh: int = 0
    """Highest change number sent ahead of the backlog; 0 when there is no backlog."""
    fresh_s: float = 0.0
    """Monotonic second at which the newest changes are due again."""


class PeerSender:
    """Sends one peer the changes of all shards."""

    def __init__(self, site: ExchangeSite, link: PeerLink, status: PeerStatus) -> None:
        self._site = site
        self._link = link
        self._status = status
        self._peer = status.region.encode()
        self._number = 0
        self._views: dict[tuple[int, Priority], ShardView] = {}
        """Views of all shards that may have keys."""
        self._beat_ms = 0
        self._reading: dict[tuple[int, Priority], asyncio.Task[ShardPage | None]] = {}
        """Shards that are being asked; one that does not answer stays here until it is given up."""
        self._follow_list()
        self._sending = asyncio.Lock()

    def _follow_list(self) -> None:
        """Look at the shards that may have keys now."""
        places = [(shard, priority) for shard in self._site.origin.placed_on for priority in Priority]
        for place in self._views.keys() - places:
            del self._views[place]
            self._status.shards_behind.pop(place, None)
        for place in self._reading.keys() - places:
            self._reading.pop(place).cancel()
        for place in places:
            if place not in self._views:
                self._views[place] = ShardView()

    async def exchange(self, priority: Priority) -> bool:
        """Tell the peer all that has changed in a priority; True when that was too much for one turn.

        Raises LinkError; an origin that fails is tried again later. In the normal priority a sign of life goes in any
        case, if this process serves the peer.
        """
        silent = priority is Priority.NORMAL
        for _ in range(MAX_PAGES):
            pages = await self._read(priority)
            if not pages or not (silent or any(page.changes.until != page.changes.since for page in pages)):
                return False
            await self._send(priority, pages)
            silent = False
        return True

    @property
    def is_urgent(self) -> bool:
        """True if there ever was an urgent change, as far as was read."""
        return any(view.used for (_, priority), view in self._views.items() if priority is Priority.URGENT)

    @property
    def is_renewed(self) -> bool:
        """True if this region's token or certificate has changed since the last attempt."""
        return self._link.is_renewed

    async def close(self) -> None:
        for reading in self._reading.values():
            reading.cancel()
        await asyncio.gather(*self._reading.values(), return_exceptions=True)
        self._reading.clear()
        await self._link.close()

    async def _read(self, priority: Priority) -> list[ShardPage]:
        """A page of each shard that this process serves the peer from, and that has answered; at most a batch."""
        self._follow_list()
        placed_on = self._site.origin.placed_on
        first = self._number % len(placed_on)  # another one each time: none is always left over
        shards = [(shard, priority) for shard in (*placed_on[first:], *placed_on[:first])]
        for shard in shards:
            if shard not in self._reading:
                self._reading[shard] = asyncio.create_task(self._read_page(*shard), name="peer-changes")
        answered, _ = await asyncio.wait([self._reading[shard] for shard in shards], timeout=STRAGGLER_S)
        if not answered:  # none: then there is nothing to send before the first answer
            await asyncio.wait([self._reading[shard] for shard in shards], return_when=asyncio.FIRST_COMPLETED)
        pages = [self._reading.pop(shard).result() for shard in shards if self._reading[shard].done()]
        self._status.serving = any(view.serving for view in self._views.values())
        self._status.filling = self._is_filling()
        return _within_a_batch([page for page in pages if page is not None])

    async def _read_page(self, shard: int, priority: Priority) -> ShardPage | None:
        try:
            return await self._read_shard(shard, priority)
        except OriginError:
            self._view(shard, priority).serving = False
            return None  # its nodes say so; the others' changes are not held up by it

    def _view(self, shard: int, priority: Priority) -> ShardView:
        """Return the view of a shard; of one that is not of the region any more, one that nobody looks at."""
        return self._views.get((shard, priority)) or ShardView()

    @property
    def _page(self) -> int:
        """Names of one shard in a batch: of all together as many as it has room for."""
        return max(1, min(PAGE, MAX_ENTRIES // 2 // len(self._site.origin.placed_on)))

    async def _read_shard(self, shard: int, priority: Priority) -> ShardPage | None:
        view = self._view(shard, priority)
        if view.fresh and self._site.clock.monotonic() >= view.fresh_s:
            view.fresh_s = self._site.clock.monotonic() + FRESH_S[priority]
            changes = await self._read_changes(shard, priority, self._page, view.fresh)
            if changes is None or changes.names:
                return await self._page_of(shard, priority, changes, fresh=view.fresh > 0)
        changes = await self._read_changes(shard, priority, self._page)
        if changes is not None:
            self._judge_lateness(view, priority, changes)
        return await self._page_of(shard, priority, changes, fresh=False)

    async def _page_of(
        self, shard: int, priority: Priority, changes: Changes | None, *, fresh: bool
    ) -> ShardPage | None:
        if changes is None:
            return None
        found: list[Published | None] = []
        if changes.names:
            read = ReadComponents(self._peer, priority, changes.names)
            found = await self._site.origin.run(shard, read, READ_TIMEOUT_S)
        return ShardPage(shard, changes, found, fresh)

    def _judge_lateness(self, view: ShardView, priority: Priority, changes: Changes) -> None:
        """Note whether the peer is behind by more than this page: then the newest changes are sent ahead of the
        backlog.
        """
        if changes.until >= changes.latest:
            view.fresh = 0
        elif not view.fresh:
            view.fresh = max(changes.until, changes.latest - self._page)
            view.fresh_s = self._site.clock.monotonic() + FRESH_S[priority]

    async def _read_changes(self, shard: int, priority: Priority, most: int, after: int = 0) -> Changes | None:
        """Names to tell of; None where another process serves the peer."""
        site = self._site
        read = ReadChanges(self._peer, priority, site.owner, site.random.randbytes(16), most, after)
        changes = await site.origin.run(shard, read, READ_TIMEOUT_S)
        view = self._view(shard, priority)
        view.serving = changes.leased
        if not changes.leased:
            self._update_view(view, changes)
            self._status.shards_behind.pop((shard, priority), None)
            return None
        if view.epoch not in (b"", changes.epoch):
            # Another server, or another life of it: what was acknowledged may have been of what it never had.
            await self._site.origin.run(shard, BeginWalk(self._peer, b""), READ_TIMEOUT_S)
            view.epoch, view.fresh = changes.epoch, 0
            return await self._read_changes(shard, priority, most)
        names = changes.names
        if len(names) > 1 and _bytes(names) > MAX_BYTES:
            fewer = max(1, len(names) * MAX_BYTES // _bytes(names) // 2)
            return await self._read_changes(shard, priority, fewer, after)
        view.epoch = changes.epoch
        self._update_view(view, changes)
        if (shard, priority) in self._views:
            self._status.shards_behind[shard, priority] = changes.latest - changes.since
        if shard == site.origin.placed_on[0]:
            self._beat_ms = changes.beat_ms
        return changes

    def _update_view(self, view: ShardView, changes: Changes) -> None:
        view.mark = mark_of(changes.generation, changes.epoch)
        view.present = changes.mark
        view.walk = changes.walk
        view.walked = changes.since >= changes.walk_until
        view.used = changes.latest > 0

    async def _send(self, priority: Priority, pages: Sequence[ShardPage]) -> None:
        own = [entry for page in pages for entry in _own(page)]
        returned = [entry for page in pages for entry in _returned(page)]
        now_ms = self._site.clock.now_ms()
        batch = Batch(
            0,
            max(page.changes.time_ms for page in pages),
            tuple(own),
            tuple(returned),
            self._fill_wanted(),
            self._filled(),
            now_ms,
            self._beat_ms,
        )
        try:
            await self._send_next(batch)
        except LinkError:
            # A shard of the peer's may be the reason, and its others have what was for them: the newest next time.
            for page in pages:
                if page.fresh:
                    self._view(page.shard, priority).fresh = 0
            raise
        self._note_acknowledged(len(own), now_ms)
        for page in pages:
            if page.fresh:
                self._view(page.shard, priority).fresh = page.changes.until
            elif page.changes.until != page.changes.since:
                await self._move_on(priority, page)

    async def tell(self, said: bytes) -> Ack:
        """Send what the region's keeper has to say of quotas, in a batch of its own. Raises LinkError."""
        return await self._send_next(Batch(0, self._site.clock.now_ms(), quota=said))

    async def _send_next(self, batch: Batch) -> Ack:
        """Send one batch at a time, for all callers."""
        if self._status.cut_off:
            raise Refused(f"region {self._status.region!r} is cut off here by an operator")
        async with self._sending:
            self._number += 1
            ack = await self._link.send(batch._replace(number=self._number), SEND_TIMEOUT_S)
        self._status.sent_batches += 1
        return ack

    async def _move_on(self, priority: Priority, page: ShardPage) -> None:
        acknowledge = Acknowledge(self._peer, priority, page.changes)
        try:
            moved = await self._site.origin.run(page.shard, acknowledge, READ_TIMEOUT_S)
        except OriginError:
            return  # then it is sent again
        if moved:
            self._view(page.shard, priority).walked = page.changes.until >= page.changes.walk_until
            if (page.shard, priority) in self._views:
                self._status.shards_behind[page.shard, priority] = page.changes.latest - page.changes.until

    def _is_filling(self) -> bool:
        return any(view.present != view.mark for view in self._of_shards() if view.mark != UNKNOWN)

    def _of_shards(self) -> list[ShardView]:
        """A shard's mark is the same in both priorities."""
        return [view for (_, priority), view in self._views.items() if priority is Priority.NORMAL]

    def _fill_wanted(self) -> bytes:
        """The marks that the shards are to have, while one of them has not."""
        if not self._is_filling():
            return b""
        views = self._of_shards()
        return join_fill([view.mark for view in views], [view.present for view in views])

    def _filled(self) -> bytes:
        """The peer's `fill_wanted`, once everything that it asked for has been acknowledged, to this or another
        process.
        """
        walks = {view.walk for view in self._views.values()}
        done = len(walks) == 1 and all(view.walked for view in self._views.values())
        return wanted_of(walks.pop(), self._site.origin.placement) if done else b""

    def _note_acknowledged(self, entries: int, now_ms: int) -> None:
        """Note that changes read before `now_ms` have been acknowledged."""
        status = self._status
        status.error = ""
        status.acknowledged_ms = now_ms
        status.sent_entries += entries
        if entries:
            status.published_ms = now_ms


async def sweep(site: ExchangeSite, shard: int, priority: Priority, most: int) -> None:
    """Forget names whose records are gone: peers that are away read none of them. One page at a time.

    The sweeper is a peer without a name: with a cursor, and a lease, like any other.
    """
    origin, read = site.origin, ReadChanges(SWEEPER, priority, site.owner, site.random.randbytes(16), most)
    changes = await origin.run(shard, read, READ_TIMEOUT_S)
    if not changes.leased:
        return
    if changes.names:
        await origin.run(shard, ReadComponents(SWEEPER, priority, changes.names), READ_TIMEOUT_S)
        await origin.run(shard, Acknowledge(SWEEPER, priority, changes), READ_TIMEOUT_S)
    elif changes.since:
        await origin.run(shard, BeginWalk(SWEEPER, b""), READ_TIMEOUT_S)


def _within_a_batch(pages: Sequence[ShardPage]) -> list[ShardPage]:
    """Pages that one batch has room for, one at least; the others are read again."""
    found: list[ShardPage] = []
    room = MAX_BYTES
    for page in pages:
        room -= _bytes(page.changes.names)
        if room >= 0 or not found:
            found.append(page)
    return found


def _bytes(names: Sequence[bytes]) -> int:
    """Most bytes that these names take in a batch: once with the own component, once with the peer's."""
    return 2 * sum(map(len, names))


def _own(page: ShardPage) -> Iterator[Entry]:
    """This region's components, where they still matter."""
    for name, found in zip(page.changes.names, page.components, strict=True):
        if found is not None:
            counts = (found.sequence, found.current, found.previous, found.reset)
            own = Entry(name, 0, *counts, found.current_refunded, found.previous_refunded)
            yield from _entry(own, page.changes.time_ms)


def _returned(page: ShardPage) -> Iterator[Entry]:
    """The peer's own components, while it is sent everything."""
    if page.changes.since >= page.changes.walk_until:
        return
    for name, found in zip(page.changes.names, page.components, strict=True):
        if found is not None:
            # Without its refunds: those come back from the peer's own nodes, or not at all.
            theirs = Entry(name, 0, found.peer_sequence, found.peer_current, found.peer_previous, found.reset)
            yield from _entry(theirs, page.changes.time_ms)


def _entry(named: Entry, time_ms: int) -> Iterator[Entry]:
    """Split the exchange name into key and window; drop cells that have expired by `time_ms`."""
    window_ms, key = split_name(named.key)
    entry = named._replace(key=key, window_ms=window_ms)
    if time_ms >= (entry.sequence + 1) * window_ms:
        entry = entry._replace(previous=0, previous_refunded=0)  # two windows ago: it no longer counts anywhere
    if time_ms >= (entry.sequence + 2) * window_ms:
        return
    if entry.current or entry.previous or entry.reset:
        yield entry
