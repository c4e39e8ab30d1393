"""The rules of the fault suite, and keys for them on shards of one's choice.

Every policy has two rules. One is tight: its limit is reached during an outage, so that
the policy's own bound is what is seen. The other is wide: all of its requests should be
admitted, and every one must be counted. `closed` has no bound to reach; its tight rule
is exact instead, and first asked for during the outage, so that every single decision needs the shard.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.limiter.limit import Limit, OnError
from headgate.origin.interface import Origin
from headgate.origin.protocol import WindowReport
from headgate.rules.directory import load_directory
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest

DOMAIN: Final = "fault"
WIDE: Final = 1_000_000
OPEN_LIMIT: Final = 8
LOCAL_LIMIT: Final = 24

RULES: Final = {
    "closed-exact": (WIDE, "on_error: closed, precision: 0"),
    "closed-wide": (WIDE, "class: abuse"),
    "open-tight": (OPEN_LIMIT, "on_error: open"),
    "open-wide": (WIDE, "class: paid"),
    "local-tight": (LOCAL_LIMIT, "on_error: local"),
    "local-wide": (WIDE, "class: free"),
}


def rules_text() -> str:
    """A year's window, so that none ends during a test; fixed, so that counts are plain."""
    rules = [
        f"- key: {name}\n  rate_limit: {{unit: year, requests_per_unit: {limit}, algorithm: fixed_window, {fields}}}\n"
        for name, (limit, fields) in RULES.items()
    ]
    return f"domain: {DOMAIN}\ndescriptors:\n{''.join(rules)}"


@dataclass(frozen=True, slots=True)
class Key:
    rule: str
    value: str
    shard: int
    name: bytes
    limit: Limit
    payload: bytes

    @property
    def on_error(self) -> OnError:
        return self.limit.on_error

    @property
    def tight(self) -> bool:
        return self.limit.requests_per_unit < WIDE

    def observed(self) -> WindowReport:
        """A report of nothing by a run that never admits, for the answer's sake."""
        limit = self.limit
        return WindowReport(
            self.name, b"observer", 1, 0, 0, limit.requests_per_unit, limit.window_ms, 0, False, True, ()
        )


def make_keys(case: str, rules: Path, origin: Origin) -> list[Key]:
    """One key of every rule on every shard; new ones for every case."""
    loaded = load_directory(rules)
    keys = []
    for shard, rule in itertools.product(range(origin.shards), RULES):
        for number in itertools.count():
            value = f"{case}-{number}"
            match = loaded.match(DOMAIN, [(rule, value)])
            assert match is not None
            if origin.shard_of(match.key) == shard:
                keys.append(Key(rule, value, shard, match.key, match.limit, _request(rule, value)))
                break
    return keys


def _request(rule: str, value: str) -> bytes:
    entry = RateLimitDescriptor.Entry(key=rule, value=value)
    return RateLimitRequest(domain=DOMAIN, descriptors=[RateLimitDescriptor(entries=[entry])]).SerializeToString()


def weighted(keys: Sequence[Key], sick: Sequence[int]) -> list[Key]:
    """Three times as often on sick shards: they are fewer, and their bounds are to be reached."""
    return [key for key in keys for _ in range(3 if key.shard in sick else 1)]
