"""Three regions of real processes share limits: what one admits counts in all of them, once."""

import itertools
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.regions.world import CELL_LIMIT, EXACT_LIMIT, NAMES, SHARED_LIMIT, World
from tests.support.waiting import undisturbed, wait_until
from tests.support.workers import scrape

STEPS = (("eu", 0, 30), ("eu", 1, 30), ("us", 0, 1), ("ap", 1, 1), ("eu", 0, 1), ("us", 1, 27), ("ap", 1, 10))
"""Who uses how much of the limit: the region, which of its nodes, and the hits. The last takes all that is left, where
nobody else in its region holds a unit of it."""

STALE_S = 5.5
"""Longer than a node decides by an answer: 5 s."""
GIVEN_BACK_S = 3.0
"""Longer than a node holds units near a limit: two turns of a second."""


def test_what_one_region_uses_is_missing_in_all(world: World) -> None:
    """60% in one; the others deny when the sum is reached, and on the way all say the same of what is left."""

    def attempt(number: int) -> float:
        value, before = f"sum-{number}", world.degraded()
        admitted = Counter(dict.fromkeys(NAMES, 0))
        answers = []
        for region, slot, hits in STEPS:
            status = world.ask(world.nodes[region][slot], "exact", value, hits)
            answers.append((status.code, status.remaining))
            admitted[region] += hits
            world.wait_agreed("exact", {value: admitted})
        time.sleep(STALE_S)  # a unit that a node held before others used the limit up may be spent until then
        denials = [world.ask(node, "exact", value) for node in world.everyone()]
        disturbed = world.degraded() - before
        if not disturbed:
            used = itertools.accumulate(hits for *_, hits in STEPS)
            assert answers == [("OK", EXACT_LIMIT - so_far) for so_far in used]
            assert {(status.code, status.remaining) for status in denials} == {("OVER_LIMIT", 0)}
            assert sum(admitted.values()) == EXACT_LIMIT
            world.wait_agreed("exact", {value: admitted})
        return disturbed

    undisturbed(attempt)


def test_overload_in_all_regions_at_once_stays_near_the_limit(world: World) -> None:
    """Three times the limit, in rounds: each is what arrives while the regions have not heard of each other.

    With clocks it would be a cadence; this way a round is never longer than one, however slow the machine is.
    """
    rounds, value = 15, "overload"
    requests = 3 * SHARED_LIMIT // (rounds * len(NAMES))
    admitted = Counter(dict.fromkeys(NAMES, 0))
    with ThreadPoolExecutor(len(NAMES)) as pool:
        for _ in range(rounds):
            for region, count in zip(
                NAMES, pool.map(lambda name: world.admit(name, "shared", value, requests), NAMES), strict=True
            ):
                admitted[region] += count
            world.wait_agreed("shared", {value: admitted})
    in_one_round = requests * len(NAMES)
    assert SHARED_LIMIT <= sum(admitted.values()) <= 1.2 * SHARED_LIMIT + in_one_round


def test_a_limit_of_scope_cell_is_divided_by_the_regions(world: World) -> None:
    """Each enforces a third, whatever the others have counted; nothing of it is exchanged."""

    def attempt(number: int) -> float:
        value, before = f"cell-{number}", world.degraded()
        each = CELL_LIMIT // len(NAMES)
        admitted = Counter({region: world.admit(region, "cell", value, each + 10) for region in NAMES})
        time.sleep(GIVEN_BACK_S)
        admitted.update({region: world.admit(region, "cell", value, 10) for region in NAMES})
        disturbed = world.degraded() - before
        if not disturbed:
            assert admitted == dict.fromkeys(NAMES, each)
            counted = world.counts.read("cell", value)
            assert counted == {where: {whose: admitted[whose] * (whose == where) for whose in NAMES} for where in NAMES}
        return disturbed

    undisturbed(attempt)


def test_what_cells_admit_together_is_measured(world: World) -> None:
    """A limit of 1 is admitted once by each region, because a part is at least 1: three times the limit, while the
    alarm that goes by who is heard has no reason to ring."""

    def attempt(number: int) -> float:
        value, before = f"small-{number}", world.degraded()
        admitted = [world.admit(region, "small", value, 2) for region in NAMES]
        disturbed = world.degraded() - before
        if not disturbed:
            assert admitted == [1, 1, 1]
            wait_until(lambda: world.cells_used() == len(NAMES), "nodes that know what their regions admitted")
        return disturbed

    undisturbed(attempt)


def test_all_regions_are_heard_and_no_alarm_rings(world: World) -> None:
    def quiet() -> bool:
        samples = [scrape(node) for node in world.everyone()]
        return all(
            one["headgate_regions_active", frozenset()] == len(NAMES)
            and one["headgate_cell_scope_exceeded", frozenset({("times", "1.5")})] == 0
            and one["headgate_cell_scope_exceeded", frozenset({("times", "3")})] == 0
            for one in samples
        )

    wait_until(quiet, "three regions that hear each other")
