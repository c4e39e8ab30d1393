"""The small parts of the lifecycle: who we are, background tasks."""

import asyncio
import random
import re
from typing import Any

import pytest
from headgate.runtime import tasks
from headgate.runtime.identity import make_identity
from headgate.runtime.tasks import BackgroundTasks
from headgate.telemetry.bounded import BoundedLogger

from tests.support.clock import ManualClock
from tests.support.waiting import until


def test_a_node_without_a_name_gets_one_from_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Web_1.example.com")
    clock = ManualClock(1_000)
    one = make_identity("eu", None, clock, random.Random(1))
    two = make_identity("eu", None, clock, random.Random(2))
    assert re.fullmatch(r"Web-1-[0-9a-f]{8}", one.node)
    assert one.node != two.node
    assert one.region == "eu"


@pytest.mark.parametrize("host", ["", "...", "-", "x" * 300])
def test_any_host_name_makes_a_good_node_id(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    node = make_identity("eu", None, ManualClock(), random.Random(1)).node
    assert re.fullmatch(r"[A-Za-z0-9][\w.-]{0,62}", node)


def test_a_run_number_grows_with_time_and_differs_within_a_millisecond() -> None:
    clock = ManualClock(1_800_000_000_000)
    rng = random.Random(1)
    first, same = (make_identity("eu", "n", clock, rng).run for _ in range(2))
    clock.advance(1)
    later = make_identity("eu", "n", clock, rng).run
    assert first != same
    assert max(first, same) < later < 2**53


class Recorder:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def error(self, event: str, **fields: Any) -> None:
        self.lines.append({"event": event, **fields})


async def test_a_task_that_fails_is_said_counted_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "RESTART_DELAY_S", 0)
    recorder, runs = Recorder(), 0

    async def fragile() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise ValueError("broken")
        await asyncio.Event().wait()

    supervisor = BackgroundTasks(BoundedLogger(recorder, ManualClock()))
    supervisor.start("fragile", fragile)
    await until(lambda: runs == 3, "two restarts")
    assert supervisor.restarts == {"fragile": 2}
    assert [(line["event"], line["task"]) for line in recorder.lines] == [("task_failed", "fragile")] * 2
    await supervisor.stop()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "fragile"]
