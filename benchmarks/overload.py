"""One key far over its limit, on virtual time: who waits, what the shard is asked, what is admitted.

    python benchmarks/overload.py [--quick]

The nodes, the shard and the arithmetic are the ones that serve; clocks and network are simulated, so the
figures are exact and the same on every machine. Each case is one limit under a load of random requests. Ends with
status 1 if one admits 1% less than a perfect limiter, or more above the limit than it may.
What is admitted is held to what one perfect limiter admits of the same requests, and measured as the
algorithm itself measures: at no admission may the count be above the limit plus `floor(precision × limit)`.
"""

import argparse
import asyncio
import random
import sys
from collections import Counter
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

import structlog
from headgate.limiter.algorithm import OVER
from headgate.limiter.decision import ALGORITHMS, Charge, Decision, DecisionPath
from headgate.limiter.limit import Algorithm, Limit, Unit
from headgate.region.node import RegionNode
from headgate.simulation.awaiting import future_of
from headgate.simulation.loop import LoopClock, run_virtually
from headgate.simulation.network import NetworkedOrigin, NetworkPath
from headgate.simulation.shard import SimulatedShard

UNIX_MS: Final = 1_700_000_000_000
DELAY_MS: Final = (0.3, 0.9)
"""Of a round trip."""
MOVES_EVERY_S: Final = 1.0
"""Moving demand: for so long nearly all of it comes to one node, then to the next."""
BURST: Final = 10
"""Bursts: so many requests on average come to one node within a few milliseconds."""
BURST_S: Final = 0.005
WITHIN: Final = 0.01
"""Of a perfect limiter's admissions."""
MOST_REQUESTS: Final = 600_000
"""Of one case: a minute of one core."""


@dataclass(frozen=True)
class Case:
    """One limit, under one load, on so many nodes."""

    requests: int = 10_000
    window_s: int = 10
    algorithm: Algorithm = Algorithm.SLIDING_WINDOW
    nodes: int = 4
    load: float = 3.0
    demand: str = "even"
    costs: tuple[int, ...] = (1,)
    windows: int = 4
    """How many are played; the first is not counted, as the key is not at its limit yet."""
    precision: float = 0.05
    lost: str = ""
    """In the middle of the time the shard loses its memory, or is another "server"; from then on the load is three
    times the limit."""

    @property
    def limit(self) -> Limit:
        burst = self.requests if self.algorithm is Algorithm.GCRA else 0
        millionths = round(self.precision * 1_000_000)
        return Limit(
            self.requests, Unit.SECOND, self.window_s, algorithm=self.algorithm, burst=burst,
            precision_millionths=millionths,
        )  # fmt: skip

    @property
    def seconds(self) -> float:
        """Whole windows, but no more requests than a minute's work."""
        per_s = self.requests / self.window_s * self.load * len(self.costs) / sum(self.costs)
        return min(self.windows * self.window_s, max(2 * self.window_s, MOST_REQUESTS / per_s))


@dataclass
class Result:
    """What came of a case."""

    case: Case
    offered: int
    waited: int
    admitted: int
    perfect: int
    calls_per_s: float
    """To the shard, per node."""
    over: int
    """The most that was admitted above the limit, by the algorithm's own measure."""
    cold: int = 0
    """Of those that waited: because their node knew nothing fresh of the key."""
    false: int = 0
    """Cost that was denied although a perfect limiter had room for it."""

    @property
    def waiting_share(self) -> float:
        return self.waited / self.offered

    @property
    def near_share(self) -> float:
        """Requests that waited although their node's view was fresh."""
        return (self.waited - self.cold) / self.offered

    @property
    def false_share(self) -> float:
        return self.false / self.perfect

    @property
    def share(self) -> float:
        return self.admitted / self.perfect

    @property
    def is_right(self) -> bool:
        """At most 1% less than a perfect limiter admits, and never more above the limit than `P`."""
        limit = self.case.limit
        return 1 - WITHIN <= self.share <= 1 + self.case.precision and self.over <= limit.precision

    def row(self) -> str:
        case = self.case
        costs = "1" if case.costs == (1,) else ", ".join(map(str, sorted(set(case.costs))))
        return (
            f"| {case.algorithm.value} | {case.requests:,} / {case.window_s} s | {case.nodes} | {case.load:g} × "
            f"| {case.demand} | {costs} | {100 * self.waiting_share:.1f}% | {self.calls_per_s:.1f} "
            f"| {100 * self.share:.1f}% | {self.over} of {case.limit.precision} |"
        )


HEADER: Final = (
    "| algorithm | limit | nodes | load | demand | costs | requests that wait | calls per second and node "
    "| of a perfect limiter's | most over the limit |\n|---|---|---|---|---|---|---|---|---|---|"
)


class Meter:
    """What was admitted, measured as the algorithm measures, at the shard's time."""

    def __init__(self, limit: Limit) -> None:
        self.over = 0
        self._limit = limit
        self._cells: Counter[int] = Counter()
        self._tat = 0

    def admit(self, cost: int, asked_ms: int, now_ms: int) -> None:
        """Measure an admission. One that was asked for in the window before was charged there at the latest moment."""
        limit, window_ms = self._limit, self._limit.window_ms
        if limit.algorithm is Algorithm.GCRA:
            now = now_ms * limit.requests_per_unit
            self._tat = max(self._tat, now) + cost * window_ms
            self.over = max(self.over, (self._tat - now) // window_ms - limit.burst)
            return
        if asked_ms // window_ms < now_ms // window_ms:
            now_ms = (asked_ms // window_ms + 1) * window_ms - 1
        sequence = now_ms // window_ms
        self._cells[sequence] += cost
        effective = self._cells[sequence]
        if limit.algorithm is Algorithm.SLIDING_WINDOW:
            effective += self._cells[sequence - 1] * (window_ms - now_ms % window_ms) // window_ms
        self.over = max(self.over, effective - limit.requests_per_unit)


class Asked(NamedTuple):
    """One request: when it was asked, whether a perfect limiter admits it, and whether it counts yet."""

    cost: int
    at_ms: int
    fits: bool
    counting: bool


class Overload:
    """One case, played."""

    def __init__(self, case: Case, seed: int) -> None:
        self._case = case
        self._chance = random.Random(seed)
        self._limit = case.limit
        self._charges = {cost: Charge(b"key", self._limit, cost) for cost in case.costs}
        self._perfect = ALGORITHMS[case.algorithm].new_counter(b"perfect", self._limit, UNIX_MS)
        self._meter = Meter(self._limit)
        self._result = Result(case, 0, 0, 0, 0, 0.0, 0)
        self._counting = False
        self._load = case.load

    async def play(self) -> Result:
        case = self._case
        self._shard = SimulatedShard(LoopClock(UNIX_MS))
        self._nodes = [self._node(index) for index in range(case.nodes)]
        await asyncio.gather(*(node.start() for node in self._nodes))
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        warm_s = case.window_s
        calls = 0
        while (past_s := loop.time() - began_s) < case.seconds:
            if not self._counting and past_s >= warm_s:
                self._counting, calls = True, self._calls()
            if case.lost and self._load == case.load and past_s >= case.seconds / 2:
                self._shard.wipe(b"another" if case.lost == "server" else None)
                self._load = 3.0
            if case.demand == "bursts":
                await self._burst(past_s)
            else:
                await asyncio.sleep(self._chance.expovariate(self._per_s))
                self._ask(past_s)
        counted_s = case.seconds - warm_s
        self._result.calls_per_s = (self._calls() - calls) / counted_s / case.nodes
        await asyncio.sleep(0.1)
        self._result.over = max(0, self._meter.over)
        await asyncio.gather(*(node.abandon() for node in self._nodes))
        return self._result

    async def _burst(self, past_s: float) -> None:
        """Ask for about ten within a few milliseconds, on one node."""
        await asyncio.sleep(self._chance.expovariate(self._per_s / BURST))
        node, loop = self._chance.choice(self._nodes), asyncio.get_running_loop()
        self._ask(past_s, node)
        while self._chance.random() > 1 / BURST:
            loop.call_later(self._chance.random() * BURST_S, self._ask, past_s, node)

    @property
    def _per_s(self) -> float:
        case = self._case
        return case.requests / case.window_s * self._load * len(case.costs) / sum(case.costs)

    def _node(self, index: int) -> RegionNode:
        chance = random.Random(self._chance.random())
        return RegionNode(
            NetworkedOrigin([self._shard], [NetworkPath(delay_ms=DELAY_MS)], chance),
            run=b"node%d" % index,
            clock=LoopClock(UNIX_MS),
            random=chance,
            logger=structlog.wrap_logger(None, processors=[_drop]),
            max_cells=10,
            deadline_s=1.0,
        )

    def _calls(self) -> int:
        return sum(link.stats.calls for node in self._nodes for link in node.links)

    def _ask(self, past_s: float, node: RegionNode | None = None) -> None:
        cost, now_ms = self._chance.choice(self._case.costs), self._shard.time_ms()
        result = self._result
        fits = ALGORITHMS[self._case.algorithm].take(self._perfect, self._limit, now_ms, cost) != OVER
        asked = Asked(cost, now_ms, fits, self._counting)
        result.perfect += cost * self._counting * fits
        result.offered += self._counting
        decision = (node or self._pick(past_s)).decide((self._charges[cost],))
        if isinstance(decision, Decision):
            self._decided(decision, asked)
        else:
            result.waited += self._counting
            future_of(decision).add_done_callback(lambda future: self._waited(future.result(), asked))

    def _waited(self, decision: Decision, asked: Asked) -> None:
        self._result.cold += asked.counting and decision.path is DecisionPath.ORIGIN
        self._decided(decision, asked)

    def _decided(self, decision: Decision, asked: Asked) -> None:
        if decision.admitted:
            self._result.admitted += asked.cost * asked.counting
            self._meter.admit(asked.cost, asked.at_ms, self._shard.time_ms())
        else:
            self._result.false += asked.cost * asked.counting * asked.fits

    def _pick(self, past_s: float) -> RegionNode:
        nodes, demand = self._nodes, self._case.demand
        if demand == "one node" or (demand == "skewed" and self._chance.random() < 0.7):
            return nodes[0]
        if demand == "moving" and self._chance.random() < 0.9:
            return nodes[int(past_s / MOVES_EVERY_S) % len(nodes)]
        return self._chance.choice(nodes)


def _drop(logger: Any, name: str, event: MutableMapping[str, Any]) -> NoReturn:
    raise structlog.DropEvent


def play(case: Case, seed: int = 1) -> Result:
    return run_virtually(Overload(case, seed).play())


MIXED: Final = (1, 1, 1, 2, 5, 10)
DEMANDS: Final = ("even", "skewed", "moving", "one node")
ALL: Final = (Algorithm.SLIDING_WINDOW, Algorithm.GCRA, Algorithm.FIXED_WINDOW)
QUICK: Final = [Case(algorithm=algorithm) for algorithm in ALL]
FULL: Final = (
    [Case(algorithm=algorithm, demand=demand, windows=2) for algorithm in ALL[:2] for demand in DEMANDS]
    + [Case(algorithm=Algorithm.FIXED_WINDOW, demand=demand, windows=2) for demand in ("even", "moving")]
    + [Case(algorithm=algorithm, costs=MIXED, windows=2) for algorithm in ALL]
    + [Case(nodes=nodes, windows=2) for nodes in (1, 16, 64)]
    + [Case(requests, algorithm=algorithm) for algorithm in ALL[:2] for requests in (10, 100, 1_000)]
    + [Case(1_000, nodes=64), Case(1_000, 1), Case(load=1.1, windows=2), Case(load=10.0, windows=2)]
    + [Case(100_000, windows=2)]
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three cases only")
    sys.stdout.write(HEADER + "\n")
    wrong = 0
    for case in QUICK if parser.parse_args().quick else FULL:
        result = play(case)
        wrong += not result.is_right
        sys.stdout.write(result.row() + ("" if result.is_right else " wrong") + "\n")
        sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
