"""A request of one charge that waits in one object comes to what it would as any other request that waits."""

from typing import Any

import pytest
from headgate.limiter.decision import Charge, Decision
from headgate.limiter.limit import Algorithm, Limit, OnError, Unit
from headgate.origin.protocol import BucketAnswer, Count, WindowAnswer
from headgate.region.alone import Alone
from headgate.region.counters import SharedCounter
from headgate.region.engine import RegionalEngine
from headgate.region.outcomes import COLD, NEAR
from headgate.region.waiting import Leg, Question, Waiting
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.region.support import NOTHING, NOW_MS, SEQUENCE, OneShard

KEY = b"k"
LIMIT = 10


class Side:
    """One of the two ways to wait: which counter it is about, what was decided, and what there is to be seen of it."""

    def __init__(self, charge: Charge, outcome: int, available: bool, *, alone: bool) -> None:
        self.region = OneShard()
        self.region.shard.available = available
        self.now_s = 1.0
        self.engine = RegionalEngine(self.region, monotonic=lambda: self.now_s, max_cells=10)
        counter = self.engine._counter(charge)
        assert counter is not None
        self.counter: SharedCounter = counter
        self.waiting: Alone | Waiting
        if alone:
            self.waiting = Alone(self.engine._asking, charge, counter, outcome, self.now_s)
        else:
            self.waiting = Waiting(self.engine._asking, (Leg(charge, counter, outcome),), self.now_s)
        decision = self.waiting.begin()
        self.decisions: list[Decision] = [] if decision is None else [decision]
        self.waiting.on_decided = self.decisions.append

    @property
    def question(self) -> Question | Alone:
        (question,) = self.region.shard.questions
        assert isinstance(question, Question | Alone)
        return question

    def happens(self, event: str, cost: int, later_ms: int) -> None:
        self.now_s += later_ms / 1000
        self.region.shard.time_ms += later_ms
        if event == "late":
            if not self.waiting.decided:  # as deadlines look at it
                self.waiting.time_is_up()
        elif event == "fails":
            self.question.fail()
        elif event == "looks again":
            if not self.waiting.decided:
                self.looked = self.question.look_again()
        elif event == "credit":
            self.counter.learn(self._answer(cost, cost))
        else:
            answer = self._answer(cost if event == "charged" else 0, LIMIT if event == "denied" else cost)
            self.counter.learn(answer)
            self.question.answer(event == "charged", [answer])

    def _answer(self, own: int, total: int) -> Any:
        if self.counter.limit.algorithm is Algorithm.GCRA:
            return BucketAnswer(own, NOW_MS + 6_000 * total, 0, 0)
        return WindowAnswer(SEQUENCE, Count(own, total, 0), NOTHING, 0)

    def seen(self) -> tuple[Any, ...]:
        """All that a request may change."""
        counter, stats = self.counter, self.engine.stats
        counts = (counter.credit, counter.unacked, counter.reserved, counter.own_admitted, counter.pins)
        denied = (counter.deny_until_ms, counter.deny_cost)
        told = (self.region.shard.flushed, self.region.shard.late_questions)
        waits = (stats.asked, stats.deadline_missed, stats.degraded, stats.waits, round(stats.waits_sum_s, 6))
        return self.decisions, self.waiting.decided, counts, denied, told, waits, counter.load(NOW_MS)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["charged", "denied", "refused", "fails", "late", "looks again", "credit"]),
        st.sampled_from([0, 1, 2_000, 61_000]),
    ),
    max_size=4,
)
LIMITS = st.builds(
    lambda algorithm, on_error, quota: Limit(
        LIMIT,
        Unit.MINUTE,
        algorithm=algorithm,
        burst=LIMIT if algorithm is Algorithm.GCRA else 0,
        on_error=on_error,
        quota=quota,
    ),
    st.sampled_from(Algorithm),
    st.sampled_from(OnError),
    st.booleans(),
)


@given(
    limit=LIMITS,
    cost=st.sampled_from([1, 3, LIMIT]),
    shadow=st.booleans(),
    outcome=st.sampled_from([COLD, NEAR]),
    available=st.sampled_from([True, True, True, False]),
    events=EVENTS,
)
def test_whatever_becomes_of_it_it_is_the_same(
    limit: Limit, cost: int, shadow: bool, outcome: int, available: bool, events: list[tuple[str, int]]
) -> None:
    charge = Charge(KEY, limit, cost, shadow=shadow)
    sides = [Side(charge, outcome, available, alone=alone) for alone in (True, False)]
    assert sides[0].seen() == sides[1].seen()
    for event, later_ms in events if available else ():
        for side in sides:
            side.happens(event, cost, later_ms)
        assert sides[0].seen() == sides[1].seen(), event


@pytest.mark.parametrize("event", ["charged", "denied", "fails", "late"])
def test_it_is_decided_once(event: str) -> None:
    side = Side(Charge(KEY, Limit(LIMIT, Unit.MINUTE), 1), COLD, True, alone=True)
    for _ in range(2):
        side.happens(event, 1, 0)
    assert len(side.decisions) == 1
    assert side.counter.pins == 0
