"""Regions whose exchangers are processes of their own, two each, and are killed over and over."""

import itertools
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.e2e.regions.traffic import Traffic
from tests.e2e.regions.world import LOOK_S, SLOTS, WIDE_REQUESTS, World, peer_of
from tests.support.fault_proxy import Fault
from tests.support.headgate import Headgate
from tests.support.waiting import wait_until

OUTSIDE = ("--exchange-inside", "false")
"""Of nodes that leave the exchange to others."""


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
            lambda: all(self._serves(*pair) for pair in pairs), "every region to serve every other", every_s=LOOK_S
        )

    def _serves(self, region: str, peer: str) -> bool:
        return any(_is_serving(process, peer) for process in self.of(region))

    def kill_all(self, traffic: Traffic, chooser: random.Random) -> None:
        """One after the other in any order, while requests go on; each is started anew at once."""
        for place in chooser.sample(self._places, len(self._places)):
            process = self._processes[place]
            with self._batches_lost(place[0], process):
                traffic.wait_for_more(chooser.randrange(1, 2 * WIDE_REQUESTS))
                process.send(signal.SIGKILL)
                process.wait_exit()
            self.killed += 1
            self._begin(place)
        self._wait_started()

    @contextmanager
    def _batches_lost(self, region: str, process: Headgate) -> Iterator[None]:
        """What one that serves sends in the meantime arrives nowhere: it dies with a batch that nobody has."""
        links = [
            self._world.link(region, peer) for peer in self._regions if peer != region and _is_serving(process, peer)
        ]
        for link in links:
            self._world.proxies.set(link, Fault("blackhole"))
        yield
        for link in links:
            self._world.proxies.heal(link)

    def _begin(self, place: tuple[str, int]) -> None:
        self._processes[place] = self._world.begin_exchanger(*place)

    def _wait_started(self) -> None:
        for process in self._processes.values():
            process.wait_exchanging()


def _is_serving(process: Headgate, peer: str) -> bool:
    said = peer_of(process, peer)
    return bool(said["serving"] and said["sent"]["batches"])


def count_through_kills(world: World, regions: Sequence[str], kills: int, seed: int) -> Exchangers:
    """Nothing of what was admitted is lost or counted twice, whenever an exchanger is killed."""
    exchangers = Exchangers(world, regions)
    chooser = random.Random(seed)
    with Traffic(world, regions, "killed") as traffic:
        while exchangers.killed < kills:
            exchangers.wait_serving()
            exchangers.kill_all(traffic, chooser)
    assert traffic.failed == []
    world.wait_agreed("wide", traffic.admitted)
    return exchangers
