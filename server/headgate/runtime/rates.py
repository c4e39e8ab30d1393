"""Rates of counters that only grow, per second between two looks: for whoever watches, while somebody does."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar

STEP: Final = 1_000
"""Counters that are read before the loop gets its turn again: about a millisecond."""
LONGEST_S: Final = 10.0
"""Longest time between two looks that a rate is told of: an average over more would not be of now."""

Key = TypeVar("Key")


class Rates(Generic[Key]):
    """Rates of rows of counters, by key. `last` is empty until there were two looks, and where nothing happened."""

    def __init__(
        self, read: Callable[[], Iterable[tuple[Key, tuple[float, ...]]]], monotonic: Callable[[], float]
    ) -> None:
        self.last: Mapping[Key, tuple[float, ...]] = {}
        self._read = read
        self._monotonic = monotonic
        self._before: dict[Key, tuple[float, ...]] = {}
        self._looked_s = float("-inf")

    async def look(self) -> None:
        """Read all counters."""
        now: dict[Key, tuple[float, ...]] = {}
        for number, (key, counts) in enumerate(self._read()):
            now[key] = counts
            if number % STEP == STEP - 1:
                await asyncio.sleep(0)
        now_s = self._monotonic()
        elapsed_s = now_s - self._looked_s
        self.last = self._gained(now, elapsed_s) if 0 < elapsed_s <= LONGEST_S else {}
        self._before, self._looked_s = now, now_s

    def _gained(self, now: Mapping[Key, tuple[float, ...]], elapsed_s: float) -> Mapping[Key, tuple[float, ...]]:
        found: dict[Key, tuple[float, ...]] = {}
        for key, counts in now.items():
            before = self._before.get(key, (0,) * len(counts))
            gained = tuple((count - former) / elapsed_s for count, former in zip(counts, before, strict=True))
            if any(gained):
                found[key] = gained
        return found
