"""The interface of a limit key's record in memory, and the record that can't be read."""

from typing import Any, Final, Protocol

from headgate.origin.protocol import (
    ELSEWHERE,
    SEALED,
    UNREADABLE,
    Answer,
    BucketAnswer,
    Count,
    Refund,
    WindowAnswer,
    WindowReport,
)

UNREADABLE_MS: Final = 1_000
"""Life of a record that can't be read, from each call on its key: one sweep of the memory."""


class LimitRecord(Protocol):
    """A limit key's record in memory, as a call uses it; each kind takes its own kind of report."""

    def expires_ms(self, now_ms: int) -> int:
        """Time from which on the record can no longer matter."""

    def report(self, report: Any, now_ms: int) -> int:
        """Merge the report, with what is left of its run's allowance; 0, or why nothing can be charged on it."""

    def missing(self, report: Any, charged: int, cost: int) -> int:
        """Part of `cost` to be charged beyond the run's credit, of which `charged` is spoken for."""

    def fits(self, report: Any, now_ms: int, missing: int) -> bool:
        """Say if so much more fits beside all allowances; note it where those alone are in the way."""

    def charge(self, report: Any, missing: int, now_ms: int) -> None:
        """Raise the run's component, and what follows from it."""

    def offer(self, report: Any, now_ms: int) -> tuple[int, int]:
        """Set more aside for the run: how much more, and how much is left then."""
        ...

    def answer(self, report: Any, more: int, left: int) -> Answer:
        """Answer to the reporting run."""


class UnreadableRecord:
    """A record of which nothing is to be had: garbled, of another type, of a newer format; or not here (`reason`).

    Its key is answered UNREADABLE and nothing else; the other keys of a call are untouched. One of a
    newer format stays for those who can read it. Any other is dropped, and the next report begins anew.
    """

    def __init__(self, *, newer: bool, reason: int = UNREADABLE) -> None:
        self.newer = newer
        self.reason = reason

    def expires_ms(self, now_ms: int) -> int:
        """Give it a short life: its real time to live is unknown here."""
        return now_ms + UNREADABLE_MS

    def report(self, report: Any, now_ms: int) -> int:
        """Merge nothing."""
        return self.reason

    def missing(self, report: Any, charged: int, cost: int) -> int:
        """Return the whole cost: the credit is unknown, and nothing is charged anyway."""
        return cost

    def fits(self, report: Any, now_ms: int, missing: int) -> bool:
        """Let nothing fit."""
        return False

    def charge(self, report: Any, missing: int, now_ms: int) -> None:
        """Never called: nothing fits."""
        raise AssertionError("what can't be read is not charged")

    def offer(self, report: Any, now_ms: int) -> tuple[int, int]:
        """Never called: nothing was reported."""
        raise AssertionError("of what can't be read nothing is set aside")

    def answer(self, report: Any, more: int, left: int) -> Answer:
        """Answer why nothing is to be had, and nothing else."""
        if isinstance(report, WindowReport):
            refunds = None if report.demands is None else (Refund(), Refund())
            return WindowAnswer(0, Count(0, 0, 0), Count(0, 0, 0), self.reason, 0, refunds=refunds)
        return BucketAnswer(0, 0, 0, self.reason, 0, refund=None if report.demands is None else Refund())


class SealedRecord(UnreadableRecord):
    """A record that moves to another shard: kept as it was until that one has it, and nothing is counted in it."""

    def __init__(self, content: Any) -> None:
        super().__init__(newer=True, reason=SEALED)
        self.content = content


class NoRecord(UnreadableRecord):
    """The place of a record that is not here, and may not begin here. Never kept."""

    def __init__(self) -> None:
        super().__init__(newer=True, reason=ELSEWHERE)
