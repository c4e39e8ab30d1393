"""Refunds on nodes of a region: demanded by one, given by the shard, seen by all, once."""

import dataclasses
import math
from typing import Any

import pytest
from headgate.limiter.decision import Charge, Decision, DecisionPath
from headgate.limiter.limit import Algorithm, Limit, OnError, Unit
from headgate.origin.memory import MemoryOrigin
from headgate.origin.operations.call import Call
from headgate.origin.protocol import BucketAnswer
from headgate.region.allowance import turn_s
from headgate.region.engine import RegionalEngine
from headgate.region.refunds import DENIAL_MS, GATHERED_S, GIVEN_UP_MS, MOST_DEMANDED, TOGETHER_S, TOLD_AFTER_S, Refunds
from headgate.region.waiting import WaitingRequest

from tests.support.clock import ManualClock
from tests.unit.region.support import NOW_MS, WINDOW_MS, QuietShard, QuietShards, handed_on

LIMIT = Limit(100, Unit.MINUTE, refund=True)
FIXED = Limit(100, Unit.MINUTE, algorithm=Algorithm.FIXED_WINDOW, refund=True)
BUCKET = Limit(60, Unit.MINUTE, algorithm=Algorithm.GCRA, burst=10, refund=True)
CLOSED = Limit(100, Unit.MINUTE, on_error=OnError.CLOSED, refund=True)
OPEN = Limit(100, Unit.MINUTE, on_error=OnError.OPEN, refund=True)


class Region:
    """A shard that answers when the test says so, and what has been given back there."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW_MS)
        self.origin = MemoryOrigin(self.clock)


class Node(QuietShards):
    """Implements the engine's `Region`."""

    live_nodes = 2

    def __init__(self, region: Region, name: str) -> None:
        self.run = name.encode()
        self.region = region
        self.shard = QuietShard()
        self.now_s = 100.0
        self._number = 0
        self.engine = RegionalEngine(self, monotonic=lambda: self.now_s, max_cells=100)

    def shard_of(self, key: bytes) -> QuietShard:
        return self.shard

    def earliest_ms(self) -> int:
        return self.shard.time_ms

    def pass_ms(self, ms: int) -> None:
        self.shard.time_ms += ms
        self.region.clock.advance(ms)
        self.now_s += ms / 1000

    def take(self, cost: int, limit: Limit = LIMIT) -> Decision | WaitingRequest:
        return self.engine.decide((Charge(b"k", limit, cost),))

    def back(self, cost: int, limit: Limit = LIMIT) -> Decision:
        """Give it back, and let that wait until the shard may be told."""
        decision = self.engine.decide((Charge(b"k", limit, cost, refund=True),))
        assert isinstance(decision, Decision), "a refund waits for nobody"
        self.now_s += TOLD_AFTER_S
        return decision

    @property
    def counter(self) -> Any:
        return self.engine.counters.find(b"k")

    def call(self, *, lost: bool = False, wants: int = 0, limit: Limit = LIMIT) -> bool:
        """One call with the key's report; whether what was wanted was charged."""
        if self.counter is None:
            assert self.engine._counter(Charge(b"k", limit, 1), self.now_s) is not None
        counter = self.counter
        counter.advance(self.shard.time_ms)
        self._number += 1
        report = counter.sent(self._number, wants, leaving=False, now_s=self.now_s)
        requests = (((0, wants),),) if wants else ()
        reply = self.region.origin.apply(Call((report,), requests))
        if lost:
            counter.failed()
            return False
        counter.answered(reply.answers[0], counter.limit, self.now_s + 5, self.now_s)
        if counter.refunds is not None:
            counter.refunds.asked_s = self.now_s
        return reply.charged == (True,)

    def admit(self, cost: int, limit: Limit = LIMIT) -> None:
        """Have the shard charge it, and spend that."""
        assert self.call(wants=cost, limit=limit)
        if limit.algorithm is Algorithm.GCRA:
            hold = self.counter.hold(cost, self.shard.time_ms, BucketAnswer(0, 0, 0, 0))
            self.counter.settle(hold, commit=True)
            return
        decision = self.take(cost, limit)
        assert isinstance(decision, Decision)
        assert decision.admitted


@pytest.fixture
def nodes() -> tuple[Node, Node]:
    region = Region()
    return Node(region, "a"), Node(region, "b")


@pytest.mark.parametrize("limit", [LIMIT, FIXED], ids=["sliding", "fixed"])
def test_what_one_node_gives_back_every_node_may_admit(nodes: tuple[Node, Node], limit: Limit) -> None:
    a, b = nodes
    a.admit(100, limit)
    assert not b.call(wants=1, limit=limit)
    asked_s = b.now_s
    decision = b.back(30, limit)
    assert (decision.admitted, decision.verdicts[0][0]) == (True, False)
    assert b.counter.unreported
    assert b.shard.reports_at == [pytest.approx(asked_s + TOLD_AFTER_S)]
    b.call(limit=limit)
    assert (b.counter.current, b.counter.unreported) == (70, False)
    assert a.call(wants=30, limit=limit)
    assert not b.call(wants=1, limit=limit)


def test_until_the_shard_has_dealt_with_it_a_node_subtracts_nothing(nodes: tuple[Node, Node]) -> None:
    """Two nodes that did would each give the same hits back."""
    a, b = nodes
    a.admit(60)
    b.call()
    for node in nodes:
        node.back(60)
        assert node.counter.current == 60
    a.call()
    b.call()
    assert [node.counter.current for node in nodes] == [0, 0], "and 60 of the 120 that were demanded were never charged"
    a.admit(100)
    assert not b.call(wants=1)


def test_a_lost_reply_gives_nothing_back_twice(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    a.admit(50)
    a.back(20)
    a.call(lost=True)
    assert a.counter.unreported
    a.call()
    a.call()
    assert (a.counter.current, a.counter.unreported) == (30, False)


@pytest.mark.parametrize("heard", [True, False], ids=["answered", "the answer was lost"])
def test_a_wiped_shard_is_told_again_once(nodes: tuple[Node, Node], heard: bool) -> None:
    a, b = nodes
    a.admit(50)
    a.back(20)
    a.call(lost=not heard)
    a.region.origin.wipe(b"another")
    a.counter.shard_forgot()
    a.call()
    a.call()
    b.call()
    assert [node.counter.current for node in nodes] == [30, 30]


def test_what_a_node_that_died_gave_back_is_lost_with_the_shard_and_its_hits_are_not(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.admit(50)
    a.back(20)
    a.call()
    b.call()
    assert b.counter.current == 30
    a.region.origin.wipe(b"another")
    b.counter.shard_forgot()
    b.call()
    assert b.counter.current == 50, "a total is vouched for, a refund is not"


def test_what_a_node_has_only_just_admitted_may_be_given_back(nodes: tuple[Node, Node]) -> None:
    """The report carries both."""
    a, _ = nodes
    a.admit(1)
    a.counter.allowance, a.counter.allowance_until_s = 5, a.counter.usable_until_s
    assert isinstance(a.take(5), Decision)
    a.back(6)
    a.call()
    assert (a.counter.current, a.counter.current_cell.own) == (0, 6)


def test_a_refund_after_the_window_s_end_comes_out_of_the_window_before(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    a.admit(80)
    a.pass_ms(WINDOW_MS)
    a.back(30)
    a.call()
    assert (a.counter.current, a.counter.previous) == (0, 50)


def test_a_demand_that_could_not_be_told_counts_in_the_next_window_and_then_is_over(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    a.admit(80)
    a.back(30)
    a.pass_ms(WINDOW_MS)
    assert a.counter.advance(a.shard.time_ms)
    assert a.counter.unreported
    a.call(lost=True)
    a.pass_ms(WINDOW_MS)
    assert a.counter.advance(a.shard.time_ms)
    assert not a.counter.unreported


def test_a_refund_at_a_node_that_never_met_the_key(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.admit(80)
    b.back(80)
    b.call()
    a.call()
    assert [node.counter.current for node in nodes] == [0, 0]


def test_what_is_not_told_yet_is_not_evicted(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    engine = RegionalEngine(a, monotonic=lambda: a.now_s, max_cells=1)
    engine.decide((Charge(b"k", LIMIT, 3, refund=True),))
    decision = engine.decide((Charge(b"other", LIMIT, 3, refund=True),))
    assert isinstance(decision, Decision)
    assert decision.admitted, "one that finds no room gives nothing back, and does no harm"
    assert [counter.key for counter in engine.counters] == [b"k"]
    for shard_ms in (a.shard.time_ms + 1000, a.shard.time_ms + 2000):
        a.shard.time_ms = shard_ms
        engine.sweep(100)
    assert engine.counters.find(b"k") is not None


# Denials


def test_a_denial_by_what_is_known_holds_for_as_long_as_that_is_new(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.admit(100)
    b.call()
    denied = b.take(1)
    assert isinstance(denied, Decision)
    (_, _, retry_ms) = denied.verdicts[0]
    assert retry_ms == WINDOW_MS + 1, "a caller is told when it fits if nothing is given back"
    a.back(10)
    a.call()
    b.pass_ms(DENIAL_MS - 1)
    again = b.take(1)
    assert isinstance(again, Decision)
    assert (again.path, again.verdicts[0][2]) == (DecisionPath.LOCAL, retry_ms - DENIAL_MS + 1)
    b.pass_ms(1)
    assert isinstance(b.take(1), WaitingRequest), "somebody may have given something back: the shard is asked"


def test_without_refunds_a_denial_is_kept_until_it_fits(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    plain = dataclasses.replace(LIMIT, refund=None)
    a.admit(100, LIMIT)
    b.call()
    assert isinstance(b.take(1, plain), Decision)
    b.pass_ms(DENIAL_MS + 1)
    assert isinstance(b.take(1, plain), Decision)


@pytest.mark.parametrize("limit", [LIMIT, CLOSED, OPEN], ids=["local", "closed", "open"])
def test_without_the_shard_what_is_known_denies(nodes: tuple[Node, Node], limit: Limit) -> None:
    a, b = nodes
    a.admit(100, limit)
    b.call(limit=limit)
    b.pass_ms(DENIAL_MS)
    waiting = b.take(1, limit)
    assert isinstance(waiting, WaitingRequest)
    decisions: list[Decision] = []
    waiting.on_decided = decisions.append
    handed_on(b.shard.questions[0].unanswered(b.now_s))
    assert [decision.admitted for decision in decisions] == [False]
    b.shard.available = False
    decision = b.take(1, limit)
    assert isinstance(decision, Decision)
    assert not decision.admitted


def test_a_turn_is_no_longer_than_a_denial() -> None:
    hour = Limit(1_000_000, Unit.HOUR)
    assert turn_s(hour) == 1
    assert turn_s(dataclasses.replace(hour, refund=True)) == DENIAL_MS / 1000


# Resets


def test_what_was_demanded_before_a_reset_is_over(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.admit(80)
    a.back(50)
    a.engine.reset_to(b"k", 7)
    assert not a.counter.unreported
    b.call()
    b.counter.reset_to(8)
    b.admit(60)
    a.call()
    a.call()
    assert [a.counter.current, b.counter.current] == [60, 60]


# Buckets


def test_a_bucket_is_put_back_once_and_every_node_sees_it(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.admit(10, BUCKET)
    b.call(limit=BUCKET)
    b.back(4, BUCKET)
    b.call(lost=True, limit=BUCKET)
    b.call(limit=BUCKET)
    assert b.counter.answered_arrival == (NOW_MS + 6_000, 0)
    a.call(limit=BUCKET)
    a.call(limit=BUCKET)
    assert a.counter.tat == (NOW_MS + 6_000) * 60, "what it was told before is no floor"
    assert a.call(wants=4, limit=BUCKET)
    assert not b.call(wants=1, limit=BUCKET)


def test_a_bucket_that_was_wiped_is_what_it_was_after_the_refund(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.admit(10, BUCKET)
    b.call(limit=BUCKET)
    b.back(4, BUCKET)
    b.call(limit=BUCKET)
    a.region.origin.wipe(b"another")
    b.call(limit=BUCKET)
    a.call(limit=BUCKET)
    assert [node.counter.tat for node in nodes] == [(NOW_MS + 6_000) * 60] * 2


def test_a_demand_on_a_bucket_is_given_up_before_a_record_may_have_forgotten_it(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    a.back(4, BUCKET)
    a.pass_ms(GIVEN_UP_MS - 1)
    a.counter.advance(a.shard.time_ms)
    assert a.counter.unreported
    a.engine.sweep(100)
    assert a.counter is not None
    a.pass_ms(1)
    a.counter.advance(a.shard.time_ms)
    assert not a.counter.unreported


# When the shard is told


def demanded(refunds: Refunds) -> int:
    """What the next report tells of the window in which it is made."""
    return sum(demand.demanded for demand in refunds.report(1, remembers=True) if demand.sequence == 1)


def test_each_is_told_after_its_own_time() -> None:
    refunds = Refunds()
    told: list[int] = []
    for tenth in range(13):
        now_s = 100 + tenth / 10
        if tenth in (0, 1, 3):
            refunds.demand(10**tenth, NOW_MS, now_s)
        refunds.come_due(now_s + 0.01, leaving=False)
        told.append(demanded(refunds))
    assert told == [0, 0, 0, 0, 0, 0, 11, 11, 1011, 1011, 1011, 1011, 1011], "those of a fifth of a second together"


def test_demands_of_many_keys_are_told_together() -> None:
    reports_s = set()
    for key in range(40):
        refunds = Refunds()
        now_s = 100.01 + key / 1_000
        refunds.demand(1, NOW_MS, now_s)
        reports_s.add(refunds.report_s)
        assert TOLD_AFTER_S <= refunds.report_s - now_s <= TOLD_AFTER_S + TOGETHER_S
        refunds.come_due(refunds.report_s, leaving=False)
        assert refunds.telling
    assert len(reports_s) == 1


def test_many_that_follow_each_other_wait_in_few_places_and_no_longer_than_one() -> None:
    refunds = Refunds()
    asked_s: list[float] = []
    longest_s = 0.0
    for number in range(1_000):
        now_s = 100 + number / 100
        refunds.demand(1, NOW_MS, now_s)
        asked_s.append(now_s)
        told = refunds.current.due
        refunds.come_due(now_s, leaving=False)
        waited_s = [now_s - asked_s[item] for item in range(told, refunds.current.due)]
        assert min(waited_s, default=TOLD_AFTER_S) > TOLD_AFTER_S - 1e-6
        longest_s = max([longest_s, *waited_s])
        assert len(refunds.current.waits) <= 4
    assert longest_s <= TOLD_AFTER_S + GATHERED_S + 0.01
    refunds.join()
    assert refunds.current.demanded == 1_000
    refunds.come_due(asked_s[-1] + TOLD_AFTER_S + 1e-6, leaving=False)
    assert (refunds.current.due, refunds.report_s) == (1_000, math.inf)


def test_one_that_is_early_is_neither_forgotten_nor_pressing(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    a.admit(10)
    a.back(4)
    a.now_s -= TOLD_AFTER_S
    a.call()
    assert (a.counter.unreported, a.counter.pressing(a.now_s), a.counter.current) == (True, False, 10)
    a.now_s += TOLD_AFTER_S
    a.call(lost=True)
    assert (a.counter.unreported, a.counter.pressing(a.now_s)) == (True, True)
    a.call()
    assert (a.counter.unreported, a.counter.pressing(a.now_s), a.counter.current) == (False, False, 6)


def test_none_is_told_to_a_shard_that_may_have_lost_its_memory(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    a.admit(10)
    a.back(4)
    a.shard.remembering = False
    a.call()
    assert (a.counter.unreported, a.counter.current) == (True, 10)
    a.shard.remembering = True
    a.call()
    assert (a.counter.unreported, a.counter.current) == (False, 6)


def test_one_that_is_early_goes_into_the_next_window_too(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    a.admit(10)
    a.back(4)
    a.pass_ms(WINDOW_MS)
    a.call()
    assert (a.counter.unreported, a.counter.previous) == (False, 6)
    a.back(3)
    a.call()
    assert (a.counter.unreported, a.counter.previous) == (False, 3)


# What a node keeps


def test_what_is_demanded_is_bounded() -> None:
    refunds = Refunds()
    for _ in range(3):
        refunds.demand(MOST_DEMANDED - 1, NOW_MS, 100.0)
    assert refunds.current.demanded == MOST_DEMANDED


def test_a_counter_of_a_limit_without_refunds_keeps_nothing_for_them(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    plain = dataclasses.replace(LIMIT, refund=False)
    counter = a.engine._counter(Charge(b"k", plain, 1), 0.0)
    assert counter is not None
    report = counter.sent(1, 1, leaving=False, now_s=0.0)
    assert report.demands is None
    counter.answered(a.region.origin.apply(Call((report,), ())).answers[0], plain, 5.0, 0.0)
    assert counter.refunds is None


# Settling


def test_what_a_reservation_did_not_come_to_is_given_back_to_all(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.admit(100)
    b.engine.uncharge((Charge(b"k", LIMIT, 40),))
    b.now_s += TOLD_AFTER_S
    b.call()
    a.call()
    assert [node.counter.current for node in nodes] == [60, 60]


def test_where_the_limit_has_no_refunds_it_is_credit_of_the_node_that_settles(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    plain = dataclasses.replace(LIMIT, refund=None)
    a.admit(100)
    b.engine.uncharge((Charge(b"k", plain, 40),))
    assert b.counter is None
    a.engine.uncharge((Charge(b"k", plain, 40),))
    assert a.counter.credit == 40
