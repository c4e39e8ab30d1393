"""A process is a list of rooms: started in order, stopped in reverse, those that began and no others."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from headgate.config import Settings
from headgate.errors import ConfigError
from headgate.runtime import service
from headgate.runtime.room import Room, Rooms
from headgate.runtime.service import ROOMS, Service
from headgate.telemetry.logs import open_logs

from tests.support.clock import ManualClock

said: list[str] = []


class Told(Room):
    async def start(self) -> None:
        said.append(f"start {type(self).__name__}")

    async def stop(self, patience_s: float) -> None:
        said.append(f"stop {type(self).__name__}")

    def close(self, patience_s: float) -> None:
        said.append(f"close {type(self).__name__}")


class First(Told):
    pass


class Failing(Told):
    async def start(self) -> None:
        await super().start()
        raise ConfigError("no")


class Third(Told):
    pass


class Early(Told):
    def __init__(self, context: Any, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        rooms.get(First)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[], Service]]:
    logs = open_logs("error", "json")
    settings = Settings(rules=tmp_path, grpc="127.0.0.1:0", http="127.0.0.1:0")
    yield lambda: Service(settings, logs, ManualClock(), random.Random(1))
    logs.close()


async def test_what_began_is_undone_in_reverse_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Service]
) -> None:
    monkeypatch.setattr(service, "ROOMS", (First, Failing, Third))
    said.clear()
    with pytest.raises(ConfigError, match="no"):
        await make().run()
    assert said == [
        "start First",
        "start Failing",
        "stop Failing",
        "stop First",
        "close Failing",
        "close First",
    ]


async def test_a_room_can_use_only_those_before_it(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Service]
) -> None:
    monkeypatch.setattr(service, "ROOMS", (Early, First))
    with pytest.raises(KeyError):
        make()
    monkeypatch.setattr(service, "ROOMS", (First, Early))
    assert [type(room) for room in make().rooms] == [First, Early]


async def test_every_room_of_a_process_is_made_of_those_before_it(make: Callable[[], Service]) -> None:
    assert tuple(type(room) for room in make().rooms) == ROOMS
