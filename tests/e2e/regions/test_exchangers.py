"""`headgate exchange`: any number may run beside the nodes, and any of them may be killed."""

from tests.e2e.regions.exchangers import OUTSIDE, count_through_kills
from tests.e2e.regions.world import open_world, regions_of
from tests.support.workers import scrape

REGIONS = ("eu", "us")
KILLS = 6


def test_nothing_is_lost_or_doubled_when_exchangers_are_killed() -> None:
    """Six times; a hundred: python -m tests.e2e.regions.long."""
    with open_world(REGIONS) as world:
        begun = [world.begin_node(region, 0, *OUTSIDE) for region in REGIONS]
        for node in begun:
            node.wait_ready()
        exchangers = count_through_kills(world, REGIONS, KILLS, seed=1)
        assert exchangers.killed >= KILLS
        for node in begun:
            said = regions_of(node)
            assert (said["exchanging"], said["active"]) == (False, len(REGIONS))
            assert not any(name.startswith("headgate_peer_") for name, _ in scrape(node))
