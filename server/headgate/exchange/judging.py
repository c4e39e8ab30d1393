"""Judges what a peer says of single keys: which entries make sense, and what a peer may say how often. Pure.

A peer that is broken, or in the wrong hands, says anything. Whatever it says must stay a number that can be added up, a
window that ends, a reset that time catches up with, and a pace that leaves room for others.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from headgate.exchange.messages import Entry
from headgate.origin.exchange_protocol import ForeignCount

MOST: Final = 2**53
"""Beyond this Lua no longer counts one by one: no count is said to be more."""
MOST_COUNTED: Final = 2**44
"""The most that counts of one region in one cell: four thousand times the largest limit, so it denies as long as more
would. Five hundred regions together stay below 2^53, so no sum of them becomes unreadable."""
LONGEST_WINDOW_MS: Final = 10 * 365 * 86_400_000
WINDOW_STEP_MS: Final = 1_000
"""Windows are whole seconds, at most ten years."""
LONGEST_KEY_BYTES: Final = 64 * 1024
"""Far above what a rule's key can be: long values stand in it by their digest."""
FUTURE_MS: Final = 60_000
"""A clock may be ahead by so much, and cells one window more: what lies further ahead would never age. A reset's number
is the time at which it was made: one from further ahead would keep operators here from resetting the key."""
RESETS_AT_ONCE: Final = 5_000
RESETS_PER_S: Final = 50.0
"""Resets of one peer: as many at once as a script of its operators makes, and no more for long than these."""
RESET_AGAIN_S: Final = 10.0
"""Seconds between two resets of one key by one peer. Each makes the limit whole again, so this bounds how often."""


def makes_sense(entry: Entry, now_ms: int) -> bool:
    """Say if an honest region could have sent the entry by `now_ms`, whatever its rules are."""
    window_ms = entry.window_ms
    return (
        0 < window_ms <= LONGEST_WINDOW_MS
        and window_ms % WINDOW_STEP_MS == 0
        and 0 < len(entry.key) <= LONGEST_KEY_BYTES
        and 0 <= entry.current <= MOST
        and 0 <= entry.previous <= MOST
        and 0 <= entry.reset <= now_ms + FUTURE_MS
        and 0 <= entry.current_refunded <= entry.current
        and 0 <= entry.previous_refunded <= entry.previous
        and 0 <= entry.sequence <= (now_ms + FUTURE_MS) // window_ms + 1
    )


def cells_of(entry: Entry, key: bytes, region: bytes, name: bytes) -> Iterator[ForeignCount]:
    """The previous cell first: should the second call be lost, nothing is counted twice, and it comes again."""
    window_ms, sequence, reset = entry.window_ms, entry.sequence, entry.reset
    if entry.previous:
        previous, back = min(entry.previous, MOST_COUNTED), min(entry.previous_refunded, MOST_COUNTED)
        yield ForeignCount(key, window_ms, sequence - 1, region, previous, name, reset, back)
    if entry.current or reset:
        current, back = min(entry.current, MOST_COUNTED), min(entry.current_refunded, MOST_COUNTED)
        yield ForeignCount(key, window_ms, sequence, region, current, name, reset, back)


class ResetPace:
    """Resets that one peer may still tell of. What is too much is not taken in, and comes again."""

    def __init__(self) -> None:
        self._left = float(RESETS_AT_ONCE)
        self._since_s = 0.0
        self._taken: OrderedDict[bytes, tuple[float, int]] = OrderedDict()
        """Second at which the last reset of each key was taken, as long as that matters, and its number."""

    def take(self, key: bytes, number: int, now_s: float) -> bool:
        """Take a reset of a key; false: not yet."""
        self._left = min(RESETS_AT_ONCE, self._left + RESETS_PER_S * max(0.0, now_s - self._since_s))
        self._since_s = now_s
        while self._taken and next(iter(self._taken.values()))[0] <= now_s - RESET_AGAIN_S:
            self._taken.popitem(last=False)
        known = self._taken.get(key)
        if known is not None:
            return number <= known[1]
        if self._left < 1:
            return False
        self._left -= 1
        self._taken[key] = now_s, number
        return True
