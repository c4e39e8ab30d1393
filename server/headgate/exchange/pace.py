"""Pace of one peer's batches, over all of its streams: one at a time, and no more than its share of the loop's time.

What is too fast waits for its turn, and so does its acknowledgement: nothing is lost, the peer only gets slower.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from headgate.clock import Clock

ENTRIES_PER_S: Final = 10_000
"""Entries of a peer that are taken in per second for long: about as many as a region that fills another one sends on
two cores (docs/regions.md), and a seventh of the loop's time.
"""
BYTES_PER_S: Final = 4 * 1024 * 1024
"""Bytes of a peer that are taken in per second for long: ten times what as many entries with ordinary keys have."""
AHEAD_S: Final = 2.0
"""Seconds of this that a peer which was silent for as long may send at once."""


class PeerPace:
    """The pace of one peer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self._paid_until_s = 0.0
        """Monotonic second up to which what was taken in would have kept the peer busy."""

    @asynccontextmanager
    async def turn(self, entries: int, size: int) -> AsyncIterator[float]:
        """Wait for the turn of a batch of so many entries and bytes; says how many seconds too early it was."""
        async with self._turn:
            now_s = self._clock.monotonic()
            early_s = max(0.0, self._paid_until_s - now_s - AHEAD_S)
            if early_s:
                await asyncio.sleep(early_s)
            self._paid_until_s = max(self._paid_until_s, now_s) + max(entries / ENTRIES_PER_S, size / BYTES_PER_S)
            yield early_s
