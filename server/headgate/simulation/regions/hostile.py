"""A region in the wrong hands on a day without other faults: it lies about everything that is none of its business.

Its own counts on keys that all regions share are what a region may state, so these it leaves alone: all else must hold
as on a quiet day. Invariant, beside those of check.py:

`unmoved`  no key that regions don't share is counted or reset from outside
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Final

from headgate.errors import RequestError
from headgate.exchange.fill import MARK_BYTES
from headgate.exchange.messages import Batch, Entry
from headgate.origin.interface import OriginError
from headgate.simulation.history import Key
from headgate.simulation.regions.history import RegionsHistory
from headgate.simulation.regions.world import RegionsWorld, Site

FIRST_S: Final = 6.0
"""Second of its first lie: until then regions fill each other, and what comes back was asked for."""
EVERY_S: Final = 0.25
MUCH: Final = 2**40
TEN_YEARS_MS: Final = 10 * 365 * 86_400_000


@dataclass(frozen=True, kw_only=True)
class HostileHistory(RegionsHistory):
    """The history of a day on which one region lies."""

    hostile: int
    """Number of that region."""


class HostilePeer:
    """Speaks for the hostile region, beside its own exchangers, to all others."""

    def __init__(self, world: RegionsWorld, hostile: int) -> None:
        self._world = world
        self._site = world.sites[hostile]
        self._chance = world.chance("hostile")
        keys = world.history.keys
        self._private = [key for key in keys if not key.limit.publish_at and key.limit.window_ms]
        self._shared = [key for key in keys if key.limit.publish_at]

    async def run(self) -> None:
        """Lie until the last request has come."""
        await asyncio.sleep(FIRST_S)
        ends_s = self._world.history.asks[-1].at_us / 1e6
        while self._world.loop.time() < ends_s:
            for peer in self._world.sites:
                if peer is not self._site:
                    await self._say(peer, self._lie(peer))
            self.check()
            await asyncio.sleep(EVERY_S)

    def check(self) -> None:
        """Check that the keys of other scopes are as if nobody had said anything."""
        private = {key.name for key in self._private}
        for site in self._world.sites:
            for shard in site.shards:
                for name, record in shard.windows():
                    if name in private and (record.reset or record.foreign):
                        self._world.violate("unmoved", f"{site.name}: {name.decode()} was changed from outside")

    async def _say(self, peer: Site, batch: Batch) -> None:
        alive = [exchanger for exchanger in peer.exchangers if exchanger is not None]
        try:
            await self._chance.choice(alive).receiver.receive(self._site.name, batch)
        except (OriginError, RequestError):
            return  # it does not mind

    def _lie(self, peer: Site) -> Batch:
        chance, now_ms = self._chance, peer.clock.now_ms()
        entries = [_entry(key, now_ms, chance) for key in self._private]
        entries += [_entry(key, now_ms, chance)._replace(window_ms=TEN_YEARS_MS, sequence=0) for key in self._shared]
        entries += [_entry(key, now_ms, chance)._replace(current=0, reset=2**53) for key in self._shared]
        returned = [_entry(key, now_ms, chance)._replace(reset=0) for key in (*self._private, *self._shared)]
        fill = chance.randbytes(MARK_BYTES * len(peer.shards))
        wanted, filled = chance.choice([(b"", b""), (fill, b""), (b"", fill)])
        return Batch(1, now_ms, tuple(entries), tuple(returned), wanted, filled, now_ms)


def _entry(key: Key, now_ms: int, chance: random.Random) -> Entry:
    window_ms = key.limit.window_ms
    reset = chance.choice([0, 0, now_ms, now_ms - 5_000])
    return Entry(b":" + key.name, window_ms, now_ms // window_ms, MUCH, MUCH, reset)
