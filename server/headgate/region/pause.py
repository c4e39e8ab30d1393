"""A key near its limit: when its node reports it next, and what it denies until then.

Near the limit a node reports once a turn, and is given what is free. When that was less than it wants, and nothing is
left, it *pauses*: it denies from memory what its allowance does not cover. A first pause is short: mostly somebody has
too much of what is left, and gives it back. While the shortage lasts pauses double, up to a turn.
(docs/convergence.md, section 10.)

Pure: time and chance are passed in. What became free during a pause is late by up to a turn, and no more.
"""

from typing import Final

from headgate.limiter.limit import Algorithm, Limit
from headgate.region.allowance import turn_s

FIRST_PAUSE_S: Final = 0.025
"""Length of the first pause of a shortage. Shorter asks more often at the limit; longer denies what is free by then."""


class Pause:
    """One key that is near its limit, on one node."""

    __slots__ = ("_limit", "_room", "_sequence", "_shortages", "ends_s", "short")

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        """The limit under which the key was short: another one ends the pause."""
        self.ends_s = 0.0
        """End of the pause by the node's monotonic clock: no setting of a clock makes a pause longer."""
        self._room = 0
        """Units that were left when the pause began. A request that needs no more may still ask."""
        self._sequence = 0
        """The window in which the pause began: a fixed window's pause ends with it."""
        self._shortages = 0
        """Calls in a row that brought less than was asked for."""
        self.short = False
        """True if the last one did."""

    def answered(self, limit: Limit, sequence: int, left: int, refused: int, *, short: bool) -> bool:
        """Take in what a call brought: whether less than was wanted, the highest cost `refused`, and what is left.

        Returns whether the node must pause.
        """
        self.short = short
        if not short or left >= max(refused, 1):
            self._shortages = max(0, self._shortages - 1)
            return False
        self._limit, self._sequence, self._room = limit, sequence, left
        return True

    def next_report_s(self, sent_s: float, chance: float, *, pausing: bool) -> float:
        """Return when to report next, after a call that was sent then; begin the pause until that time.

        Nodes must not come again all at once: hence a chance. From sending: so what did not fit did not within the
        last turn, however long the answer took.
        """
        length_s = turn_s(self._limit)
        if pausing:
            length_s = min(length_s, FIRST_PAUSE_S * 2**self._shortages)
            self._shortages = min(self._shortages + 1, 16)
        due_s = sent_s + length_s * (1 + chance) / 2
        if pausing:
            self.ends_s = due_s
        return due_s

    def denies(self, missing: int, limit: Limit, sequence: int, now_s: float) -> bool:
        """Return whether the node must not ask for so much now."""
        if now_s >= self.ends_s or missing <= self._room or limit is not self._limit:
            return False
        return sequence == self._sequence or limit.algorithm is not Algorithm.FIXED_WINDOW

    def left_ms(self, now_s: float) -> int:
        """Return how long the pause still lasts, rounded up."""
        return max(0, -int((now_s - self.ends_s) * 1000 // 1))
