"""Regions under one limit, in simulated time: whatever happens, slices and usage stay within it.

`python -m tests.unit.quota.test_histories 1000` runs so many of each kind.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.quota.draw import STORY, picture
from tests.unit.quota.histories import TOLD, named, names
from tests.unit.quota.world import History, Violation, World, inside

PICTURE = Path(__file__).parents[3] / "docs" / "images" / "quota-slices.svg"
PER_KIND = 4
"""In `make test`: some seconds. The long form runs hundreds."""


@pytest.mark.parametrize("name", [f"{told}-0" for told in TOLD])
def test_a_history_told_by_hand_settles_as_it_should(name: str) -> None:
    """80/15/5 with the floor held, a shift to 20/60/20 in 30 s, a lost region shared out by a majority only."""
    world = World(named(name)).run()
    assert world.violations == []
    assert sum(region.admitted for region in world.regions)


@pytest.mark.parametrize("name", names(PER_KIND))
@pytest.mark.slow
def test_slices_gifts_and_usage_stay_within_the_limit(name: str) -> None:
    assert World(named(name)).run().violations == []


def test_a_key_without_much_traffic_costs_no_message_and_no_field() -> None:
    """Each region is offered a third of its slice."""
    history = named("spread-0")
    quiet = History(**{**history.__dict__, "demands": ((0, (1_000, 1_000, 1_000)),), "settled": ()})
    world = World(quiet).run()
    assert world.entries == 0
    assert [region.store for region in world.regions] == [{}, {}, {}]
    assert [inside(region.ledger)._keys for region in world.regions] == [{}, {}, {}]
    assert [inside(region.ledger).watched() for region in world.regions] == [[], [], []]
    assert {world.in_force(region) for region in world.regions} == {333_333}


def test_slices_come_to_rest() -> None:
    """Steady traffic makes no gifts once slices follow it."""
    world = World(named("overload-0"))
    while world.at_ms < 60_000:
        world.step()
    given = [inside(region.ledger).counts.given for region in world.regions]
    entries = world.entries
    while world.at_ms < 300_000:
        world.step()
    assert [inside(region.ledger).counts.given for region in world.regions] == given
    assert world.entries - entries < 240, "in 240 seconds"


def test_the_picture_in_the_docs_shows_this_engine() -> None:
    """Drawn again by `python -m tests.unit.quota.draw > docs/images/quota-slices.svg`."""
    assert PICTURE.read_text() == picture(World(STORY).run())


def found(per_kind: int) -> Iterator[tuple[str, Violation]]:
    for name in names(per_kind):
        yield from ((name, violation) for violation in World(named(name)).run().violations)


if __name__ == "__main__":
    count = int(sys.argv[1])
    failures = list(found(count))
    for name, violation in failures:
        sys.stdout.write(f"{name}: {violation}\n")
    sys.stdout.write(f"{len(names(count))} histories, {len(failures)} violations\n")
    sys.exit(bool(failures))
