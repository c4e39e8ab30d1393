"""Every request that waits is decided in time: one queue and one timer for all of them."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest
from headgate.region.deadline import ANSWER_TURNS, OWN_FAULT_S, Deadlines
from headgate.region.waiting import Waiting
from headgate.simulation.loop import run_virtually

pytestmark = pytest.mark.pure("its requests are no Waiting, which a compiled queue insists on")
DEADLINE_S = 0.005


class Request:
    """As far as deadlines know one that waits."""

    def __init__(self) -> None:
        self.decided = False
        self.began_s = 0.0
        self.ended: list[tuple[float, bool]] = []

    def time_is_up(self, *, own_fault: bool) -> None:
        self.decided = True
        self.ended.append((round(asyncio.get_running_loop().time(), 6), own_fault))


class Clock:
    """The loop's time, and what a process that stood still has missed of it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.missed_s = 0.0

    def monotonic(self) -> float:
        return self._loop.time() + self.missed_s


def begun(clock: Clock) -> Deadlines:
    deadlines = Deadlines(DEADLINE_S, clock.monotonic)
    deadlines.start()
    return deadlines


def wait(deadlines: Deadlines, *requests: Request) -> None:
    for request in requests:
        request.began_s = deadlines._monotonic()
        deadlines.add(cast(Waiting, request))


def virtually(history: Coroutine[Any, Any, None]) -> None:
    run_virtually(history)


def test_who_still_waits_at_the_deadline_is_decided_then_and_nobody_else() -> None:
    async def history() -> None:
        deadlines = begun(Clock())
        first, second, later = Request(), Request(), Request()
        wait(deadlines, first, second)
        await asyncio.sleep(0.002)
        wait(deadlines, later)
        first.decided = True
        await asyncio.sleep(1)
        assert (first.ended, second.ended, later.ended) == ([], [(0.005, False)], [(0.007, False)])

    virtually(history())


def test_what_was_decided_leaves_the_queue_and_the_timer_rests() -> None:
    async def history() -> None:
        deadlines = begun(Clock())
        for _ in range(3):
            requests = [Request() for _ in range(100)]
            wait(deadlines, *requests)
            for request in requests:
                request.decided = True
            await asyncio.sleep(2 * DEADLINE_S)
            assert not deadlines._queue
            assert not deadlines._armed

    virtually(history())


def test_a_loop_that_comes_late_first_reads_what_has_arrived() -> None:
    async def history() -> None:
        clock = Clock()
        deadlines, request = begun(clock), Request()
        wait(deadlines, request)

        def answer_after(turns: int) -> None:
            if turns:
                asyncio.get_running_loop().call_soon(answer_after, turns - 1)
            else:
                request.decided = True

        await asyncio.sleep(DEADLINE_S - 0.0001)
        clock.missed_s = 0.01
        asyncio.get_running_loop().call_later(0.0001, answer_after, ANSWER_TURNS - 1)
        await asyncio.sleep(1)
        assert request.ended == []

    virtually(history())


def test_a_process_that_stood_still_blames_no_shard() -> None:
    async def history() -> None:
        clock = Clock()
        deadlines, request = begun(clock), Request()
        wait(deadlines, request)
        await asyncio.sleep(DEADLINE_S - 0.0001)
        clock.missed_s = 2 * OWN_FAULT_S
        await asyncio.sleep(1)
        assert [own_fault for _, own_fault in request.ended] == [True]

    virtually(history())
