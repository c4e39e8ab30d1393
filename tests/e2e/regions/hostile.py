"""A region in the wrong hands: somebody has its token and says what he likes, over real sockets to real processes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import structlog
from headgate.clock import SystemClock
from headgate.exchange.grpc_link import GrpcPeerLink
from headgate.exchange.hello import Regions
from headgate.exchange.identity import RegionTokens, Security
from headgate.exchange.messages import Ack, Batch, Entry
from headgate.limiter.limit import Algorithm
from headgate.rules.keys import encode_key, encode_tail

from tests.support.waiting import PATIENCE_S

DOMAIN: Final = "guarded"
LIMIT: Final = 20
YEAR_MS: Final = 365 * 86_400_000
SCOPES: Final = {
    "global": (Algorithm.SLIDING_WINDOW, YEAR_MS),
    "region": (Algorithm.SLIDING_WINDOW, YEAR_MS),
    "cell": (Algorithm.SLIDING_WINDOW, YEAR_MS),
    "short": (Algorithm.SLIDING_WINDOW, 30_000),
    "bucket": (Algorithm.GCRA, YEAR_MS),
}
"""Keys of the rules, with what their counters end with."""
RULES: Final = f"""
domain: {DOMAIN}
descriptors:
- key: global
  rate_limit: {{unit: year, requests_per_unit: {LIMIT}}}
- key: region
  rate_limit: {{unit: year, requests_per_unit: {LIMIT}, scope: region}}
- key: cell
  rate_limit: {{unit: year, requests_per_unit: {3 * LIMIT}, scope: cell}}
- key: short
  rate_limit: {{unit: second, unit_multiplier: 30, requests_per_unit: {LIMIT}}}
- key: bucket
  rate_limit: {{unit: year, requests_per_unit: {LIMIT}, burst: {LIMIT}, algorithm: gcra}}
"""
TOKENS: Final = "eu=token-of-eu\nus=token-of-us\nap=token-of-ap\n"
LOG: Final = structlog.get_logger()


class HostileRegion:
    """Speaks for `us` to one exchanger of another region."""

    def __init__(self, to: str, address: str, tokens: Path) -> None:
        self._runner = asyncio.Runner()
        security = Security(LOG, tokens=RegionTokens(str(tokens), "us", LOG))
        regions = Regions("us", frozenset({"eu", "ap"}))
        self._link = GrpcPeerLink(to, address, regions, security, SystemClock())
        self._number = 0

    def say(self, *entries: Entry, **other: Any) -> Ack:
        """Send one batch, once. Raises LinkError."""
        self._number += 1
        batch = Batch(self._number, SystemClock().now_ms(), entries)._replace(**other)
        return self._runner.run(self._link.send(batch, PATIENCE_S))

    def close(self) -> None:
        self._runner.run(self._link.close())
        self._runner.close()


@contextmanager
def hostile_region(to: str, address: str, tokens: Path) -> Iterator[HostileRegion]:
    region = HostileRegion(to, address, tokens)
    try:
        yield region
    finally:
        region.close()


def entry(scope: str, value: str, current: int = 2**40, **other: Any) -> Entry:
    """A component of a key of the rules, in its current window."""
    algorithm, window_ms = SCOPES[scope]
    key = encode_key((DOMAIN, "k", scope, value)) + encode_tail(algorithm, window_ms)
    sequence = SystemClock().now_ms() // window_ms
    return Entry(b":" + key, window_ms, sequence, current, 0)._replace(**other)
