"""A call that was sent to a shard, and what its reply means for the keys that it was about."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from headgate.origin.operations.call import Call, Reply
from headgate.origin.protocol import PLENTY, UNBOUND, WindowAnswer
from headgate.region.counters import SharedCounter
from headgate.region.extension import ExtendedCall
from headgate.region.waiting import Question


class CallUnderWay:
    """A call that was sent, and those whom its answers are for."""

    __slots__ = (
        "call",
        "components",
        "counters",
        "extended",
        "limits",
        "moved",
        "positions",
        "questions",
        "sent_s",
        "stale",
        "unreadable",
    )

    def __init__(
        self,
        call: Call,
        extended: ExtendedCall | None,
        counters: list[SharedCounter],
        questions: list[Question],
        positions: dict[SharedCounter, int],
        sent_s: float,
    ) -> None:
        self.call = call
        self.extended = extended
        """The call with what a feature added to it; None: nothing."""
        self.counters = counters
        """Those that report, in the order of the reports."""
        self.questions = questions
        self.positions = positions
        """Positions of the counters' reports. By counter: a key that went and came back may be in one call twice."""
        self.sent_s = sent_s
        self.limits = [counter.limit for counter in counters]
        """The limits under which the counters were reported, in the order of the reports."""
        self.components = [counter.component for counter in counters]
        """The components as which they were reported."""
        self.stale: set[int] = set()
        """Positions of reports from before a reset of their keys, by the reply."""
        self.unreadable: set[int] = set()
        """Positions of reports whose records the shard could not read."""
        self.moved: set[int] = set()
        """Positions of reports whose records are elsewhere, or on their way: they are asked for again."""

    def late_questions(self) -> int:
        """Return how many of its questions nobody waits for any more."""
        return sum([question.request.decided for question in self.questions])

    def reply_of(self, result: Any) -> Reply:
        """Return the call's reply out of the result of what was sent. Raises ValueError if it is another call's."""
        reply: Reply = result if self.extended is None else self.extended.reply_of(result)
        if len(reply.answers) != len(self.counters) or len(reply.charged) != len(self.questions):
            raise ValueError("the shard answered other reports or requests than it was sent")
        return reply

    def note_reset(self, position: int, reset: int) -> None:
        """Note the reset that an answer tells of."""
        if UNBOUND < self.call.reports[position].reset < reset:
            self.stale.add(position)

    def refused(self, reply: Reply) -> Counter[SharedCounter]:
        """Return the highest cost per counter that the shard did not charge; before the questions are answered."""
        refused: Counter[SharedCounter] = Counter()
        for question, charged in zip(self.questions, reply.charged, strict=True):
            if not charged and self.moved.isdisjoint(question.places):
                for leg in question.asked:
                    refused[leg.counter] = max(refused[leg.counter], leg.charge.cost)
        return refused

    def conclude(self, reply: Reply, refused: Counter[SharedCounter], chance: Callable[[], float]) -> None:
        """Have every key that was answered be near its limit or far from it, now that its requests are decided."""
        for position, counter in enumerate(self.counters):
            answer = reply.answers[position]
            if answer.left == PLENTY and counter.pause is None and isinstance(answer, WindowAnswer):
                continue  # it is far from its limit, as it was
            if answer.more >= 0 and self.components[position] is counter.component and position not in self.stale:
                limit, report = self.limits[position], self.call.reports[position]
                counter.conclude(report, answer, limit, refused[counter], self.sent_s, chance)
