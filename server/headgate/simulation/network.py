"""A network between nodes and shards: delay, loss, duplication, late arrival, stalls, partitions.

Every message is on its way by itself: a call arrives, or does not, whether or not its sender
still waits, and so calls that were given up arrive late. Implements `Origin`, with the same
semantics of failure as a real one.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headgate.origin.book import BookEntry, BookPage, BookState
from headgate.origin.claims import Claim
from headgate.origin.interface import OriginError, OriginTimeout
from headgate.origin.look import KeyLook
from headgate.origin.protocol import Call, Changes, ForeignCount, Lane, Published, Pulse, Reply, Stamp
from headgate.origin.quota_protocol import QuotaLease, QuotaSave, QuotaSaved, QuotaStep, QuotaStepped
from headgate.simulation.shard import Carry, SimulatedShard

T = TypeVar("T")


@dataclass(slots=True)
class NetworkPath:
    """The way between a node and a shard, and how it is doing."""

    delay_ms: tuple[float, float] = (0.2, 1.0)
    """Of a round trip: half of it each way."""
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
    connected: bool = True
    """False: calls are refused, and what is on its way is lost."""
    stalled: bool = False
    calls: int = 0
    held: list[Callable[[], None]] = field(default_factory=list)
    """What arrives while stalled, in order."""

    def hop_s(self, random: random.Random) -> float:
        delay_ms = random.uniform(*self.delay_ms) / 2
        if self.tail and random.random() < self.tail:
            delay_ms += self.tail_ms * random.paretovariate(1.5)
        # Whole microseconds: what a platform's logarithm rounds otherwise must not make another run.
        return max(1, round(delay_ms * 1000)) / 1e6

    def stall(self) -> None:
        self.stalled = True

    def resume(self) -> None:
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


class Message:
    """One call to a shard, and its answer."""

    __slots__ = ("_answer", "_carry", "_life", "_loop", "_losses", "_path", "_random", "_shard")

    def __init__(
        self, shard: SimulatedShard, path: NetworkPath, random: random.Random, carry: Carry, answer: asyncio.Future[Any]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._shard = shard
        self._path = path
        self._random = random
        self._carry = carry
        self._answer = answer
        self._life = shard.lives
        self._losses = shard.losses

    def send(self) -> None:
        path, chance = self._path, self._random
        delay_s = path.hop_s(chance)
        if not path.connected:
            self._loop.call_later(delay_s, self._deliver, OriginError("refused"))
            return
        if path.late and chance.random() < path.late:
            delay_s += chance.uniform(0, path.late_ms) / 1000
        if path.duplicate and chance.random() < path.duplicate:
            self._loop.call_later(delay_s + chance.uniform(0, path.late_ms) / 1000, path.pass_on, self._arrive_again)
        if not path.lose_call or chance.random() >= path.lose_call:
            self._loop.call_later(delay_s, path.pass_on, self._arrive)

    def _arrive(self) -> None:
        self._shard.receive(self._life, self._carry, self._reply)

    def _arrive_again(self) -> None:
        """The same bytes once more; nobody waits for a second answer.

        Never into a memory that has forgotten the first time: that nothing below the node
        sends a call again after a loss is what the protocol relies on.
        """
        if self._losses == self._shard.losses:
            self._shard.receive(self._life, self._carry, lambda reply: None)

    def _reply(self, reply: Any) -> None:
        path, chance = self._path, self._random
        if not path.lose_reply or chance.random() >= path.lose_reply:
            self._loop.call_later(path.hop_s(chance), path.pass_on, lambda: self._deliver(reply))

    def _deliver(self, reply: Any) -> None:
        if self._answer.done():
            return  # given up, or its node is dead
        if isinstance(reply, OriginError):
            self._answer.set_exception(reply)
        else:
            self._answer.set_result(reply)


def shard_of(key: bytes, shards: int) -> int:
    """Any rule does that all nodes share; this one lets a test choose a key's shard."""
    return sum(key) % shards


class NetworkedOrigin:
    """Shards, each behind a path of its own or all behind one."""

    exclusive = False

    def __init__(self, shards: Sequence[SimulatedShard], paths: Sequence[NetworkPath], random: random.Random) -> None:
        self._shards = shards
        self._paths = paths
        self._random = random
        self.shards = len(shards)

    def shard_of(self, key: bytes) -> int:
        return shard_of(key, self.shards)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def describe(self) -> Sequence[Any]:
        return []

    async def call(self, shard: int, call: Call, timeout_s: float) -> Reply:
        self._paths[shard].calls += 1
        reply: Reply = await self._cross(shard, lambda server: server.apply(call), timeout_s)
        return reply

    async def heartbeat(self, shard: int, run: bytes, timeout_s: float) -> Pulse:
        pulse: Pulse = await self._cross(shard, lambda server: server.beat(run), timeout_s)
        return pulse

    async def import_foreign(
        self, shard: int, counts: Sequence[ForeignCount], timeout_s: float, stamp: Stamp | None = None
    ) -> None:
        await self._cross(shard, lambda server: server.take_in(counts, stamp), timeout_s)

    async def changes(
        self,
        shard: int,
        peer: bytes,
        lane: Lane,
        owner: bytes,
        generation: bytes,
        most: int,
        timeout_s: float,
        after: int = 0,
    ) -> Changes:
        carry: Carry = lambda server: server.read_changes(peer, lane, owner, generation, most, after)  # noqa: E731
        changes: Changes = await self._cross(shard, carry, timeout_s)
        return changes

    async def components(
        self, shard: int, peer: bytes, lane: Lane, names: Sequence[bytes], timeout_s: float
    ) -> list[Published | None]:
        carry: Carry = lambda server: server.read_components(peer, lane, names)  # noqa: E731
        components: list[Published | None] = await self._cross(shard, carry, timeout_s)
        return components

    async def acknowledge(self, shard: int, peer: bytes, lane: Lane, changes: Changes, timeout_s: float) -> bool:
        moved: bool = await self._cross(shard, lambda server: server.move_cursor(peer, lane, changes), timeout_s)
        return moved

    async def begin_walk(self, shard: int, peer: bytes, walk: bytes, timeout_s: float) -> None:
        await self._cross(shard, lambda server: server.outbox.begin_walk(peer, walk), timeout_s)

    async def mark_filled(self, shard: int, peer: bytes, mark: bytes, timeout_s: float) -> None:
        await self._cross(shard, lambda server: server.outbox.mark_filled(peer, mark), timeout_s)

    async def give_back(self, shard: int, owner: bytes, peers: Sequence[bytes], timeout_s: float) -> None:
        await self._cross(shard, lambda server: server.return_leases(owner, peers), timeout_s)

    async def quota_lease(
        self, shard: int, owner: bytes, drawn: bytes, peers: Sequence[bytes], timeout_s: float
    ) -> QuotaLease:
        lease: QuotaLease = await self._cross(shard, lambda server: server.lease_quotas(owner, drawn, peers), timeout_s)
        return lease

    async def quota_rows(
        self, shard: int, cursor: int, timeout_s: float
    ) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
        found: tuple[int, tuple[tuple[bytes, bytes], ...]] = await self._cross(
            shard, lambda server: server.quotas.rows(cursor), timeout_s
        )
        return found

    async def quota_save(self, shard: int, save: QuotaSave, timeout_s: float) -> QuotaSaved:
        saved: QuotaSaved = await self._cross(shard, lambda server: server.quotas.save(save), timeout_s)
        return saved

    async def quota_post(self, shard: int, peer: bytes, message: bytes, timeout_s: float) -> bytes:
        acknowledged: bytes = await self._cross(shard, lambda server: server.quotas.post(peer, message), timeout_s)
        return acknowledged

    async def quota_step(self, shard: int, step: QuotaStep, timeout_s: float) -> QuotaStepped:
        stepped: QuotaStepped = await self._cross(shard, lambda server: server.step_quotas(step), timeout_s)
        return stepped

    async def write_book(
        self, shard: int, entries: Sequence[BookEntry], generation: bytes, timeout_s: float
    ) -> BookState:
        carry: Carry = lambda server: server.book.write(entries, generation, server.time_ms())  # noqa: E731
        state: BookState = await self._cross(shard, carry, timeout_s)
        return state

    async def read_book(self, shard: int, since: int, most: int, timeout_s: float) -> BookPage:
        carry: Carry = lambda server: server.book.read(since, most, server.time_ms())  # noqa: E731
        page: BookPage = await self._cross(shard, carry, timeout_s)
        return page

    async def look(self, shard: int, key: bytes, window_ms: int, timeout_s: float) -> KeyLook:
        look: KeyLook = await self._cross(shard, lambda server: server.look_at(key, window_ms), timeout_s)
        return look

    async def claim(self, shard: int, name: bytes, value: bytes, expires_ms: int, timeout_s: float) -> Claim:
        carry: Carry = lambda server: server.take_claim(name, value, expires_ms)  # noqa: E731
        claim: Claim = await self._cross(shard, carry, timeout_s)
        return claim

    async def _cross(self, shard: int, carry: Carry, timeout_s: float) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        timer = loop.call_later(timeout_s, _give_up, answer, timeout_s)
        Message(self._shards[shard], self._paths[shard], self._random, carry, answer).send()
        try:
            return await answer
        finally:
            timer.cancel()


def _give_up(answer: asyncio.Future[Any], timeout_s: float) -> None:
    if not answer.done():
        answer.set_exception(OriginTimeout(f"no answer within {timeout_s} s"))
