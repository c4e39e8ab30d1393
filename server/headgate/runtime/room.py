"""The shape of a room: one feature of a serving process, with its metrics, tasks and methods.

A room is made with the process's context and the rooms before it, and does nothing until `start`. The service starts
all rooms in the order of its list and stops them in the reverse order, so that a room can rely on those before it.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeVar

from headgate.pending import CallerMethod
from headgate.runtime.context import ProcessContext
from headgate.telemetry.metrics import Metrics
from headgate.transport.admin import Method

Task = Callable[[], Awaitable[None]]


class Room:
    """One feature in one process. A room overrides what it needs; the rest does nothing."""

    def __init__(self, context: ProcessContext, rooms: "Rooms") -> None:
        """Take what it needs of `rooms`: those that start before it."""
        self.context = context

    async def start(self) -> None:
        """Make what the room consists of, and begin. Raises ConfigError when it can't."""

    def tasks(self) -> Mapping[str, Task]:
        """Name background tasks that run from when all rooms have started until `stop`."""
        return {}

    def tick(self) -> None:
        """Look after what needs it regularly: called ten times a second, twice while nobody calls."""

    def register(self, metrics: Metrics) -> None:
        """Export the room's metrics. Called once, when all rooms have started."""

    def methods(self) -> Mapping[str, CallerMethod]:
        """Return unary gRPC methods for callers, by path."""
        return {}

    def admin_methods(self) -> Mapping[str, Method]:
        """Return unary gRPC methods for operators, by path."""
        return {}

    async def stop(self, patience_s: float) -> None:
        """End the room's work within about `patience_s` seconds. Called even if `start` failed halfway."""

    def close(self, patience_s: float) -> None:
        """Say last words, when every room has stopped and no task runs any more; none where there is no patience."""


AnyRoom = TypeVar("AnyRoom", bound=Room)


class Rooms:
    """The rooms of one process, by class, in the order in which they start."""

    def __init__(self) -> None:
        self._by_class: dict[type[Room], Room] = {}

    def add(self, room: Room) -> None:
        """Append a room."""
        self._by_class[type(room)] = room

    def get(self, kind: type[AnyRoom]) -> AnyRoom:
        """Return the room of that class. Raises KeyError for one that comes later in the list."""
        room = self._by_class[kind]
        assert isinstance(room, kind)  # noqa: S101 - for mypy: a room is kept under its own class
        return room

    def __iter__(self) -> Iterator[Room]:
        return iter(self._by_class.values())
