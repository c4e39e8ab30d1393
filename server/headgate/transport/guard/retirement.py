"""The end of connections: callers are told to go elsewhere after the longest age, or after too long without a call."""

from headgate.transport.guard.surroundings import GuardTimeouts

RETIRE_S = 5.0
"""Time between telling a caller to go elsewhere and closing: calls that crossed the message are served."""
RETIRE_MAX_S = 30.0
"""Time between the two for callers with calls that don't end."""


class Retirement:
    """The last phase of one connection. Pure: `now` is an argument, in seconds."""

    def __init__(self, timeouts: GuardTimeouts, opened_at: float) -> None:
        self._timeouts = timeouts
        self._opened_at = self._idle_since = opened_at
        self._began_at = 0.0
        """Time at which the caller was told to go elsewhere; 0: not yet."""
        self._seen_stream = 0

    def begin(self, now: float, *, busy: bool, last_stream: int) -> str | None:
        """Begin it if it is due, and return why; None: it is not, or has begun already."""
        if busy or last_stream != self._seen_stream:
            self._seen_stream, self._idle_since = last_stream, now
        if self._began_at:
            return None
        if now - self._opened_at > self._timeouts.age_s:
            self._began_at = now
            return "age"
        if now - self._idle_since > self._timeouts.idle_s:
            self._began_at = now
            return "idle"
        return None

    def is_over(self, now: float, *, busy: bool) -> bool:
        """Say that the caller has had its time to go."""
        return bool(self._began_at) and now - self._began_at > (RETIRE_MAX_S if busy else RETIRE_S)
