"""A shard that can fail: the reference origin behind a server that is flushed, restarted, failed over or stalled.

The records are the production ones, and one table of cases holds them to what the Lua does.
What is added is a server's life: whether it answers, which of its connections are still
good, and what it remembers. As in Redis the time of a key never goes back while its record
lives, and does so with the server's clock when the record is gone.
"""

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from headgate.origin.interface import OriginError
from headgate.origin.memory import MemoryOrigin
from headgate.origin.protocol import Call, ForeignCount, Pulse, Reply
from headgate.origin.window_record import WindowRecord
from headgate.simulation.loop import LoopClock

T = TypeVar("T")
Carry = Callable[["SimulatedShard"], Any]
Done = Callable[[Any], None]
Memory = tuple[Any, ...]


class SimulatedShard(MemoryOrigin):
    """A shard in memory that can stall, restart, lose its memory and fail over to an older copy of it."""

    def __init__(self, clock: LoopClock, *, epoch: bytes = b"1") -> None:
        super().__init__(clock, epoch=epoch)
        self.clock = clock
        self.up = True
        self.lives = 1
        """Rises with every restart: what was sent to an earlier life is answered by a reset."""
        self.losses = 0
        """How often something that it knew was lost."""
        self.on_reply: Callable[[Call, Reply], None] = lambda call, reply: None
        self._stalled: deque[tuple[int, Carry, Done]] | None = None
        self._times: dict[bytes, int] = {}

    def receive(self, life: int, carry: Carry, done: Done) -> None:
        """A message arrives: have it carried out, now or when the server runs again."""
        if life != self.lives:
            done(OriginError("the connection was reset"))
        elif not self.up:
            done(OriginError("refused"))
        elif self._stalled is not None:
            self._stalled.append((life, carry, done))
        else:
            done(carry(self))

    def stall(self) -> None:
        self._stalled = self._stalled or deque()

    def resume(self) -> None:
        """Whatever came in the meantime is carried out now, whether anybody still waits or not."""
        stalled, self._stalled = self._stalled or deque(), None
        for message in stalled:
            self.receive(*message)

    def wipe(self, epoch: bytes | None = None) -> None:
        super().wipe(epoch)
        self._times.clear()
        self.losses += 1

    def restart(self) -> None:
        """Come back empty, as another run of the server."""
        self.lives += 1
        self.wipe(b"%d" % self.lives)

    def remember(self) -> Memory:
        """What a replica has now."""
        return copy.deepcopy((self._records, self._expiry, self._beats, self._times))

    def fail_over(self, replica: Memory) -> None:
        """A replica takes over: what was written after its copy is lost."""
        self.restart()
        self._records, self._expiry, self._beats, self._times = copy.deepcopy(replica)

    def apply(self, call: Call) -> Reply:
        self._time_ms = max((self._times.get(report.key, 0) for report in call.reports), default=0)
        reply = super().apply(call)
        for report in call.reports:
            self._times[report.key] = reply.time_ms
        self.on_reply(call, reply)
        return reply

    def beat(self, run: bytes) -> Pulse:
        self._time_ms = 0
        return super().beat(run)

    def take_in(self, counts: Sequence[ForeignCount]) -> None:
        """What an exchanger brings: `import_foreign`, here and now."""
        self._time_ms = max((self._times.get(count.key, 0) for count in counts), default=0)
        try:
            self.import_foreign(0, counts, 1.0).send(None)
        except StopIteration:
            return
        raise AssertionError("the origin in memory never waits")

    def time_ms(self) -> int:
        return self.clock.now_ms()

    def key_time_ms(self, key: bytes) -> int:
        """The time by which a key's next cost would be charged."""
        return max(self.time_ms(), self._times.get(key, 0))

    def latest_ms(self) -> int:
        """The latest time by which any key was."""
        return max(self._times.values(), default=0)

    def record(self, key: bytes) -> Any:
        """The key's record, or None."""
        return self._records.get(key)

    def windows(self) -> list[tuple[bytes, WindowRecord]]:
        return [(key, record) for key, record in self._records.items() if isinstance(record, WindowRecord)]
