"""Offered: the cost that a key of scope `quota` was asked for, admitted and denied, denials from memory too.

By the measure of a sliding window. For windows under 10 s it is that of the last 10 s: what one second brings is
noise, and slices that follow noise deny what would fit. The same in Lua: quota.lua.
"""

from typing import Final

from headgate.window import weighted

SHORTEST_SPAN_MS: Final = 10_000
"""Over which offered cost is measured at least. At 54% load slices that followed less denied 21%."""


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

    def in_span(self, now_ms: int) -> int:
        """The cost offered in the last span."""
        length_ms = span_ms(self.window_ms)
        sequence, elapsed_ms = divmod(now_ms, length_ms)
        self._roll(sequence)
        return self.current + weighted(self.previous, length_ms - elapsed_ms, length_ms)

    def per_window(self, now_ms: int) -> int:
        """Return the cost offered per window."""
        return self.in_span(now_ms) * self.window_ms // span_ms(self.window_ms)

    def _roll(self, sequence: int) -> None:
        if sequence > self.sequence:
            self.previous = self.current if sequence == self.sequence + 1 else 0
            self.sequence, self.current = sequence, 0
        elif sequence < self.sequence - 1:  # a clock that was wrong counted this: it would not age
            self.sequence, self.current, self.previous = sequence, 0, 0
