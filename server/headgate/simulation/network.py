"""A network between nodes and shards: delay, loss, duplication, late arrival, stalls, partitions.

Every message is on its way by itself: a call arrives, or does not, whether or not its sender
still waits, and so calls that were given up arrive late. Implements `Origin`, with the same
semantics of failure as a real one.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.origin.interface import OriginError, OriginTimeout
from headgate.origin.operation import Operation, R
from headgate.origin.operations.call import Call
from headgate.origin.placement import Placement
from headgate.quota.operations.call import QuotaCall
from headgate.simulation.shard import SimulatedShard


@dataclass(slots=True, kw_only=True)
class Way:
    """One way of messages, which may be held up on it."""

    connected: bool = True
    """False: calls are refused, and what is on its way is lost."""
    stalled: bool = False
    held: list[Callable[[], None]] = field(default_factory=list)
    """Messages that arrived while stalled, in order."""

    def stall(self) -> None:
        self.stalled = True

    def resume(self) -> None:
        """Deliver the messages that were held up."""
        self.stalled = False
        held, self.held = self.held, []
        for deliver in held:
            deliver()

    def pass_on(self, deliver: Callable[[], None]) -> None:
        """At the far end: deliver, if the way was good to its end."""
        if self.stalled:
            self.held.append(deliver)
        elif self.connected:
            deliver()


@dataclass(slots=True, kw_only=True)
class NetworkPath(Way):
    """The way between a node and a shard, and how it is doing."""

    delay_ms: tuple[float, float] = (0.2, 1.0)
    """Time of a round trip: half of it each way."""
    tail: float = 0.0
    """The share of messages that take the long way: a Pareto tail that begins at `tail_ms`."""
    tail_ms: float = 10.0
    lose_call: float = 0.0
    lose_reply: float = 0.0
    duplicate: float = 0.0
    """The share of calls that arrive twice, the second time up to `late_ms` later."""
    late: float = 0.0
    """The share of calls that are overtaken: they take up to `late_ms` longer."""
    late_ms: float = 100.0
    calls: int = 0

    def hop_s(self, random: random.Random) -> float:
        delay_ms = random.uniform(*self.delay_ms) / 2
        if self.tail and random.random() < self.tail:
            delay_ms += self.tail_ms * random.paretovariate(1.5)
        # Whole microseconds: what a platform's logarithm rounds otherwise must not make another run.
        return max(1, round(delay_ms * 1000)) / 1e6


def settle(answer: asyncio.Future[Any], outcome: Any) -> None:
    """Give a future its result or its error, unless it has one: who waits for it may have given up, or be dead."""
    if answer.done():
        return
    if isinstance(outcome, Exception):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


class Message:
    """One operation on its way to a shard, and its result on the way back."""

    def __init__(
        self,
        shard: SimulatedShard,
        path: NetworkPath,
        random: random.Random,
        operation: Operation[Any],
        answer: asyncio.Future[Any],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._shard = shard
        self._path = path
        self._random = random
        self._operation = operation
        self._answer = answer
        self._life = shard.lives
        self._losses = shard.losses

    def send(self) -> None:
        path, chance = self._path, self._random
        delay_s = path.hop_s(chance)
        if not path.connected:
            self._loop.call_later(delay_s, settle, self._answer, OriginError("refused"))
            return
        if path.late and chance.random() < path.late:
            delay_s += chance.uniform(0, path.late_ms) / 1000
        if path.duplicate and chance.random() < path.duplicate:
            self._loop.call_later(delay_s + chance.uniform(0, path.late_ms) / 1000, path.pass_on, self._arrive_again)
        if not path.lose_call or chance.random() >= path.lose_call:
            self._loop.call_later(delay_s, path.pass_on, self._arrive)

    def _arrive(self) -> None:
        self._shard.receive(self._life, self._operation, self._reply)

    def _arrive_again(self) -> None:
        """Send the same bytes once more; nobody waits for a second answer.

        Never into a memory that has forgotten the first time: that nothing below the node
        sends a call again after a loss is what the protocol relies on.
        """
        if self._losses == self._shard.losses:
            self._shard.receive(self._life, self._operation, lambda reply: None)

    def _reply(self, reply: Any) -> None:
        path, chance = self._path, self._random
        if not path.lose_reply or chance.random() >= path.lose_reply:
            self._loop.call_later(path.hop_s(chance), path.pass_on, lambda: settle(self._answer, reply))


def shard_of(key: bytes, shards: int) -> int:
    """Any rule does that all nodes share; this one lets a test choose a key's shard."""
    return sum(key) % shards


def shard_names(shards: int) -> tuple[str, ...]:
    """Names of the first so many shards."""
    return tuple(map(str, range(shards)))


class NetworkedOrigin:
    """Shards, each behind a path of its own or all behind one."""

    exclusive = False

    def __init__(
        self,
        shards: Sequence[SimulatedShard],
        paths: Sequence[NetworkPath],
        random: random.Random,
        listed: tuple[str, ...] = (),
    ) -> None:
        """`listed`: the shards that keys are placed on until another list is agreed; none: all, and for ever."""
        self.listed = listed
        self._shards = shards
        self._paths = paths
        self._random = random
        self._named = 0
        self.place_by(Placement(0, listed or shard_names(len(shards))))

    @property
    def placement(self) -> Placement:
        """The list that keys are placed by."""
        return self._placement

    @property
    def placed_on(self) -> Sequence[int]:
        """Shards that may have keys."""
        return tuple(dict.fromkeys((*self._now, *self._before)))

    @property
    def shards(self) -> int:
        """Shards that were named, by the highest number."""
        return self._named

    def shard_of(self, key: bytes) -> int:
        return self._now[shard_of(key, len(self._now))]

    def shard_before(self, key: bytes) -> int:
        return self._before[shard_of(key, len(self._before))]

    def place_by(self, placement: Placement) -> None:
        self._placement = placement
        self._now = [self.shard_named(name) for name in placement.shards]
        self._before = [self.shard_named(name) for name in placement.before] or self._now

    def shard_named(self, name: str) -> int:
        self._named = max(self._named, int(name) + 1)
        return int(name)

    async def leave(self, shard: int) -> None: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def describe(self) -> Sequence[Any]:
        return []

    async def run(self, shard: int, operation: Operation[R], timeout_s: float) -> R:
        if isinstance(operation, Call | QuotaCall):
            self._paths[shard].calls += 1
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        timer = loop.call_later(timeout_s, settle, answer, OriginTimeout(f"no answer within {timeout_s} s"))
        Message(self._shards[shard], self._paths[shard], self._random, operation, answer).send()
        try:
            return await answer
        finally:
            timer.cancel()
