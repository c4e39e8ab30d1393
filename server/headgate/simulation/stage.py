"""The part that the worlds of one region and of several share: a history, its time, its trace, broken promises."""

import asyncio
import random
from typing import Any, Final, Generic, NamedTuple, TypeVar

import structlog
from structlog.typing import FilteringBoundLogger

from headgate.simulation.history import History
from headgate.simulation.network import shard_of
from headgate.simulation.trace import Tracer

MOST_VIOLATIONS: Final = 20
"""Kept: the first few tell all, and a broken build makes thousands."""

H = TypeVar("H", bound=History[Any, Any])


class Violation(NamedTuple):
    """A promise that a history broke: which, when, and how."""

    invariant: str
    at_s: float
    what: str

    def describe(self) -> str:
        return f"{self.at_s:9.3f} s  {self.invariant}: {self.what}"


class Stage(Generic[H]):
    """A history on the running (virtual) loop. An error that a node logs is a broken promise."""

    def __init__(self, history: H, trace: Tracer) -> None:
        self.history = history
        self.trace = trace
        self.loop = asyncio.get_running_loop()
        self.violations: list[Violation] = []

    def violate(self, invariant: str, what: str, at_s: float | None = None) -> None:
        """Note that a promise was broken, now or at that time."""
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(Violation(invariant, self.loop.time() if at_s is None else at_s, what))
        self.trace.say("VIOLATION", f"{invariant}: {what}")

    def report_uncaught(self) -> None:
        """Take every error that no task catches for a broken promise, from now on."""

        def uncaught(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            self.violate("tasks", f"{context.get('message')}: {context.get('exception')!r}")

        self.loop.set_exception_handler(uncaught)

    def shard_of(self, key: bytes) -> int:
        """Index of the shard that has a key, in every region."""
        return shard_of(key, self.history.shards)

    def chance(self, who: str) -> random.Random:
        """A generator of its own for somebody: the same numbers whenever the history is played."""
        return random.Random(f"{self.history.seed} {who}")  # noqa: S311 - to be repeated, not guessed at

    def logger(self, who: str) -> FilteringBoundLogger:
        """A logger for a node or an exchanger, which logs as ever: into the trace."""

        def say(logger: Any, name: str, event: Any) -> Any:
            facts = ", ".join(f"{fact} {value}" for fact, value in event.items() if fact != "event")
            self.trace.say(who, f"{event['event']}: {facts}")
            if name == "error":
                self.violate("tasks", f"{who}: {event['event']}: {facts}")
            raise structlog.DropEvent

        logger: FilteringBoundLogger = structlog.wrap_logger(None, processors=[say])
        return logger
