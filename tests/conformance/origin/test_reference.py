"""Lua against Python: random histories get the same answers from Redis as from the reference.

The table of cases pins down rules; this looks for what nobody thought of. A seed
reproduces a history.
"""

import random

import pytest
from headgate.origin import shard_memory
from headgate.origin.exchange_protocol import ForeignCount, Priority, Stamp
from headgate.origin.names import exchange_name
from headgate.origin.operations.acknowledge import Acknowledge
from headgate.origin.operations.begin_walk import BeginWalk
from headgate.origin.operations.call import Call
from headgate.origin.operations.import_counts import ImportCounts
from headgate.origin.operations.mark_filled import MarkFilled
from headgate.origin.operations.read_changes import ReadChanges
from headgate.origin.operations.read_components import ReadComponents
from headgate.origin.protocol import NOW_AND_THEN, BucketReport, CellReport, ChargeRequest, Demand, Report, WindowReport

from tests.conformance.origin.cases import START_MS
from tests.conformance.origin.conftest import MemoryHarness, RedisHarness, RedisSetup
from tests.support.waiting import PATIENCE_S

TIMEOUT_S = PATIENCE_S
WINDOWS_MS = {b"second": 1_000, b"ten": 10_000, b"day": 86_400_000}
RATES = {b"slow": 3, b"fast": 40_000_000}
RUNS = [b"a", b"b", b"c"]


class History:
    """What three runs might say: totals that mostly grow, numbers that are sometimes overtaken."""

    def __init__(self, seed: int, *, clock_is_set: bool = False) -> None:
        self.clock_is_set = clock_is_set
        self.chooser = random.Random(seed)
        self.exchanger = random.Random(seed)
        """Of its own, for what came later: the calls of a seed stay what they are."""
        self.refunder = random.Random(f"{seed} refunds")
        """The same, for what is given back."""
        self.now_ms = START_MS + seed * 10_000_000
        self.numbers: dict[tuple[bytes, bytes], tuple[int, int]] = {}

    def call(self) -> Call:
        self.now_ms += self.chooser.choice([0, 1, 30, 400, 1_100, 3_000])
        if self.clock_is_set and self.chooser.random() < 0.1:
            self.now_ms += self.chooser.choice([-1, 1]) * self.chooser.choice([700, 2_500, 25_000, 200_000, 10**8])
        reports = tuple(self.report() for _ in range(self.chooser.randint(0, 5)))
        requests = tuple(self.wants(len(reports)) for _ in range(self.chooser.randint(0, 4)))
        return Call(reports, requests)

    def holds(self) -> tuple[int, int]:
        """What is left of an allowance, and what is wanted."""
        chooser = self.exchanger
        return chooser.choice([0, 0, 1, 5, 60]), chooser.choice([NOW_AND_THEN, 0, 1, 2, 9, 50, 2**20])

    def wants(self, reports: int) -> tuple[ChargeRequest, ...]:
        if not reports:
            return ()
        return tuple(
            (self.chooser.randrange(reports), self.chooser.randint(0, 9)) for _ in range(self.chooser.randint(0, 3))
        )

    def report(self) -> Report:
        run = self.chooser.choice(RUNS)
        return self.window(run) if self.chooser.random() < 0.6 else self.bucket(run)

    def number(self, key: bytes, run: bytes) -> int:
        """Sometimes the last one again, but soon: a run that was silent for long may be forgotten, or not yet."""
        number, at_ms = self.numbers.get((key, run), (0, 0))
        if 0 <= self.now_ms - at_ms < 5_000 and self.chooser.random() < 0.2:
            return number
        self.numbers[key, run] = (number + 1, self.now_ms)
        return number + 1

    def size(self) -> int:
        return self.chooser.choice([0, 1, 5, self.chooser.randint(0, 60), self.chooser.randint(0, 2**33)])

    def window(self, run: bytes) -> WindowReport:
        key = self.chooser.choice(list(WINDOWS_MS))
        window_ms = WINDOWS_MS[key]
        current = self.now_ms // window_ms
        cells = tuple(
            CellReport(sequence, self.size(), self.chooser.randint(0, 4), self.size(), self.size())
            for sequence in self.chooser.sample(range(current - 2, current + 2), self.chooser.randint(0, 3))
        )
        number, leaving = self.number(key, run), self.chooser.random() < 0.1
        if leaving:
            # It may be forgotten at once.
            self.numbers[key, run] = (number, 0)
        rest, want = self.holds()
        return WindowReport(
            key, run, number, rest, want, self.size(), window_ms,
            self.chooser.randint(0, 50), self.chooser.random() < 0.7, leaving, cells, *self.published(key, window_ms),
            demands=self.demands([current - 2, current - 1, current, current + 1]),
            within=self.exchanger.random() < 0.2,
        )  # fmt: skip

    def demands(self, sequences: list[int]) -> tuple[Demand, ...] | None:
        """Of some of these windows; most runs say the same again, or a little more."""
        chooser = self.refunder
        if chooser.random() < 0.3:
            return None
        amounts = [0, 0, 1, 3, 10, chooser.randint(0, 60), chooser.randint(0, 2**33)]
        return tuple(
            Demand(sequence, chooser.choice(amounts), chooser.choice(amounts), chooser.choice(amounts))
            for sequence in chooser.sample(sequences, chooser.randint(0, min(3, len(sequences))))
        )

    def bucket_demand(self) -> tuple[Demand] | None:
        demands = self.demands([0])
        return (demands[0],) if demands else None

    def published(self, key: bytes, window_ms: int) -> tuple[int, bytes, bool]:
        """From which total on, under which name, and whether urgently."""
        publish_at = self.exchanger.choice([0, 1, 50, 500])
        return publish_at, exchange_name(key, key, window_ms) if publish_at else b"", self.exchanger.random() < 0.3

    def bucket(self, run: bytes) -> BucketReport:
        key = self.chooser.choice(list(RATES))
        since_ms = self.now_ms - self.chooser.choice([0, 50, 4_000])
        answered_ms = self.now_ms + self.chooser.randint(-9_000, 9_000)
        rate = self.chooser.choice([RATES[key], RATES[key] + 1, 0])
        return BucketReport(
            key, run, self.number(key, run), *self.holds(), rate, 10_000, self.chooser.randint(0, 20),
            self.chooser.randint(0, 9), self.chooser.random() < 0.1, self.chooser.randint(0, 90),
            self.chooser.randint(0, 4), self.chooser.randint(0, 90),
            answered_ms, self.chooser.randrange(RATES[key]), since_ms, demands=self.bucket_demand(),
            within=self.exchanger.random() < 0.2,
        )  # fmt: skip

    def foreign(self) -> list[ForeignCount]:
        return [
            ForeignCount(
                key, WINDOWS_MS[key], self.now_ms // WINDOWS_MS[key] - self.chooser.randint(-1, 2),
                self.chooser.choice([b"eu", b"us", b"here"]), self.size(),
                self.exchanger.choice([b"", exchange_name(key, key, WINDOWS_MS[key])]),
                refunded=self.refunder.choice([0, 0, 1, 4]),
            )
            for key in self.chooser.choices(list(WINDOWS_MS), k=self.chooser.randint(0, 4))
        ]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
async def test_a_random_history_gets_the_reference_s_answers(one_redis: RedisSetup, seed: int) -> None:
    await same_answers(one_redis, History(seed))


@pytest.mark.parametrize("seed", range(100, 112))
async def test_the_same_of_what_is_published_and_while_the_shard_s_clock_is_set(
    one_redis: RedisSetup, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Redis drops keys by its own clock, which stands as good as still here: so must the reference.
    monkeypatch.setattr(shard_memory, "SWEEP_EVERY_MS", 10**15)
    await same_answers(one_redis, History(seed, clock_is_set=seed >= 106), forgets_nothing=True)


async def same_answers(one_redis: RedisSetup, history: History, *, forgets_nothing: bool = False) -> None:
    reference, redis = MemoryHarness(), RedisHarness(one_redis)
    try:
        await redis.wipe(restart=False)
        for step in range(150):
            call = history.call()
            both = (reference, redis)
            for harness in both:
                await harness.set_time(history.now_ms)
            expected, reply = [await harness.origin.run(0, call, TIMEOUT_S) for harness in both]
            assert (reply.answers, reply.charged) == (expected.answers, expected.charged), f"step {step}: {call}"
            assert reply.time_ms == expected.time_ms
            if history.chooser.random() < 0.2:
                counts = history.foreign()
                for harness in both:
                    await harness.origin.run(0, ImportCounts(counts), TIMEOUT_S)
            if forgets_nothing:
                await _same_changes(both, history.exchanger)
            if history.chooser.random() < 0.01:
                for harness in both:
                    await harness.wipe(restart=False)
    finally:
        await redis.origin.close()


async def _same_changes(both: tuple[MemoryHarness, RedisHarness], chooser: random.Random) -> None:
    """What each would tell a peer, and what it does about that."""
    peer, priority, owner = (
        chooser.choice([b"eu", b"us"]),
        chooser.choice(list(Priority)),
        chooser.choice([b"one", b"two"]),
    )
    most, act, after = chooser.choice([1, 3, 100]), chooser.random(), chooser.choice([0, 0, 2, 5])
    seen = []
    for harness in both:
        origin = harness.origin
        changes = await origin.run(0, ReadChanges(peer, priority, owner, b"drawn", most, after), TIMEOUT_S)
        done: object = None
        if changes.leased:
            done = await origin.run(0, ReadComponents(peer, priority, changes.names), TIMEOUT_S)
            if act < 0.5:
                done = done, await origin.run(0, Acknowledge(peer, priority, changes), TIMEOUT_S)
            elif act < 0.6:
                await origin.run(0, BeginWalk(peer, b"walk-%d" % (int(act * 1000) % 3)), TIMEOUT_S)
            elif act < 0.7:
                await origin.run(0, MarkFilled(peer, b"mark"), TIMEOUT_S)
            elif act < 0.8:
                await origin.run(0, ImportCounts([], Stamp(peer, int(act * 1000))), TIMEOUT_S)
        seen.append((changes._replace(epoch=b""), done))
    assert seen[0] == seen[1]
