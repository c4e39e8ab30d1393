"""A fault of our own in the middle of a probe, in what follows from its answer, costs that probe: the shard is tried
again."""

import asyncio
import random
from typing import Any

from headgate.origin.operations.call import Call, Reply
from headgate.origin.protocol import Answer, Count, WindowAnswer
from headgate.region.breaker import BreakerSettings
from headgate.region.session_owner import Chances
from headgate.region.shard_link import LinkTerms, ShardLink
from headgate.simulation.loop import run_virtually

from tests.unit.region.support import NoNode

FAULTS = 3
DEADLINE_S = 0.005


class LoopClock:
    """The time of the loop that runs."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic() * 1000)


class Strange:
    """An origin that answers every call: the first ones too late for a probe and with more than was asked for, which
    nobody foresees, the others with nothing."""

    def __init__(self) -> None:
        self.faults_left = FAULTS

    async def run(self, _shard: int, _call: Call, _timeout_s: float) -> Reply:
        answers: tuple[Answer, ...] = ()
        if self.faults_left:
            self.faults_left -= 1
            await asyncio.sleep(2 * DEADLINE_S)
            answers = (WindowAnswer(1, Count(0, 0, 0), Count(0, 0, 0), 0),)
        return Reply(LoopClock().now_ms(), b"epoch", answers, ())


class Logger:
    """Keeps which errors were logged."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def error(self, event: str, **_fields: Any) -> None:
        self.errors.append(event)

    def __getattr__(self, _level: str) -> Any:
        return lambda _event, **_fields: None


def test_a_probe_that_meets_a_fault_is_not_the_last() -> None:
    async def history() -> None:
        clock, origin = LoopClock(), Strange()
        logger: Any = Logger()
        terms = LinkTerms(clock, Chances(random.Random(1), random.Random(1)), logger, DEADLINE_S, BreakerSettings())
        link = ShardLink(0, NoNode(), origin, terms)  # type: ignore[arg-type]  # what a link calls of it
        task = asyncio.create_task(link.run())
        await asyncio.sleep(0)
        for _ in range(5):
            link.breaker.record(False, "connection refused")
        assert not link.breaker.closed
        await asyncio.sleep(30)
        assert logger.errors == ["exchange_failed"] * FAULTS
        assert link.breaker.closed
        task.cancel()

    run_virtually(history())
