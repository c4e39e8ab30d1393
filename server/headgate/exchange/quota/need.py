"""Need: how much of a key's limit a region would use, from what it is offered.

Offered is admitted and denied cost, denials from memory too, by the measure of a sliding window. For windows under 10 s
it is that of the last 10 s: what one second brings is noise, and slices that follow noise deny what would fit.
"""

from typing import Final

from headgate.exchange.quota.shares import WHOLE

SHORTEST_SPAN_MS: Final = 10_000
"""Over which offered cost is measured at least. At 54% load slices that followed less denied 21%."""

MARGIN_PERCENT: Final = 125
"""Need is so much of what is offered: a slice of exactly the offered traffic denies each time it rises a little."""

HIGHEST_NEED: Final = 1_000 * WHOLE
"""More is not told apart: one region that is offered a thousand limits leaves the others their floors anyway."""

STEP: Final = WHOLE // 100
"""A published figure that differs by less from the last one is not sent again."""


def span_ms(window_ms: int) -> int:
    return max(window_ms, SHORTEST_SPAN_MS)


class Offered:
    """The cost that one key was offered, in two spans of time that follow each other, as two cells of a window are."""

    __slots__ = ("current", "previous", "sequence", "window_ms")

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self.sequence = 0
        self.current = 0
        self.previous = 0

    def add(self, cost: int, now_ms: int) -> None:
        self._roll(now_ms // span_ms(self.window_ms))
        self.current += cost

    def per_window(self, now_ms: int) -> int:
        """The cost offered in the last span, for as much time as a window has."""
        length_ms = span_ms(self.window_ms)
        sequence, elapsed_ms = divmod(now_ms, length_ms)
        self._roll(sequence)
        offered = self.current + self.previous * (length_ms - elapsed_ms) // length_ms
        return offered * self.window_ms // length_ms

    def _roll(self, sequence: int) -> None:
        if sequence > self.sequence:
            self.previous = self.current if sequence == self.sequence + 1 else 0
            self.sequence, self.current = sequence, 0


def need_of(offered: int, limit: int) -> int:
    """The share that a region needs which is offered so much per window."""
    return min(HIGHEST_NEED, offered * MARGIN_PERCENT * WHOLE // (100 * limit))


def is_published(need: int, used: int, own_slice: int, *, before: bool) -> bool:
    """Whether other regions are told of a need: from half of the slice on, until it is under a quarter.

    A need that is told raises the own slice, by up to half again: with one threshold it would fall under it,
    be taken back, and rise above it again, for ever.
    """
    return max(need, used) * (4 if before else 2) >= own_slice


def is_told_anew(figure: int, told: int) -> bool:
    """Whether a figure differs enough from what was last told of it to be told again."""
    return abs(figure - told) >= STEP or (figure == 0) != (told == 0)
