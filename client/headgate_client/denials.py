"""Denials that are known: for a time a denied call is denied again without asking.

A denial charges nothing and stays right until the time that the server meant by its `retry_after`, so
nothing is lost by not asking; and callers who hammer at their limit cost the server nothing. The server tells
later times than it means, to spread callers out: after the earliest that it may have meant it is asked again.
Only the very same request (its domain, descriptors and cost) is answered from here: a smaller cost might still
fit.

Bounded: in number by `max_denials`, in bytes because large requests are not kept, in time by
`keep_s`, because somebody may raise the limit meanwhile. Safe to use from several threads.
"""

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import Final, NamedTuple

from headgate_client.spread import earliest_s
from headgate_client.values import Decision, DescriptorStatus

MAX_DENIALS: Final = 8192
"""Requests; the oldest go first. Whoever is let go is asked for again: it costs one call."""
MAX_REQUEST_BYTES: Final = 1024
"""Larger requests are not kept: all together take 8 MiB at most."""


class _Denial(NamedTuple):
    decision: Decision
    since_s: float
    until_s: float


class Denials:
    """The denials of one client."""

    def __init__(self, keep_s: float, max_denials: int = MAX_DENIALS) -> None:
        self._keep_s = keep_s
        self._max_denials = max_denials
        self._denials: OrderedDict[bytes, _Denial] = OrderedDict()
        self._lock = threading.Lock()
        self.dropped = 0
        """Let go before their time because there were too many."""

    def __len__(self) -> int:
        return len(self._denials)

    def find(self, request: bytes, now_s: float) -> Decision | None:
        """The denial of that request, with the times that are left; None if it must be asked."""
        denial = self._denials.get(request)
        if denial is None:
            return None
        if now_s >= denial.until_s:
            with self._lock:
                self._denials.pop(request, None)
            return None
        return _later(denial.decision, now_s - denial.since_s)

    def keep(self, request: bytes, decision: Decision, now_s: float) -> None:
        """Remember it if it is a denial that says when to come back."""
        keep_s = min(earliest_s(decision.retry_after), self._keep_s)
        if decision.allowed or keep_s <= 0 or len(request) > MAX_REQUEST_BYTES:
            return
        with self._lock:
            self._denials[request] = _Denial(decision, now_s, now_s + keep_s)
            self._denials.move_to_end(request)
            if len(self._denials) > self._max_denials:
                _, oldest = self._denials.popitem(last=False)
                self.dropped += oldest.until_s > now_s

    def forget(self) -> None:
        with self._lock:
            self._denials.clear()


def _later(decision: Decision, passed_s: float) -> Decision:
    """The same decision some time after. The server's headers, which have times in them, are left out."""
    passed_ms = int(passed_s * 1000)
    return replace(decision, statuses=tuple(_sooner(status, passed_ms) for status in decision.statuses), headers=())


def _sooner(status: DescriptorStatus, passed_ms: int) -> DescriptorStatus:
    return status if status.reset_ms is None else replace(status, reset_ms=max(0, status.reset_ms - passed_ms))
