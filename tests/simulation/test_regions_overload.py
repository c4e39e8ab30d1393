"""What all regions together admit of a limit of scope `global`, in windows of 60 s at the cadence that is the default.

The nodes and exchangers that serve, on virtual time; in real time: python -m tests.e2e.regions.long overload.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from headgate.limiter.decision import Decision
from headgate.limiter.limit import Algorithm, Limit, Scope, Unit
from headgate.origin.window_record import WindowRecord
from headgate.simulation.awaiting import future_of
from headgate.simulation.history import Key
from headgate.simulation.loop import run_virtually
from headgate.simulation.regions.history import RegionsHistory
from headgate.simulation.regions.world import RegionsWorld
from headgate.simulation.trace import Tracer

WINDOW_S = 60
WINDOWS = 3
LIMIT = 600
TIMES = 3
CADENCE_S = 1.0
MOST = 1.2
"""Of the limit, that may be admitted in a window."""
BEGIN_S = 12.0
"""Before the first window: everybody is there by then."""
QUIET_S = 5.0


class Asked(NamedTuple):
    """One request: when, in seconds of the first window, and where."""

    at_s: float
    region: int


class Regions:
    """Healthy ones, which are asked and say what they admitted."""

    def __init__(self, regions: int, algorithm: Algorithm = Algorithm.SLIDING_WINDOW, seed: int = 0) -> None:
        self.limit = Limit(LIMIT, Unit.MINUTE, algorithm=algorithm, scope=Scope.GLOBAL, regions=regions)
        first_ms = 1_700_000_000_000 // (WINDOW_S * 1000) * WINDOW_S * 1000
        self.world = RegionsWorld(
            RegionsHistory(
                seed=seed,
                name="overload",
                regions=regions,
                nodes=2,
                shards=1,
                exchangers=1,
                deadline_ms=200,
                link_ms=(40.0, 80.0),
                unix_ms=first_ms - round(BEGIN_S * 1000),
                offsets_ms=(0,) * regions,
                keys=(Key(b"key", self.limit),),
                asks=(),
                faults=(),
            ),
            Tracer(),
        )
        self.admitted: list[float] = []
        """When, in seconds of the first window."""
        self._waiting: set[asyncio.Future[Decision]] = set()

    async def ask(self, asked: Iterable[Asked]) -> None:
        turns: Counter[int] = Counter()
        for at_s, region in asked:
            await asyncio.sleep(max(0.0, BEGIN_S + at_s - self.world.loop.time()))
            site = self.world.sites[region]
            node = list(self.world.nodes(site))[turns[region] % 2]
            turns[region] += 1
            decision = node.decide(self.world.charges(site, node, 0, 1))
            if isinstance(decision, Decision):
                self._decided(decision)
            else:
                future = future_of(decision)
                self._waiting.add(future)
                future.add_done_callback(self._answered)
        if self._waiting:
            await asyncio.wait(self._waiting)

    def _answered(self, done: "asyncio.Future[Decision]") -> None:
        self._waiting.discard(done)
        self._decided(done.result())

    def _decided(self, decision: Decision) -> None:
        if decision.admitted:
            self.admitted.append(self.world.loop.time() - BEGIN_S)

    def known_of_others(self) -> list[int]:
        """In each region, of the current window."""
        records = [site.shards[0].record(b"key") for site in self.world.sites]
        return [record.current.foreign if isinstance(record, WindowRecord) else 0 for record in records]

    async def stop(self) -> None:
        for site in self.world.sites:
            await self.world.kill_exchanger(site, 0)
            for number in range(len(site.nodes)):
                await self.world.kill_node(site, number)


@pytest.mark.parametrize("algorithm", [Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW])
def test_three_times_the_limit_in_all_regions_at_once_is_cut_to_the_limit(algorithm: Algorithm) -> None:
    """In each of three windows at most 1.2 times the limit; and from its first second on never more than the limit and
    what arrives in one cadence."""
    per_s = TIMES * LIMIT / WINDOW_S
    asked = [Asked(number / per_s, number % 3) for number in range(int(per_s * WINDOW_S * WINDOWS))]

    async def history() -> None:
        regions = Regions(3, algorithm)
        await regions.world.start()
        await regions.ask(asked)
        await regions.stop()
        by_window = Counter(int(at_s // WINDOW_S) for at_s in regions.admitted)
        assert by_window[0] >= LIMIT, "the first window is new everywhere: all of the limit is given out"
        for window in range(WINDOWS):
            assert by_window[window] <= MOST * LIMIT
            assert by_window[window] <= LIMIT + math.ceil(per_s * CADENCE_S)

    run_virtually(history())


@pytest.mark.parametrize("count", [2, 3, 10])
def test_what_regions_keep_to_themselves_stays_under_a_fifth_of_the_limit(count: int) -> None:
    """Just under the threshold in every region, in one window and the next, nobody is told anything. Then one region is
    asked for more than the limit: the others tell what they have when they hear of it, of both windows."""

    async def history() -> None:
        regions = Regions(count)
        each = regions.limit.publish_at - 1
        evenly = [Asked(QUIET_S * number / each, region) for number in range(each) for region in range(count)]
        before = [asked._replace(at_s=asked.at_s - 1.5 * QUIET_S) for asked in evenly]
        await regions.world.start()
        await regions.ask(before + evenly)
        await asyncio.sleep(3)
        assert len(regions.admitted) == 2 * each * count
        assert each * count < (MOST - 1) * LIMIT
        assert regions.known_of_others() == [0] * count
        await regions.ask(Asked(2 * QUIET_S + number / 100, 0) for number in range(2 * LIMIT))
        admitted = sum(at_s >= 0 for at_s in regions.admitted)
        assert LIMIT - 2 * each * count <= admitted <= MOST * LIMIT
        await regions.stop()

    run_virtually(history())
