"""Faults at their times, in one region or between several: each begins, lasts and ends.

The state of paths and servers follows from the faults that are active, so overlapping ones do not end each other.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Generic

from headgate.simulation.history import F
from headgate.simulation.shard import Memory
from headgate.simulation.stage import Stage


class FaultSchedule(ABC, Generic[F]):
    """Begins and ends a history's faults, each at its time. A subclass knows what each kind does."""

    def __init__(self, stage: Stage[Any]) -> None:
        self._stage = stage
        self._active: list[F] = []
        self._replicas: dict[F, Memory] = {}
        """Memory of a replica that is about to take over."""
        self._tasks: list[asyncio.Task[Any]] = []

    async def run(self, faults: tuple[F, ...]) -> None:
        """Let them happen; returns when the last one is over."""
        events = [(fault.at_ms, 1, number, fault, self._begin) for number, fault in enumerate(faults)]
        events += [(fault.end_ms, 2, number, fault, self._end) for number, fault in enumerate(faults)]
        for at_ms, _, _, fault, happen in sorted(events, key=lambda event: event[:3]):
            await asyncio.sleep(max(0.0, at_ms / 1000 - self._stage.loop.time()))
            happen(fault)
        await asyncio.gather(*self._tasks)

    def _begin(self, fault: F) -> None:
        self._stage.trace.say("fault", f"begins: {fault.describe().split('s  ', 1)[1]}")
        self._active.append(fault)
        self._arrange()
        self._break(fault)

    def _end(self, fault: F) -> None:
        if fault.for_ms:
            self._stage.trace.say("fault", f"ends: {fault.kind.value}")
        self._active.remove(fault)
        self._mend(fault)
        self._arrange()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    @abstractmethod
    def _arrange(self) -> None:
        """Put paths and servers into the state in which the active faults leave them."""

    @abstractmethod
    def _break(self, fault: F) -> None:
        """Do what a fault does once, when it begins."""

    @abstractmethod
    def _mend(self, fault: F) -> None:
        """Do what happens once, when a fault ends."""
