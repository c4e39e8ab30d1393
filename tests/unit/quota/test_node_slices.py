"""Quotas of a node: their slices stand beside counters, and are bounded. And what a node without quotas does."""

import pytest
from headgate.limiter.counter_table import CounterTable
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Limit, Scope, Unit
from headgate.limiter.scopes import LimitsOfRegion, charges_of
from headgate.quota.node_slices import NodeSlices
from headgate.region.counters import SharedCounter
from headgate.region.extension import NoExtension
from headgate.region.window_counter import SharedWindow

from tests.unit.region.support import QuietShard


def test_a_quota_is_never_decided_whole() -> None:
    """Its slice is all that a region may admit: where nothing knows it, nothing is admitted."""
    limit = LimitsOfRegion(2).bind(Limit(100, Unit.MINUTE, scope=Scope.QUOTA))
    charges = charges_of([Charge(b"key", limit, 1)])
    with pytest.raises(LookupError, match="slice"):
        NoExtension(CounterTable(1, lambda counter: True)).in_force(charges)


QUOTA = LimitsOfRegion(2).bind(Limit(100, Unit.HOUR, scope=Scope.QUOTA))


class Node:
    """A node's quotas, and the counters that they stand beside."""

    def __init__(self, most: int) -> None:
        self.counters: CounterTable[SharedCounter] = CounterTable(100)
        self.shard = QuietShard()
        self.slices = NodeSlices(self.counters, monotonic=lambda: 0.0, most=most)

    def ask(self, key: bytes) -> None:
        self.slices.in_force(charges_of([Charge(key, QUOTA, 1)]))

    def count(self, key: bytes) -> None:
        self.counters.put(SharedWindow(key, key, b"run.0", self.shard, QUOTA, self.shard.now_ms()))


def test_slices_go_with_their_counters_and_those_of_live_ones_stay() -> None:
    node = Node(most=100)
    for key in (b"a", b"b", b"c", b"d"):
        node.count(key)
        node.ask(key)
    node.counters.drop(b"c")
    node.ask(b"e")  # looks at two of the four
    node.ask(b"f")  # at the other two
    assert len(node.slices) == 5
    for key in (b"a", b"b", b"d"):
        node.counters.drop(key)
    for key in (b"g", b"h", b"i"):
        node.count(key)
        node.ask(key)
    assert len(node.slices) == 3, "of the counters that there are"


def test_there_are_never_more_slices_than_may_be() -> None:
    node = Node(most=3)
    for number in range(50):
        node.count(b"%d" % number)
        node.ask(b"%d" % number)
        assert len(node.slices) == min(3, number + 1)
