"""Waiting for a transport to become quiet before it closes."""

import asyncio
import time
from collections.abc import Callable

from headgate.transport.interface import TransportStats

# Closing cuts connections at once: an answer needs a moment to leave. 5 ms were enough
# whenever measured; a tenth of that loses answers.
FLUSH_S = 0.05
_POLL_S = 0.005
# Who is refused goes elsewhere at once; who comes again and again is not worth more.
_REFUSING_S = 0.5


async def wait_until_quiet(stats: TransportStats, timeout_s: float) -> None:
    """Wait until nothing is pending and no call came for `FLUSH_S`, or the time is over."""
    await _wait(stats, lambda: stats.pending_calls > 0, timeout_s)


async def wait_until_silent(stats: TransportStats) -> None:
    """Wait until no call came for `FLUSH_S`: those who are refused have heard it, or won't listen."""
    await _wait(stats, lambda: False, _REFUSING_S)


async def _wait(stats: TransportStats, busy: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    calls, quiet_since = -1, None
    while (now := time.monotonic()) < deadline:
        if busy() or stats.calls != calls:
            calls, quiet_since = stats.calls, None
        elif quiet_since is None:
            quiet_since = now
        elif now - quiet_since >= FLUSH_S:
            return
        await asyncio.sleep(_POLL_S)
