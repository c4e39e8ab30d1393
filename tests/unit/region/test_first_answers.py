"""A key's first answer is taken in at once, and the counter is what the plain rule makes of it."""

from typing import Any

import pytest
from headgate.limiter.limit import Limit, Unit
from headgate.origin.protocol import NO_GRANT, UNBOUND, Count, WindowAnswer
from headgate.region.counters import SharedCounter
from headgate.region.window_counter import SharedWindow
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.region.support import QuietShard

pytestmark = pytest.mark.pure("it looks into every field, which a compiled class does not name")

LIMIT = Limit(100, Unit.MINUTE, precision_millionths=100_000)
SEQUENCE = 30
NOW_MS = SEQUENCE * LIMIT.window_ms + 1


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Three of four are usual: so half of all first answers are in every way but one."""
    return st.sampled_from([usual] * 3 * len(others) + list(others))


FEW = st.integers(0, 3)
COUNTS = st.builds(Count, FEW, FEW, FEW)
ANSWERS = st.tuples(
    mostly(SEQUENCE, SEQUENCE - 2, SEQUENCE - 1, SEQUENCE + 1, SEQUENCE + 2),
    COUNTS,
    mostly(Count(0, 0, 0), Count(1, 0, 0), Count(0, 1, 0), Count(0, 0, 1), Count(1, 2, 3)),
    mostly(5, 0, NO_GRANT),
    mostly(0, 7),
).map(lambda said: WindowAnswer(*said))


def counter_with(wanted: int, admitted: int, reserved: int, reset: int, refill: bool) -> SharedWindow:
    counter = SharedWindow(b"key", b"run.0", QuietShard(), LIMIT, NOW_MS)
    counter.current_cell.total = admitted  # by a failure policy, before anybody answered
    counter.current_cell.reserved = reserved
    counter.reset = reset
    counter.refill = refill
    counter._recount()
    counter.deny_until_ms = NOW_MS + 5
    counter.sent(1, wanted, False, 0.0)
    return counter


def shown(counter: SharedWindow) -> dict[str, Any]:
    """All of it but its name for the shard, which is drawn anew when it begins anew."""
    cells = [counter.current_cell, counter._before]
    names = [name for kind in SharedWindow.__mro__ for name in getattr(kind, "__slots__", ())]
    unlike = ("component", "shard", "current_cell", "_before")
    return {
        **{name: getattr(counter, name) for name in names if name not in unlike},
        "cells": [cell and [getattr(cell, name) for name in type(cell).__slots__] for cell in cells],
    }


@settings(max_examples=1_000)
@given(
    wanted=FEW,
    admitted=mostly(0, 2),
    reserved=mostly(0, 1),
    reset=mostly(UNBOUND, 0, 7),
    refill=st.booleans(),
    answer=ANSWERS,
    then=st.none() | ANSWERS,
)
def test_both_ways_come_to_the_same(
    wanted: int, admitted: int, reserved: int, reset: int, refill: bool, answer: WindowAnswer, then: WindowAnswer | None
) -> None:
    at_once, plain = (counter_with(wanted, admitted, reserved, reset, refill) for _ in range(2))
    for said in (answer,) if then is None else (answer, then):
        assert at_once.answered(said, 5.0) == SharedCounter.answered(plain, said, 5.0)
        assert shown(at_once) == shown(plain)


def test_the_usual_first_answer_is_taken_in_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nothing would have been won."""
    counter = counter_with(1, 0, 0, UNBOUND, False)
    monkeypatch.delattr(SharedWindow, "learn")
    assert counter.answered(WindowAnswer(SEQUENCE, Count(1, 9, 4), Count(0, 0, 0), 5), 5.0)
    assert (counter.current, counter.credit, counter.grant) == (13, 1, 5)
