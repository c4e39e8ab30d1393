"""Lines of callers who take turns: what waits for something scarce, one line for each caller.

A caller whose turn it is takes so much of what is scarce; then it is the next one's turn. So a flood from one caller
waits for itself: what anybody else wants comes after one turn of each caller before it, at most. What a caller took
beyond its turn is missing from its next ones. A line is kept while something stands in it: there are never more lines
than things that wait.
"""

from collections import deque
from typing import Generic, TypeVar

Waiting = TypeVar("Waiting")


class Line(Generic[Waiting]):
    """The things of one caller that wait, the first first."""

    __slots__ = ("caller", "left", "waiting")

    def __init__(self, caller: str, turn: int) -> None:
        self.caller = caller
        self.left = turn
        """Part that is left of its turn; below 0: it has had more, which its next turns make up for."""
        self.waiting: deque[Waiting] = deque()


class Lines(Generic[Waiting]):
    """All that waits, and whose turn it is."""

    def __init__(self, turn: int) -> None:
        """`turn`: what a caller takes in one, in whatever is counted."""
        self.turns: deque[Line[Waiting]] = deque()
        """Lines in which something stands, the one whose turn it is first."""
        self._turn = turn
        self._lines: dict[str, Line[Waiting]] = {}

    def __len__(self) -> int:
        return sum([len(line.waiting) for line in self.turns])

    def line_of(self, caller: str) -> Line[Waiting]:
        """Return the caller's line, to put something into it at once."""
        line = self._lines.get(caller)
        if line is None:
            line = self._lines[caller] = Line(caller, self._turn)
            self.turns.append(line)
        return line

    def first(self) -> Waiting | None:
        """Return what comes next, by whose turn it is; None: nothing waits."""
        turns = self.turns
        while turns:
            line = turns[0]
            if line.left > 0:
                return line.waiting[0]
            line.left += self._turn
            turns.rotate(-1)
        return None

    def take(self, cost: int) -> None:
        """Take out what comes next, which has cost its caller so much of its turn."""
        line = self.turns[0]
        line.waiting.popleft()
        line.left -= cost
        if not line.waiting:
            self.turns.popleft()
            del self._lines[line.caller]

    def take_all(self) -> list[Waiting]:
        """Take out everything."""
        everything = [each for line in self.turns for each in line.waiting]
        self.turns.clear()
        self._lines.clear()
        return everything

    def drop_empty(self) -> None:
        """Forget the lines in which nothing stands any more, after something was taken out of them."""
        for _ in range(len(self.turns)):
            line = self.turns.popleft()
            if line.waiting:
                self.turns.append(line)
            else:
                del self._lines[line.caller]
