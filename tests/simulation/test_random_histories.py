"""Random healthy histories: over-admission is within `P`, and nothing is lost, doubled or left behind.

What was admitted is measured in the counter in which it was committed. Compiled counters show it to nobody: there only
what records hold and what is left behind is judged. A history is made by its seed alone; one that fails is repeated by
that seed.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass

import pytest
from headgate.build import BUILD
from headgate.limiter.decision import Charge, Verdict
from headgate.limiter.limit import Algorithm, Limit, Unit
from headgate.region.cells import Hold
from headgate.region.window_counter import SharedWindow

from tests.simulation import mutations
from tests.support.region import RegionWorld, virtually

SECONDS = 10.0


@dataclass
class Commit:
    counter: SharedWindow
    sequence: int
    at_ms: int
    cost: int


class Ledger:
    """Every commit of every node, as the cells are told of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commits: list[Commit] = []
        self.world: RegionWorld
        if BUILD != "compiled":
            self._follow(monkeypatch)

    def _follow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        spend, unspend, settle = SharedWindow.spend, SharedWindow.unspend, SharedWindow.settle
        take, give = SharedWindow.from_allowance, SharedWindow.return_to_allowance

        def logged_spend(counter: SharedWindow, cost: int, missing: int, now_ms: int) -> None:
            spend(counter, cost, missing, now_ms)
            self._add(counter, counter.current_cell.sequence, cost)

        def logged_unspend(counter: SharedWindow, cost: int) -> None:
            unspend(counter, cost)
            self._remove(counter, cost)

        def logged_settle(counter: SharedWindow, hold: Hold, *, commit: bool) -> None:
            settle(counter, hold, commit=commit)
            if commit and hold.cell is not None:
                self._add(counter, hold.cell.sequence, hold.cost)

        def logged_take(counter: SharedWindow, charge: Charge, now_ms: int, now_s: float) -> Verdict | None:
            verdict = take(counter, charge, now_ms, now_s)
            if verdict is not None:
                self._add(counter, counter.current_cell.sequence, charge.cost)
            return verdict

        def logged_give(counter: SharedWindow, charge: Charge) -> None:
            give(counter, charge)
            self._remove(counter, charge.cost)

        monkeypatch.setattr(SharedWindow, "from_allowance", logged_take)
        monkeypatch.setattr(SharedWindow, "return_to_allowance", logged_give)
        monkeypatch.setattr(SharedWindow, "spend", logged_spend)
        monkeypatch.setattr(SharedWindow, "unspend", logged_unspend)
        monkeypatch.setattr(SharedWindow, "settle", logged_settle)

    def _add(self, counter: SharedWindow, sequence: int, cost: int) -> None:
        self.commits.append(Commit(counter, sequence, self.world.clock.now_ms(), cost))

    def _remove(self, counter: SharedWindow, cost: int) -> None:
        for index in reversed(range(len(self.commits))):
            commit = self.commits[index]
            if commit.counter is counter and (commit.cost, commit.sequence) == (cost, counter.current_cell.sequence):
                del self.commits[index]
                return

    def committed(self, key: bytes) -> Counter[int]:
        counts: Counter[int] = Counter()
        for commit in self.commits:
            if commit.counter.key == key:
                counts[commit.sequence] += commit.cost
        return counts

    def worst(self, key: bytes, limit: Limit) -> int:
        """A charge is at the latest when its cell ends, however late its reply."""
        counts: Counter[int] = Counter()
        worst, window_ms = 0, limit.window_ms
        for commit in self.commits:
            if commit.counter.key != key or not commit.cost:
                continue
            start_ms = commit.sequence * window_ms
            at_ms = max(start_ms, min(commit.at_ms, start_ms + window_ms - 1))
            counts[commit.sequence] += commit.cost
            sliding = limit.algorithm is Algorithm.SLIDING_WINDOW
            previous = counts[commit.sequence - 1] if sliding else 0
            left_ms = window_ms - at_ms % window_ms
            worst = max(worst, counts[commit.sequence] + previous * left_ms // window_ms)
        return worst


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    return Ledger(monkeypatch)


def random_keys(chooser: random.Random) -> dict[bytes, Limit]:
    return {
        bytes([65 + number]) * 3: Limit(
            chooser.choice([1, 3, 10, 50, 200, 1000]),
            Unit.SECOND,
            chooser.choice([1, 2, 5]),
            algorithm=chooser.choice([Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW]),
            precision_millionths=chooser.choice([0, 50_000, 50_000, 200_000]),
        )
        for number in range(chooser.randint(1, 4))
    }


async def healthy_history(seed: int, ledger: Ledger) -> list[str]:
    """One history; what is wrong with it."""
    chooser = random.Random(seed)
    ledger.commits.clear()
    world = ledger.world = RegionWorld(seed, shards=chooser.choice([1, 2, 3]), deadline_s=30)
    least_ms = chooser.choice([0.1, 1, 5, 20])
    most_ms = least_ms * chooser.choice([1, 3, 10])
    for _ in range(chooser.randint(1, 5)):
        offset_ms = chooser.choice([0, 0, 200, -500, 3_600_000])
        await world.start_node(offset_ms=offset_ms, delay_ms=(least_ms, most_ms))
    keys = random_keys(chooser)
    await random_load(chooser, world, keys)
    await world.quiet()
    return [problem for key, limit in keys.items() for problem in wrong(key, limit, ledger)] + left_behind(world)


async def random_load(chooser: random.Random, world: RegionWorld, keys: dict[bytes, Limit]) -> None:
    fastest = max(limit.requests_per_unit / limit.window_ms * 1000 for limit in keys.values())
    per_s = min(800, fastest * chooser.choice([0.5, 1, 3, 10]))
    loop = asyncio.get_running_loop()
    while loop.time() % 1_000 < SECONDS:
        await asyncio.sleep(chooser.expovariate(per_s) if chooser.random() < 0.98 else chooser.uniform(0, 1))
        wanted = chooser.sample(sorted(keys), chooser.randint(1, len(keys)))
        cost = chooser.choice([1, 1, 1, 2, 5, 0])
        for _ in range(chooser.choice([1, 1, 1, 1, 5])):
            world.ask_soon(chooser.choice(world.nodes), *[Charge(key, keys[key], cost) for key in wanted])
    await asyncio.gather(*world._tasks)


def wrong(key: bytes, limit: Limit, ledger: Ledger) -> list[str]:
    problems = []
    worst = ledger.worst(key, limit)
    if worst > limit.requests_per_unit + limit.precision:
        problems.append(f"{key!r}: {worst} admitted of {limit.requests_per_unit} with P {limit.precision}")
    try:
        record = ledger.world.record(key)
    except KeyError:
        return problems
    admitted = ledger.committed(key)[record.sequence]
    if record.current.region_total < admitted:
        problems.append(f"{key!r}: {admitted} admitted, {record.current.region_total} counted")
    if sum(component.own for component in record.components.values()) != record.current.region_total:
        problems.append(f"{key!r}: the total is not the sum of its components")
    return problems


def left_behind(world: RegionWorld) -> list[str]:
    """At quiescence nothing is unacknowledged, reserved or held on to."""
    return [
        f"{counter.key!r}: {counter.unacked} unacknowledged, {counter.reserved} reserved, {counter.pins} in calls"
        for node in world.nodes
        for counter in node.engine.counters
        if counter.unacked or counter.reserved or counter.pins
    ]


@pytest.mark.parametrize("block", range(6))
def test_a_healthy_region_stays_within_its_budget(block: int, ledger: Ledger) -> None:
    for seed in range(block * 15, block * 15 + 15):

        async def history(seed: int = seed) -> None:
            assert await healthy_history(seed, ledger) == [], f"seed {seed}"

        virtually(history())


def found(seeds: list[int], ledger: Ledger) -> bool:
    """Whether one of these histories shows that something is wrong."""
    problems: list[str] = []
    for seed in seeds:

        async def history(seed: int = seed) -> None:
            problems.extend(await healthy_history(seed, ledger))

        virtually(history())
    return bool(problems)


@pytest.mark.pure("it plants a bug in a compiled class")
def test_credit_that_is_offered_to_the_shard_is_not_spent_here_too(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a want of a key is under way, others must not spend the credit that may be paying for it."""
    seeds = [1699]
    assert not found(seeds, ledger)
    mutations.spend_offered_credit(monkeypatch)
    assert found(seeds, ledger)


@pytest.mark.pure("it plants a bug in a compiled class")
def test_allowances_beyond_the_room_are_found(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    mutations.all_room_to_everybody(monkeypatch)
    mutations.charge_beside_nothing(monkeypatch)
    assert found(list(range(40)), ledger)
