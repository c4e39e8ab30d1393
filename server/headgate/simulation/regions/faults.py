"""Faults between regions and in them, and their end: from a history to the simulated world."""

from typing import Final

from headgate.simulation.network import shard_names
from headgate.simulation.regions.history import RegionFault, RegionFaultKind
from headgate.simulation.regions.world import RegionsWorld, Site
from headgate.simulation.schedule import FaultSchedule

SLOWER = 20.0
STAYS: Final = 2
"""Least amount with which another list of shards stays in force."""


class RegionFaults(FaultSchedule[RegionFault]):
    """Lets a history's faults happen."""

    def __init__(self, world: RegionsWorld) -> None:
        super().__init__(world)
        self._world = world

    def _break(self, fault: RegionFault) -> None:
        site = self._world.sites[fault.region]
        shard = site.shards[fault.shard]
        match fault.kind:
            case RegionFaultKind.REGION_FLUSH:
                shard.wipe()
            case RegionFaultKind.REGION_FAILOVER:
                self._replicas[fault] = shard.remember()
            case RegionFaultKind.REGION_CLOCK:
                shard.set_clock(fault.amount)
            case RegionFaultKind.EXCHANGER_CRASH:
                number = fault.amount % len(site.exchangers)
                self._spawn(self._world.kill_exchanger(site, number))
            case RegionFaultKind.REGION_LOST:
                self._spawn(self._lose(site))
            case RegionFaultKind.REGION_REMOVED:
                self._spawn(self._world.remove(site, tries=bool(fault.amount % 2)))
            case RegionFaultKind.REGION_LISTED:
                names = shard_names(len(site.shards))
                self._spawn(self._world.change_list(site, names[fault.amount % 2 :]))

    def _mend(self, fault: RegionFault) -> None:
        site = self._world.sites[fault.region]
        match fault.kind:
            case RegionFaultKind.REGION_RESTART:
                site.shards[fault.shard].restart()
            case RegionFaultKind.REGION_FAILOVER:
                site.shards[fault.shard].fail_over(self._replicas.pop(fault))
            case RegionFaultKind.EXCHANGER_CRASH:
                number = fault.amount % len(site.exchangers)
                if site.exchangers[number] is None:
                    self._world.start_exchanger(site, number)
            case RegionFaultKind.REGION_LOST:
                self._spawn(self._come_back(site))
            case RegionFaultKind.REGION_REMOVED:
                self._spawn(self._world.add(site))
            case RegionFaultKind.REGION_LISTED if fault.amount < STAYS:
                self._spawn(self._world.change_list(site, shard_names(len(site.shards) - 1)))

    async def _lose(self, site: Site) -> None:
        for shard in site.shards:
            shard.restart()
        for number in range(len(site.nodes)):
            await self._world.kill_node(site, number)

    async def _come_back(self, site: Site) -> None:
        for number, node in enumerate(site.nodes):
            if node is None:
                await self._world.start_node(site, number)

    def _arrange(self) -> None:
        for (region, peer), path in self._world.links.items():
            kinds = [
                fault
                for fault in self._active
                if fault.region == region and (fault.peer == peer or fault.kind is RegionFaultKind.PARTITION)
            ]
            kinds += [
                fault for fault in self._active if fault.kind is RegionFaultKind.PARTITION and fault.region == peer
            ]
            share = {fault.kind: fault.amount / 100 for fault in kinds}
            path.lose_batch = share.get(RegionFaultKind.LOST_BATCHES, 0.0)
            path.lose_ack = share.get(RegionFaultKind.LOST_ACKS, 0.0)
            path.repeat = share.get(RegionFaultKind.REPEATED, 0.0)
            path.slower = SLOWER if RegionFaultKind.SLOW_LINK in share else 1.0
            path.connected = not share.keys() & {RegionFaultKind.ONE_WAY, RegionFaultKind.PARTITION}
            if RegionFaultKind.LINK_STALL in share:
                path.stall()
            elif path.stalled:
                path.resume()
        for site in self._world.sites:
            for index, shard in enumerate(site.shards):
                here = {
                    fault.kind: fault.amount / 100
                    for fault in self._active
                    if (fault.region, fault.shard) == (site.index, index)
                }
                way = site.exchange_paths[index]
                way.lose_call = way.lose_reply = here.get(RegionFaultKind.LOST_IMPORTS, 0.0)
                shard.up = RegionFaultKind.REGION_RESTART not in here
                if RegionFaultKind.ORIGIN_STALL in here:
                    shard.stall()
                else:
                    shard.resume()
