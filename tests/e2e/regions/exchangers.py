"""Regions whose exchangers are processes of their own, two each, and are killed over and over."""

import itertools
import random
import signal
from collections.abc import Sequence

from tests.e2e.regions.traffic import Traffic
from tests.e2e.regions.world import SLOTS, World, peer_of
from tests.support.fault_proxy import Fault
from tests.support.headgate import Headgate
from tests.support.waiting import wait_until

OUTSIDE = ("--exchange-inside", "false")
"""Of nodes that leave the exchange to others."""
SLOW_S = 0.05
"""For each way over a link: so at any moment a batch is as likely under way as not."""


class Exchangers:
    """All exchangers of these regions."""

    def __init__(self, world: World, regions: Sequence[str]) -> None:
        self.killed = 0
        self._world = world
        self._regions = regions
        self._places = [(region, slot) for region in regions for slot in range(SLOTS)]
        self._processes: dict[tuple[str, int], Headgate] = {}
        for place in self._places:
            self._begin(place)
        self._wait_started()

    def of(self, region: str) -> list[Headgate]:
        return [self._processes[region, slot] for slot in range(SLOTS)]

    def wait_serving(self) -> None:
        """Until every region tells every other one, by whichever of its exchangers."""
        pairs = list(itertools.permutations(self._regions, 2))
        wait_until(
            lambda: all(self._serves(region, peer) for region, peer in pairs), "every region to serve every other"
        )

    def _serves(self, region: str, peer: str) -> bool:
        found = [peer_of(process, peer) for process in self.of(region)]
        return any(one["serving"] and one["sent"]["batches"] for one in found)

    def kill_all(self, traffic: Traffic, chooser: random.Random) -> None:
        """One after the other in any order, while requests go on; each is started anew at once."""
        for place in chooser.sample(self._places, len(self._places)):
            traffic.wait_for_more(chooser.randrange(1, 4), *self._regions)
            process = self._processes[place]
            process.send(signal.SIGKILL)
            process.wait_exit()
            self.killed += 1
            self._begin(place)
        self._wait_started()

    def _begin(self, place: tuple[str, int]) -> None:
        self._processes[place] = self._world.begin_exchanger(*place)

    def _wait_started(self) -> None:
        for process in self._processes.values():
            process.wait_exchanging()


def count_through_kills(world: World, regions: Sequence[str], kills: int, seed: int) -> Exchangers:
    """Nothing of what was admitted is lost or counted twice, whenever an exchanger is killed."""
    exchangers = Exchangers(world, regions)
    for link in range(len(world.proxies.ports)):
        world.proxies.set(link, Fault("slow", delay_s=SLOW_S))
    chooser, values = random.Random(seed), [f"killed-{number}" for number in range(5)]
    with Traffic(world, regions, values) as traffic:
        traffic.wait_for_more(100, *regions)
        while exchangers.killed < kills:
            exchangers.wait_serving()
            exchangers.kill_all(traffic, chooser)
        traffic.wait_for_more(10, *regions)
    assert traffic.failed == []
    world.wait_agreed("wide", traffic.admitted)
    return exchangers
