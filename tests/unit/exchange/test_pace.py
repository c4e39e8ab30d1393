"""The pace of one peer's batches: what is too fast waits, one at a time, and nobody else does."""

import asyncio

import pytest
from headgate.exchange.pace import AHEAD_S, BYTES_PER_S, ENTRIES_PER_S, PeerPace
from headgate.simulation.loop import LoopClock, run_virtually
from structlog.testing import capture_logs

from tests.support.clock import ManualClock
from tests.unit.exchange.two_regions import entries, linked, listening, send


@pytest.mark.parametrize(
    ("entries_each", "size"), [(ENTRIES_PER_S // 2, 0), (0, BYTES_PER_S // 2), (ENTRIES_PER_S // 2, BYTES_PER_S // 4)]
)
def test_batches_of_half_a_second_come_every_half_a_second_once_the_time_ahead_is_used(
    entries_each: int, size: int
) -> None:
    async def play() -> list[float]:
        clock, began_s = LoopClock(0), []
        pace, start_s = PeerPace(clock), clock.monotonic()

        async def batch() -> None:
            async with pace.turn(entries_each, size):
                began_s.append(clock.monotonic() - start_s)
                await asyncio.sleep(0.01)

        await asyncio.gather(*(batch() for _ in range(12)))
        return began_s

    began_s = run_virtually(play())
    at_once = int(AHEAD_S * 2) + 1
    assert began_s[at_once - 1] < 0.1, "so much may come at once"
    gaps = [later - earlier for earlier, later in zip(began_s[at_once:], began_s[at_once + 1 :], strict=False)]
    assert gaps == pytest.approx([0.5] * len(gaps), abs=0.02)


def test_a_pace_is_a_peers_own_and_comes_back() -> None:
    async def play() -> list[float]:
        clock = LoopClock(0)
        pace, other = PeerPace(clock), PeerPace(clock)
        waited = []
        for of, pause_s in ((pace, 0), (pace, 0), (other, 0), (pace, 60)):
            await asyncio.sleep(pause_s)
            async with of.turn(5 * ENTRIES_PER_S, 0) as early_s:
                waited.append(early_s)
        return waited

    assert run_virtually(play()) == pytest.approx([0, 5 - AHEAD_S, 0, 0], abs=0.01)


async def test_whoever_sends_too_much_is_slowed_and_that_is_said() -> None:
    full = entries(5_000)
    with capture_logs() as logs:
        async with listening(clock=ManualClock()) as server, linked(server.address) as link:
            for number in range(1, 7):
                await send(link, number, entries=full)
            assert server.stats.slowed_s == {"eu": 0.5}
    assert "peer_slowed" in [log["event"] for log in logs]
