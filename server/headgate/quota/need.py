"""Need: how much of a key's limit a region would use, from what it is offered.

What is offered is measured where it is counted, in the region's origin (offered.py).
"""

from typing import Final

from headgate.limiter.shares import WHOLE

MARGIN_PERCENT: Final = 125
"""Need is so much of what is offered: a slice of exactly the offered traffic denies each time it rises a little."""

HIGHEST_NEED: Final = 1_000 * WHOLE
"""More is not told apart: one region that is offered a thousand limits leaves the others their floors anyway."""

STEP: Final = WHOLE // 100
"""A published figure that differs by less from the last one is not sent again."""


def need_of(offered: int, limit: int) -> int:
    """The share that a region needs which is offered so much per window."""
    return min(HIGHEST_NEED, offered * MARGIN_PERCENT * WHOLE // (100 * limit))


def is_published(need: int, used: int, own_slice: int, *, before: bool) -> bool:
    """Return True if others are told of a need: from half of the slice on, until it is under a quarter.

    A need that is told raises the own slice, by up to half again: with one threshold it would fall under it,
    be taken back, and rise above it again, for ever.
    """
    return max(need, used) * (4 if before else 2) >= own_slice


def is_told_anew(figure: int, told: int) -> bool:
    """Return True if a figure differs enough from what was last told of it to be told again."""
    return abs(figure - told) >= STEP or (figure == 0) != (told == 0)
