from collections.abc import Iterator

import pytest

from tests.e2e.regions.world import NAMES, World, open_world


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """Three regions of two nodes each, which exchange from inside. Whatever a test does to them it makes good."""
    with open_world() as world:
        world.start_nodes(*NAMES)
        yield world
        world.stop_nodes()
