"""Time that a log covers: an answer from logs is worth nothing about a time of which they hold nothing."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from headgate.decision_log.schema import text_of_time


class Coverage(NamedTuple):
    """First and last entry of one log."""

    log: str
    """Its directory, the server that has it, or what else people know it by."""
    first_ms: int
    last_ms: int

    def reaches(self, since_ms: int, until_ms: int) -> bool:
        """Tell whether the log has entries before the end of that time, and behind its beginning."""
        return self.first_ms <= until_ms and since_ms <= self.last_ms

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"log": self.log, "first": text_of_time(self.first_ms), "last": text_of_time(self.last_ms)}

    def __str__(self) -> str:
        return f"{self.log} covers {text_of_time(self.first_ms)} to {text_of_time(self.last_ms)}"


def coverage_of(log: str, spans: Iterable[tuple[int, int]]) -> list[Coverage]:
    """Join the first and last times of a log's parts; nothing where it has none."""
    known = list(spans)
    return [Coverage(log, min(first for first, _ in known), max(last for _, last in known))] if known else []
