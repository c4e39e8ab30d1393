"""A shard that is away for long is two lines in the log: when its breaker opened, and when it closed."""

import random
from typing import Any

from headgate.region.breaker import BreakerSettings
from headgate.region.session_owner import Chances
from headgate.region.shard_link import LinkTerms, ShardLink

from tests.support.clock import ManualClock
from tests.unit.region.support import NoNode


class Lines:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Any:
        return lambda event, **fields: self.lines.append((level, event, fields))


def test_probes_are_not_logged_one_by_one() -> None:
    clock, log = ManualClock(1_700_000_000_000), Lines()
    origin: Any = None  # nothing is called
    logger: Any = log
    terms = LinkTerms(clock, Chances(random.Random(1), random.Random(1)), logger, 0.005, BreakerSettings())
    link = ShardLink(3, NoNode(), origin, terms)
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
