"""A shard's time, as far as a node can know it: bounds, against the node's monotonic clock.

The shard read its clock after the call was sent and before the answer came. So its time
is at least the answer's plus what has passed since receipt, and at most the answer's plus
what has passed since sending. Every answer narrows or corrects the bounds. The node's own wall
clock matters only until the first answer.

What disagrees with the bounds by no more than `SET_MS` is drift, slewing or a failover: then the
time that the node goes by stands still rather than go back. What disagrees by more was set, and
the node takes the new time, whatever it is. (docs/convergence.md, section 1.)
"""

from typing import Final

from headgate.clock import Clock
from headgate.heirs import mypyc_attr

SET_MS: Final = 500
"""A clock that is off by more than this was set. Drift and slewing are far below it between two
heartbeats; a shorter step is waited out, which nobody notices."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ShardClock:
    """The time of one shard, as far as a node knows it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._least_ms = 0.0
        self._most_ms = 0.0
        """Offsets to the monotonic clock, in ms."""
        self.known = False
        """True from the shard's first answer on; until then a node goes by its own clock."""
        self.steps = 0
        """Number of times that the shard's clock was found to have been set. Then time may go back."""
        self.spread_ms = 0
        """The most by which the shard's time may be ahead of `at_ms`."""
        self._now_ms = 0

    def learn(self, time_ms: int, sent_s: float, received_s: float) -> int:
        """Take in an answer's time; return by how many ms the shard's clock was set since the last one, mostly 0."""
        # The answer is in whole milliseconds, rounded down: the true time is under one more.
        least, most = time_ms - received_s * 1000, time_ms + 1 - sent_s * 1000
        set_ms = self._set_by_ms(least, most)
        if self.known and not set_ms:
            # What was known before, as far as it agrees; where the shard's clock has drifted,
            # the nearest edge of what is known now.
            least, most = max(least, min(self._least_ms, most)), min(most, max(self._most_ms, least))
        else:
            # What the node went by was not the shard's time: its own clock's, or that of a clock that was set.
            self._now_ms = 0
        self._least_ms, self._most_ms = least, most
        self.spread_ms = int(most - least) + 2
        self.known = True
        self.steps += set_ms != 0
        return set_ms

    def now_ms(self) -> int:
        """Return the least that the shard's time may be now. It goes back only when the shard's clock was set back."""
        return self.at_ms(self._clock.monotonic())

    def at_ms(self, now_s: float) -> int:
        """Return the least that the shard's time may be at `now_s` of the monotonic clock."""
        now_ms = int(now_s * 1000 + self._least_ms) if self.known else self._clock.now_ms()
        if now_ms < self._now_ms:
            return self._now_ms
        self._now_ms = now_ms
        return now_ms

    def certain(self, window_ms: int) -> bool:
        """Return whether both bounds of the shard's time lie in one window."""
        most_ms = int(self._clock.monotonic() * 1000 + self._most_ms)
        return self.known and self.now_ms() // window_ms == most_ms // window_ms

    def _set_by_ms(self, least: float, most: float) -> int:
        """Return the gap between the bounds of an answer and those known, if it is too wide for drift."""
        if not self.known:
            return 0
        gap = least - self._most_ms if least > self._most_ms else min(0.0, most - self._least_ms)
        return int(gap) if abs(gap) > SET_MS else 0
