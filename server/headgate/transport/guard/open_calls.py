"""Calls under way: bounded over all connections, and in the time that each of their phases may last. Pure.

There are two bounds. Of calls that are open there are only so many, whatever they wait for; for another one there is no
place. And of those that were asked and have no answer yet so many are in the front that it always has enough to do, and
others wait for a short while only: further calls stay with their callers until some were answered. Who has less than an
equal share of either need not care how many others there are.
"""

from collections import Counter
from collections.abc import Callable

SILENT, ASKED, BEGUN, TOLD = range(4)
"""States of a call: its headers came alone; a part of its message, or its end; a part of its answer; whole messages."""

FRONT_CALLS = 128
"""Calls in the front at once, of all connections together: some 20 us each, for which others may wait."""
PLACES_AT_ONCE = 8
"""Places that a connection takes in one go: so most calls need not ask."""


class Places:
    """Places for calls, of all connections together: equal shares for addresses, and for connections."""

    def __init__(self, max_places: int, pending: Callable[[], int] = lambda: 0) -> None:
        """`pending` gives the number of calls that have left the front and wait for their decisions."""
        self.max_places = max_places
        self._pending = pending
        self.asked = 0
        """Calls that were asked, and have no answer yet."""
        self._asked: Counter[str] = Counter()
        self.taken = 0
        self.most_taken = 0
        """Most that were taken at once, until whoever asks sets it back."""
        self.refused = 0
        """Calls for which there was none."""
        self._connections: Counter[str] = Counter()
        """Connections of each address that has one."""
        self._taken: Counter[str] = Counter()
        """Places that they have taken."""

    def join(self, address: str) -> None:
        """Count a connection of this address among those that share the places."""
        self._connections[address] += 1

    def leave(self, address: str) -> None:
        """Stop counting it. It has given its places back."""
        self._connections[address] -= 1
        if not self._connections[address]:
            del self._connections[address], self._taken[address], self._asked[address]

    def take(self, address: str, own: int) -> int:
        """Take some for a connection that has `own`: 0 where there are none, and it has its share of what there is."""
        if self.taken + PLACES_AT_ONCE <= self.max_places:
            places = PLACES_AT_ONCE
        elif self.taken < self.max_places or self._has_less_than_a_share(address, own):
            places = 1
        else:
            self.refused += 1
            return 0
        self.taken += places
        self._taken[address] += places
        self.most_taken = max(self.most_taken, self.taken)
        return places

    def _has_less_than_a_share(self, address: str, own: int) -> bool:
        """Say that the connection has less than its part of all, or that all of its address together have less."""
        shares = self._connections
        return own < self.max_places // shares.total() or self._taken[address] < self.max_places // len(shares)

    # In the front

    def count(self, address: str, calls: int) -> None:
        """Count so many more calls as asked."""
        self.asked += calls
        self._asked[address] += calls

    def room(self, address: str) -> int:
        """Return how many calls of this address may go to the front now."""
        room = FRONT_CALLS - self.asked
        if room <= 0:
            room = max(room + self._pending(), FRONT_CALLS // len(self._connections) - self._asked[address])
        return room

    # Places

    def give(self, address: str, places: int) -> None:
        """Give places back."""
        self.taken -= places
        self._taken[address] -= places


class OpenCalls:
    """One connection's calls."""

    __slots__ = ("_address", "_all", "_counted", "_hanging", "places", "states")

    def __init__(self, places: Places, address: str = "") -> None:
        self.states: dict[int, int] = {}
        """State of each, by stream."""
        self.places = 0
        """Calls that this connection has places for."""
        self._address = address
        self._all = places
        self._counted = 0
        """Calls that are counted with all others."""
        self._hanging: dict[int, tuple[int, float]] = {}
        """State of those that were in one that must not last, and the tick (its time) since which they are."""
        places.join(address)

    @property
    def room(self) -> int:
        """Number of calls that may go to the front now."""
        return self._all.room(self._address)

    def count(self, refused: int) -> None:
        """Count those that have no answer by now with all others', and so many that have no place."""
        change = list(self.states.values()).count(ASKED) + refused - self._counted
        if change:
            self._counted += change
            self._all.count(self._address, change)

    def has_place(self) -> bool:
        """Say whether there is a place for one more, having taken some if need be."""
        if len(self.states) >= self.places:
            self.places += self._all.take(self._address, self.places)
        return len(self.states) < self.places

    def late(self, now: float, timeout_s: float) -> list[int]:
        """Return those that did not get on: nothing follows their headers, or their answer is not taken.

        Once per tick. Places that are not needed are given back.
        """
        known = self._hanging
        self._hanging = {
            stream: known[stream] if stream in known and known[stream][0] == state else (state, now)
            for stream, state in self.states.items()
            if state in (SILENT, BEGUN)
        }
        self._give_back(self.places - len(self.states))
        return [stream for stream, (_, since) in self._hanging.items() if now - since > timeout_s]

    def close(self) -> None:
        """Give all places back, once: the connection has ended."""
        self._give_back(self.places)
        self.states.clear()
        self.count(0)
        self._all.leave(self._address)

    def _give_back(self, places: int) -> None:
        self.places -= places
        self._all.give(self._address, places)
