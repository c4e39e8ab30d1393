"""What a region's origin really counts, read by somebody who counts nothing himself."""

import asyncio
from pathlib import Path

from headgate.clock import SystemClock
from headgate.limiter.limit import Algorithm
from headgate.origin.operations.call import Call
from headgate.origin.protocol import WindowAnswer, WindowReport
from headgate.origin.select import open_origin
from headgate.rules.directory import load_directory

from tests.support.waiting import PATIENCE_S


def total_in_current_window(url: str, rules: Path, domain: str, *entries: tuple[str, str]) -> int:
    """The region's total on the limit key that this descriptor meets."""
    loaded = load_directory(rules)
    match = loaded.match(domain, entries)
    assert match is not None
    limit, key = match.limit, match.key
    shard_key = loaded.domains[domain].shard_key(entries) or key
    sliding = limit.algorithm is Algorithm.SLIDING_WINDOW
    report = WindowReport(key, b"observer", 1, 0, 0, limit.requests_per_unit, limit.window_ms, 0, sliding, True, ())

    async def read() -> int:
        origin = open_origin(url, clock=SystemClock())
        await origin.open()
        try:
            reply = await origin.run(origin.shard_of(shard_key), Call((report,), ()), PATIENCE_S)
        finally:
            await origin.close()
        answer = reply.answers[0]
        assert isinstance(answer, WindowAnswer)
        return answer.current.region_total

    return asyncio.run(read())
