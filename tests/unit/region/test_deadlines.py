"""Every request that waits is decided in time: one queue and one timer for all of them."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

from headgate.limiter.decision import Charge, Decision
from headgate.region.deadline import ANSWER_PASSES, DUE_AT_ONCE, LEAST_SHARE, OWN_FAULT_S, Deadlines
from headgate.region.leg import Leg
from headgate.region.outcomes import COLD
from headgate.region.stats import RegionalStats
from headgate.region.waiting import WaitingRequest, Waits
from headgate.simulation.loop import run_virtually

from tests.unit.region.support import OneShard, QuietShard, window_counter

DEADLINE_S = 0.005
CALLER: ContextVar[str] = ContextVar("caller", default="nobody")
"""Stands for the trace of the request that is being decided."""


class Clock:
    """The loop's time, and what a process that stood still has missed of it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.missed_s = 0.0

    def monotonic(self) -> float:
        return self._loop.time() + self.missed_s


class Request:
    """One that begins to wait now, for a shard that answers nothing; when its time was up, if ever."""

    def __init__(self, deadlines: Deadlines, clock: Clock, charges: int = 1) -> None:
        self.shard = QuietShard()
        self.ended_s: list[float] = []
        self.ended_as: list[str] = []
        waits = Waits(OneShard(self.shard), RegionalStats(), lambda leg, now_s: 0)
        counters = [window_counter(shard=self.shard) for _ in range(charges)]
        legs = [Leg(Charge(counter.key, counter.limit, 1), counter, COLD) for counter in counters]
        self._waiting = WaitingRequest(waits, legs, clock.monotonic(), "")
        self._waiting.begin()
        self._waiting.on_decided = self._end
        deadlines.add(self._waiting)

    def _end(self, decision: Decision) -> None:
        self.ended_s.append(round(asyncio.get_running_loop().time(), 6))
        self.ended_as.append(CALLER.get())

    def answer(self) -> None:
        self._waiting.decided = True


def begun(clock: Clock) -> Deadlines:
    deadlines = Deadlines(DEADLINE_S, clock.monotonic)
    deadlines.start()
    return deadlines


def virtually(history: Coroutine[Any, Any, None]) -> None:
    run_virtually(history)


def test_who_still_waits_at_the_deadline_is_decided_then_and_nobody_else() -> None:
    async def history() -> None:
        clock = Clock()
        deadlines = begun(clock)
        first, second = Request(deadlines, clock), Request(deadlines, clock)
        await asyncio.sleep(0.002)
        later = Request(deadlines, clock)
        first.answer()
        await asyncio.sleep(1)
        requests = (first, second, later)
        assert [request.ended_s for request in requests] == [[], [0.005], [0.007]]
        assert [request.shard.late_questions for request in requests] == [0, 1, 1]

    virtually(history())


def test_nobody_is_decided_in_the_context_of_the_request_that_set_the_timer() -> None:
    async def history() -> None:
        clock = Clock()
        deadlines = begun(clock)
        traced = copy_context()
        traced.run(CALLER.set, "traced")
        requests = traced.run(Request, deadlines, clock), Request(deadlines, clock)
        await asyncio.sleep(1)
        assert [request.ended_as for request in requests] == [["nobody"], ["nobody"]]

    virtually(history())


def test_what_was_decided_leaves_the_queue_and_the_timer_rests() -> None:
    async def history() -> None:
        clock = Clock()
        deadlines = begun(clock)
        for _ in range(3):
            for request in [Request(deadlines, clock) for _ in range(100)]:
                request.answer()
            await asyncio.sleep(2 * DEADLINE_S)
            assert not deadlines._queue
            assert not deadlines._armed

    virtually(history())


def test_a_loop_that_comes_late_first_reads_what_has_arrived() -> None:
    async def history() -> None:
        clock = Clock()
        request = Request(begun(clock), clock)

        def answer_after(turns: int) -> None:
            if turns:
                asyncio.get_running_loop().call_soon(answer_after, turns - 1)
            else:
                request.answer()

        await asyncio.sleep(DEADLINE_S - 0.0001)
        clock.missed_s = 0.01
        asyncio.get_running_loop().call_later(0.0001, answer_after, ANSWER_PASSES - 1)
        await asyncio.sleep(1)
        assert request.ended_s == []

    virtually(history())


def test_a_process_that_stood_still_blames_no_shard() -> None:
    async def history() -> None:
        clock = Clock()
        request = Request(begun(clock), clock)
        await asyncio.sleep(DEADLINE_S - 0.0001)
        clock.missed_s = 2 * OWN_FAULT_S
        await asyncio.sleep(1)
        assert (len(request.ended_s), request.shard.late_questions) == (1, 0)

    virtually(history())


class Turns:
    """Numbers the turns of the loop from a time on."""

    def __init__(self, from_s: float, last: int) -> None:
        self.number = 0
        self._last = last
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(from_s, self._begin)

    def _begin(self) -> None:
        self.number += 1
        if self.number < self._last:
            self._loop.call_soon(self._begin)


def test_a_thousand_that_are_due_at_once_are_decided_in_many_turns_of_the_loop() -> None:
    async def history() -> None:
        turns = Turns(DEADLINE_S, last=100)
        clock = Clock()
        deadlines = begun(clock)
        requests = [Request(deadlines, clock) for _ in range(1_000)]
        ended_in: Counter[int] = Counter()
        for request in requests:
            request._waiting.on_decided = lambda _: ended_in.update([turns.number])
        await asyncio.sleep(1)
        assert ended_in.total() == len(requests)
        assert max(ended_in.values()) <= len(requests) // LEAST_SHARE
        assert max(ended_in) < turns.number, "no timer between the turns"

    virtually(history())


def test_requests_of_many_charges_are_decided_in_as_many_more_turns() -> None:
    """What a turn takes follows from the charges that are decided in it, and not from the requests."""
    charges, requests = DUE_AT_ONCE // 2, LEAST_SHARE

    async def history() -> None:
        turns = Turns(DEADLINE_S, last=100)
        clock = Clock()
        deadlines = begun(clock)
        ended_in: Counter[int] = Counter()
        for request in [Request(deadlines, clock, charges) for _ in range(requests)]:
            request._waiting.on_decided = lambda _: ended_in.update([turns.number])
        await asyncio.sleep(1)
        assert list(ended_in.values()) == [DUE_AT_ONCE // charges] * (requests * charges // DUE_AT_ONCE)

    virtually(history())


def test_who_is_answered_between_two_turns_is_not_decided_by_policy() -> None:
    async def history() -> None:
        clock = Clock()
        deadlines = begun(clock)
        requests = [Request(deadlines, clock) for _ in range(2 * DUE_AT_ONCE)]
        last = requests[-1]

        def answer_last(_decision: Decision) -> None:
            asyncio.get_running_loop().call_soon(last.answer)

        requests[0]._waiting.on_decided = answer_last
        await asyncio.sleep(1)
        assert ([len(request.ended_s) for request in requests[1:-1]], last.ended_s) == ([1] * (len(requests) - 2), [])

    virtually(history())
