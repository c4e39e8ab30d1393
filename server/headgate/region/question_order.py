"""The order in which a node's questions go to a shard: callers take turns.

Each caller's questions stand in a line of their own, and a caller whose turn it is asks for so many keys; then it is
the next one's. So a flood of new keys from one address waits for itself: what anybody else asks goes with the next
call, or as many calls later as there are callers. What a question took beyond its turn is missing from the caller's
next ones. A line is kept while something stands in it: there are never more than questions that wait.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from headgate.region.waiting import Question

TURN_KEYS: Final = 8
"""Keys that a caller asks for in one turn: eight callers have one in every full call."""


class Line:
    """The questions of one caller that wait, the first first."""

    __slots__ = ("caller", "left", "questions")

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.left = TURN_KEYS
        """Keys that are left of its turn; below 0: it has had more, which its next turns make up for."""
        self.questions: deque[Question] = deque()


class QuestionOrder:
    """All questions that wait for one shard."""

    def __init__(self) -> None:
        self.turns: deque[Line] = deque()
        """Lines in which something stands, the one whose turn it is first."""
        self._lines: dict[str, Line] = {}

    def __len__(self) -> int:
        return sum([len(line.questions) for line in self.turns])

    def add(self, question: Question) -> None:
        """Put a question at the end of its caller's line."""
        self._line(question).questions.append(question)

    def put_back(self, questions: Iterable[Question]) -> None:
        """Put questions that were sent in vain before all others of their callers, in the same order."""
        for question in reversed(list(questions)):
            self._line(question).questions.appendleft(question)

    def _line(self, question: Question) -> Line:
        caller = question.request.caller
        line = self._lines.get(caller)
        if line is None:
            line = self._lines[caller] = Line(caller)
            self.turns.append(line)
        return line

    def first(self) -> Question | None:
        """Return the question whose turn it is; None: nobody waits."""
        turns = self.turns
        while turns:
            line = turns[0]
            if line.left > 0:
                return line.questions[0]
            line.left += TURN_KEYS
            turns.rotate(-1)
        return None

    def take(self) -> None:
        """Take out the first question: it is sent, or nobody waits for it any more and it asks for nothing."""
        line = self.turns[0]
        line.left -= len(line.questions.popleft().asked)
        if not line.questions:
            self.turns.popleft()
            del self._lines[line.caller]

    def take_all(self) -> list[Question]:
        """Take out all questions."""
        questions = [question for line in self.turns for question in line.questions]
        self.turns.clear()
        self._lines.clear()
        return questions

    def drop_empty(self) -> None:
        """Forget the lines in which nothing stands any more, after some of their questions were decided."""
        for _ in range(len(self.turns)):
            line = self.turns.popleft()
            if line.questions:
                self.turns.append(line)
            else:
                del self._lines[line.caller]
