"""Bugs to plant between regions, each the simpler rule that somebody might write (see mutations.py)."""

import itertools
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from headgate.exchange import sender as sender_module
from headgate.exchange.exchanger import Exchanger
from headgate.exchange.fill import mark_of
from headgate.exchange.followed_list import FollowedList
from headgate.exchange.messages import Ack, Batch, Entry
from headgate.exchange.receiver import Judged, OriginReceiver, PlacedEntry
from headgate.exchange.sender import PeerSender, ShardPage
from headgate.limiter.limit import Limit
from headgate.limiter.scopes import LimitsOfRegion
from headgate.origin.exchange_protocol import Changes, ForeignCount, Priority, Stamp
from headgate.origin.interface import OriginError
from headgate.origin.operations.acknowledge import Acknowledge
from headgate.origin.operations.import_counts import ImportCounts, Imported
from headgate.origin.operations.mark_filled import MarkFilled
from headgate.origin.operations.move_records import PutRecords
from headgate.origin.operations.read_changes import ReadChanges
from headgate.origin.outbox import Outbox, PriorityIndex
from headgate.origin.shard_memory import ShardMemory
from headgate.origin.window_cells import ForeignComponent
from headgate.origin.window_record import WindowRecord
from headgate.quota.codec import pack_mark, unpack_quota
from headgate.quota.filling import Filling
from headgate.quota.keeper import QuotaKeeper
from headgate.quota.node_slices import NodeSlices
from headgate.quota.protocol import QuotaLease
from headgate.quota.store import QuotaStore
from headgate.region.cells import CellView
from headgate.simulation.regions.scopes import HistoryScopes

Patch = pytest.MonkeyPatch


def republish_what_is_foreign(patch: Patch) -> None:
    """A region tells what it knows instead of what it has: counts go round and grow."""

    def totals(record: WindowRecord) -> tuple[int, int, int]:
        current, previous = record.current, record.previous
        return record.sequence, current.region_total + current.foreign, previous.region_total + previous.foreign

    patch.setattr(WindowRecord, "totals", totals)


def add_what_is_foreign(patch: Patch) -> None:
    """A batch says what to add: one that comes twice counts twice."""

    def merge_foreign(
        record: WindowRecord, region: bytes, sequence: int, count: int, now_ms: int, refunded: int = 0
    ) -> None:
        record.come_to(now_ms)
        component = record.foreign.setdefault(region, ForeignComponent(record.sequence))
        component.roll(record.sequence)
        if sequence == record.sequence:
            record.current.foreign += count
            component.current += count

    patch.setattr(WindowRecord, "merge_foreign", merge_foreign)


def believe_the_latest(patch: Patch) -> None:
    """The last batch to arrive is right, also when an older one has overtaken it."""

    def merge_foreign(
        record: WindowRecord, region: bytes, sequence: int, count: int, now_ms: int, refunded: int = 0
    ) -> None:
        record.come_to(now_ms)
        component = record.foreign.setdefault(region, ForeignComponent(record.sequence))
        component.roll(record.sequence)
        if sequence == record.sequence:
            record.current.foreign += count - component.current
            component.current = count
        elif sequence == record.sequence - 1:
            record.previous.foreign += count - component.previous
            component.previous = count
        elif sequence == record.sequence + 1:
            record.ahead_foreign += count - component.ahead
            component.ahead = count

    patch.setattr(WindowRecord, "merge_foreign", merge_foreign)


def add_what_comes_back(patch: Patch) -> None:
    """A region's own component is added to what it has when a peer returns it."""

    def merge_own(record: WindowRecord, sequence: int, count: int, now_ms: int, refunded: int = 0) -> None:
        record.come_to(now_ms)
        cell = {record.sequence: record.current, record.sequence - 1: record.previous}.get(sequence)
        if cell is not None:
            cell.region_total += count
            cell.unattributed += count

    patch.setattr(WindowRecord, "merge_own", merge_own)


def what_comes_back_is_foreign(patch: Patch) -> None:
    """Returned components are taken for the peer's own."""
    receive = OriginReceiver.receive

    async def mixed(receiver: OriginReceiver, region: str, batch: Batch) -> Ack:
        return await receive(receiver, region, batch._replace(entries=batch.entries + batch.returned, returned=()))

    patch.setattr(OriginReceiver, "receive", mixed)


def drop_what_is_ahead(patch: Patch) -> None:
    """A count of a window that has not begun here is nobody's: it is not kept."""
    merge_foreign = WindowRecord.merge_foreign

    def merge(record: WindowRecord, region: bytes, sequence: int, count: int, now_ms: int, refunded: int = 0) -> None:
        record.come_to(now_ms)
        if sequence <= record.sequence:
            merge_foreign(record, region, sequence, count, now_ms, refunded)

    patch.setattr(WindowRecord, "merge_foreign", merge)


def acknowledge_before_it_is_sent(patch: Patch) -> None:
    """The cursor moves when a batch is sent, not when the peer has it."""
    send = PeerSender._send

    async def first_the_cursor(sender: PeerSender, priority: Priority, pages: Sequence[ShardPage]) -> None:
        for page in pages:
            await sender._move_on(priority, page)
        await send(sender, priority, pages)

    patch.setattr(PeerSender, "_send", first_the_cursor)


def acknowledge_what_was_not_imported(patch: Patch) -> None:
    """The receiver says yes although its origin did not answer."""
    merge = OriginReceiver._merge

    async def careless(receiver: OriginReceiver, counts: Any, stamp: Stamp) -> int:
        try:
            return await merge(receiver, counts, stamp)
        except OriginError:
            return 0

    patch.setattr(OriginReceiver, "_merge", careless)


def acknowledge_any_memory(patch: Patch) -> None:
    """An acknowledgement moves the cursor, whatever memory was read and wherever the cursor is."""

    def acknowledge(outbox: Outbox, peer: bytes, priority: Priority, generation: bytes, since: int, until: int) -> bool:
        outbox._cursor(peer, priority).acknowledged = until
        return True

    patch.setattr(Outbox, "acknowledge", acknowledge)


def a_change_keeps_its_number(patch: Patch) -> None:
    """A key that changes again keeps its place in the index: before the cursor, if it was told once."""

    def note(index: PriorityIndex, name: bytes) -> None:
        if name not in index.changed:
            index.latest += 1
            index.changed[name] = index.latest

    patch.setattr(PriorityIndex, "note", note)


def never_ask_for_a_fill(patch: Patch) -> None:
    """A region that has lost everything does not ask its peers."""
    patch.setattr(PeerSender, "_fill_wanted", lambda sender: b"")


def filled_at_once(patch: Patch) -> None:
    """A walk counts as done when it has begun."""
    look_at = PeerSender._update_view

    def hasty(sender: PeerSender, view: Any, changes: Changes) -> None:
        look_at(sender, view, changes)
        view.walked = True

    patch.setattr(PeerSender, "_update_view", hasty)
    patch.setattr(sender_module, "_returned", lambda page: iter(()))


def the_current_cell_alone(patch: Patch) -> None:
    """Passing the threshold publishes the current cell only."""
    own = sender_module._own

    def current(page: ShardPage) -> Any:
        return (entry._replace(previous=0) for entry in own(page))

    patch.setattr(sender_module, "_own", current)


def only_above_the_threshold(patch: Patch) -> None:
    """A region that is below the threshold stays silent, also when others count there."""

    def is_published(record: WindowRecord, publish_at: int) -> bool:
        return max(record.current.region_total, record.previous.region_total) >= publish_at

    patch.setattr(WindowRecord, "is_published", is_published)


def what_comes_back_is_kept(patch: Patch) -> None:
    """A region that gets its own counts back does not tell the others."""
    apply = ImportCounts.apply

    def quiet(operation: ImportCounts, memory: ShardMemory) -> Imported:
        counts = [count._replace(name=b"") if count.region == memory.region else count for count in operation.counts]
        return apply(replace(operation, counts=counts), memory)

    patch.setattr(ImportCounts, "apply", quiet)


def names_stay_for_ever(patch: Patch) -> None:
    """Names of keys that are gone stay in the index."""
    patch.setattr(Outbox, "forget_names", lambda outbox, names, priority: None)


def the_threshold_of_one_region(patch: Patch) -> None:
    """Each region keeps back 20% of the limit, however many there are."""
    init = Limit.__post_init__

    def alone(limit: Limit) -> None:
        init(limit)
        if limit.publish_at:
            object.__setattr__(limit, "publish_at", limit.requests_per_unit * 4 // 5)

    patch.setattr(Limit, "__post_init__", alone)


def foreign_counts_do_not_bind(patch: Patch) -> None:
    """Other regions' counts are kept, and decide nothing."""

    def fits(record: WindowRecord, report: Any, now_ms: int, missing: int) -> bool:
        effective = record.current.region_total + missing
        return bool(effective <= report.limit)

    learn = CellView.learn

    def deaf(cell: CellView, own: int, total: int, foreign: int) -> bool:
        return learn(cell, own, total, 0)

    patch.setattr(WindowRecord, "fits", fits)
    patch.setattr(CellView, "learn", deaf)


def forget_other_regions_at_a_rollover(patch: Patch) -> None:
    """A new window begins without what others had counted in the one before."""
    roll = WindowRecord._roll

    def forgetful(record: WindowRecord, sequence: int) -> None:
        record.foreign.clear()
        roll(record, sequence)

    patch.setattr(WindowRecord, "_roll", forgetful)


# A region in the wrong hands


def hear_of_every_key(patch: Patch) -> None:
    """A peer says what it has counted on any key, whatever the rules here say of it."""
    patch.setattr(HistoryScopes, "is_global", lambda scopes, key, place, window_ms: True)


def resets_go_everywhere(patch: Patch) -> None:
    """A peer's reset empties any key, also one on which its counts mean nothing."""
    judge = OriginReceiver._judge_entry

    def careless(receiver: OriginReceiver, judged: Judged, entry: Entry, peer: str, region: bytes, now_ms: int) -> None:
        unshared = judged.unshared
        judge(receiver, judged, entry, peer, region, now_ms)
        if judged.unshared > unshared and entry.reset:
            key = entry.key.removeprefix(b":")
            count = ForeignCount(key, entry.window_ms, entry.sequence, region, 0, b"", entry.reset)
            judged.entries.append(PlacedEntry(key, [count]))

    patch.setattr(OriginReceiver, "_judge_entry", careless)


def take_back_what_was_not_asked_for(patch: Patch) -> None:
    """A region's own component that comes back was lost, whoever brings it and whenever."""

    async def trusting(receiver: OriginReceiver, peer: str, counts: Any, now_ms: int) -> Any:
        return counts

    patch.setattr(OriginReceiver, "_asked_for", trusting)


def mark_what_a_peer_says(patch: Patch) -> None:
    """A shard is marked as filled with whatever a peer says: another mark than it should have asks for a fill."""

    async def trusting(receiver: OriginReceiver, shard: int, peer: bytes, marks: frozenset[bytes]) -> None:
        for mark in sorted(marks):
            await receiver._site.origin.run(shard, MarkFilled(peer, mark), 1.0)

    patch.setattr(OriginReceiver, "_mark_shard", trusting)


# Regions that come and go


def those_who_left_are_heard(patch: Patch) -> None:
    """Whoever was a peer when its exchanger began is heard for ever."""

    init = OriginReceiver.__init__

    def begin(receiver: OriginReceiver, site: Any, peers: Any, *more: Any) -> None:
        init(receiver, site, ChainMap(peers, dict(peers)), *more)

    patch.setattr(OriginReceiver, "__init__", begin)


def those_who_come_know_the_past(patch: Patch) -> None:
    """A region that is added is told what changes from then on, as if it had all that was before."""
    change = Exchanger.change_peers

    async def told(exchanger: Exchanger[Any], leaving: Any, joining: Any, addresses: Any) -> None:
        site = exchanger._site
        for peer, shard, priority in itertools.product(joining, site.origin.placed_on, Priority):
            read = ReadChanges(peer.encode(), priority, site.owner, b"drawn", 1_000)
            try:
                changes = await site.origin.run(shard, read, 1.0)
                await site.origin.run(shard, Acknowledge(peer.encode(), priority, changes), 1.0)
                await site.origin.run(shard, MarkFilled(peer.encode(), mark_of(changes.generation, changes.epoch)), 1.0)
            except OriginError:
                continue
        await change(exchanger, leaving, joining, addresses)

    patch.setattr(Exchanger, "change_peers", told)


# Quotas, and the other scopes


def always_filled(patch: Patch) -> None:
    """A store that was lost counts as one in which nothing was ever given."""
    lose = Filling.lose

    def filled(filling: Filling, now_ms: int) -> None:
        lose(filling, now_ms)
        filling.filled = True

    init = Filling.__init__

    def begin(filling: Filling, *arguments: Any, **words: Any) -> None:
        init(filling, *arguments, **words)
        filling.filled = True

    patch.setattr(Filling, "lose", filled)
    patch.setattr(Filling, "__init__", begin)


def anybody_keeps_the_slices(patch: Patch) -> None:
    """Every exchanger of a region is its keeper."""
    lease = QuotaStore.lease

    def shared(store: QuotaStore, owner: bytes, *rest: Any) -> QuotaLease:
        store._owner = owner
        return lease(store, owner, *rest)

    patch.setattr(QuotaStore, "lease", shared)


def acknowledged_and_dropped(patch: Patch) -> None:
    """A keeper says yes to what it did not take in."""

    async def receive(keeper: QuotaKeeper, peer: str, said: bytes) -> bytes:
        return pack_mark(unpack_quota(said).mark)

    patch.setattr(QuotaKeeper, "receive", receive)


def cell_is_whole(patch: Patch) -> None:
    """Each region enforces all of a limit of scope `cell`."""
    patch.setattr(LimitsOfRegion, "_in_region", lambda limits, limit: limit)


# Lists of shards that change


def exchangers_go_by_their_settings(patch: Patch) -> None:
    """An exchanger goes by the list of shards that it was started with."""

    async def deaf(followed: FollowedList) -> None:
        return

    patch.setattr(FollowedList, "look", deaf)


def import_without_a_fence(patch: Patch) -> None:
    """What other regions have counted begins a record wherever an exchanger takes it to belong."""
    patch.setattr(ImportCounts, "_may_be_here", lambda operation, memory, count, now_ms: True)


def import_where_it_belongs(patch: Patch) -> None:
    """What other regions have counted goes where a key belongs, and not where its record may still be."""
    merge = OriginReceiver._merge_once

    async def straight(receiver: OriginReceiver, counts: Any, like: ImportCounts) -> Any:
        origin = receiver._site.origin
        patch.setattr(origin, "shard_before", origin.shard_of)
        return await merge(receiver, counts, like)

    patch.setattr(OriginReceiver, "_merge_once", straight)


def what_moves_is_not_told_again(patch: Patch) -> None:
    """A record is opened elsewhere, and its name stays where it was."""
    apply = PutRecords.apply
    patch.setattr(PutRecords, "apply", lambda operation, memory: apply(replace(operation, published=()), memory))


def keys_come_before_their_shares(patch: Patch) -> None:
    """A quota's key that has come to a shard has the share there that keys have of which nothing is known."""
    in_force = QuotaStore.in_force

    async def at_once(slices: NodeSlices, origin: Any, shard: int, number: int) -> bool:
        return True

    patch.setattr(
        QuotaStore, "in_force", lambda store, quota, now_ms: in_force(store, quota._replace(came_by=0), now_ms)
    )
    patch.setattr(NodeSlices, "may_come", at_once)
