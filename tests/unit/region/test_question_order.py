"""Callers take turns at a shard: tables of who is asked for next."""

from collections import deque

import pytest
from headgate.limiter.decision import Charge
from headgate.region.leg import Leg
from headgate.region.outcomes import COLD
from headgate.region.question_order import TURN_KEYS, QuestionOrder
from headgate.region.stats import RegionalStats
from headgate.region.waiting import WaitingRequest, Waits

from tests.unit.region.support import OneShard, QuietShard, window_counter, window_limit


def question(caller: str, keys: int = 1) -> WaitingRequest:
    waits = Waits(OneShard(QuietShard()), RegionalStats(), lambda leg, now_s: COLD)
    legs = [Leg(Charge(b"k%d" % key, window_limit(), 1), window_counter(), COLD) for key in range(keys)]
    return WaitingRequest(waits, legs, 0.0, caller)


def taken(order: QuestionOrder, most: int = 1_000) -> str:
    """The callers of the questions, in the order in which they are taken."""
    callers = ""
    while len(callers) < most and (first := order.first()) is not None:
        callers += first.request.caller
        order.take(len(first.asked))
    return callers


def order_of(*questions: WaitingRequest) -> QuestionOrder:
    order = QuestionOrder()
    for each in questions:
        order.add(each)
    return order


def test_one_caller_is_served_in_order() -> None:
    questions = [question("a") for _ in range(3 * TURN_KEYS)]
    order = order_of(*questions)
    for each in questions:
        assert order.first() is each
        order.take(len(each.asked))
    assert order.first() is None
    assert len(order) == 0


def test_who_comes_behind_a_flood_is_next_after_one_turn() -> None:
    order = order_of(*[question("f") for _ in range(1_000)], question("h"))
    assert taken(order, TURN_KEYS + 1) == "f" * TURN_KEYS + "h"
    assert len(order) == 1_000 - TURN_KEYS


def test_turns_are_of_keys_and_who_took_more_waits_longer() -> None:
    order = order_of(*[question("f", 4 * TURN_KEYS) for _ in range(3)], *[question("h") for _ in range(100)])
    assert taken(order).startswith("f" + "h" * 4 * TURN_KEYS + "f" + "h" * 4 * TURN_KEYS + "f")


def test_a_lone_caller_has_no_debts_when_another_comes() -> None:
    order = order_of(*[question("f", 32) for _ in range(100)])
    assert taken(order, 90) == "f" * 90
    order.add(question("h"))
    order.add(question("h"))
    assert "f" in taken(order, 2 + 32 // TURN_KEYS)


def test_what_nobody_waits_for_takes_nothing_of_a_turn() -> None:
    gone = [question("f") for _ in range(100)]
    for each in gone:
        each.time_is_up(1.0, own_fault=True)
    order = order_of(*gone, *[question("f") for _ in range(TURN_KEYS)], question("h"))
    assert taken(order) == "f" * (100 + TURN_KEYS) + "h"


def test_what_was_sent_in_vain_is_first_again() -> None:
    sent = [question("f") for _ in range(3)]
    order = order_of(question("f"), question("h"))
    order.put_back(sent)
    for each in sent:
        assert order.first() is each
        order.take(len(each.asked))


def test_lines_are_kept_while_something_stands_in_them() -> None:
    order = order_of(*[question(str(number % 10)) for number in range(100)])
    order.turns[3].waiting = deque()
    order.drop_empty()
    assert (len(order.turns), len(order._lines), len(order)) == (9, 9, 90)
    assert len(order.take_all()) == 90
    assert not order.turns
    assert not order._lines
    with pytest.raises(IndexError):
        order.take(1)
