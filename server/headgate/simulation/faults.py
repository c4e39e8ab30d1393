"""Begin and end of each kind of fault in a region."""

import asyncio
import dataclasses
from typing import Final

from headgate.limiter.limit import Limit
from headgate.origin.exchange_protocol import ForeignCount
from headgate.origin.interface import OriginError
from headgate.origin.operations.import_counts import ImportCounts
from headgate.region.node import RegionNode
from headgate.simulation.history import Fault, FaultKind
from headgate.simulation.network import NetworkPath
from headgate.simulation.schedule import FaultSchedule
from headgate.simulation.shard import cells_of
from headgate.simulation.watch import Watch
from headgate.simulation.world import World

FOREIGN_EVERY_S: Final = 0.1
ABROAD: Final = b"abroad"
MOVING_S: Final = 0.01


class Faults(FaultSchedule[Fault]):
    """Begins and ends a history's faults, each at its time."""

    def __init__(self, world: World, watch: Watch) -> None:
        super().__init__(world)
        self._world = world
        self._truth = watch.truth
        self._upsets = watch.upsets
        self._echoes: dict[Fault, list[ForeignCount]] = {}
        self._foreign: dict[tuple[bytes, int], int] = {}

    def resync(self) -> None:
        """Send everything of live cells again, as an exchanger does after a loss."""
        for (key, sequence), total in self._foreign.items():
            self._import(key, sequence, total)

    def _arrange(self) -> None:
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
                _spoil(path, fault.kind, fault.amount)
        if stalled:
            path.stall()
        elif path.stalled:
            path.resume()

    def _break(self, fault: Fault) -> None:
        world, slot, shard = self._world, self._world.slots[fault.slot], self._world.shards[fault.shard]
        match fault.kind:
            case FaultKind.FLUSH:
                self._upsets.shard(fault.shard)
                shard.wipe()
            case FaultKind.FAILOVER:
                self._replicas[fault] = shard.remember()
            case FaultKind.SHARD_CLOCK | FaultKind.CLOCK_STEP:
                self._set_clock(fault.shard, fault.amount)
            case FaultKind.GARBLED:
                key = self._lose(fault)
                world.shards[world.shard_of(key)].garble(key, newer=bool(fault.amount))
            case FaultKind.NODE_CLOCK:
                slot.clock.offset_ms += fault.amount
            case FaultKind.CRASH if slot.serving:
                self._upsets.node()
                self._spawn(world.kill(slot))
            case FaultKind.DRAIN | FaultKind.RELISTED if slot.serving:
                self._spawn(world.drain(slot))
            case FaultKind.LISTED:
                slot.listed = world.list_with(fault.amount)
                if slot.node is not None:
                    slot.node.lists.want(slot.listed)
            case FaultKind.RULE:
                self._change_rule(fault)
            case FaultKind.RESET if slot.serving and slot.node is not None:
                self._spawn(self._reset_at(slot.node, fault))
            case FaultKind.FOREIGN:
                self._foreign_counts(fault)
            case FaultKind.ECHO:
                self._listen(fault)

    def _mend(self, fault: Fault) -> None:
        world, shard = self._world, self._world.shards[fault.shard]
        match fault.kind:
            case FaultKind.RESTART:
                self._upsets.shard(fault.shard)
                shard.restart()
            case FaultKind.FAILOVER:
                self._upsets.shard(fault.shard)
                shard.fail_over(self._replicas.pop(fault))
            case FaultKind.CRASH | FaultKind.DRAIN | FaultKind.RELISTED:
                if fault.kind is FaultKind.RELISTED:
                    world.slots[fault.slot].listed = world.list_with(1)
                self._spawn(self._start_when_empty(fault.slot))
            case FaultKind.ECHO if shard.up:
                for count in self._echoes.pop(fault):
                    self._merge(count)
            case FaultKind.CLOCK_STEP if fault.for_ms:
                self._set_clock(fault.shard, -fault.amount)
            case FaultKind.GARBLED:
                key = self._lose(fault)
                world.shards[world.shard_of(key)].clear(key)

    def _set_clock(self, index: int, by_ms: int) -> None:
        self._upsets.clock(index, by_ms)
        self._world.shards[index].set_clock(by_ms)

    def _lose(self, fault: Fault) -> bytes:
        """Tell that the record of the fault's key is lost; return the key."""
        key = self._world.history.keys[fault.key].name
        self._upsets.key(key)
        return key

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
        self._upsets.rule(self._world.history.keys[key].name)

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
        self._truth.cells[key.name, sequence].foreign[ABROAD] = total
        self._upsets.rule(key.name)  # a late import is no over-admission
        if shard.up:
            self._import(key.name, sequence, total)
        self._world.loop.call_later(FOREIGN_EVERY_S, self._foreign_counts, fault)

    def _import(self, key: bytes, sequence: int, total: int, region: bytes = ABROAD) -> None:
        window_ms = next(known.limit.window_ms for known in self._world.history.keys if known.name == key)
        self._merge(ForeignCount(key, window_ms, sequence, region, total))

    def _merge(self, count: ForeignCount) -> None:
        """Merge a count where its key is counted, as an exchanger does, or as soon as it has arrived there."""
        world, number = self._world, self._world.list_number
        for index, leaving in world.owners(count.key):
            if not world.shards[index].up:
                return
            said = world.shards[index].apply(ImportCounts([count], number=number, leaving=leaving))
            if said.moving:
                world.loop.call_later(MOVING_S, self._merge, count)
            if not said.elsewhere:
                return

    def _listen(self, fault: Fault) -> None:
        """Remember what the region has, of current and previous cells, as a peer would."""
        self._echoes[fault] = [
            ForeignCount(key, record.window_ms, sequence, b"local", count.region_total, reset=record.reset)
            for key, record in self._world.shards[fault.shard].windows()
            for sequence, count in cells_of(record).items()
        ]


def _changed(limit: Limit, amount: int) -> Limit:
    burst = max(1, limit.burst * amount // limit.requests_per_unit) if limit.burst else 0
    return dataclasses.replace(limit, requests_per_unit=amount, burst=burst)


def _spoil(path: NetworkPath, kind: FaultKind, amount: int) -> None:
    """Make a path as bad as a fault of this kind does."""
    match kind:
        case FaultKind.SLOW:
            path.tail, path.tail_ms = 0.3, float(amount)
        case FaultKind.LOST_CALLS:
            path.lose_call = amount / 100
        case FaultKind.LOST_REPLIES:
            path.lose_reply = amount / 100
        case FaultKind.DUPLICATES:
            path.duplicate = amount / 100
        case FaultKind.LATE:
            path.late, path.late_ms = amount / 100, 700.0  # longer than a call is waited for
        case FaultKind.REFUSED:
            path.connected = False
        case FaultKind.PARTITION | FaultKind.BLACKOUT:
            path.lose_call = path.lose_reply = 1.0
