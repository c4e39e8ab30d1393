"""Refunds and resets, in two regions of real processes: each counts once, everywhere, whatever breaks."""

from tests.e2e.regions.refunds import give_and_take, operators
from tests.e2e.regions.world import open_world


def test_what_is_given_back_and_what_is_reset_is_counted_exactly_through_kills_wipes_and_lost_replies() -> None:
    with open_world(("eu", "us")) as world:
        flags = operators(world.directory)
        world.start_nodes("eu", "us", flags=flags)
        give_and_take(world, 80, seed=16, flags=flags)
