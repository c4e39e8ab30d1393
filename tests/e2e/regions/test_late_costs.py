"""Costs that are known later, in two regions of real processes: every one of them counts once, whatever breaks."""

from tests.e2e.regions.late_costs import count_late_costs
from tests.e2e.regions.world import open_world


def test_late_costs_are_counted_exactly_through_kills_wipes_and_lost_replies() -> None:
    with open_world(("eu", "us")) as world:
        world.start_nodes("eu", "us")
        count_late_costs(world, 200, seed=16)
