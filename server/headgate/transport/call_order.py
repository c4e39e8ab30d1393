"""The order in which calls are decided that have to wait for it: callers take turns (lines.py), by the time they take.

A call takes some microseconds to decide, or a thousand where each of its many keys is new. So what callers share is
time, and not the number of calls.
"""

from typing import Final

from headgate.lines import Lines

TURN_US: Final = 500
"""Time for which a caller's calls are decided in one turn: who comes waits for one turn of each caller before it."""


class WaitingCall:
    """A call that was received and is not decided yet."""

    __slots__ = ("call_id", "caller", "method", "parent", "payload", "received_at", "timeout")

    def __init__(
        self,
        received_at: float,
        call_id: int,
        method: int,
        payload: bytes,
        timeout: str | bytes | None,
        parent: str | bytes | None,
        caller: str,
    ) -> None:
        """`method`: its number; `timeout`: the header, if it is bytes; `parent`: the call's trace context."""
        self.received_at = received_at
        self.call_id = call_id
        self.method = method
        self.payload = payload
        self.timeout = timeout
        self.parent = parent
        self.caller = caller


class CallOrder(Lines[WaitingCall]):
    """All calls that wait to be decided, within bounds on their number and their bytes."""

    def __init__(self, max_calls: int, max_bytes: int) -> None:
        super().__init__(TURN_US)
        self._max_calls = max_calls
        self._max_bytes = max_bytes
        self._calls = 0
        self._bytes = 0
        self._bytes_of: dict[str, int] = {}
        """Bytes of each caller's calls."""

    def has_room(self, call: WaitingCall) -> bool:
        """Say whether the call may wait: beyond a bound only those of callers who have less than their equal share."""
        if self._calls < self._max_calls and self._bytes + len(call.payload) <= self._max_bytes:
            return True
        line, callers = self._lines.get(call.caller), len(self.turns)
        if line is None:
            return True
        return len(line.waiting) * callers < self._calls and self._bytes_of[call.caller] * callers < self._bytes

    def add(self, call: WaitingCall) -> None:
        """Put a call at the end of its caller's line."""
        self.line_of(call.caller).waiting.append(call)
        self._calls += 1
        self._bytes += len(call.payload)
        self._bytes_of[call.caller] = self._bytes_of.get(call.caller, 0) + len(call.payload)

    def decided(self, call: WaitingCall, took_us: int) -> None:
        """Take out the call whose turn it was."""
        self._calls -= 1
        self._bytes -= len(call.payload)
        self._bytes_of[call.caller] -= len(call.payload)
        self.take(took_us)
        if call.caller not in self._lines:
            del self._bytes_of[call.caller]
