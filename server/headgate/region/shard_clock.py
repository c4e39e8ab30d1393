"""A shard's time, as far as a node can know it: bounds, against the node's monotonic clock.

The shard read its clock after the call was sent and before the answer came. So its time
is at least the answer's plus what has passed since receipt, and at most the answer's plus
what has passed since sending. Every answer narrows or corrects the bounds; what the node
takes for the time never goes back. The node's own wall clock matters only until the first
answer.
"""

from headgate.clock import Clock


class ShardClock:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._least_ms = 0.0
        self._most_ms = 0.0
        """Offsets to the monotonic clock, in ms."""
        self.known = False
        """Whether there was an answer yet."""
        self._now_ms = 0

    def learn(self, time_ms: int, sent_s: float, received_s: float) -> None:
        # The answer is in whole milliseconds, rounded down: the true time is under one more.
        least, most = time_ms - received_s * 1000, time_ms + 1 - sent_s * 1000
        if self.known:
            # What was known before, as far as it agrees; where the shard's clock has drifted or
            # was set, the nearest edge of what is known now.
            least, most = max(least, min(self._least_ms, most)), min(most, max(self._most_ms, least))
        else:
            # This node's own clock may have been far ahead: what it said was never the shard's time.
            self._now_ms = 0
        self._least_ms, self._most_ms = least, most
        self.known = True

    def now_ms(self) -> int:
        now_ms = int(self._clock.monotonic() * 1000 + self._least_ms) if self.known else self._clock.now_ms()
        self._now_ms = max(self._now_ms, now_ms)
        return self._now_ms

    def certain(self, window_ms: int) -> bool:
        """Whether both bounds lie in one window."""
        most_ms = int(self._clock.monotonic() * 1000 + self._most_ms)
        return self.known and self.now_ms() // window_ms == most_ms // window_ms
