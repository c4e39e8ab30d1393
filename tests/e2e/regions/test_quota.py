"""Three regions of real processes share a quota: slices follow the traffic, and are never more than the limit."""

from headgate.limiter.shares import WHOLE

from tests.e2e.regions.demand import Demand, by_slices, enforced, near
from tests.e2e.regions.world import NAMES, QUOTA_LIMIT, World
from tests.support.waiting import wait_until

OFFERED = dict(zip(NAMES, (80, 15, 5), strict=True))
WANTED = dict(zip(NAMES, (76, 14, 10), strict=True))
"""In proportion, and nobody under the floor."""


def test_slices_follow_the_traffic_with_the_floor_held_and_never_exceed_the_limit(world: World) -> None:
    """80/15/5 at three times the limit, in windows of 10 s."""
    wait_until(lambda: by_slices(world.nodes), "each region to go by its slices")
    seen: list[dict[str, int]] = []

    def settled() -> bool:
        seen.append(enforced(world.nodes, "follow"))
        assert sum(seen[-1].values()) <= WHOLE, seen[-1]
        assert all(share >= WHOLE // 10 for share in seen[-1].values()), seen[-1]
        return near(seen[-1], WANTED, 5)

    with Demand(world, "follow", OFFERED) as demand:
        wait_until(settled, "slices to be near what is offered", 60, every_s=0.5)
    precision = QUOTA_LIMIT // 20
    assert all(hits <= QUOTA_LIMIT + precision for hits in demand.admitted.values()), demand.admitted
