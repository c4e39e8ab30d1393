"""A shard that can fail: the reference origin behind a server that is flushed, restarted, failed over or stalled.

The records are the production ones, and one table of cases holds them to what the Lua does.
What is added is a server's life: whether it answers, which of its connections are still
good, and what it remembers. Its clock is set by the faults.
"""

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from headgate.origin.exchange_protocol import ForeignCount
from headgate.origin.interface import OriginError
from headgate.origin.limit_record import SealedRecord, UnreadableRecord
from headgate.origin.memory import MemoryOrigin
from headgate.origin.operation import Operation, R
from headgate.origin.operations.call import Call, Reply
from headgate.origin.operations.import_counts import ImportCounts
from headgate.origin.window_cells import CellRecord
from headgate.origin.window_record import WindowRecord
from headgate.quota.operations.call import QuotaCall, QuotaReply
from headgate.simulation.loop import LoopClock

Done = Callable[[Any], None]
Memory = tuple[Any, ...]


def cells_of(record: object) -> dict[int, CellRecord]:
    """Cells of a window's record, by window; of anything else there are none."""
    if not isinstance(record, WindowRecord):
        return {}
    return {record.sequence: record.current, record.sequence - 1: record.previous}


class SimulatedShard(MemoryOrigin):
    """A shard in memory that can stall, restart, lose its memory and fail over to an older copy of it."""

    def __init__(self, clock: LoopClock, *, epoch: bytes = b"1", region: bytes = b"local") -> None:
        super().__init__(clock, region=region, epoch=epoch)
        self.clock = clock
        self.up = True
        self.lives = 1
        """Rises with every restart: what was sent to an earlier life is answered by a reset."""
        self.losses = 0
        """Times that something that it knew was lost."""
        self.on_reply: Callable[[Call, Reply], None] = lambda call, reply: None
        self.on_reset: Callable[[bytes, int], None] = lambda key, number: None
        """An answer belongs to a reset of its key."""
        self.on_import: Callable[[Sequence[ForeignCount]], None] = lambda counts: None
        self.lost_keys: set[bytes] = set()
        """Keys whose own records were lost."""
        self.clock_steps = 0
        """Times that its clock was set."""
        self._stalled: deque[tuple[int, Operation[Any], Done]] | None = None

    def receive(self, life: int, operation: Operation[Any], done: Done) -> None:
        """A message arrives: have it carried out, now or when the server runs again."""
        if life != self.lives:
            done(OriginError("the connection was reset"))
        elif not self.up:
            done(OriginError("refused"))
        elif self._stalled is not None:
            self._stalled.append((life, operation, done))
        else:
            done(self.apply(operation))

    def stall(self) -> None:
        self._stalled = self._stalled or deque()

    def resume(self) -> None:
        """Carry out what came in the meantime, whether anybody still waits or not."""
        stalled, self._stalled = self._stalled or deque(), None
        for message in stalled:
            self.receive(*message)

    def wipe(self, epoch: bytes | None = None) -> None:
        super().wipe(epoch)
        self.losses += 1

    def restart(self) -> None:
        """Come back empty, as another run of the server."""
        self.lives += 1
        self.wipe(b"%d" % self.lives)

    def remember(self) -> Memory:
        """Copy the memory, as a replica has it now."""
        memory = self.memory
        return copy.deepcopy((memory.records, memory.expiry, memory.parts))

    def fail_over(self, replica: Memory) -> None:
        """A replica takes over: what was written after its copy is lost."""
        self.restart()
        memory = self.memory
        memory.records, memory.expiry, memory.parts = copy.deepcopy(replica)

    def set_clock(self, by_ms: int) -> None:
        """Somebody sets the server's clock."""
        self.clock.offset_ms += by_ms
        self.clock_steps += 1
        self.losses += 1  # records that lie ahead begin anew

    def garble(self, key: bytes, *, newer: bool) -> None:
        """Something else stands in the place of a key's record."""
        self.lost_keys.add(key)
        self.memory.records[key] = UnreadableRecord(newer=newer)

    def clear(self, key: bytes) -> None:
        """Somebody removes a record that could not be read."""
        if isinstance(self.memory.records.get(key), UnreadableRecord):
            del self.memory.records[key]

    def has_lost(self, key: bytes) -> bool:
        """Say if anything that it knew of the key was ever lost."""
        return bool(self.losses) or key in self.lost_keys

    def apply(self, operation: Operation[R]) -> R:
        result = super().apply(operation)
        if isinstance(operation, Call) and isinstance(result, Reply):
            self._replied(operation, result)
        elif isinstance(operation, QuotaCall) and isinstance(result, QuotaReply):
            self._replied(operation.call, result.reply)
        elif isinstance(operation, ImportCounts):
            self.on_import(operation.counts)
        return result

    def _replied(self, call: Call, reply: Reply) -> None:
        for report, answer in zip(call.reports, reply.answers, strict=True):
            if answer.reset:
                self.on_reset(report.key, answer.reset)
        self.on_reply(call, reply)

    def time_ms(self) -> int:
        return self.clock.now_ms()

    def key_time_ms(self, key: bytes) -> int:
        """The time by which a key's next cost would be charged: that of its window, if the clock is not there yet."""
        now_ms, record = self.time_ms(), self.memory.records.get(key)
        if isinstance(record, WindowRecord) and record.sequence <= now_ms // record.window_ms + 1:
            return record.time_ms(now_ms)
        return now_ms

    def record(self, key: bytes) -> Any:
        """The key's record, as it is on its way to another shard too; or None."""
        record = self.memory.records.get(key)
        return record.content if isinstance(record, SealedRecord) else record

    def has_open(self, key: bytes) -> bool:
        """Say if the key is counted here."""
        record = self.memory.records.get(key)
        return record is not None and not isinstance(record, SealedRecord)

    def windows(self) -> list[tuple[bytes, WindowRecord]]:
        return [(key, record) for key, record in self.memory.records.items() if isinstance(record, WindowRecord)]
