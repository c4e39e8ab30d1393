"""The way from one region to another: delay, loss, repetition, stalls and partitions, each way by itself."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from headgate.errors import RequestError
from headgate.exchange.messages import Ack, Batch, LinkError, Receiver
from headgate.origin.interface import OriginError
from headgate.simulation.network import Way, settle


@dataclass(slots=True, kw_only=True)
class LinkPath(Way):
    """One direction between two regions, and how it is doing."""

    delay_ms: tuple[float, float]
    lose_batch: float = 0.0
    lose_ack: float = 0.0
    repeat: float = 0.0
    slower: float = 1.0

    def hop_s(self, chance: random.Random) -> float:
        """Draw the time that a message takes; whole microseconds, so that a run is the same everywhere."""
        return max(1, round(chance.uniform(*self.delay_ms) * self.slower * 1000)) / 1e6


REPEATED_S = (0.1, 4.0)
"""Shortest and longest delay of a batch's repetition, in seconds."""


class SimulatedLink:
    """A PeerLink over a path there and a path back. `find` returns the current receiver, if there is one."""

    def __init__(
        self,
        region: str,
        there: LinkPath,
        back: LinkPath,
        find: Callable[[], Receiver | None],
        chance: random.Random,
    ) -> None:
        self._region = region
        self._there = there
        self._back = back
        self._find = find
        self._chance = chance
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, batch: Batch, timeout_s: float) -> Ack:
        answer: asyncio.Future[Ack] = self._loop.create_future()
        path, chance = self._there, self._chance
        if not path.lose_batch or chance.random() >= path.lose_batch:
            self._loop.call_later(path.hop_s(chance), path.pass_on, lambda: self._arrive(batch, answer))
        if path.repeat and chance.random() < path.repeat:
            again: asyncio.Future[Ack] = self._loop.create_future()
            later_s = round(chance.uniform(*REPEATED_S), 6)
            self._loop.call_later(later_s, path.pass_on, lambda: self._arrive(batch, again))
        timer = self._loop.call_later(timeout_s, settle, answer, LinkError("no acknowledgement in time"))
        try:
            return await answer
        finally:
            timer.cancel()

    @property
    def is_renewed(self) -> bool:
        return False

    async def close(self) -> None: ...

    def _arrive(self, batch: Batch, answer: "asyncio.Future[Ack]") -> None:
        task = self._loop.create_task(self._receive(batch, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _receive(self, batch: Batch, answer: "asyncio.Future[Ack]") -> None:
        receiver = self._find()
        if receiver is None:
            return  # no receiver: the sender gives up
        try:
            ack = await receiver.receive(self._region, batch)
        except (OriginError, RequestError):
            return
        path, chance = self._back, self._chance
        if not self._there.lose_ack or chance.random() >= self._there.lose_ack:
            self._loop.call_later(path.hop_s(chance), path.pass_on, lambda: settle(answer, ack))
