"""The need of a node for units of a limit key: how many it wants to hold, and for how long it spends them.

A node that holds units decides without asking. What it holds is kept from the others: so it wants what it is likely to
be asked for until it reports next, and gives back what nobody asks for. (docs/convergence.md, section 4.)

Pure: rates are in requests per second or, with their cost, in units. Nothing here is about safety, which is the shard's
(origin/allowances.py).
"""

from math import isqrt
from typing import Final

from headgate.limiter.limit import Algorithm, Limit
from headgate.region.refunds import DENIAL_MS

MEASURED_S: Final = 0.25
"""Shortest time over which a rate is measured: a burst of ten in a moment is no rate of a thousand."""
LONGEST_MEASURED_S: Final = 2.0
"""Longest: a burst after an hour is no rate of nothing."""
SURE: Final = 8
"""Requests from which on a measurement counts alone; with fewer it counts as much as the last one."""
HORIZON_S: Final = 0.5
"""Time for which a node wants to hold, far from the limit; at most an eighth of the window."""
SMALL_LIMIT: Final = 16
"""Limit below which nobody holds anything: a unit that lies with one node is much of it, and asking is cheap."""
SLOW_PER_S: Final = 8
"""A node that is asked less often wants a unit now and then, and keeps it for as long as its view is fresh."""
SLOW_RATES: Final[tuple[float, ...]] = (0.25, *[quarters / 4 for quarters in range(1, 4 * SLOW_PER_S)])
"""Rates below that, in quarters: most keys have one of these, and need no number of their own, which is 24 bytes."""
BRIEF_S: Final = 0.15
"""Time from sending for which a node spends what is a considerable part of what is left; then it reports again, and
gives back what it did not need."""
SMALL: Final = 16
"""An allowance of one part in so many of what is left is no considerable part: it is kept while the view is fresh."""
MARGIN_S: Final = 0.005
"""Time before an allowance's end at which it is reported."""
TURNS: Final = 100
"""Turns in a window. What becomes free is asked for once a turn: late by up to 1% of the window."""
SHORTEST_TURN_MS: Final = 100
"""More turns are more calls: a hundred milliseconds are about fourteen a second."""
LONGEST_TURN_MS: Final = 1_000
"""However long the window: a caller who waits a second for what is free already is not served well."""


def span_ms(limit: Limit) -> int:
    """Return the window's length; of a bucket the time that its burst takes to refill."""
    if limit.algorithm is Algorithm.GCRA:
        return limit.burst * limit.window_ms // max(1, limit.requests_per_unit)
    return limit.window_ms


def turn_ms(limit: Limit) -> int:
    """Return the longest time between two reports of a key that is near its limit and asked for."""
    length_ms = min(max(span_ms(limit) // TURNS, SHORTEST_TURN_MS), LONGEST_TURN_MS)
    return min(length_ms, DENIAL_MS) if limit.refund else length_ms  # what is given back is not denied for longer


def turn_s(limit: Limit) -> float:
    """Return a turn in seconds."""
    return turn_ms(limit) / 1000


def measured(rate: float, requests: int, passed_s: float) -> float:
    """Return the rate of a key after so many requests in the time that has passed since the last measurement."""
    if not requests:
        return 0.0
    now = requests / min(passed_s, LONGEST_MEASURED_S)
    rate = now if requests >= SURE else (rate + now) / 2
    return rate if rate >= SLOW_PER_S else SLOW_RATES[int(rate * 4)]


def wanted_far(rate: float, limit: Limit) -> int:
    """Return how much to hold far from the limit, of a key that is no slow one: what comes within the horizon, and what
    chance adds to that."""
    likely = int(rate * min(HORIZON_S, span_ms(limit) / 8000))
    return likely + isqrt(likely) + 1


def wanted_near(rate: float, limit: Limit, *, short: bool) -> int:
    """Return how much to hold near the limit: half of what comes in a turn, so that little lies idle; or all of it
    where the last call brought too little, because more is asked for than there is anyway."""
    likely = rate * turn_s(limit)
    return int(likely + 0.5) if short else int(likely / 2 + 0.5)
