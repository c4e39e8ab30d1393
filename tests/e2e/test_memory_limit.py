"""A process under a flood of new keys stays within the memory that its container would have."""

import pytest
from headgate.runtime.memory_limit import COUNTER_BYTES, MIB, PROCESS_BYTES, counters_within

from benchmarks import cost, traffic
from benchmarks.parts import PATIENT, node_over_redis

LIMIT_BYTES = 128 * MIB
MOST = counters_within(LIMIT_BYTES, 1)


@pytest.mark.slow
def test_a_flood_of_new_keys_fits_into_the_container() -> None:
    """First counters are counted in bytes, then the table runs over."""
    with node_over_redis(traffic.RULES, "--max-cells", str(MOST), *PATIENT) as (node, _):
        assert node.resident_bytes() <= PROCESS_BYTES
        new = traffic.new()
        cost.saturated(node, new(10_000))  # caches and the allocator are warm
        before = node.resident_bytes()
        cost.saturated(node, new(20_000))
        each = (node.resident_bytes() - before) / 20_000
        assert COUNTER_BYTES / 2 <= each <= COUNTER_BYTES * 1.1, "pages are of 4 KiB, and the allocator's larger"
        cost.saturated(node, new(30_000))
        assert node.resident_bytes() <= LIMIT_BYTES
