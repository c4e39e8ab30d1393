"""Shares of the loop's time: who takes more than its own waits, and nobody else does."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from headgate.transport import http_share
from headgate.transport.http_share import MOST_BEHIND_S, OPENING_S, OVERHEAD_S, SHARES, LoopShares, RequestKind, Timed


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


def busy(seconds: float) -> None:
    began_s = time.monotonic()
    while time.monotonic() - began_s < seconds:
        pass


def served(
    shares: LoopShares,
    clock: Clock,
    network: str,
    took_s: float,
    seconds: float,
    kind: RequestKind = RequestKind.REQUEST,
) -> int:
    """How many requests of one after the other are served in so much time, each of which takes so long."""
    began_s, count = clock.now_s, 0
    while clock.now_s - began_s < seconds:
        clock.now_s += shares.begin(network, kind) + took_s
        shares.ended(network, took_s, kind)
        count += 1
    return count


def test_requests_have_a_quarter_probes_too_and_scrapes_a_sixteenth() -> None:
    assert SHARES == {RequestKind.REQUEST: 4, RequestKind.SCRAPE: 16, RequestKind.PROBE: 4}


@pytest.mark.parametrize("kind", [RequestKind.REQUEST, RequestKind.SCRAPE])
@pytest.mark.parametrize("took_s", [0.0001, 0.001, 0.01, 0.1])
def test_a_network_takes_its_part_of_the_time_however_long_its_requests_take(took_s: float, kind: RequestKind) -> None:
    clock = Clock()
    count = served(LoopShares(clock.monotonic), clock, "a", took_s, 240, kind)
    assert count * (took_s + OVERHEAD_S) == pytest.approx(240 / SHARES[kind], rel=0.05)


@pytest.mark.parametrize("kind", RequestKind)
def test_new_connections_take_their_part_of_it(kind: RequestKind) -> None:
    clock = Clock()
    shares, opened = LoopShares(clock.monotonic), 0
    for _ in range(60_000):
        clock.now_s += 0.001
        opened += shares.may_open("a", kind)
    assert opened * OPENING_S[kind] == pytest.approx((60 + MOST_BEHIND_S) / SHARES[kind], rel=0.01)
    assert shares.may_open("b", kind)
    clock.now_s += 0.1
    assert shares.may_open("a", kind)


def test_each_kind_is_counted_by_itself() -> None:
    clock = Clock()
    shares = LoopShares(clock.monotonic)
    for kind in (RequestKind.REQUEST, RequestKind.SCRAPE):
        while shares.may_open("a", kind):
            pass
    assert [shares.may_open("a", kind) for kind in RequestKind] == [False, False, True]
    assert shares.begin("a") > 0
    assert shares.begin("a", RequestKind.PROBE) == 0


def test_requests_that_come_together_begin_one_after_the_other() -> None:
    clock = Clock()
    shares = LoopShares(clock.monotonic)
    served(shares, clock, "a", 0.002, 1)
    waits = [shares.begin("a") for _ in range(64)]
    apart = [later - earlier for earlier, later in pairwise(waits[10:])]
    assert apart == pytest.approx([SHARES[RequestKind.REQUEST] * (0.002 + OVERHEAD_S)] * len(apart), rel=0.01)


def test_nobody_waits_who_asks_now_and_then_or_beside_another() -> None:
    clock = Clock()
    shares = LoopShares(clock.monotonic)
    served(shares, clock, "greedy", 0.01, 5)
    for _ in range(100):
        clock.now_s += 0.05
        assert shares.begin("modest") == 0
        shares.ended("modest", 0.001)


def test_networks_that_are_known_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_share, "MOST_SHARES", 2)
    clock = Clock()
    shares = LoopShares(clock.monotonic)
    for name in ("a", "b", "c"):
        shares.begin(name)
        shares.ended(name, 10)
    assert [shares.begin(name) > 0 for name in ("c", "b", "a")] == [True, True, False]


async def timed(work: Callable[[], Awaitable[str]]) -> tuple[str, float]:
    async def run() -> str:
        return await work()

    waited = Timed(run())
    return await waited, waited.took_s


async def test_only_its_own_steps_count() -> None:
    async def work() -> str:
        busy(0.01)
        await asyncio.sleep(0.05)
        busy(0.01)
        return "done"

    async def others() -> None:
        while True:
            busy(0.005)
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    began_s = time.monotonic()
    answer, took_s = await timed(work)
    task.cancel()
    assert answer == "done"
    assert took_s >= 0.02
    assert time.monotonic() - began_s - took_s >= 0.045, "what it waited for, and what others did meanwhile"


async def test_errors_and_cancelling_pass_through() -> None:
    async def fails() -> str:
        await asyncio.sleep(0)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await timed(fails)

    ended: list[str] = []

    async def waits() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
        return ""

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await timed(waits)
    assert ended == ["ended"]
