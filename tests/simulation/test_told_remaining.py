"""What callers are told to be left: as of this node's last exchange, and never older than docs/envoy.md says."""

import asyncio
from collections.abc import Iterator

import pytest
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Algorithm, Limit, Unit
from headgate.region import session
from headgate.region.urgency import FLUSH_CALM_S

from tests.support.region import RegionWorld, virtually

KEY = b"k"
LIMIT = Limit(10_000, Unit.HOUR, algorithm=Algorithm.FIXED_WINDOW)
SECONDS = 60
ROUND_TRIP_S = 0.1


def ages_s(world: RegionWorld, told: int) -> Iterator[float]:
    """Yield the ages of admissions that somebody who was told so much did not know of: the oldest first."""
    known = LIMIT.requests_per_unit - told
    now_ms = world.clock.now_ms()
    for at_ms, _ in world.admitted[KEY][known:]:
        yield (now_ms - at_ms) / 1000


async def oldest_unknown_s(seldom_s: float) -> float:
    """Have one node asked all the time and another one seldom; return how old what the other did not know of was."""
    world = RegionWorld(1)
    busy, other = await world.start_node(), await world.start_node()
    charge, oldest_s = Charge(KEY, LIMIT, 1), 0.0
    for step in range(SECONDS * 20):
        await world.ask(busy, charge)
        await asyncio.sleep(0.05)
        if step % round(seldom_s * 20) == 0:
            decision = await world.ask(other, charge)
            told = decision.verdicts[0][1]
            assert told >= LIMIT.requests_per_unit - len(world.admitted[KEY]), "it is never told too little"
            oldest_s = max(oldest_s, next(ages_s(world, told), 0.0))
    return oldest_s


@pytest.mark.parametrize("seldom_s", [0.1, 1.0, 4.5, 12.0])
def test_what_is_left_is_never_older_than_a_view_and_a_flush(seldom_s: float) -> None:
    async def history() -> None:
        assert await oldest_unknown_s(seldom_s) <= session.USABLE_S + FLUSH_CALM_S + ROUND_TRIP_S

    virtually(history())


@pytest.mark.pure("it plants a bug in a compiled module")
def test_with_older_views_it_is_older(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "USABLE_S", 30.0)

    async def history() -> None:
        assert await oldest_unknown_s(12.0) > 5.0 + FLUSH_CALM_S + ROUND_TRIP_S

    virtually(history())
