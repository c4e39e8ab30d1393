"""Requests on all nodes, until told to end; what was admitted is kept by limit key and region."""

import itertools
import threading
from collections import Counter
from collections.abc import Sequence

from headgate_client import RateLimitError

from tests.e2e.regions.world import WIDE_HITS, World
from tests.support.waiting import PATIENCE_S, wait_until

PAUSE_S = 0.005
"""After each request: callers that take all of the machine leave nothing for who has to answer them."""


class Traffic:
    """One caller per region, on all of its nodes by turns, with all values by turns."""

    def __init__(self, world: World, regions: Sequence[str], values: Sequence[str]) -> None:
        self.admitted = {value: Counter(dict.fromkeys(world.names, 0)) for value in values}
        self.answered: Counter[str] = Counter()
        self.failed: list[str] = []
        self._world = world
        self._leave = threading.Event()
        self._threads = [threading.Thread(target=self._go, args=(region,)) for region in regions]

    def _go(self, region: str) -> None:
        values = itertools.cycle(self.admitted)
        nodes = itertools.cycle(self._world.nodes[region])
        while not self._leave.wait(PAUSE_S):
            value = next(values)
            try:
                status = self._world.ask(next(nodes), "wide", value, WIDE_HITS)
            except RateLimitError as error:
                self.failed.append(f"{region}: {error}")
                continue
            self.answered[region] += 1
            if status.code == "OK":
                self.admitted[value][region] += WIDE_HITS

    def wait_for_more(self, requests: int, *regions: str) -> None:
        """Until so many more were answered in each of these regions."""
        wanted = {region: self.answered[region] + requests for region in regions}
        wait_until(lambda: all(self.answered[region] >= wanted[region] for region in wanted), "more answers")

    def __enter__(self) -> "Traffic":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Everything that was asked has been answered after this."""
        self._leave.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
