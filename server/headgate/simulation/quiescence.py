"""What holds when every fault has healed, every request is decided and each node has read once.

Then nothing is left reserved, unacknowledged or under way, every breaker is closed, and all
nodes and the shards agree, exactly.
"""

import asyncio
from collections import Counter
from typing import Final

from headgate.origin.window_record import CellRecord, WindowRecord
from headgate.region.counters import SharedBucket, SharedCounter, SharedWindow
from headgate.region.node import RegionNode
from headgate.simulation.client import waiting
from headgate.simulation.history import FaultKind
from headgate.simulation.watch import Watch
from headgate.simulation.world import NodeSlot, World

HEAL_S: Final = 4.0
"""Longer than the longest cooldown with its jitter, a call's timeout, and a heartbeat."""
READ_S: Final = 0.6
"""Longer than a flush and its call."""


async def settle(world: World, watch: Watch) -> None:
    """Long enough for breakers and refills; then each node reports, and then each reads."""
    await asyncio.sleep(HEAL_S)
    for slot, _, cell in world.cells():
        if cell.unacked:
            watch.violate("left_over", f"{slot.name} {cell.key.decode()}: {cell.unacked} not reported of itself")
        if isinstance(cell, SharedWindow):
            _refilled(slot, cell, world, watch)
    for _ in range(2):
        for _, node, cell in world.cells():
            node.links[cell.link.shard].flush(cell, soon=True)
        await asyncio.sleep(READ_S)
    watch.look()


def _refilled(slot: NodeSlot, cell: SharedWindow, world: World, watch: Watch) -> None:
    """A shard knows again what a living node is sure was there, whether or not anybody asked for that key since."""
    shard = world.shards[cell.link.shard]
    counts = _counts(shard.record(cell.key))
    oldest = shard.key_time_ms(cell.key) // cell.window_ms - 1
    for part in (cell.part, cell.last):
        count = counts.get(part.sequence)
        here = count.t if count is not None else 0
        if part.sequence >= oldest and here < part.seen:
            what = f"knows of {part.seen}, the shard has {here}"
            watch.violate("lost", f"{slot.name} {cell.key.decode()} in {part.sequence}: {what}")


def _counts(record: object) -> dict[int, CellRecord]:
    """What a shard has of a key, by window."""
    if not isinstance(record, WindowRecord):
        return {}
    return {record.sequence: record.current, record.sequence - 1: record.previous}


def check(world: World, watch: Watch) -> None:
    if waiting(world.slots):
        watch.violate("deadline", f"{waiting(world.slots)} requests were never decided")
    for slot, node in world.nodes():
        _alive(slot, node, watch)
    for slot, _, cell in world.cells():
        _nothing_left(slot, cell, watch)
        if isinstance(cell, SharedBucket):
            _same_bucket(slot, cell, world, watch)
        else:
            _same_window(slot, cell, world, watch)
    _all_there(world, watch)
    _as_promised(world, watch)
    watch.measure()


def _alive(slot: NodeSlot, node: RegionNode, watch: Watch) -> None:
    for task in node._tasks:
        if task.done():
            watch.violate("tasks", f"{slot.name}: {task.get_name()} has ended")
    for link in node.links:
        if not link.breaker.closed:
            watch.violate("breaker", f"{slot.name}: shard {link.index} is {link.breaker.state.value}")
        if link.busy():
            watch.violate("left_over", f"{slot.name}: shard {link.index} still has something to be told")


def _nothing_left(slot: NodeSlot, cell: SharedCounter, watch: Watch) -> None:
    link = cell.link
    if cell.unacked or cell.reserved or link.in_call or link.credit_offered or link.refill:
        watch.violate(
            "left_over",
            f"{slot.name} {cell.key.decode()}: {cell.unacked} unacknowledged, {cell.reserved} reserved, "
            f"{link.in_call} in calls, {link.credit_offered} offered, refill {link.refill}",
        )


def _same_window(slot: NodeSlot, cell: SharedWindow, world: World, watch: Watch) -> None:
    record = world.shards[cell.link.shard].record(cell.key)
    if not isinstance(record, WindowRecord):
        watch.violate("diverged", f"{slot.name} {cell.key.decode()}: the shard has no record of it")
        return
    counts = _counts(record)
    for part in (cell.part, cell.last):
        count = counts.get(part.sequence)
        if count is None:
            continue
        here = count.t + count.f
        # After a loss a shard may take new hits for lost ones: as many as were asked for in vain.
        slack = watch.asked_in_vain(cell.key, part.sequence)
        if not here <= part.known <= here + slack:
            what = f"knows {part.known}, the shard {here}"
            watch.violate("diverged", f"{slot.name} {cell.key.decode()} in {part.sequence}: {what}")


def _all_there(world: World, watch: Watch) -> None:
    """What living nodes admitted is counted, all of it together: by component, or among what was lost once."""
    admitted: Counter[tuple[bytes, int]] = Counter()
    for _, _, cell in world.cells():
        if isinstance(cell, SharedWindow):
            for part in (cell.part, cell.last):
                admitted[cell.key, part.sequence] += part.total
    for shard in world.shards:
        for key, record in shard.windows():
            for sequence, count in _counts(record).items():
                if admitted[key, sequence] > count.t:
                    what = f"{admitted[key, sequence]} admitted by living nodes, {count.t} counted"
                    watch.violate("lost", f"{key.decode()} in {sequence}: {what}")


def _as_promised(world: World, watch: Watch) -> None:
    """What was admitted was charged, and what was denied was not."""
    if world.history.kinds[FaultKind.SHARD_CLOCK]:
        return  # windows that a clock jumps over are gone before what was charged in them is committed
    for slot, node in world.nodes():
        if node.engine.cells.stats.evicted:
            continue  # a cell may go while its request waits: what it commits then is not looked at
        for key in world.history.keys:
            promised, committed = watch.promised[node, key.name], watch.committed[node, key.name]
            if promised != committed and (node, key.name) not in watch.restated:
                watch.violate("charged", f"{slot.name} {key.name.decode()}: {committed} for {promised} admitted")


def _same_bucket(slot: NodeSlot, cell: SharedBucket, world: World, watch: Watch) -> None:
    record = world.shards[cell.link.shard].record(cell.key)
    component = record.components.get(cell.link.component) if record is not None else None
    if component is None or component.n < cell.total:
        watch.violate("lost", f"{slot.name} {cell.key.decode()}: {cell.total} admitted, the shard has fewer")
    elif cell.arrival != record.tat:
        watch.violate("diverged", f"{slot.name} {cell.key.decode()}: {cell.arrival}, the shard {record.tat}")
