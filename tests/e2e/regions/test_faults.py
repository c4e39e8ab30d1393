"""Regions that do not reach each other, hang or lose everything: no request notices, and afterwards all agree."""

import signal

from tests.e2e.regions.traffic import Traffic
from tests.e2e.regions.world import NAMES, WIDE_HITS, WIDE_REQUESTS, World, peer_of, regions_of, wait_for_peer
from tests.support.fault_proxy import Fault
from tests.support.headgate import Headgate
from tests.support.waiting import undisturbed, wait_until


def test_a_region_that_was_cut_off_agrees_with_all_when_it_is_back(world: World) -> None:
    """Meanwhile all count on, and nobody waits for it."""

    def attempt(number: int) -> float:
        before = world.degraded()
        with Traffic(world, NAMES, f"cut-{number}") as traffic:
            traffic.wait_for_values(2)
            world.set_links("ap", Fault("blackhole"))
            try:
                for region, peer in (("eu", "ap"), ("us", "ap"), ("ap", "eu"), ("ap", "us")):
                    wait_for_peer(world.nodes[region], peer, lambda said: "no answer" in (said["error"] or ""))
                apart(world, traffic)
            finally:
                world.heal("ap")
        assert traffic.failed == []
        world.wait_agreed("wide", traffic.admitted)
        # All may agree by what the others told, an instant before the first answer of this peer's.
        wait_until(
            lambda: all(peer_of(node, "ap")["error"] is None for node in served_by(world, "eu", "ap")),
            "the peer that is back to have answered",
        )
        return world.degraded() - before

    undisturbed(attempt)


def apart(world: World, traffic: Traffic) -> None:
    """The two that hear each other agree on something new; the third knows its own part alone."""
    value = traffic.value(traffic.wait_for_values(1))
    admitted = dict.fromkeys(NAMES, WIDE_REQUESTS * WIDE_HITS)
    world.wait_agreed("wide", {value: {**admitted, "ap": 0}}, ("eu", "us"))
    world.wait_agreed("wide", {value: {**admitted, "eu": 0, "us": 0}}, ("ap",))


def served_by(world: World, region: str, peer: str) -> list[Headgate]:
    return [node for node in world.nodes[region] if peer_of(node, peer)["serving"]]


def test_a_peer_that_hangs_is_not_waited_for(world: World) -> None:
    """Stopped in the middle of whatever it does: its connections stay, and nothing comes."""

    def attempt(number: int) -> float:
        before, stopped = world.degraded(), world.nodes["us"]
        with Traffic(world, ("eu", "ap"), f"hang-{number}") as traffic:
            traffic.wait_for_values(1)
            for node in stopped:
                node.send(signal.SIGSTOP)
            try:
                for region in ("eu", "ap"):
                    wait_for_peer(world.nodes[region], "us", lambda peer: "no answer" in (peer["error"] or ""))
                traffic.wait_for_values(5)
            finally:
                for node in stopped:
                    node.send(signal.SIGCONT)
        assert traffic.failed == []
        world.wait_agreed("wide", traffic.admitted)
        return world.degraded() - before

    undisturbed(attempt)


def test_a_region_that_lost_everything_gets_its_counts_back_from_its_peers(world: World) -> None:
    """Its Redis empty and all of its nodes new: nobody in it knows what it has admitted."""
    with Traffic(world, NAMES, "lost") as traffic:
        traffic.wait_for_values(5)
    assert traffic.failed == []
    world.wait_agreed("wide", traffic.admitted)

    for node in world.nodes["eu"]:
        node.send(signal.SIGKILL)
        node.wait_exit()
    world.redis["eu"].restart()
    for peer in ("us", "ap"):
        world.proxies.set(world.link(peer, "eu"), Fault("stall"))
    try:
        world.start_nodes("eu")
        for peer in ("us", "ap"):
            wait_for_peer(world.nodes["eu"], peer, lambda peer: peer["filling"])
        world.wait_agreed("wide", {value: dict.fromkeys(NAMES, 0) for value in traffic.admitted}, ["eu"])
    finally:
        world.heal("eu")
    world.wait_agreed("wide", traffic.admitted)
    wait_until(lambda: not filling(world.nodes["eu"]), "the peers to have told everything")

    more = world.admit("eu", "wide", traffic.value(0), 6, WIDE_HITS)
    traffic.admitted[traffic.value(0)]["eu"] += more
    assert more == 6 * WIDE_HITS
    world.wait_agreed("wide", traffic.admitted)


def filling(nodes: list[Headgate]) -> bool:
    return any(peer["filling"] for node in nodes for peer in regions_of(node)["peers"])
