"""Allowances: units of a limit key that a shard has set aside, each for one run to spend without asking.

They stand beside the counts and never in them. Whoever is charged, or is given an allowance, gets what the counts
and all allowances together leave of the limit and `P`. An allowance ends in generations of shard time: sums are kept
for this generation and the one before, older ones do not count, so the cost does not grow with the number of runs, and
what a dead node held comes back. (docs/convergence.md, section 4.)
"""

from math import isqrt
from typing import Final

from headgate.origin.protocol import NOW_AND_THEN, PLENTY

GENERATION_MS: Final = 10_000
"""Longer than the 5 s from sending for which a node spends an allowance and the half second after which its report
is given up: what two generations do not count, nobody spends any more, and what was spent has been reported."""
LIVED_MS: Final = 10_000
"""Time over which the noise of a count is reckoned; of a shorter window, the window."""
EVERYBODY: Final = 64
"""Whoever reports gets one part in so many of what is free: keys that are far from their limit are reported rarely."""
NEAR: Final = 8
"""With less than so much free the limit is near, and a run that needs a unit now and then gets none: the few units of
a small limit would lie with runs that do not need them."""
SHARP: Final = 20
"""Part of the limit up to which `P` is for what is on its way: only what it has beyond that is given at the limit."""
PRESSED: Final = 2
"""Generations for which a key stays pressed, the one in which it was among them."""


def reserve(limit: int, window_ms: int) -> int:
    """Return how much of the room stays free: about the noise of what comes while an allowance lives."""
    return isqrt(2 * limit * min(window_ms, LIVED_MS) // window_ms)


class Holding:
    """Allowance of one run of a key, and the number of the last call that it made."""

    __slots__ = ("generation", "held", "number")

    def __init__(self) -> None:
        self.held = 0
        self.generation = 0
        self.number = 0


class Allowances:
    """Allowances of all runs together of one limit key."""

    __slots__ = ("generation", "pressed", "previous_sum", "sum")

    def __init__(self) -> None:
        self.generation = 0
        """Generation of shard time in which somebody last reported."""
        self.sum = 0
        """Sum of what those hold who reported in this generation."""
        self.previous_sum = 0
        """Sum of what those hold who last reported in the one before."""
        self.pressed = 0
        """Generations for which slow runs get nothing: allowances were in the way of a request that had room."""

    @property
    def held(self) -> int:
        """Sum of all that is set aside."""
        return self.sum + self.previous_sum

    def ahead(self, time_ms: int) -> bool:
        """Say if they were given by a clock that was wrong: they lie so far ahead that they would not age."""
        return self.generation > time_ms // GENERATION_MS + 1

    def keep(self, holding: Holding, rest: int, time_ms: int) -> None:
        """Take in what a run has left of its allowance: the rest of it is spent and counted, or given back."""
        self._roll(time_ms // GENERATION_MS)
        if holding.generation == self.generation:
            self.sum -= holding.held
        elif holding.generation == self.generation - 1:
            self.previous_sum -= holding.held
        holding.held, holding.generation = rest, self.generation
        self.sum += rest

    def free(self, room: int, precision: int) -> int:
        """Return how much of the room may be charged: `P` hides so much of what is set aside."""
        return min(room, room + precision - self.held)

    def press(self) -> None:
        """Note that a request had room, and allowances were in its way."""
        self.pressed = PRESSED

    def offer(
        self, holding: Holding, want: int, room: int, limit: int, kept: int, precision: int, *, within: bool
    ) -> tuple[int, int]:
        """Set more aside for a run that wants to hold `want`; return how much more, and how much is left.

        Far from the limit that is up to half of what is free beyond what is `kept` for the noise, and PLENTY is left.
        Near it, it is what there is. `within`: all allowances together stay within `P`, and nothing is noted that
        nodes of an older version could not read.
        """
        rest = holding.held
        beyond = max(min(precision, max(0, room) // 2), precision - limit // SHARP)
        far = room - kept + beyond - (self.held - rest)
        if far >= NEAR:
            left, more = PLENTY, self._goal(want, far) - rest
        else:
            free = self.free(room, precision)
            more = min(want - rest, free)
            left = max(0, free - max(0, more))
        if within:
            more = min(more, precision - self.held)
            self.pressed = 0
        # A later report of the call may have emptied the record: then nothing is known of this run.
        more = max(0, more) if holding.number else 0
        holding.held += more
        self.sum += more
        return more, left

    def _goal(self, want: int, far: int) -> int:
        """Return what a run should hold where so much is free."""
        if not want:
            return 0
        if want == NOW_AND_THEN:
            return 0 if self.pressed else max(far // EVERYBODY, 1)
        goal = min(want, -(-far // 2))
        return goal if self.pressed else max(far // EVERYBODY, goal)

    def _roll(self, generation: int) -> None:
        if generation <= self.generation:
            return
        follows = generation == self.generation + 1
        self.previous_sum = self.sum if follows else 0
        self.pressed = max(0, self.pressed - 1) if follows else 0
        self.sum = 0
        self.generation = generation
