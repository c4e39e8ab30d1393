"""A worker's place: what is in it, when it is filled again, and how it ends."""

import asyncio
import random
from typing import Any, cast

import pytest
from headgate.errors import ConfigError
from headgate.supervisor.backoff import Backoff
from headgate.supervisor.process import WorkerProcess, WorkerState
from headgate.supervisor.slot import WorkerSlot

from tests.support.waiting import PATIENCE_S, until


class Process:
    """A worker that does what the test says."""

    def __init__(self, number: int) -> None:
        self.pid = number
        self.node = f"n{number}"
        self.state = WorkerState.STARTING
        self.status = 0
        self.failure: str | None = None
        self.served_s = 0.0
        self.orders: list[str] = []
        self.hangs = False
        self._settled = asyncio.Event()
        self._ended = asyncio.Event()

    async def begin(self) -> None:
        self.orders.append("begin")

    async def settled(self) -> bool:
        await self._settled.wait()
        return self.state is not WorkerState.ENDED

    async def ended(self) -> int:
        await self._ended.wait()
        return self.status

    def check_pulse(self) -> bool:
        return self.hangs

    def stop(self) -> None:
        self.orders.append("stop")
        self.end(0)

    def serve(self) -> None:
        self.state = WorkerState.SERVING
        self._settled.set()

    def end(self, status: int, failure: str | None = None) -> None:
        self.state, self.status, self.failure = WorkerState.ENDED, status, failure
        self._settled.set()
        self._ended.set()

    def describe(self) -> dict[str, Any]:
        return {"pid": self.pid}


class Log:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    error = warning


class AtOnce(Backoff):
    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.served: list[float] = []

    def next_s(self, served_s: float) -> float:
        self.served.append(served_s)
        return 0.0


class Place:
    def __init__(self, backoff: Backoff | None = None) -> None:
        self.started: list[Process] = []
        self.tidied = 0
        self.refusals = 0
        self.log = Log()
        self.backoff = AtOnce()
        self.go = asyncio.Event()
        self.go.set()
        self.slot = WorkerSlot(7, self._spawn, self._tidy_up, backoff or self.backoff, self.log)

    async def _spawn(self, index: int) -> WorkerProcess:
        assert index == 7
        if self.refusals:
            self.refusals -= 1
            raise OSError(11, "Resource temporarily unavailable")
        self.started.append(Process(len(self.started)))
        return cast(WorkerProcess, self.started[-1])

    def _tidy_up(self, index: int) -> None:
        assert index == 7
        self.tidied += 1

    async def started_and_serving(self) -> Process:
        start = asyncio.create_task(self.slot.start(self.go))
        await until(lambda: bool(self.started), "the start")
        self.started[0].serve()
        await start
        return self.started[0]


async def test_what_ends_is_tidied_up_said_and_started_again() -> None:
    place = Place()
    first = await place.started_and_serving()
    first.served_s = 3.5
    first.end(-9)
    await until(lambda: len(place.started) == 2, "the second")
    assert (place.slot.restarts, place.tidied, place.backoff.served) == (1, 1, [3.5])
    ((event, fields),) = place.log.events
    assert (event, fields["worker"], fields["pid"], fields["how"]) == ("worker_ended", 7, 0, "was ended by signal 9")
    place.started[1].end(1, "no more rules")
    await until(lambda: len(place.started) == 3, "the third")
    assert place.log.events[1][1]["reason"] == "no more rules"
    assert place.log.events[1][1]["how"] == "ended with status 1"
    assert [process.orders for process in place.started] == [["begin"]] * 3
    place.slot.stop()
    await place.slot.ended()
    assert (len(place.started), place.tidied) == (3, 3)


async def test_one_that_hangs_is_said_and_counted() -> None:
    place = Place()
    place.slot.check_pulse()
    first = await place.started_and_serving()
    place.slot.check_pulse()
    assert (place.slot.hangs, place.log.events) == (0, [])
    first.hangs = True
    place.slot.check_pulse()
    assert place.slot.hangs == 1
    assert place.log.events == [("worker_hangs", {"worker": 7, "pid": 0, "node": "n0"})]
    place.slot.stop()
    place.slot.check_pulse()
    assert place.slot.hangs == 1, "what is being stopped may take its time"
    await place.slot.ended()


async def test_it_loads_before_it_may_begin() -> None:
    place = Place()
    place.go.clear()
    start = asyncio.create_task(place.slot.start(place.go))
    await until(lambda: bool(place.started), "the start")
    assert place.started[0].orders == []
    place.go.set()
    await until(lambda: place.started[0].orders == ["begin"], "the beginning")
    place.started[0].serve()
    await start
    place.slot.stop()
    await place.slot.ended()


@pytest.mark.parametrize(
    ("status", "failure", "message"),
    [
        (3, "can't listen on x:1", "can't listen on x:1"),
        (3, None, "worker 7 ended with status 3 before it served"),
        (-9, "it hung: no sign of life", "worker 7: it hung: no sign of life"),
    ],
)
async def test_a_first_start_that_fails_says_why_in_the_worker_s_words(
    status: int, failure: str | None, message: str
) -> None:
    place = Place()
    start = asyncio.create_task(place.slot.start(place.go))
    await until(lambda: bool(place.started), "the start")
    place.started[0].end(status, failure)
    with pytest.raises(ConfigError) as raised:
        await start
    assert str(raised.value) == message
    await place.slot.ended()
    assert (len(place.started), place.tidied) == (1, 1)


async def test_no_process_from_the_system_is_an_error_at_first_and_a_reason_to_wait_later() -> None:
    place = Place()
    place.refusals = 1
    with pytest.raises(ConfigError, match="worker 7: can't be started: Resource temporarily unavailable"):
        await place.slot.start(place.go)
    assert place.slot.state is WorkerState.ENDED
    first = await place.started_and_serving()
    place.refusals = 2
    first.end(1)
    await until(lambda: len(place.started) == 2, "the second")
    assert [event for event, _ in place.log.events] == ["worker_ended", "worker_not_started", "worker_not_started"]
    assert place.backoff.served == [0.0] * 3
    place.slot.stop()
    await place.slot.ended()


async def test_being_stopped_while_starting_is_no_failure() -> None:
    place = Place()
    start = asyncio.create_task(place.slot.start(place.go))
    await until(lambda: bool(place.started), "the start")
    place.slot.stop()
    await start
    await place.slot.ended()
    assert (len(place.started), place.log.events) == (1, [])
    await place.slot.start(place.go)
    assert len(place.started) == 1


async def test_being_stopped_while_waiting_starts_nobody() -> None:
    class Long(Backoff):
        def next_s(self, served_s: float) -> float:
            return 3600.0

    place = Place(Long(random.Random(1)))
    first = await place.started_and_serving()
    first.end(1)
    await until(lambda: bool(place.log.events), "the wait")
    place.slot.stop()
    async with asyncio.timeout(PATIENCE_S):
        await place.slot.ended()
    assert len(place.started) == 1
