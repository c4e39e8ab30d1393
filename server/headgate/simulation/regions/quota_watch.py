"""Invariants of quotas, checked several times a second, under all faults.

`shares`  what all regions enforce of a quota, by their shards, adds up to no more than the limit
`floors`  no region is under its floor
`usage`   while no region has a fault of its own, what is in use everywhere is at most the limit and P
`rows`    after healing all regions know the same gifts
`keeper`  after healing each region has one keeper, and goes by its slices

A shard that fails over to a copy may have, until the keeper has been there, a share that was given away since: so long
after a failover its region is not looked at.
"""

import asyncio
from typing import Final

from headgate.limiter.limit import Algorithm
from headgate.limiter.shares import WHOLE, floor_share
from headgate.origin.names import exchange_name
from headgate.origin.placement import KeptPlacement
from headgate.quota.keeper import QuotaKeeper
from headgate.quota.operations.step import used_of
from headgate.quota.protocol import QuotaKind, QuotaReport
from headgate.quota.store import QuotaStore
from headgate.simulation.history import Key
from headgate.simulation.network import shard_of
from headgate.simulation.regions.history import LINK_FAULTS, RegionFault, RegionFaultKind
from headgate.simulation.regions.world import RegionsWorld, Site
from headgate.simulation.shard import SimulatedShard

CHECK_EVERY_S: Final = 0.25
FAILED_OVER_MS: Final = 4_000
"""A turn of the keeper, and another one if the first began before."""
OUTSIDE: Final = frozenset((*LINK_FAULTS, RegionFaultKind.EXCHANGER_CRASH, RegionFaultKind.REGION_LISTED))
"""Faults that cost no region anything of its own: its nodes and shards are well."""
KINDS: Final = {
    Algorithm.SLIDING_WINDOW: QuotaKind.SLIDING,
    Algorithm.FIXED_WINDOW: QuotaKind.FIXED,
    Algorithm.GCRA: QuotaKind.BUCKET,
}


class QuotaWatch:
    """Looks at every quota of a history."""

    def __init__(self, world: RegionsWorld) -> None:
        self.keys = [key for key in world.history.keys if key.limit.sliced]
        self._world = world
        self._violate = world.violate
        self._floor = floor_share(world.history.regions)
        self._sound = {fault.kind for fault in world.history.faults} <= OUTSIDE

    async def run(self) -> None:
        """Check until cancelled."""
        while self.keys:
            for key in self.keys:
                self._check_key(key)
            await asyncio.sleep(CHECK_EVERY_S)

    def _check_key(self, key: Key) -> None:
        shares = [self._share(site, key) for site in self._world.sites]
        if sum(shares) > WHOLE and not self._has_failed_over():
            self._violate("shares", f"{key.name.decode()}: {shares} are {sum(shares)}")
        if min(shares) < self._floor:
            self._violate("floors", f"{key.name.decode()}: {shares}")
        if self._sound and key.limit.algorithm is not Algorithm.GCRA:
            self._check_usage(key, shares)

    def _check_usage(self, key: Key, shares: list[int]) -> None:
        limit = key.limit
        used = [self._used(site, key) for site in self._world.sites]
        most = limit.requests_per_unit + limit.regions * limit.precision
        if sum(used) > most:
            self._violate("usage", f"{key.name.decode()}: {used} are {sum(used)} of {most}, shares {shares}")

    def _share(self, site: Site, key: Key) -> int:
        """The share that a shard enforces which counts the key, or of those where it may begin the largest."""
        placement = self._world.placement_of(site)
        before = int(placement.before[shard_of(key.name, len(placement.before))]) if placement.before else None
        home, open_at = self._world.home_of(site, key.name), self._world.place_of(site, key.name)
        places = {open_at}
        if not any(shard.has_open(key.name) for shard in site.shards):
            kept = {index: shard.memory.part(KeptPlacement).fence for index, shard in enumerate(site.shards)}
            places = {home, *([before] if before is not None and kept[before] < placement.number else [])}
        return max(
            self._share_at(site.shards[index], key, 0 if index == before or placement.number < 2 else placement.number)
            for index in places
        )

    def _share_at(self, shard: SimulatedShard, key: Key, came_by: int) -> int:
        limit = key.limit
        name = exchange_name(key.name, key.name, limit.window_ms)
        whole = limit.requests_per_unit, limit.burst, limit.window_ms
        asked = QuotaReport(0, name, KINDS[limit.algorithm], *whole, 0, self._floor, 1, came_by)
        return shard.memory.part(QuotaStore).in_force(asked, shard.time_ms())[0].share

    def _used(self, site: Site, key: Key) -> int:
        shard = site.shards[self._world.place_of(site, key.name)]
        return used_of(shard.record(key.name), KINDS[key.limit.algorithm], shard.time_ms()) or 0

    def _has_failed_over(self) -> bool:
        now_ms = self._world.loop.time() * 1000
        return any(_is_failover(fault, now_ms) for fault in self._world.history.faults)

    # When all is healed

    def check(self) -> None:
        keepers = [self._keeper(site) for site in self._world.sites]
        found = [keeper for keeper in keepers if keeper is not None]
        if len(found) < len(keepers):
            return
        for site, keeper in zip(self._world.sites, found, strict=True):
            if not keeper.goes_by_slice:
                self._violate("keeper", f"{site.name} is at its floors")
        for key in self.keys:
            name = exchange_name(key.name, key.name, key.limit.window_ms)
            rows = {keeper.gifts_of(name) for keeper in found}
            if len(rows) > 1:
                self._violate("rows", f"{key.name.decode()}: {len(rows)} different ones")

    def _keeper(self, site: Site) -> QuotaKeeper | None:
        found = [each.quotas for each in site.exchangers if each is not None and each.quotas.is_keeper]
        if len(found) != 1:
            self._violate("keeper", f"{site.name} has {len(found)}")
            return None
        return found[0]


def _is_failover(fault: RegionFault, now_ms: float) -> bool:
    return fault.kind is RegionFaultKind.REGION_FAILOVER and fault.end_ms <= now_ms < fault.end_ms + FAILED_OVER_MS
