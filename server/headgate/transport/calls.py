"""Taking rate-limit calls in: one way for all transports.

A call is refused if too much is pending already, or decided; its answer is there at once, or comes later, and for so
long the call is pending.
"""

from headgate.errors import NotReady, TooLarge
from headgate.pending import PendingAnswer
from headgate.transport.answers import STOPPING, overloaded, too_large
from headgate.transport.interface import Serving, TransportStats
from headgate.transport.traced import answer_traced


class RateLimitCalls:
    """Admits and decides the calls of one transport, on the loop or on a thread that holds its lock."""

    def __init__(self, endpoint: Serving, stats: TransportStats) -> None:
        self._handler = endpoint.handler
        self._tracing = endpoint.tracing
        self._limits = endpoint.limits
        self._stats = stats
        self._stopping = False

    def stop(self) -> None:
        """Refuse all further calls, because the server is stopping."""
        self._stopping = True

    def decide(self, payload: bytes, traceparent: str | bytes | None = None, caller: str = "") -> bytes | PendingAnswer:
        """Decide one call of that caller. Raises what its caller is to be told instead.

        A pending answer counts until `complete` is called: the transport sets `on_answer` at once.
        """
        stats, size = self._stats, len(payload)
        if size > self._limits.max_message_bytes:
            stats.refused_too_large += 1
            raise TooLarge(too_large(size, self._limits))
        # Mostly nothing is pending, and then there is room.
        if stats.accepted_calls != stats.finished_calls or self._stopping:
            self._check_room(size)
        if self._tracing is None:
            answer = self._handler.answer(payload, caller)
        else:
            answer = answer_traced(self._tracing, traceparent, self._handler, payload, caller, stats)
        if type(answer) is bytes:
            return answer
        if not isinstance(answer, PendingAnswer):
            raise not_bytes(answer)
        self.mark_pending(1, size)
        return answer

    def mark_pending(self, calls: int, size: int) -> None:
        """Count these calls, of `size` bytes together, as pending until `complete` is called."""
        self._stats.accepted_calls += calls
        self._stats.accepted_bytes += size

    def complete(self, calls: int, size: int) -> None:
        """Stop counting these calls, of `size` bytes together, as pending."""
        self._stats.finished_calls += calls
        self._stats.finished_bytes += size

    def _check_room(self, size: int) -> None:
        limits, stats = self._limits, self._stats
        if self._stopping:
            raise NotReady(STOPPING)
        if stats.pending_calls >= limits.max_pending_calls or stats.pending_bytes + size > limits.max_pending_bytes:
            stats.refused_overload += 1
            raise NotReady(overloaded(limits))


def not_bytes(answer: object) -> TypeError:
    """The error of a handler that answers with something else than bytes."""
    return TypeError(f"expected bytes from the handler, not {type(answer).__name__}")
