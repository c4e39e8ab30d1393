"""The origins under test, each with a clock that the tests set."""

from typing import Protocol

import pytest
from headgate.clock import ManualClock
from headgate.origin.interface import Origin
from headgate.origin.memory import MemoryOrigin

from tests.conformance.origin.cases import START_MS


class Harness(Protocol):
    """An origin whose time stands until it is set, and that can be made to forget."""

    origin: Origin

    async def set_time(self, ms: int) -> None: ...

    async def wipe(self, *, restart: bool) -> None: ...


class MemoryHarness:
    def __init__(self) -> None:
        self.clock = ManualClock(START_MS)
        self.memory = MemoryOrigin(self.clock, region=b"here")
        self.origin: Origin = self.memory

    async def set_time(self, ms: int) -> None:
        self.clock.step(ms - self.clock.now_ms())

    async def wipe(self, *, restart: bool) -> None:
        self.memory.wipe(b"another" if restart else None)


@pytest.fixture(params=["memory"])
def harness(request: pytest.FixtureRequest) -> Harness:
    return MemoryHarness()
