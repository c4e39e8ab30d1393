"""When not to ask: a server that is dead costs its callers nothing.

The breaker opens after a few calls in a row that could not reach the server, or when the server
seems stalled: many calls in a row, over a second or more, without one answer in time. Answers that
are late now and then never open it: one answer in time forgets them all. While it is open
nobody asks; after a pause that grows and is jittered, a single call goes through as a probe.

Safe to use from several threads. The way of a call that is answered, with the breaker closed,
takes no lock.
"""

import threading
from typing import Final

from headgate_client.clock import Clock

BREAKER_OPEN: Final = "BREAKER_OPEN"
"""The status of calls that were not made."""
UNREACHABLE_IN_A_ROW: Final = 5
"""Refused, reset, not resolved. One may be a restart's; five in a row are a server that is away."""
LATE_IN_A_ROW: Final = 20
"""Together with STALLED_AFTER_S: a burst that was late together is one hiccup, not twenty."""
STALLED_AFTER_S: Final = 1.0
"""A server that collects garbage or is scheduled late is back within that time; a stalled one isn't."""
FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 2.0
"""Bounds how long limits are not enforced after the server is back; one call in that time may wait in vain."""
PAUSE_JITTER: Final = 0.2
"""So that the processes that lost a server together don't all come back to it together."""


class Breaker:
    """One for each server that a client asks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = True
        self._unreachable = 0
        self._late = 0
        self._late_since_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._open_until_s = 0.0
        self._probing = False
        self.opened = 0
        """How often it has opened, probes that failed not counted."""
        self.why = ""
        """The failure that opened it, or kept it open."""

    @property
    def closed(self) -> bool:
        return self._closed

    def admits(self) -> bool:
        """Whether to ask now. True while open makes the caller the probe: it must report how that went."""
        if self._closed:
            return True
        with self._lock:
            if self._closed:
                return True
            if self._probing or self._clock.now_s() < self._open_until_s:
                return False
            self._probing = True
            return True

    def answered(self) -> None:
        """The server answered in time, whatever it said."""
        if self._closed and not self._unreachable and not self._late:
            return
        with self._lock:
            self._closed = True
            self._probing = False
            self._unreachable = self._late = 0
            self._pause_s = FIRST_PAUSE_S

    def was_late(self) -> None:
        """No answer before the call's deadline."""
        with self._lock:
            now_s = self._clock.now_s()
            if not self._late:
                self._late_since_s = now_s
            self._late += 1
            stalled = self._late >= LATE_IN_A_ROW and now_s - self._late_since_s >= STALLED_AFTER_S
            self._failed("no answer in time", now_s, opens=stalled)

    def was_unreachable(self, why: str, *, for_sure: bool = False) -> None:
        """The call could not be made, or was cut off. `for_sure`: a wait for a connection ended without one."""
        with self._lock:
            self._unreachable += 1
            self._failed(why, self._clock.now_s(), opens=for_sure or self._unreachable >= UNREACHABLE_IN_A_ROW)

    def abandoned(self) -> None:
        """The caller gave up before there was an outcome; if it was the probe, another call may be."""
        with self._lock:
            self._probing = False

    def _failed(self, why: str, now_s: float, *, opens: bool) -> None:
        if self._closed and opens:
            self._closed = False
            self.opened += 1
        elif not self._probing:
            # A call from before it opened: that the server is away is known.
            return
        self._probing = False
        self.why = why
        self._open_until_s = now_s + self._pause_s * (1 + PAUSE_JITTER * self._clock.random())
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
