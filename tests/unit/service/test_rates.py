"""Rates between two looks, on a clock that is set by hand."""

from headgate.runtime.rates import LONGEST_S, Rates

from tests.support.clock import ManualClock


async def test_a_rate_is_what_was_gained_per_second_since_the_last_look() -> None:
    clock, counts = ManualClock(), {"a": (10.0, 0.0), "idle": (5.0, 5.0)}
    rates = Rates(lambda: list(counts.items()), clock.monotonic)
    await rates.look()
    assert rates.last == {}, "since the process began is not of now"
    clock.advance(2_000)
    counts |= {"a": (14.0, 1.0), "new": (6.0, 0.0)}
    await rates.look()
    assert rates.last == {"a": (2.0, 0.5), "new": (3.0, 0.0)}
    clock.advance(int(LONGEST_S * 1000) + 1)
    counts["a"] = (100.0, 1.0)
    await rates.look()
    assert rates.last == {}, "nobody looked for long"
