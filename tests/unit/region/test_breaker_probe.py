"""A fault of our own in the middle of a probe costs that probe: the shard is tried again."""

import asyncio
import itertools
import random
from typing import Any

import pytest
from headgate.limiter.counters import CounterTable
from headgate.origin.protocol import Call, Reply
from headgate.region.breaker import BreakerSettings
from headgate.region.shard_link import ShardLink
from headgate.region.slices import Slices
from headgate.simulation.loop import run_virtually

FAULTS = 3
DEADLINE_S = 0.005


class LoopClock:
    """The time of the loop that runs."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic() * 1000)


class Slow:
    """An origin that answers every call, the first ones too late for a probe, and has nothing to say."""

    def __init__(self) -> None:
        self.late = FAULTS

    async def call(self, _shard: int, _call: Call, _timeout_s: float) -> Reply:
        if self.late:
            self.late -= 1
            await asyncio.sleep(2 * DEADLINE_S)
        return Reply(LoopClock().now_ms(), b"epoch", (), ())


class Silent:
    def __getattr__(self, _level: str) -> Any:
        return lambda _event, **_fields: None


def test_a_probe_that_meets_a_fault_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [FAULTS]
    apply = ShardLink._apply

    def faulty(link: ShardLink, *args: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise RuntimeError("a fault of our own")
        apply(link, *args)

    monkeypatch.setattr(ShardLink, "_apply", faulty)

    async def history() -> None:
        clock, origin = LoopClock(), Slow()
        logger: Any = Silent()
        link = ShardLink(
            0,
            origin,  # type: ignore[arg-type]  # what a link calls of it
            clock=clock,
            random=random.Random(1),
            logger=logger,
            numbers=itertools.count(1),
            live_counters=lambda: (),
            new_component=lambda: b"",
            slices=Slices(CounterTable(1, lambda counter: True), monotonic=clock.monotonic, most=1),
            on_reset=lambda *_: None,
            on_lost_memory=lambda *_: None,
            deadline_s=DEADLINE_S,
            breaker=BreakerSettings(),
        )
        task = asyncio.create_task(link.run())
        await asyncio.sleep(0)
        for _ in range(5):
            link.breaker.record(False, "connection refused")
        assert not link.breaker.closed
        await asyncio.sleep(30)
        assert not left[0]
        assert link.breaker.closed
        task.cancel()

    run_virtually(history())
