"""Costs that are known later, on a node of a region: in its total at once, whatever the shard does."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from headgate.limiter.decision import Charge, Decision, DecisionPath
from headgate.limiter.limit import Algorithm, Limit, OnError, Unit
from headgate.origin.protocol import BucketAnswer, Count, WindowAnswer
from headgate.region.counters import SharedCounter
from headgate.region.engine import RegionalEngine
from headgate.region.pause import Pause
from headgate.region.waiting import WaitingRequest
from headgate.region.window_counter import MOST_LATE, SharedWindow

from tests.unit.region.support import NOTHING, NOW_MS, SEQUENCE, QuietShard, QuietShards, handed_on

ALGORITHMS = (Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW)


@functools.cache
def tokens(on_error: OnError = OnError.LOCAL, *, algorithm: Algorithm = Algorithm.SLIDING_WINDOW) -> Limit:
    return Limit(1000, Unit.MINUTE, on_error=on_error, overdraft=True, algorithm=algorithm)


BUCKET = Limit(60, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=10, overdraft=True)
PLAIN = Limit(10, Unit.MINUTE, precision_millionths=500_000)


class Node(QuietShards):
    """Implements the engine's `Region`: one shard that answers what the test says."""

    run = b"run"
    live_nodes = 1

    def __init__(self, max_cells: int = 100) -> None:
        self.shard = QuietShard()
        self.engine = RegionalEngine(self, monotonic=lambda: 0.0, max_cells=max_cells)

    def shard_of(self, key: bytes) -> QuietShard:
        return self.shard

    def earliest_ms(self) -> int:
        return self.shard.time_ms

    def decide(self, *charges: Charge) -> Decision | WaitingRequest:
        return self.engine.decide(charges)

    def late(self, cost: int, limit: Limit, key: bytes = b"k") -> Decision:
        decision = self.decide(Charge(key, limit, cost))
        assert isinstance(decision, Decision), "a late cost waits for nobody"
        return decision

    def counter(self, key: bytes = b"k") -> Any:
        return self.engine.counters.find(key)

    def warm(self, limit: Limit, used: int = 0, more: int = 50, key: bytes = b"k") -> SharedCounter:
        """The key is known, fresh, and others have used so much."""
        counter = self.engine._counter(Charge(key, limit, 0), 0.0)
        assert counter is not None
        counter.sent(1, 0, False, 0.0)
        answer: Any = WindowAnswer(SEQUENCE, Count(0, used, 0), NOTHING, more)
        if limit.algorithm is Algorithm.GCRA:
            answer = BucketAnswer(0, NOW_MS + used * 1000, 0, more)
        counter.answered(answer, limit, 5.0, 0.0)
        return counter


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_is_in_the_total_at_once_and_will_be_reported(node: Node, algorithm: Algorithm) -> None:
    """The node knows nothing of the key, and the limit is far below the cost."""
    decision = node.late(5000, tokens(algorithm=algorithm))
    assert (decision.admitted, decision.verdicts[0][:2]) == (False, (True, 0))
    counter = node.counter()
    assert (counter.current_cell.total, counter.unacked) == (5000, 5000)
    assert node.shard.flushed
    assert set(node.shard.flushed) == {b"k"}
    report = counter.report(2, 0, 0, False, 0.0)
    assert report.cells[0].total == 5000
    assert node.shard.questions == []


def test_it_needs_no_allowance_and_takes_what_there_is(node: Node) -> None:
    """What it took is not spent again: the shard has set no more aside."""
    counter = node.warm(tokens(), used=100, more=50)
    assert node.late(600, tokens()).verdicts[0][:2] == (False, 300)
    assert (counter.unacked, counter.allowance) == (600, 0)


def test_one_that_is_answered_is_not_charged_twice(node: Node) -> None:
    counter = node.warm(tokens())
    node.late(1200, tokens())
    counter.sent(2, 0, False, 0.0)
    counter.answered(WindowAnswer(SEQUENCE, Count(1200, 1200, 0), NOTHING, 0), counter.limit, 5.0, 0.0)
    assert (counter.unacked, node.counter().current) == (0, 1200)


def test_credit_pays_for_it_first(node: Node) -> None:
    counter = node.warm(tokens())
    counter.sent(2, 0, False, 0.0)
    counter.answered(WindowAnswer(SEQUENCE, Count(30, 30, 0), NOTHING, 0), counter.limit, 5.0, 0.0)
    node.late(100, tokens())
    assert (counter.unacked, counter.credit, node.counter().current) == (70, 0, 100)


@pytest.mark.parametrize("more", [50, 0], ids=["with an allowance", "without"])
def test_a_look_far_from_the_limit_needs_nobody_and_charges_nothing(node: Node, more: int) -> None:
    counter = node.warm(tokens(), used=100, more=more)
    decision = node.decide(Charge(b"k", tokens(), 0))
    assert isinstance(decision, Decision)
    assert (decision.admitted, decision.path, decision.verdicts[0][:2]) == (True, DecisionPath.LOCAL, (False, 900))
    assert counter.unacked == 0


@pytest.mark.parametrize(("spent", "more"), [(50, 50), (0, 0)], ids=["the allowance is spent", "no allowance"])
def test_near_the_limit_a_look_asks_where_a_cost_of_one_would(node: Node, spent: int, more: int) -> None:
    node.warm(tokens(), used=100, more=more).pause = Pause(tokens())
    if spent:
        node.late(spent, tokens())
    waiting = node.decide(Charge(b"k", tokens(), 0))
    assert isinstance(waiting, WaitingRequest)
    assert [leg.takes for leg in node.shard.questions[0].asked] == [False]
    decisions: list[Decision] = []
    waiting.on_decided = decisions.append
    (question,) = node.shard.questions
    question.places = [0]
    handed_on(question.answered(True, [WindowAnswer(SEQUENCE, Count(spent, 100 + spent, 0), NOTHING, 0)], 0.0))
    assert [decision.admitted for decision in decisions] == [True]
    assert node.counter().reserved == 0
    assert node.counter().current_cell.total == spent


def test_a_look_asks_when_what_is_known_is_not_new(node: Node) -> None:
    node.warm(tokens(), used=100).usable_until_s = 0.0
    assert isinstance(node.decide(Charge(b"k", tokens(), 0)), WaitingRequest)


def test_a_look_when_all_is_used_is_denied_from_what_is_known(node: Node) -> None:
    node.warm(tokens(), used=1000)
    decision = node.decide(Charge(b"k", tokens(), 0))
    assert isinstance(decision, Decision)
    assert (decision.admitted, decision.verdicts[0][:2]) == (False, (True, 0))
    again = node.decide(Charge(b"k", tokens(), 0))
    assert isinstance(again, Decision)
    assert again.path is DecisionPath.DENY_CACHE


@pytest.mark.parametrize(
    ("on_error", "admitted"), [(OnError.LOCAL, True), (OnError.OPEN, True), (OnError.CLOSED, False)]
)
def test_without_the_shard_looks_go_by_policy_and_late_costs_by_what_is_known(
    node: Node, on_error: OnError, admitted: bool
) -> None:
    limit = tokens(on_error)
    node.shard.available = False
    assert node.late(999, limit).admitted, "it fits by what is known, whatever the policy is"
    look = node.decide(Charge(b"k", limit, 0))
    assert isinstance(look, Decision)
    assert look.admitted is admitted
    assert node.counter().current_cell.total == 999
    node.late(1, limit)
    look = node.decide(Charge(b"k", limit, 0))
    assert isinstance(look, Decision)
    assert not look.admitted, "its own costs alone are the limit"


def test_a_mixed_request_that_waits_has_charged_what_is_late(node: Node) -> None:
    waiting = node.decide(Charge(b"k", tokens(), 70), Charge(b"p", PLAIN, 2))
    assert isinstance(waiting, WaitingRequest)
    assert node.counter().current_cell.total == 70
    decisions: list[Decision] = []
    waiting.on_decided = decisions.append
    (question,) = node.shard.questions
    assert [leg.charge.key for leg in question.asked] == [b"p"]
    full = WindowAnswer(SEQUENCE, Count(0, 10, 0), NOTHING, 0)
    node.counter(b"p").learn(full)
    question.places = [0]
    handed_on(question.answered(False, [full], 0.0))
    assert [decision.admitted for decision in decisions] == [False]
    assert node.counter().current_cell.total == 70
    assert node.counter(b"p").current_cell.total == 0


def test_a_late_cost_that_does_not_fit_denies_the_rest_at_once(node: Node) -> None:
    decision = node.decide(Charge(b"p", PLAIN, 2), Charge(b"k", tokens(), 1001))
    assert isinstance(decision, Decision)
    assert not decision.admitted
    assert node.shard.questions == []
    assert (node.counter(b"p").current_cell.total, node.counter().current_cell.total) == (0, 1001)


def test_it_counts_while_no_key_has_room(node: Node) -> None:
    """The table is full of what is not acknowledged: late costs of new keys share one count, and are never admitted
    without end.
    """
    small = Node(max_cells=1)
    small.late(1, tokens(), b"a")
    assert small.late(600, tokens(), b"b").admitted
    assert not small.late(600, tokens(), b"c").admitted
    look = small.decide(Charge(b"d", tokens(), 0))
    assert isinstance(look, Decision)
    assert not look.admitted
    assert small.counter(b"a").current_cell.total == 1
    small.decide(Charge(b"a", tokens(), 7), Charge(b"e", tokens(), 1))
    assert small.counter(b"a").current_cell.total == 8, "what has a counter is charged there, whatever the others have"


def test_what_is_kept_of_late_costs_is_bounded(node: Node) -> None:
    for _ in range(3):
        node.late(2**32 - 1, tokens())
    counter = node.counter()
    assert isinstance(counter, SharedWindow)
    counter.current_cell.total = MOST_LATE - 1
    node.late(2**32 - 1, tokens())
    assert counter.current_cell.total == MOST_LATE


def test_a_bucket_owes_a_window_at_most_and_says_so_to_the_shard(node: Node) -> None:
    counter = node.warm(BUCKET, used=4)
    assert node.late(100, BUCKET).verdicts == [(True, 0, 61_000)]
    report: Any = counter.sent(2, 0, False, 0.0)
    assert (report.total, report.debt) == (66, 60)
    assert node.late(100, BUCKET).verdicts == [(True, 0, 61_000)]
    assert report.total == counter.total  # type: ignore[attr-defined]
    # Others filled it meanwhile: the node does not take that for a clock that was set.
    counter.answered(BucketAnswer(0, NOW_MS + 70_000, 0, 0), BUCKET, 5.0, 0.0)
    component = counter.component
    assert counter.advance(NOW_MS) == NOW_MS
    assert (counter.component, counter.unacked) == (component, 66)


@pytest.mark.parametrize("order", [lambda charges: charges, lambda charges: charges[::-1]], ids=["first", "last"])
def test_the_shard_is_asked_for_looks_and_costs_of_one_request_together(
    node: Node, order: Callable[[list[Charge]], list[Charge]]
) -> None:
    waiting = node.decide(*order([Charge(b"k", tokens(), 0), Charge(b"p", PLAIN, 2)]))
    assert isinstance(waiting, WaitingRequest)
    (question,) = node.shard.questions
    assert sorted((leg.charge.key, leg.takes) for leg in question.asked) == [(b"k", False), (b"p", True)]
    handed_on(question.unanswered(0.0))
    assert waiting.decided
