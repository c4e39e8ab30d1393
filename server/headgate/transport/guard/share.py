"""The loop's time, and each connection's share of it: counted in steps, so that no clock and no machine decides.

Calls in their usual form (one HEADERS, one DATA) take no step, but one for each eight places that have to be asked for.
Whatever else a connection has done for it does: a frame of any other kind, a message's beginning, a part of gzip, a
read that completes no frame. A step is some ten microseconds of the loop. Each connection pays its steps from an
account, which answered calls and time fill again, so who calls is never short of them; who only costs is not read for
as long as its account is empty, and cut off if that lasts. Going on after a wait takes a step of the turn, and of no
account.
"""

from collections import Counter, deque
from collections.abc import Callable

TURN_STEPS = 64
"""Steps of all connections together in one turn of the loop: about a millisecond at most, for which a call may have to
wait."""
SLICE_STEPS = 32
"""Steps of one connection in one turn. The rest is for its next turns, and it is not read before."""
LEAST_STEPS = 4
"""Steps that the connections of one address may take in a turn whatever others took: what goes along with an honest
call."""

FIRST_STEPS = 100
"""An account's beginning: some clients send the headers of all their first calls before any message, a step each. Who
connects again and again gets it each time."""
MAX_STEPS = 500
"""Most that an account can hold, or who saved for a while could stop the loop with it."""
STEPS_PER_TICK = 10
"""Steps that come with time: pings and windows of who does not call. Of a thousand connections, a fifth of the loop."""
STEPS_PER_ANSWER = 8
"""Steps that come with each answer: who makes his calls in the most costly form costs twice as much as others."""
LOOKED_S = 0.005
"""Time between looks of those who wait for room in the front: calls leave it with their answers, but for those whose
decisions come later."""
LOOKED_AT_ONCE = 32
"""Connections of those that look in one turn of the loop, each for a few microseconds: the others are next. So many
calls of one address wait for each other, and for longer the more they are."""
SLOWED_TICKS = 10
"""Ticks in a row at which an account is found empty: then the connection ends."""


class Turns:
    """Turns of the loop, and who stands in line for the next ones, or waits for room in the front.

    Only turns with steps in them are counted.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """`call_soon` has a function called in the loop's next turn, `call_later` after so many seconds."""
        self.number = 0
        self.left = TURN_STEPS
        """Steps that this turn has left for all."""
        self.taken: Counter[str] = Counter()
        """Steps that the connections of each address took in this turn."""
        self.slowed = 0
        """Times that a connection was slowed."""
        self._call_soon = call_soon
        self._call_later = call_later
        self._waiting: deque[Callable[[], None]] = deque()
        self._looks = False
        self._line: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def take(self, steps: int) -> None:
        """Count steps that were taken in this turn."""
        self.left -= steps
        self._schedule()

    def stand_in_line(self, go_on: Callable[[], None]) -> None:
        """Have it called in one of the next turns, after those who came before."""
        self._line.append(go_on)
        self._schedule()

    def wait(self, look_again: Callable[[], None]) -> None:
        """Have it called when there may be room in the front, after those who came before."""
        self._waiting.append(look_again)
        if not self._looks:
            self._looks = True
            self._call_later(LOOKED_S, self._wake_some)

    def wake(self) -> None:
        """Let the first who waits for room look again: calls have left the front."""
        if self._waiting:
            self._waiting.popleft()()

    def _wake_some(self) -> None:
        # Who finds none waits again, behind the others.
        for _ in range(min(len(self._waiting), LOOKED_AT_ONCE)):
            self.wake()
        self._looks = bool(self._waiting)
        if self._looks:
            self._call_later(LOOKED_S, self._wake_some)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._begin)

    def _begin(self) -> None:
        self._scheduled = False
        self.number += 1
        self.left = TURN_STEPS
        self.taken.clear()
        # Who stands in line again meanwhile is for the next turn.
        for _ in range(len(self._line)):
            if self.left <= 0:
                break
            # Whatever comes of it: there may be no room in the front any more.
            self.left -= 1
            self._line.popleft()()
        if self._line:
            self._schedule()


class Account:
    """The steps that one connection may take, now and over time."""

    __slots__ = ("_address", "_earned", "_most", "_number", "_slowed_ticks", "_taken", "_turns", "steps")

    def __init__(self, turns: Turns, address: str = "", first: int = FIRST_STEPS, most: int = MAX_STEPS) -> None:
        self.steps = first
        """Steps that may still be taken. Below 0 by what the last one cost more than was there."""
        self._address = address
        self._most = most
        self._turns = turns
        self._number = -1
        self._taken = 0
        """Steps in turn `_number`."""
        self._slowed_ticks = 0
        self._earned = False
        """A call was answered since the last tick."""

    @property
    def is_empty(self) -> bool:
        return self.steps <= 0

    @property
    def may_go_on(self) -> bool:
        """In this turn: it has steps, and neither it nor all together have taken too many."""
        if self.steps <= 0:
            return False
        turns = self._turns
        if turns.taken[self._address] < LEAST_STEPS:
            return True
        return turns.left > 0 and (self._number != turns.number or self._taken < SLICE_STEPS)

    def charge(self, steps: int) -> None:
        """Pay for steps that were taken."""
        turns = self._turns
        if self._number != turns.number:
            self._number, self._taken = turns.number, 0
        self._taken += steps
        self.steps -= steps
        turns.taken[self._address] += steps
        turns.take(steps)

    def earn(self, answers: int) -> None:
        """Add what comes with so many answered calls."""
        self.steps = min(self.steps + answers * STEPS_PER_ANSWER, self._most)
        self._earned = True

    def tick(self, slowed: bool) -> bool:
        """Add what comes with time. False if the connection, which is `slowed` or not, was so for too long.

        Whose calls are answered takes what they earn, and no more: that may last.
        """
        self._slowed_ticks = self._slowed_ticks + 1 if slowed and not self._earned else 0
        self._earned = False
        self.steps = min(self.steps + STEPS_PER_TICK, self._most)
        return self._slowed_ticks < SLOWED_TICKS


def unbounded(turns: Turns) -> Account:
    """Make the account of a caller who is trusted by its address: it is never empty."""
    return Account(turns, first=2**62, most=2**62)
