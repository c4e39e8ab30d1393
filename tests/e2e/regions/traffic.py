"""Requests on all nodes, until told to end; what was admitted is kept by limit key and region.

Each region goes from value to value, and asks so many times for each: one that is done with never changes again, so
what is lost of it is not made good by what is counted later.
"""

import itertools
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Final

from headgate_client import RateLimitError

from tests.e2e.regions.world import WIDE_HITS, WIDE_REQUESTS, World
from tests.support.waiting import PATIENCE_S, wait_until

PAUSE_S: Final = 0.02
"""After each request: callers that take all of the machine leave nothing for who has to answer them."""


class Traffic:
    """One caller per region, on all of its nodes by turns."""

    def __init__(self, world: World, regions: Sequence[str], case: str) -> None:
        self.admitted: dict[str, Counter[str]] = {}
        self.failed: list[str] = []
        self._case = case
        self._world = world
        self._regions = regions
        self._answered: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        """How many values each region is through with."""
        self._leave = threading.Event()
        self._threads = [threading.Thread(target=self._go, args=(region,)) for region in regions]

    def value(self, number: int) -> str:
        return f"{self._case}-{number}"

    def _go(self, region: str) -> None:
        nodes = itertools.cycle(self._world.nodes[region])
        for number in itertools.count():
            if self._leave.is_set():
                return
            value = self.value(number)
            admitted = self.admitted.setdefault(value, Counter(dict.fromkeys(self._world.names, 0)))
            for node in itertools.islice(nodes, WIDE_REQUESTS):
                try:
                    code = self._world.ask(node, "wide", value, WIDE_HITS).code
                except RateLimitError as error:
                    self.failed.append(f"{region}: {error}")
                    return
                self._answered[region] += 1
                admitted[region] += WIDE_HITS if code == "OK" else 0
                self._leave.wait(PAUSE_S)
            self._done[region] += 1

    def wait_for_more(self, requests: int) -> None:
        """Until so many more were answered in each region."""
        wanted = {region: self._answered[region] + requests for region in self._regions}
        wait_until(lambda: self.failed or all(self._answered[one] >= wanted[one] for one in wanted), "more answers")

    def wait_for_values(self, values: int) -> int:
        """Until each region is through with so many more that none of them has begun yet; the first one's number."""
        first = max(self._done.values(), default=0) + 1
        wait_until(
            lambda: self.failed or all(self._done[region] >= first + values for region in self._regions), "more values"
        )
        return first

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Everything that was asked has been answered after this, and every value is done with."""
        self._leave.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
