"""Denials from memory: a kept denial, and the pause of a key at its limit, deny without looking at the counts."""

import pytest
from headgate.limiter.decision import Charge, Decision, DecisionPath
from headgate.limiter.limit import Algorithm, Limit, Unit
from headgate.origin.protocol import Count
from headgate.region.engine import RegionalEngine
from headgate.region.pause import Pause
from headgate.region.window_counter import SharedWindow
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.region.support import NOW_MS, SEQUENCE, OneShard, answer

KEY = b"k"
NOW_S = 100.0
LIMITS = [Limit(1_000, Unit.MINUTE, algorithm=a) for a in (Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW)]


class Node:
    """A node with one key of which others have used so much, with credit or without."""

    def __init__(self, limit: Limit, used: int, credit: int = 0) -> None:
        self.region, self.limit = OneShard(), limit
        self.engine = RegionalEngine(self.region, monotonic=lambda: NOW_S, max_cells=10)
        self.counter = SharedWindow(KEY, KEY, b"run.0", self.region.shard, limit, NOW_MS)
        self.engine.counters.add(self.counter, NOW_MS)
        self.counter.pin(1)
        self.counter.answered(answer(Count(credit, used, 0)), limit, NOW_S + 5, NOW_S)

    def pause(self, room: int, lasts_s: float) -> None:
        """Let the last call have brought too little, and left so much."""
        self.counter.pause = Pause(self.limit)
        self.counter.pause.answered(self.limit, SEQUENCE, room, room + 1, short=True)
        self.counter.pause.ends_s = NOW_S + lasts_s

    def ask(self, cost: int = 1) -> Decision | None:
        return self.decide(Charge(KEY, self.limit, cost))

    def decide(self, charge: Charge) -> Decision | None:
        """The decision; None: the request waits for the shard."""
        decided = self.engine.decide((charge,))
        return decided if isinstance(decided, Decision) else None

    def seen(self) -> tuple[object, ...]:
        """All that a denial may change."""
        counter = self.counter
        return counter.current, counter.credit, counter.unacked, counter.deny_until_ms, counter.deny_cost, counter.asked


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.algorithm.value)
def test_a_denial_is_kept_and_answered_from_memory(limit: Limit) -> None:
    node = Node(limit, used=1_000)
    first, again = node.ask(), node.ask()
    assert first is not None
    assert again is not None
    assert (first.path, again.path) == (DecisionPath.LOCAL, DecisionPath.DENY_CACHE)
    assert first.verdicts == again.verdicts
    assert node.counter.deny_until_ms == NOW_MS + first.verdicts[0][2]
    assert (node.counter.unacked, node.region.shard.flushed) == (0, [])


@pytest.mark.parametrize(
    ("cost", "kept", "path"),
    [
        pytest.param(3, 3, DecisionPath.DENY_CACHE, id="the same cost"),
        pytest.param(4, 3, DecisionPath.DENY_CACHE, id="a higher cost is denied too"),
        pytest.param(2, 3, None, id="a lower one may fit: the shard is asked"),
    ],
)
def test_a_kept_denial_covers_its_cost_and_higher_ones(cost: int, kept: int, path: DecisionPath | None) -> None:
    node = Node(LIMITS[0], used=998)
    node.counter.keep_denial(kept, LIMITS[0], NOW_MS + 500)
    decision = node.ask(cost)
    assert (decision and decision.path) == path


@pytest.mark.parametrize(
    ("room", "lasts_s", "credit", "cost", "waits_ms"),
    [
        pytest.param(0, 0.25, 0, 1, 250, id="in a pause"),
        pytest.param(0, -0.2, 0, 1, None, id="after it the shard is asked"),
        pytest.param(2, 0.2, 0, 2, None, id="what had room may ask"),
        pytest.param(2, 0.25, 0, 3, 250, id="what had none may not"),
        pytest.param(2, 0.2, 1, 3, None, id="credit pays for a part of it"),
    ],
)
def test_a_paused_key_denies_what_would_not_have_fitted(
    room: int, lasts_s: float, credit: int, cost: int, waits_ms: int | None
) -> None:
    node = Node(LIMITS[0], used=990, credit=credit)
    node.pause(room, lasts_s)
    decision = node.ask(cost)
    assert (decision and decision.verdicts[0]) == (None if waits_ms is None else (True, 0, waits_ms))
    assert decision is None or decision.path is DecisionPath.DENY_CACHE


def test_what_is_denied_in_a_pause_was_asked_for_all_the_same() -> None:
    node = Node(LIMITS[0], used=990)
    node.pause(0, 0.2)
    for _ in range(8):
        node.ask()
    assert node.counter.asked == 8


@given(
    limit=st.builds(
        lambda algorithm, refund: Limit(1_000, Unit.MINUTE, algorithm=algorithm, refund=refund),
        st.sampled_from([Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW]),
        st.booleans(),
    ),
    used=st.sampled_from([900, 998, 1_000]),
    credit=st.sampled_from([0, 1, 3]),
    denied=st.sampled_from([None, (1, 500), (3, 0), (3, 500)]),
    paused=st.sampled_from([None, (0, 0.25), (2, 0.25), (0, -0.25)]),
    costs=st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=4),
)
def test_a_denial_by_what_is_kept_is_the_plain_rules(
    limit: Limit,
    used: int,
    credit: int,
    denied: tuple[int, int] | None,
    paused: tuple[int, float] | None,
    costs: list[int],
) -> None:
    """The same decisions, whether or not a node may decide by what is kept with a key; and it is left the same."""
    nodes = [Node(limit, used, credit) for _ in range(2)]
    for node in nodes:
        if denied is not None and not limit.refund:
            node.counter.keep_denial(denied[0], limit, NOW_MS + denied[1])
        if paused is not None:
            node.pause(*paused)
    for cost in costs:
        by_what_is_kept, plain = Charge(KEY, limit, cost), Charge(KEY, limit, cost)
        plain.plain = False
        told = [node.decide(charge) for node, charge in zip(nodes, (by_what_is_kept, plain), strict=True)]
        assert told[0] == told[1]
        assert nodes[0].seen() == nodes[1].seen()
