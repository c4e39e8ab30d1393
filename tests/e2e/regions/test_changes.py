"""Regions come and go while all of them run, node by node: what was counted stays counted.

Each region runs its exchange in another way: from inside its nodes, from inside the first of several workers, and
beside its node.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from tests.e2e.regions.exchangers import OUTSIDE
from tests.e2e.regions.world import (
    EXACT_LIMIT,
    NAMES,
    WIDE_HITS,
    WIDE_REQUESTS,
    World,
    open_world,
    peer_of,
    regions_of,
    wait_for_peer,
)
from tests.support.headgate import Headgate
from tests.support.waiting import wait_until
from tests.support.workers import scrape_all

TWO = ("eu", "us")
MOVING_HITS = WIDE_HITS // 2
"""Of a request on the key that is counted throughout: its limit is not reached, and from the second round on it is
published whoever is there."""
WORKERS = ("--workers", "2")
PLACES = (("eu", 0), ("eu", 1), ("us", 0))
"""Of nodes, in the order in which they are restarted."""


class Changing:
    """Regions with one key that is counted in all of them, and one whose limit is used up by all of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.admitted = Counter(dict.fromkeys(NAMES, 0))
        self.exact = Counter(dict.fromkeys(NAMES, 0))

    def restart(self, peers: Sequence[str], **flags: Sequence[str]) -> None:
        """Every node with these peers, one after the other; in between there are some of each kind, and all count."""
        for region, slot in PLACES:
            nodes = self.world.nodes[region]
            if slot < len(nodes):
                assert nodes[slot].stop() == 0
            self.world.begin_node(region, slot, *flags.get(region, ()), peers=peers).wait_ready()
            self.count(region)

    def count(self, region: str) -> None:
        admitted = self.world.admit(region, "wide", "moving", WIDE_REQUESTS, MOVING_HITS)
        assert admitted == WIDE_REQUESTS * MOVING_HITS
        self.admitted[region] += admitted

    def use(self, region: str, hits: int) -> None:
        assert self.world.ask(self.world.nodes[region][0], "exact", "moving", hits).code == "OK"
        self.exact[region] += hits

    def wait_agreed(self, *among: str) -> None:
        self.world.wait_agreed("wide", {"moving": self.admitted}, among)
        self.world.wait_agreed("exact", {"moving": self.exact}, among)


@pytest.fixture
def changing() -> Iterator[Changing]:
    with open_world() as world:
        yield Changing(world)
        world.stop_nodes()


@pytest.mark.long  # test_joining.py does it without restarts
def test_two_regions_become_three_and_two_again(changing: Changing) -> None:
    world = changing.world
    changing.restart(TWO)
    changing.use("eu", 40)
    changing.use("us", 30)
    changing.wait_agreed(*TWO)

    changing.restart(NAMES, us=WORKERS)
    exchanger = join(changing)
    changing.wait_agreed(*NAMES)
    changing.use("ap", EXACT_LIMIT - 70)
    changing.count("ap")
    changing.wait_agreed(*NAMES)
    check_what_is_said(world, exchanger)

    assert world.nodes["ap"].pop().stop() == 0
    assert exchanger.stop() == 0
    renamed_by_mistake_is_refused(world)
    changing.restart(TWO)
    changing.wait_agreed(*TWO)
    for region in TWO:
        denied = world.ask(world.nodes[region][0], "exact", "moving")
        assert (denied.code, denied.remaining) == ("OVER_LIMIT", 0), "what the region that left has used is used"


def join(changing: Changing) -> Headgate:
    """The third region: its exchanger."""
    world = changing.world
    exchanger = world.begin_exchanger("ap", 0)
    world.begin_node("ap", 0, *OUTSIDE).wait_ready()
    return exchanger.wait_exchanging()


def check_what_is_said(world: World, exchanger: Headgate) -> None:
    """Of several workers the first exchanges; a node that leaves it to others says that too."""
    (workers,), (node,) = world.nodes["us"], world.nodes["ap"]
    assert regions_of(node)["exchanging"] is False
    assert [peer["region"] for peer in regions_of(node)["peers"]] == list(TWO)
    for process, peers in ((workers, ("eu", "ap")), (exchanger, TWO)):
        assert regions_of(process)["exchanging"] is True
        for peer in peers:
            wait_for_peer([process], peer, lambda said: said["connected"] and said["serving"] and not said["backlog"])
    wait_until(lambda: regions_of(workers)["active"] == regions_of(node)["active"] == len(NAMES), "three regions")
    connected = {
        dict(labels)["worker"]: value
        for (name, labels), value in scrape_all(workers).items()
        if name == "headgate_peer_connected" and dict(labels)["peer"] == "eu"
    }
    assert connected == {"0": 1}


def renamed_by_mistake_is_refused(world: World) -> None:
    """In the place of `ap`: both sides say what does not fit, and what to change."""
    renamed = world.begin_exchanger("ap", 0, "--region", "asia").wait_exchanging()
    for peer in TWO:
        wait_for_peer(
            [renamed], peer, lambda said: f"'asia' is no peer of region '{said['region']}'" in (said["error"] or "")
        )
        wait_for_peer(world.nodes[peer], "ap", lambda said: "this is region 'asia'" in (said["error"] or ""))
    assert "correct --region there" in peer_of(renamed, "eu")["error"]
    assert "means 'ap'" in renamed.wait_for_event("exchange_stream_ended")["reason"]
    refusals = itertools.chain.from_iterable(node.events for node in world.nodes["eu"])
    assert any("'asia' is no peer of region 'eu'" in event.get("reason", "") for event in refusals)
    assert renamed.stop() == 0
