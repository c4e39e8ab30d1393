"""Taking calls in: one way for all transports and methods.

A call is refused if too much is pending already, or decided; its answer is there at once, or comes later, and for so
long the call is pending.
"""

from collections.abc import Callable
from functools import partial

from headgate.errors import NotReady, TooLarge
from headgate.pending import CallerMethod, PendingAnswer
from headgate.transport.answers import STOPPING, overloaded, too_large
from headgate.transport.interface import RATE_LIMIT_METHOD, Serving, TransportStats
from headgate.transport.traced import answer_traced

Decide = Callable[[bytes, str | bytes | None, str], bytes | PendingAnswer]
"""Decides one call: its message, its trace context, and who calls."""


class Calls:
    """Admits and decides the calls of one transport, on the loop or on a thread that holds its lock."""

    def __init__(self, endpoint: Serving, stats: TransportStats) -> None:
        self._handler = endpoint.handler
        self._tracing = endpoint.tracing
        self._limits = endpoint.limits
        self._stats = stats
        self._stopping = False
        self.methods: dict[str, Decide] = {RATE_LIMIT_METHOD: self.decide}
        """Function that decides a call, by the method's path."""
        for path, method in endpoint.services.items():
            self.methods[path] = partial(self._serve, method)

    def stop(self) -> None:
        """Refuse all further calls, because the server is stopping."""
        self._stopping = True

    def decide(self, payload: bytes, traceparent: str | bytes | None = None, caller: str = "") -> bytes | PendingAnswer:
        """Decide one rate-limit call of that caller. Raises what its caller is to be told instead.

        A pending answer counts until `complete` is called: the transport sets `on_answer` at once.
        """
        size = len(payload)
        self._check(size)
        if self._tracing is None:
            answer = self._handler.answer(payload, caller)
        else:
            answer = answer_traced(self._tracing, traceparent, self._handler, payload, caller, self._stats)
        return answer if type(answer) is bytes else self._pending(answer, size)

    def _serve(
        self, method: CallerMethod, payload: bytes, _traceparent: str | bytes | None, caller: str
    ) -> bytes | PendingAnswer:
        """Answer one call of another method likewise; it has no span."""
        size = len(payload)
        self._check(size)
        answer = method(payload, caller)
        return answer if type(answer) is bytes else self._pending(answer, size)

    def _check(self, size: int) -> None:
        """Refuse a message of that many bytes if it is too large or nothing more may wait."""
        stats = self._stats
        if size > self._limits.max_message_bytes:
            stats.refused_too_large += 1
            raise TooLarge(too_large(size, self._limits))
        # Mostly nothing is pending, and then there is room.
        if stats.accepted_calls != stats.finished_calls or self._stopping:
            self._check_room(size)

    def _pending(self, answer: object, size: int) -> PendingAnswer:
        if not isinstance(answer, PendingAnswer):
            raise not_bytes(answer)
        self._stats.accepted_calls += 1
        self._stats.accepted_bytes += size
        return answer

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
