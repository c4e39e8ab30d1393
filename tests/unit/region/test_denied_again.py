"""A denial from memory, or because it is not the node's turn, is the one that the plain rule would give."""

from typing import Any

from headgate.limiter.decision import Charge, Decision, remember_denial
from headgate.limiter.limit import Algorithm, Limit, Unit
from headgate.origin.protocol import Count, WindowAnswer
from headgate.region.engine import RegionalEngine
from headgate.region.turns import Turns
from headgate.region.window_counter import SharedWindow
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.region.support import NOTHING, NOW_MS, SEQUENCE, OneShard

KEY = b"k"
NOW_S = 100.0


class Side:
    """A node with one key near its limit, which is denied by what is kept with it, or by the plain rule alone."""

    def __init__(self, limit: Limit, used: int, credit: int, *, plain: bool) -> None:
        self.region = OneShard()
        self.engine = RegionalEngine(self.region, monotonic=lambda: NOW_S, max_cells=10)
        self.plain = plain
        self.counter = SharedWindow(KEY, b"run.0", self.region.shard, limit, NOW_MS)
        self.engine.counters.add(self.counter, NOW_MS)
        answer = WindowAnswer(SEQUENCE, Count(credit, used, 0), NOTHING, 0)
        self.counter.pins += 1
        self.counter.answered(answer, NOW_S + 5)

    def ask(self, charge: Charge) -> Any:
        charge.quick = not self.plain
        decided = self.engine.decide((charge,))
        return decided if isinstance(decided, Decision) else type(decided)

    def seen(self) -> tuple[Any, ...]:
        counter, turns = self.counter, self.counter.turns
        counts = (counter.current, counter.credit, counter.unacked, counter.deny_until_ms, counter.deny_cost)
        return counts, None if turns is None else turns.demand(NOW_S, 0)


@given(
    limit=st.builds(
        lambda algorithm, refund: Limit(1_000, Unit.MINUTE, algorithm=algorithm, refund=refund),
        st.sampled_from([Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW]),
        st.booleans(),
    ),
    used=st.sampled_from([900, 998, 1_000]),
    credit=st.sampled_from([0, 1, 3]),
    denied=st.sampled_from([None, (1, 500), (3, 0), (3, 500)]),
    turn=st.sampled_from([None, (0.2, 0), (0.2, 2), (-0.2, 0)]),
    costs=st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=4),
)
def test_it_is_denied_as_the_plain_rule_denies(
    limit: Limit,
    used: int,
    credit: int,
    denied: tuple[int, int] | None,
    turn: tuple[float, int] | None,
    costs: list[int],
) -> None:
    sides = [Side(limit, used, credit, plain=plain) for plain in (False, True)]
    for side in sides:
        if denied is not None and not limit.refund:
            remember_denial(side.counter, Charge(KEY, limit, denied[0]), NOW_MS + denied[1])
        if turn is not None:
            side.counter.turns = turns = Turns(limit)
            turns.ends_s, turns.room, turns.sequence = NOW_S + turn[0], turn[1], SEQUENCE
    for cost in costs:
        assert sides[0].ask(Charge(KEY, limit, cost)) == sides[1].ask(Charge(KEY, limit, cost))
        assert sides[0].seen() == sides[1].seen()


def test_who_is_not_to_ask_is_denied_without_the_plain_rule() -> None:
    """Or nothing would have been won."""
    limit = Limit(1_000, Unit.MINUTE)
    side = Side(limit, 1_000, 0, plain=False)
    charge = Charge(KEY, limit, 1)
    assert side.engine.quick(charge) is None
    side.counter.turns = turns = Turns(limit)
    turns.ends_s, turns.sequence = NOW_S + 0.2, SEQUENCE
    verdict = side.engine.quick(charge)
    assert verdict is not None
    assert verdict[:2] == (True, 0)
    assert verdict[2] >= 200
