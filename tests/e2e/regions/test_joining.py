"""A region joins and leaves under load, and nobody is restarted: what was counted is counted once, everywhere."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from tests.e2e.regions.world import EXACT_LIMIT, NAMES, World, open_world, regions_of, wait_for_peer
from tests.support.headgate import Headgate
from tests.support.waiting import wait_until
from tests.support.workers import scrape

TWO = ("eu", "us")
PUBLISHED_HITS = 350_000
"""Enough of `wide` to be told, with two regions as with three."""
LOAD_HITS = 20


class Joined:
    """Regions that follow their files of peers, and what each has admitted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.admitted = Counter(dict.fromkeys(NAMES, 0))
        self.exact = Counter(dict.fromkeys(NAMES, 0))

    def publish(self, *regions: str) -> None:
        for region in regions:
            assert self.world.admit(region, "wide", "moving", 1, PUBLISHED_HITS) == PUBLISHED_HITS
            self.admitted[region] += PUBLISHED_HITS

    def use(self, region: str, hits: int) -> None:
        assert self.world.ask(self.world.nodes[region][0], "exact", "moving", hits).code == "OK"
        self.exact[region] += hits

    @contextmanager
    def load(self, *regions: str) -> Iterator[None]:
        """Requests in these regions all the while, each of them admitted."""
        stopped, failures = threading.Event(), list[BaseException]()

        def ask(region: str) -> None:
            try:
                while not stopped.is_set():
                    self.admitted[region] += self.world.admit(region, "wide", "moving", 2, LOAD_HITS)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=ask, args=(region,)) for region in regions]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stopped.set()
            for thread in threads:
                thread.join()
        assert not failures

    def wait_agreed(self, *among: str) -> None:
        self.world.wait_agreed("wide", {"moving": self.admitted}, among)
        self.world.wait_agreed("exact", {"moving": self.exact}, among)


def test_a_region_joins_and_leaves_under_load_and_nobody_is_restarted() -> None:
    with open_world() as world:
        joined = Joined(world)
        for region in TWO:
            world.write_peers(region, TWO)
        world.start_nodes(*TWO)
        joined.publish(*TWO)
        joined.use("eu", 40)
        joined.use("us", 30)
        joined.wait_agreed(*TWO)

        with joined.load(*TWO):
            for region in NAMES:
                world.write_peers(region, NAMES)
            wait_until(lambda: all(configured(node) == 3 for node in world.everyone()), "all to know three regions")
            world.begin_node("ap", 0).wait_ready()
            wait_for_peer(world.nodes["ap"], "eu", lambda said: said["connected"] and not said["filling"])
        joined.wait_agreed(*NAMES)
        joined.use("ap", EXACT_LIMIT - 70)
        joined.publish("ap")
        with joined.load(*NAMES):
            bad_lines_change_nothing(world)
            wait_until(lambda: all(regions_of(node)["active"] == 3 for node in world.everyone()), "three to be heard")
        joined.wait_agreed(*NAMES)
        quotas_are_kept(world)

        with joined.load(*TWO):
            for region in TWO:
                world.write_peers(region, TWO)
            for region in TWO:
                gone(world, region)
            wait_for_peer(world.nodes["ap"], "eu", lambda said: "'ap' is no peer of region 'eu'" in str(said["error"]))
        joined.wait_agreed(*TWO)
        for region in TWO:
            denied = world.ask(world.nodes[region][0], "exact", "moving")
            assert (denied.code, denied.remaining) == ("OVER_LIMIT", 0), "what the region that left has used is used"

        for region in TWO:
            world.write_peers(region, NAMES)
        joined.wait_agreed(*NAMES)
        assert world.degraded() == 0
        world.stop_nodes()


def gauge(node: Headgate, name: str) -> float:
    (number,) = [value for (found, _), value in scrape(node).items() if found == name]
    return number


def configured(node: Headgate) -> float:
    return gauge(node, "headgate_regions_configured")


def in_force(node: Headgate) -> float:
    return gauge(node, "headgate_peer_file_in_force")


def _is_refused(node: Headgate) -> bool:
    return in_force(node) == 0


def bad_lines_change_nothing(world: World) -> None:
    """A file that can't be used is refused with its line, and what was in force stays."""
    world.write_peers("eu", NAMES, "eu=127.0.0.1:1\n")
    for node in world.nodes["eu"]:
        reason = node.wait_for_event("peers_reload_failed")["reason"]
        assert reason == f"peer_file {world.peer_file('eu')}:4: 'eu' is this region itself: name only the others"
        assert regions_of(node)["peer_file_error"] == reason
        wait_until(partial(_is_refused, node), "the metric, once a second")
        assert {peer["region"] for peer in regions_of(node)["peers"]} == {"us", "ap"}
    world.write_peers("eu", NAMES)
    wait_until(lambda: all("peer_file_error" not in regions_of(node) for node in world.nodes["eu"]), "the file")
    wait_until(lambda: all(in_force(node) == 1 for node in world.nodes["eu"]), "the metric, once a second")


def quotas_are_kept(world: World) -> None:
    """In each region one process keeps the slices, and all of them know the same set of regions."""
    for region in NAMES:
        nodes = world.nodes[region]
        wait_until(partial(any_keeper, nodes), f"a keeper that knows all that was given, in {region}")


def any_keeper(nodes: Sequence[Headgate]) -> bool:
    return any(regions_of(node)["quota"].get("filled") for node in nodes)


def has_peers(node: Headgate, number: int) -> bool:
    return len(regions_of(node)["peers"]) == number


def gone(world: World, region: str) -> None:
    """A region's nodes know no more of `ap`: neither a peer nor a metric."""
    nodes = world.nodes[region]
    wait_until(lambda: all(configured(node) == 2 for node in nodes), f"{region} to know two regions")
    for node in nodes:
        wait_until(partial(has_peers, node, 1), "the peer to be gone")
        assert regions_of(node)["active"] == 2
        assert not [labels for name, labels in scrape(node) if dict(labels).get("peer") == "ap"]
