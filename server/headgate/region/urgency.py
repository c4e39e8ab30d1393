"""Urgency of a report to a shard: three delays, each with its reason."""

from enum import IntEnum
from typing import Final

FLUSH_SOON_S: Final = 0.025
"""Near a limit: the time for which others may not know of an admission. Shorter costs the shard calls."""
FLUSH_LATER_S: Final = 0.250
"""Far from it: a third of the calls."""
FLUSH_CALM_S: Final = 2.0
"""While next to nothing of the limit is unreported. Allowances keep counts safe whatever the delay; a flush makes them
known. With the share that counts as next to nothing (counters.py) this is the most that a node killed outright
takes with it. Well below the 5 s for which a view is fresh, so that a key in use stays fresh by its flushes."""


class Urgency(IntEnum):
    """The delay with which a counter is reported; each is a queue of its own."""

    SOON = 0
    """Half of the allowance is spent, or the shard had to be asked."""
    LATER = 1
    """Some of it is spent."""
    CALM = 2
    """Next to nothing of the limit is unreported."""


SOON: Final = Urgency.SOON
LATER: Final = Urgency.LATER
CALM: Final = Urgency.CALM
"""Names of their own, for what is done per request, as in limiter/decision.py."""

DELAYS_S: Final[tuple[float, ...]] = (FLUSH_SOON_S, FLUSH_LATER_S, FLUSH_CALM_S)
"""Delays by urgency, in seconds."""
