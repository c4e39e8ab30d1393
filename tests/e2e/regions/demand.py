"""Demand for one quota in all regions at once, paced by the clock, and the slices that follow it."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from headgate_client.values import DescriptorStatus

from tests.e2e.regions.world import QUOTA_LIMIT, QUOTA_WINDOW_S, regions_of
from tests.support.headgate import Headgate
from tests.support.waiting import PATIENCE_S

TIMES: Final = 3
"""So many times the limit is offered."""
HITS: Final = 1_000
"""What a request costs: a hundredth of the limit, so that few requests are enough."""
EDGE_S: Final = 0.2
"""Around the end of a window what is admitted is not counted: it is not known in which one it was decided."""
WHOLE: Final = 1_000_000


class Asked(Protocol):
    """Regions of nodes that can be asked."""

    @property
    def nodes(self) -> Mapping[str, Sequence[Headgate]]: ...

    def ask(self, node: Headgate, key: str, value: str, hits: int = 1) -> DescriptorStatus: ...


class Demand:
    """One caller per region, on its nodes by turns; each region's part may change."""

    def __init__(self, world: Asked, value: str, percent: Mapping[str, int]) -> None:
        self.admitted: Counter[int] = Counter()
        """Hits by window, of all regions; what was asked near its ends is left out."""
        self._world = world
        self._value = value
        self._percent = dict(percent)
        self._leave = threading.Event()
        self._threads = [threading.Thread(target=self._go, args=(region,)) for region in percent]

    def shift(self, percent: Mapping[str, int]) -> None:
        self._percent = dict(percent)

    def _go(self, region: str) -> None:
        nodes = itertools.cycle(self._world.nodes[region])
        owed, asked_s = 0.0, time.monotonic()
        while not self._leave.wait(0.02):
            now_s = time.monotonic()
            per_s = TIMES * QUOTA_LIMIT / QUOTA_WINDOW_S / HITS * self._percent[region] / 100
            owed, asked_s = owed + per_s * (now_s - asked_s), now_s
            for _ in range(int(owed)):
                self._ask(region, next(nodes))
            owed %= 1

    def _ask(self, region: str, node: Headgate) -> None:
        before = divmod(time.time(), QUOTA_WINDOW_S)
        code = self._world.ask(node, "quota", self._value, HITS).code
        after = divmod(time.time(), QUOTA_WINDOW_S)
        inside = before[1] > EDGE_S and after[1] < QUOTA_WINDOW_S - EDGE_S and before[0] == after[0]
        if code == "OK" and inside:
            self.admitted[int(before[0])] += HITS

    def __enter__(self) -> "Demand":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)


def by_slices(keepers: Mapping[str, Iterable[Headgate]]) -> bool:
    """Whether every region goes by its slices, as one of its processes says."""
    return all(any(regions_of(one)["quota"].get("by_slice") for one in those) for those in keepers.values())


def enforced(keepers: Mapping[str, Iterable[Headgate]], value: str) -> dict[str, int]:
    """What each region enforces of the quota, in millionths, as its keeper says."""
    found: dict[str, int] = {}
    for region, nodes in keepers.items():
        for node in nodes:
            for key in regions_of(node)["quota"].get("slices", ()):
                if value in key["key"] and key["enforced"]:
                    found[region] = key["enforced"]
    return found


def near(shares: Mapping[str, int], percent: Mapping[str, int], within: int) -> bool:
    """Whether every region has about that, in percent."""
    return all(
        abs(shares.get(region, 0) - WHOLE * part // 100) <= WHOLE * within // 100 for region, part in percent.items()
    )
