"""A shard that is away for long is two lines in the log: when its breaker opened, and when it closed."""

import itertools
import random
from typing import Any

from headgate.limiter.counters import CounterTable
from headgate.region.breaker import BreakerSettings
from headgate.region.extension import NoExtension
from headgate.region.shard_link import ShardLink

from tests.support.clock import ManualClock


class Lines:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Any:
        return lambda event, **fields: self.lines.append((level, event, fields))


def test_probes_are_not_logged_one_by_one() -> None:
    clock, log, nothing = ManualClock(1_700_000_000_000), Lines(), ()
    origin: Any = None  # nothing is called
    logger: Any = log
    link = ShardLink(
        3,
        origin,
        clock=clock,
        random=random.Random(1),
        pause_random=random.Random(1),
        logger=logger,
        numbers=itertools.count(1),
        live_counters=lambda: nothing,
        new_component=lambda: b"",
        extension=NoExtension(CounterTable(1, lambda counter: True)),
        on_reset=lambda *_: None,
        on_lost_memory=lambda *_: None,
        deadline_s=0.005,
        breaker=BreakerSettings(),
    )
    for _ in range(2):
        for _ in range(5):
            link.breaker.record(False, "connection refused")
        for _ in range(29):
            clock.advance(3_000)
            assert link.breaker.begin_probe()
            link.breaker.record(False, "connection refused")
        clock.advance(3_000)
        assert link.breaker.begin_probe()
        link.breaker.record(True)
    opened, closed = ("warning", "open"), ("info", "closed")
    assert [(level, fields["state"]) for level, _, fields in log.lines] == [opened, closed, opened, closed]
    assert log.lines[0][2] == {"shard": 3, "state": "open", "reason": "connection refused"}
    assert (log.lines[1][2]["probes"], log.lines[1][2]["open_s"]) == (30, 90.0)
