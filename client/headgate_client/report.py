"""What a client has done, for people and machines: counters, log lines, a callback.

A service that fails open runs without limits, and nobody notices unless it says so. It is said
four ways: `counters` (which `headgate_client.metrics` exports), a warning at most every ten seconds,
a line when the server decides again, and a function of the caller's for every decision that was not the server's.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from headgate_client.clock import Clock
from headgate_client.unmet import Unmet
from headgate_client.values import Decision, RateLimitError
from headgate_client.wire.envoy.service.ratelimit.v3 import rls_pb2

logger = logging.getLogger("headgate_client")

LOG_EVERY_S: Final = 10.0
"""A dead server must not fill the log of a service that makes thousands of calls in a second."""

MOST_SHAPES: Final = 100
"""Kinds of calls without a rule that are named in the log, each once."""

ALLOWED: Final = "allowed"
DENIED: Final = "denied"
DENIED_FROM_MEMORY: Final = "denied_from_memory"
FAILED_OPEN: Final = "failed_open"
FAILED_CLOSED: Final = "failed_closed"
RAISED: Final = "raised"
OUTCOMES: Final = (ALLOWED, DENIED, DENIED_FROM_MEMORY, FAILED_OPEN, FAILED_CLOSED, RAISED)
"""Of each call exactly one."""

OnDegraded = Callable[[Decision], object]


class Report:
    """One client's. Safe to use from several threads."""

    def __init__(self, name: str, clock: Clock, on_degraded: OnDegraded | None) -> None:
        self._name = name
        self._clock = clock
        self._on_degraded = on_degraded
        self._lock = threading.Lock()
        self._outcomes = dict.fromkeys(OUTCOMES, 0)
        self._errors: dict[str, int] = {}
        self._degraded = False
        self._unsaid = 0
        self._say_again_at_s = float("-inf")
        self._unsettled = 0
        self._say_unsettled_at_s = float("-inf")
        self._unlimited = 0
        self._said_unlimited: set[str] = set()
        self._look_at_unlimited_s = float("-inf")

    @property
    def outcomes(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._outcomes)

    @property
    def errors(self) -> Mapping[str, int]:
        """Calls that the server did not decide, by why: gRPC statuses, `BREAKER_OPEN`, `CLOSED`. A fixed few."""
        with self._lock:
            return dict(self._errors)

    def decided(self, decision: Decision) -> None:
        """By the server."""
        with self._lock:
            self._outcomes[ALLOWED if decision.allowed else DENIED] += 1
            recovered, self._degraded = self._degraded, False
        if recovered:
            logger.info("%s decides again", self._name)

    def recalled(self) -> None:
        """A denial, from memory."""
        with self._lock:
            self._outcomes[DENIED_FROM_MEMORY] += 1

    def failed(self, outcome: str, error: RateLimitError) -> None:
        """No decision of the server; `outcome` says what was done instead."""
        with self._lock:
            self._outcomes[outcome] += 1
            self._errors[error.status] = self._errors.get(error.status, 0) + 1
            if outcome == RAISED:
                # The caller has it in hand.
                return
            self._unsaid += 1
            now_s = self._clock.now_s()
            if now_s < self._say_again_at_s:
                return
            self._say_again_at_s = now_s + LOG_EVERY_S
            self._degraded = True
            calls, self._unsaid = self._unsaid, 0
        logger.warning(
            "%s gave no decision: %s (%s; %d such calls since the last line like this)",
            self._name,
            outcome.replace("_", " "),
            error,
            calls,
        )

    def untold(self, what: str, error: RateLimitError) -> None:
        """A settlement or a refund that the server was not told: what was charged stands."""
        with self._lock:
            self._errors[error.status] = self._errors.get(error.status, 0) + 1
            self._unsettled += 1
            now_s = self._clock.now_s()
            if now_s < self._say_unsettled_at_s:
                return
            self._say_unsettled_at_s = now_s + LOG_EVERY_S
            so_far = self._unsettled
        logger.warning("%s was not told %s: %s (%d so far)", self._name, what, error, so_far)

    def unlimited(self, request: bytes, decision: Decision) -> None:
        """Count a call that no rule applied to. The log names each kind of them once, at most one in ten seconds: a
        domain that the server does not have, or the keys of the descriptors."""
        with self._lock:
            self._unlimited += 1
            now_s = self._clock.now_s()
            if now_s < self._look_at_unlimited_s or len(self._said_unlimited) >= MOST_SHAPES:
                return
            self._look_at_unlimited_s = now_s + LOG_EVERY_S
            what = _without_rule(rls_pb2.RateLimitRequest.FromString(request), decision)
            if what in self._said_unlimited:
                return
            self._said_unlimited.add(what)
        logger.warning("%s %s: such calls are not limited", self._name, what)

    @property
    def unlimited_so_far(self) -> int:
        """Calls that no rule applied to."""
        with self._lock:
            return self._unlimited

    @property
    def unsettled_so_far(self) -> int:
        """Settlements and refunds that failed."""
        with self._lock:
            return self._unsettled

    def call_back(self, decision: Decision) -> None:
        """Tell the caller's function; what it raises is logged and stays here."""
        if self._on_degraded is None:
            return
        try:
            self._on_degraded(decision)
        except Exception:
            logger.exception("on_degraded failed")


def _without_rule(request: rls_pb2.RateLimitRequest, decision: Decision) -> str:
    """What is missing: the domain, or a rule for these keys."""
    if any(status.unmet is Unmet.NO_DOMAIN for status in decision.statuses):
        return f"has no rules for domain {request.domain!r}"
    shapes = [">".join(entry.key for entry in descriptor.entries) for descriptor in request.descriptors]
    return f"has no rule of domain {request.domain!r} for descriptors of {', '.join(map(repr, dict.fromkeys(shapes)))}"
