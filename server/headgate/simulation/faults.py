"""Begin and end of each kind of fault in a world.

The state of paths and servers follows from the faults that are active, so overlapping ones
do not end each other.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any, Final

from headgate.limiter.limit import Limit
from headgate.origin.exchange_protocol import ForeignCount
from headgate.origin.interface import OriginError
from headgate.origin.operations.import_counts import ImportCounts
from headgate.region.node import RegionNode
from headgate.simulation.history import Fault, FaultKind
from headgate.simulation.network import NetworkPath
from headgate.simulation.shard import Memory
from headgate.simulation.watch import Watch
from headgate.simulation.world import World

FOREIGN_EVERY_S: Final = 0.1
ABROAD: Final = b"abroad"


def _slow(path: NetworkPath, amount: int) -> None:
    path.tail, path.tail_ms = 0.3, float(amount)


def _lost_calls(path: NetworkPath, amount: int) -> None:
    path.lose_call = amount / 100


def _lost_replies(path: NetworkPath, amount: int) -> None:
    path.lose_reply = amount / 100


def _duplicates(path: NetworkPath, amount: int) -> None:
    path.duplicate = amount / 100


def _late(path: NetworkPath, amount: int) -> None:
    path.late, path.late_ms = amount / 100, 700.0  # longer than a call is waited for


def _refused(path: NetworkPath, amount: int) -> None:
    path.connected = False


def _partition(path: NetworkPath, amount: int) -> None:
    path.lose_call = path.lose_reply = 1.0


_EFFECTS: Final[dict[FaultKind, Callable[[NetworkPath, int], None]]] = {
    FaultKind.SLOW: _slow,
    FaultKind.LOST_CALLS: _lost_calls,
    FaultKind.LOST_REPLIES: _lost_replies,
    FaultKind.DUPLICATES: _duplicates,
    FaultKind.LATE: _late,
    FaultKind.REFUSED: _refused,
    FaultKind.PARTITION: _partition,
    FaultKind.BLACKOUT: _partition,
}


class Faults:
    """Begins and ends a history's faults, each at its time."""

    def __init__(self, world: World, watch: Watch) -> None:
        self._world = world
        self._watch = watch
        self._active: list[Fault] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._replicas: dict[Fault, Memory] = {}
        self._echoes: dict[Fault, list[ForeignCount]] = {}
        self._foreign: dict[tuple[bytes, int], int] = {}

    async def run(self, faults: tuple[Fault, ...]) -> None:
        """Let them happen; returns when the last one is over."""
        events = [(fault.at_ms, 1, number, fault, self._begin) for number, fault in enumerate(faults)]
        events += [(fault.end_ms, 2, number, fault, self._end) for number, fault in enumerate(faults)]
        for at_ms, _, _, fault, happen in sorted(events, key=lambda event: event[:3]):
            await asyncio.sleep(max(0.0, at_ms / 1000 - self._world.loop.time()))
            happen(fault)
        await asyncio.gather(*self._tasks)

    def resync(self) -> None:
        """Send everything of live cells again, as an exchanger does after a loss."""
        for (key, sequence), total in self._foreign.items():
            self._import(key, sequence, total)

    def _begin(self, fault: Fault) -> None:
        self._world.trace.say("fault", f"begins: {fault.describe().split('s  ', 1)[1]}")
        self._active.append(fault)
        self._arrange()
        if (begin := _BEGIN.get(fault.kind)) is not None:
            begin(self, fault)

    def _end(self, fault: Fault) -> None:
        if fault.for_ms:
            self._world.trace.say("fault", f"ends: {fault.kind.value}")
        self._active.remove(fault)
        if (end := _END.get(fault.kind)) is not None:
            end(self, fault)
        self._arrange()

    def _arrange(self) -> None:
        """Paths and servers as the active faults leave them."""
        for slot in self._world.slots:
            for index, path in enumerate(slot.paths):
                self._arrange_path(slot.index, index, path)
        for index, shard in enumerate(self._world.shards):
            kinds = {fault.kind for fault in self._active if fault.shard == index}
            shard.up = not kinds & {FaultKind.SHARD_DOWN, FaultKind.RESTART}
            if FaultKind.SHARD_STALL in kinds:
                shard.stall()
            else:
                shard.resume()

    def _arrange_path(self, slot: int, shard: int, path: NetworkPath) -> None:
        fresh = NetworkPath()
        path.tail = path.lose_call = path.lose_reply = path.duplicate = path.late = 0.0
        path.late_ms, path.connected = fresh.late_ms, True
        stalled = False
        for fault in self._active:
            everywhere = fault.kind is FaultKind.BLACKOUT
            if everywhere or (fault.shard == shard and fault.slot in (slot, -1)):
                stalled |= fault.kind is FaultKind.PATH_STALL
                if (effect := _EFFECTS.get(fault.kind)) is not None:
                    effect(path, fault.amount)
        if stalled:
            path.stall()
        elif path.stalled:
            path.resume()

    # Shards

    def _flush(self, fault: Fault) -> None:
        self._watch.shard_upset(fault.shard)
        self._world.shards[fault.shard].wipe()

    def _restart(self, fault: Fault) -> None:
        self._watch.shard_upset(fault.shard)
        self._world.shards[fault.shard].restart()

    def _replicate(self, fault: Fault) -> None:
        self._replicas[fault] = self._world.shards[fault.shard].remember()

    def _fail_over(self, fault: Fault) -> None:
        self._watch.shard_upset(fault.shard)
        self._world.shards[fault.shard].fail_over(self._replicas.pop(fault))

    def _set_shard_clock(self, fault: Fault) -> None:
        self._step(fault.shard, fault.amount)

    def _set_right(self, fault: Fault) -> None:
        if fault.for_ms:
            self._step(fault.shard, -fault.amount)

    def _step(self, index: int, by_ms: int) -> None:
        self._watch.clock_upset(index, by_ms)
        self._world.shards[index].set_clock(by_ms)

    def _garble(self, fault: Fault) -> None:
        key = self._world.history.keys[fault.key].name
        self._watch.key_upset(key)
        self._world.shards[self._world.shard_of(key)].garble(key, newer=bool(fault.amount))

    def _clear(self, fault: Fault) -> None:
        key = self._world.history.keys[fault.key].name
        self._watch.key_upset(key)
        self._world.shards[self._world.shard_of(key)].clear(key)

    # Nodes

    def _set_node_clock(self, fault: Fault) -> None:
        self._world.slots[fault.slot].clock.offset_ms += fault.amount

    def _crash(self, fault: Fault) -> None:
        if self._world.slots[fault.slot].serving:
            self._watch.node_upset()
            self._spawn(self._world.kill(self._world.slots[fault.slot]))

    def _drain(self, fault: Fault) -> None:
        if self._world.slots[fault.slot].serving:
            self._spawn(self._world.drain(self._world.slots[fault.slot]))

    def _come_back(self, fault: Fault) -> None:
        self._spawn(self._start_when_empty(fault.slot))

    async def _start_when_empty(self, index: int) -> None:
        slot = self._world.slots[index]
        while slot.node is not None and not slot.serving:  # noqa: ASYNC110 - on virtual time this costs nothing
            await asyncio.sleep(0.01)
        if slot.node is None:
            await self._world.start(slot)

    # Rules

    def _change_rule(self, fault: Fault) -> None:
        world, versions = self._world, self._world.limits[fault.key]
        versions.append(_changed(versions[0], fault.amount))
        version = len(versions) - 1
        for slot in world.slots:
            delay_s = fault.for_ms * slot.index / len(world.slots) / 1000
            world.loop.call_later(delay_s, self._change_rule_on, slot.index, fault.key, version)

    def _change_rule_on(self, slot: int, key: int, version: int) -> None:
        self._world.versions[slot][key] = version
        self._rule_upset(key)

    def _rule_upset(self, key: int) -> None:
        self._watch.rule_upset(self._world.history.keys[key].name)

    def _reset(self, fault: Fault) -> None:
        slot = self._world.slots[fault.slot]
        if slot.serving and slot.node is not None:
            self._spawn(self._reset_at(slot.node, fault))

    async def _reset_at(self, node: RegionNode, fault: Fault) -> None:
        key, limit = self._world.history.keys[fault.key].name, self._world.limits[fault.key][-1]
        try:
            number = await node.reset(key, limit)
        except OriginError:
            return  # the caller gets an error, and asks again
        for other in self._world.slots:
            await asyncio.sleep(fault.for_ms / len(self._world.slots) / 1000)
            if other.serving and other.node is not None:
                other.node.learn_reset(key, limit, number)

    # Other regions

    def _foreign_counts(self, fault: Fault) -> None:
        key = self._world.history.keys[fault.key]
        if fault not in self._active or not key.limit.window_ms or key.limit.burst:
            return
        shard = self._world.shards[self._world.shard_of(key.name)]
        sequence = shard.key_time_ms(key.name) // key.limit.window_ms
        total = self._foreign.get((key.name, sequence), 0) + fault.amount
        self._foreign[key.name, sequence] = total
        self._watch.truth.cells[key.name, sequence].foreign[ABROAD] = total
        self._watch.rule_upset(key.name)  # a late import is no over-admission
        if shard.up:
            self._import(key.name, sequence, total)
        self._world.loop.call_later(FOREIGN_EVERY_S, self._foreign_counts, fault)

    def _import(self, key: bytes, sequence: int, total: int, region: bytes = ABROAD) -> None:
        window_ms = next(known.limit.window_ms for known in self._world.history.keys if known.name == key)
        shard = self._world.shards[self._world.shard_of(key)]
        shard.apply(ImportCounts([ForeignCount(key, window_ms, sequence, region, total)]))

    def _listen(self, fault: Fault) -> None:
        """Remember what the region has, of current and previous cells, as a peer would."""
        self._echoes[fault] = [
            ForeignCount(key, record.window_ms, sequence, b"local", count.region_total, reset=record.reset)
            for key, record in self._world.shards[fault.shard].windows()
            for sequence, count in ((record.sequence, record.current), (record.sequence - 1, record.previous))
        ]

    def _echo(self, fault: Fault) -> None:
        if self._world.shards[fault.shard].up:
            self._world.shards[fault.shard].apply(ImportCounts(self._echoes.pop(fault)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))


def _changed(limit: Limit, amount: int) -> Limit:
    burst = max(1, limit.burst * amount // limit.requests_per_unit) if limit.burst else 0
    return dataclasses.replace(limit, requests_per_unit=amount, burst=burst)


_BEGIN: Final[dict[FaultKind, Callable[[Faults, Fault], None]]] = {
    FaultKind.FLUSH: Faults._flush,
    FaultKind.FAILOVER: Faults._replicate,
    FaultKind.SHARD_CLOCK: Faults._set_shard_clock,
    FaultKind.CLOCK_STEP: Faults._set_shard_clock,
    FaultKind.GARBLED: Faults._garble,
    FaultKind.NODE_CLOCK: Faults._set_node_clock,
    FaultKind.CRASH: Faults._crash,
    FaultKind.DRAIN: Faults._drain,
    FaultKind.RULE: Faults._change_rule,
    FaultKind.RESET: Faults._reset,
    FaultKind.FOREIGN: Faults._foreign_counts,
    FaultKind.ECHO: Faults._listen,
}
_END: Final[dict[FaultKind, Callable[[Faults, Fault], None]]] = {
    FaultKind.RESTART: Faults._restart,
    FaultKind.FAILOVER: Faults._fail_over,
    FaultKind.CRASH: Faults._come_back,
    FaultKind.DRAIN: Faults._come_back,
    FaultKind.ECHO: Faults._echo,
    FaultKind.CLOCK_STEP: Faults._set_right,
    FaultKind.GARBLED: Faults._clear,
}
