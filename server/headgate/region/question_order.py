"""The order in which a node's questions go to a shard: callers take turns (lines.py), of so many keys each.

A flood of new keys from one address waits for itself: what anybody else asks goes with the next call, or as many calls
later as there are callers.
"""

from collections.abc import Iterable
from typing import Final

from headgate.lines import Lines
from headgate.region.waiting import Question

TURN_KEYS: Final = 8
"""Keys that a caller asks for in one turn: eight callers have one in every full call."""


class QuestionOrder(Lines[Question]):
    """All questions that wait for one shard."""

    def __init__(self) -> None:
        super().__init__(TURN_KEYS)

    def add(self, question: Question) -> None:
        """Put a question at the end of its caller's line."""
        self.line_of(question.request.caller).waiting.append(question)

    def put_back(self, questions: Iterable[Question]) -> None:
        """Put questions that were sent in vain before all others of their callers, in the same order."""
        for question in reversed(list(questions)):
            self.line_of(question.request.caller).waiting.appendleft(question)
