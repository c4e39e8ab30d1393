"""Answers to callers who get no decision: one wording for all transports.

Unexpected errors are logged here with their traceback, at a bounded rate.
"""

import contextlib

from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock, SystemClock
from headgate.endpoint.methods import sendable
from headgate.errors import RequestError, Status, status_of
from headgate.telemetry.bounded import BoundedLogger
from headgate.telemetry.traces import trace_of
from headgate.transport.interface import TransportLimits, TransportStats

STOPPING = "the server is stopping"


def too_large(size: int, limits: TransportLimits) -> str:
    """The refusal of a message, in grpc-core's words, so that both transports say the same."""
    return f"SERVER: Received message larger than max ({size} vs. {limits.max_message_bytes})"


def expands(size: int, limits: TransportLimits) -> str:
    return f"SERVER: Received {size} bytes that unpack to more than max ({limits.max_message_bytes})"


def unfinished(limits: TransportLimits) -> str:
    return f"overloaded: more than {limits.guard.max_unfinished_bytes} bytes are unfinished, or too many of them here"


def no_place(limits: TransportLimits) -> str:
    return f"overloaded: more than {limits.guard.max_open_calls} calls are under way, or too many of them here"


def overloaded(limits: TransportLimits) -> str:
    """The refusal of a call because too much is pending."""
    return f"overloaded: more than {limits.max_pending_calls} calls or {limits.max_pending_bytes} bytes are pending"


class Failures:
    """Turns errors into answers, and tells the operator about the unexpected ones."""

    def __init__(self, stats: TransportStats, logger: FilteringBoundLogger, clock: Clock | None = None) -> None:
        self._stats = stats
        # A traceback has some 2 KB: a fault in every call must not log 20 MB a second.
        self._logger = BoundedLogger(logger, clock or SystemClock())

    def answer(self, error: Exception) -> tuple[int, str]:
        """Status code and message for the caller."""
        status, message = status_of(error)
        if not isinstance(error, RequestError):
            self._stats.failed_internal += 1
            # The caller gets an answer even where the log fails.
            with contextlib.suppress(Exception):
                self._logger.error("call_failed", **trace_of(error), exc_info=error)
        # OK is no answer to an error, whatever the table says.
        return int(status or Status.INTERNAL), sendable(message)
