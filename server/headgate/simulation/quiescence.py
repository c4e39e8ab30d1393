"""Invariants that hold when every fault has healed, every request is decided and each node has read once.

Then nothing is left reserved, unacknowledged or under way, every breaker is closed, and all
nodes and the shards agree, exactly.
"""

import asyncio
from typing import Final

from headgate.limiter.decision import Decision
from headgate.origin.window_record import WindowRecord
from headgate.region.bucket_counter import SharedBucket
from headgate.region.cells import CellView
from headgate.region.counters import SharedCounter
from headgate.region.node import RegionNode
from headgate.region.refunds import REFILL_S
from headgate.region.urgency import Urgency
from headgate.region.window_counter import SharedWindow
from headgate.simulation.awaiting import future_of
from headgate.simulation.client import waiting
from headgate.simulation.lost_cells import lost_cells
from headgate.simulation.network import shard_of
from headgate.simulation.shard import cells_of
from headgate.simulation.watch import Watch
from headgate.simulation.world import NodeSlot, World

HEAL_S: Final = 4.0
"""Longer than the longest cooldown with its jitter, a call's timeout, and a heartbeat."""
GIVEN_S: Final = REFILL_S + 1.0
"""Seconds to wait where a refund is demanded of a shard that lost its memory: longer than that waits."""
LEAST_IDLE_MS: Final = 5_000
LONGEST_WINDOW_MS: Final = 10_000
"""Longest window in ms of the keys whose liveness is checked: two windows of an hour would take longer than all the
rest.
"""
READ_S: Final = 0.6
"""Longer than a flush and its call."""


async def settle(world: World, watch: Watch) -> None:
    """Long enough for breakers and refills; then each node reports, and then each reads."""
    await asyncio.sleep(HEAL_S)
    if any(counter.refunds is not None and counter.refunds.waiting for _, _, counter in world.counters()):
        await asyncio.sleep(GIVEN_S)
    for slot, _, counter in world.counters():
        if counter.unreported:
            world.violate("left_over", f"{slot.name} {counter.key.decode()}: {counter.unacked} not reported of itself")
        if isinstance(counter, SharedWindow):
            _refilled(slot, counter, world, watch)
    for _ in range(2):
        for _, node, counter in world.counters():
            node.links[counter.shard.index].session.flush(counter, Urgency.SOON)
        await asyncio.sleep(READ_S)
    watch.bounds.observe()


def _refilled(slot: NodeSlot, counter: SharedWindow, world: World, watch: Watch) -> None:
    """Check that a shard has again what a living node knows for certain, even without a request on the key."""
    shard = world.shards[world.shard_of(counter.key)]
    if world.listed and world.clock_was_set(counter.key):
        return  # it may have come from a shard of another time
    if counter.key in shard.lost_keys:
        return  # the loss of one key's record is noticed with the next request on the key
    if not watch.truth.is_of_now(counter.key, counter.reset):
        return  # it will hear of the reset with its next call
    counts = cells_of(shard.record(counter.key))
    newest = shard.key_time_ms(counter.key) // counter.window_ms
    for cell in counter.cells:
        count = counts.get(cell.sequence)
        here = count.region_total if count is not None else 0
        if newest - 1 <= cell.sequence <= newest and here < cell.highest_total_seen:
            what = f"knows of {cell.highest_total_seen}, the shard has {here}"
            world.violate("lost", f"{slot.name} {counter.key.decode()} in {cell.sequence}: {what}")


def check(world: World, watch: Watch) -> None:
    """Report to `watch` all that has not come to rest, or not to the same count, after load and faults are over."""
    if waiting(world.slots):
        world.violate("deadline", f"{waiting(world.slots)} requests were never decided")
    for slot, node in world.nodes():
        _alive(slot, node, world)
    for slot, _, counter in world.counters():
        _nothing_left(slot, counter, world)
        if isinstance(counter, SharedBucket):
            _same_bucket(slot, counter, world)
        elif isinstance(counter, SharedWindow):
            _same_window(slot, counter, world, watch)
    _all_there(world)
    _resets_hold(world, watch)
    _as_promised(world, watch)
    watch.measure()


def _alive(slot: NodeSlot, node: RegionNode, world: World) -> None:
    if not node.running:
        world.violate("tasks", f"{slot.name}: a task has ended")
    for link in node.links_in_use:
        if not link.breaker.closed:
            world.violate("breaker", f"{slot.name}: shard {link.index} is {link.breaker.state.value}")
        if link.session.busy():
            world.violate("left_over", f"{slot.name}: shard {link.index} still has something to be told")


def _nothing_left(slot: NodeSlot, counter: SharedCounter, world: World) -> None:
    if counter.unreported or counter.reserved or counter.pins or counter.credit_offered or counter.refill:
        world.violate(
            "left_over",
            f"{slot.name} {counter.key.decode()}: {counter.unacked} unacknowledged, {counter.reserved} reserved, "
            f"{counter.pins} in calls, {counter.credit_offered} offered, refill {counter.refill}",
        )


def _same_window(slot: NodeSlot, counter: SharedWindow, world: World, watch: Watch) -> None:
    record = world.shards[world.shard_of(counter.key)].record(counter.key)
    if not isinstance(record, WindowRecord):
        world.violate("diverged", f"{slot.name} {counter.key.decode()}: the shard has no record of it")
        return
    counts = cells_of(record)
    for cell in counter.cells:
        count = counts.get(cell.sequence)
        if count is None:
            continue
        here = count.region_total + count.foreign
        # After a loss a shard may take new hits for lost ones: as many as were asked for in vain.
        slack = watch.cells.asked_in_vain(counter.key, cell.sequence)
        if not here <= cell.known <= here + slack:
            what = f"knows {cell.known}, the shard {here}"
            world.violate("diverged", f"{slot.name} {counter.key.decode()} in {cell.sequence}: {what}")
        _same_refunds(slot, counter, cell, record, world)


def _same_refunds(slot: NodeSlot, counter: SharedWindow, cell: CellView, record: WindowRecord, world: World) -> None:
    """Check that all know the refunds; those that a living node heard of as its own are there, or the cell is empty."""
    if counter.refunds is None:
        return
    current = cell.sequence == record.sequence
    known = counter.refunds.current if cell is counter.current_cell else counter.refunds.previous
    count = record.current if current else record.previous
    component = record.components.get(counter.component)
    own = 0 if component is None else component.refunded if current else component.previous_refunded
    if known.given != count.refunded + count.foreign_refunded or (own < known.own and count.net):
        what = f"knows of {known.given} given back, {known.own} to itself; the shard of {count.refunded}, {own} to it"
        world.violate("diverged", f"{slot.name} {counter.key.decode()} in {cell.sequence}: {what}")


def _all_there(world: World) -> None:
    """Check that all that living nodes admitted is counted: by component, or as unattributed after a loss."""
    for cell in lost_cells(world.shards, (counter for _, _, counter in world.counters())):
        what = f"{cell.admitted} admitted by living nodes, {cell.counted} counted"
        world.violate("lost", f"{cell.key.decode()} in {cell.sequence}: {what}")


def _resets_hold(world: World, watch: Watch) -> None:
    """Every record has the latest reset that a living node has heard of; so has every counter."""
    for slot, node in world.nodes():
        for key in world.history.keys:
            number = node.resets.number_of(key.name)
            record = world.shards[world.shard_of(key.name)].record(key.name)
            if number and (record is None or record.reset < number):
                world.violate("reset", f"{slot.name} knows of a reset of {key.name.decode()}, its record does not")
    for slot, _, counter in world.counters():
        if not watch.truth.is_of_now(counter.key, counter.reset):
            world.violate("reset", f"{slot.name} {counter.key.decode()}: of an earlier reset, after it has read")


async def check_liveness(world: World) -> None:
    """Check that every key without requests for two windows admits again."""
    idle_s = max(LEAST_IDLE_MS, 2 * LONGEST_WINDOW_MS) / 1000
    await asyncio.sleep(idle_s)
    first = next((slot for slot, _ in world.nodes()), None)
    for slot, node in world.nodes():
        for index, key in enumerate(world.history.keys):
            limit = world.limits[index][world.versions[slot.index][index]]
            room = limit.burst or limit.requests_per_unit
            if limit.window_ms > LONGEST_WINDOW_MS or (slot is not first and room < len(world.slots)):
                continue
            decision = node.decide(world.charges(slot, ((index, 1),)))
            if not isinstance(decision, Decision):
                decision = await future_of(decision)
            if not decision.admitted:
                what = f"{slot.name} denied {key.name.decode()}, which nobody had used ({decision.path})"
                world.violate("liveness", what)


def check_lists(world: World) -> None:
    """Check that each node knows how many live that want another list of shards, and that one which all want is in
    force, with every key where it belongs and nothing left behind."""
    wanted = {slot.listed for slot, _ in world.nodes()}
    if world.listed and len(wanted) == 1:
        _in_force(world, wanted.pop())
    for slot, node in world.nodes():
        others = sum(other.listed != slot.listed for other, _ in world.nodes())
        if node.listed_otherwise != others:
            world.violate("lists", f"{slot.name}: {node.listed_otherwise} listed otherwise, not {others}")


def _in_force(world: World, listed: tuple[str, ...]) -> None:
    for slot, node in world.nodes():
        if node.lists.changing or node.lists.placed_by != listed:
            what = f"{node.lists.placed_by} in force, {listed} wanted by all: {node.lists.describe()}"
            world.violate("lists", f"{slot.name}: {what}")
    for key in world.history.keys:
        home = shard_of(key.name, len(listed))
        left = [index for index, shard in enumerate(world.shards) if shard.record(key.name) and index != home]
        if left:
            world.violate("lists", f"{key.name.decode()} belongs to shard {home}, and is on {left}")


def _as_promised(world: World, watch: Watch) -> None:
    """Check that each admission was charged, and no denial was."""
    if any(shard.clock_steps for shard in world.shards):
        return  # windows that a clock jumps over are gone before what was charged in them is committed
    for slot, node in world.nodes():
        if node.engine.counters.stats.evicted:
            continue  # a counter may go while its request waits: what it commits then is not looked at
        for key in world.history.keys:
            if key.limit.debt or key.name in watch.truth.resets:
                continue  # what goes beyond a bucket's debt is forgiven; what is from before a reset is not looked at
            promised, committed = watch.decisions.promised[node, key.name], watch.cells.committed[node, key.name]
            if promised != committed and (node, key.name) not in watch.cells.restated:
                world.violate("charged", f"{slot.name} {key.name.decode()}: {committed} for {promised} admitted")


def _same_bucket(slot: NodeSlot, counter: SharedBucket, world: World) -> None:
    record = world.shards[world.shard_of(counter.key)].record(counter.key)
    component = record.components.get(counter.component) if record is not None else None
    if component is None or component.own < counter.total:
        world.violate("lost", f"{slot.name} {counter.key.decode()}: {counter.total} admitted, the shard has fewer")
    elif counter.answered_arrival != record.arrival:
        world.violate(
            "diverged", f"{slot.name} {counter.key.decode()}: {counter.answered_arrival}, the shard {record.arrival}"
        )
