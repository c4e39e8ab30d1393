"""What people see of the exchange: GET /regions and the metrics, and that both say the same."""

import time
from functools import partial

from tests.e2e.regions.world import NAMES, WIDE_HITS, WIDE_REQUESTS, World, peer_of, regions_of, wait_for_peer
from tests.support.headgate import Headgate
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.workers import Samples, scrape

STATES = ("connected", "serving", "filling", "backlog", "clock_skewed")


def test_each_region_says_how_its_peers_are_doing(world: World) -> None:
    began_ms = time.time() * 1000
    admitted = {region: world.admit(region, "wide", "reported", WIDE_REQUESTS, WIDE_HITS) for region in NAMES}
    world.wait_agreed("wide", {"reported": admitted})
    for region in NAMES:
        for peer in set(NAMES) - {region}:
            wait_for_peer(world.nodes[region], peer, lambda said: published_since(said, began_ms))
            check_received(world.nodes[region], peer)


def published_since(said: dict[str, object], began_ms: float) -> bool:
    """The one that serves: everything was acknowledged."""
    now_ms = time.time() * 1000
    published_ms = said["last_published_ms"]
    return (
        said["connected"] is True
        and said["serving"] is True
        and said["error"] is None
        and said["backlog"] == 0
        and said["filling"] is False
        and said["clock_skewed"] is False
        and isinstance(published_ms, int)
        and began_ms - 1 <= published_ms <= now_ms
    )


def check_received(nodes: list[Headgate], peer: str) -> None:
    """By one of the nodes or by the other, which then knows the lag; and nothing of it was refused."""
    wait_for_peer(nodes, peer, lambda said: said["lag_ms"] is not None and 0 <= said["lag_ms"] < PATIENCE_S * 1000)
    said = [peer_of(node, peer)["received"] for node in nodes]
    assert sum(one["batches"] for one in said) > 0
    assert sum(one["entries"] for one in said) > 0
    assert sum(one["refused"] for one in said) == 0


def of_peer(samples: Samples, name: str, peer: str) -> float:
    return samples[f"headgate_peer_{name}", frozenset({("peer", peer)})]


def test_metrics_say_the_same_as_the_page(world: World) -> None:
    """Counters go on while they are read: what the metrics say lies between two pages."""
    for node in world.everyone():
        for peer in (entry["region"] for entry in regions_of(node)["peers"]):
            wait_until(partial(states_agree, node, peer), f"page and metrics to say the same of {peer}")
            check_counters(node, peer)


def check_counters(node: Headgate, peer: str) -> None:
    before, samples, after = peer_of(node, peer), scrape(node), peer_of(node, peer)
    for way in ("sent", "received"):
        for what in ("batches", "entries", "bytes"):
            counted = of_peer(samples, f"{way}_{what}_total", peer)
            assert before[way][what] <= counted <= after[way][what]
    assert of_peer(samples, "refused_entries_total", peer) == 0
    assert of_peer(samples, "seconds_since_publish", peer) >= -1
    assert of_peer(samples, "lag_seconds", peer) >= -1


def states_agree(node: Headgate, peer: str) -> bool:
    before, samples, after = peer_of(node, peer), scrape(node), peer_of(node, peer)
    return all(before[name] == of_peer(samples, name, peer) == after[name] for name in STATES)
