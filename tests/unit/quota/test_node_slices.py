"""What a node without quotas does with one."""

import pytest
from headgate.limiter.counters import CounterTable
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Limit, Scope, Unit
from headgate.limiter.scopes import LimitsOfRegion, charges_of
from headgate.region.extension import NoExtension


def test_a_quota_is_never_decided_whole() -> None:
    """Its slice is all that a region may admit: where nothing knows it, nothing is admitted."""
    limit = LimitsOfRegion(2).bind(Limit(100, Unit.MINUTE, scope=Scope.QUOTA))
    charges = charges_of([Charge(b"key", limit, 1)])
    with pytest.raises(LookupError, match="slice"):
        NoExtension(CounterTable(1, lambda counter: True)).in_force(charges)
