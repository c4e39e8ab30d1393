"""The fake server of headgate_client.testing decides as the real one does, request by request."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.json_format import MessageToDict
from google.protobuf.wrappers_pb2 import UInt64Value
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.engine import Engine
from headgate.rules.directory import load_directory
from headgate.rules.request_limits import RequestLimits
from headgate_client.testing import FakeClock, FakeServer
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

from tests.support.clock import ManualClock

RULES = """
domain: edge
descriptors:
  - key: sliding
    rate_limit: {unit: minute, requests_per_unit: 7}
  - key: fixed
    rate_limit: {unit: second, unit_multiplier: 20, requests_per_unit: 5, algorithm: fixed_window, name: f}
  - key: bucket
    rate_limit: {unit: minute, requests_per_unit: 9, algorithm: gcra, burst: 4}
  - key: path
    value: /login*
    descriptors:
      - key: sliding
        rate_limit: {unit: hour, requests_per_unit: 3, precision: 0, class: abuse}
  - key: path
    rate_limit: {unit: minute, requests_per_unit: 6}
  - key: path
    value: /free
    rate_limit: {unlimited: true}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: none
    value: "1"
    rate_limit: {unit: minute, requests_per_unit: 0}
  - key: shared
    value: a*
    share_threshold: true
    rate_limit: {unit: minute, requests_per_unit: 4}
  - key: trial
    rate_limit: {unit: day, requests_per_unit: 50, replaces: [{name: f}]}
  - key: tokens
    rate_limit: {unit: minute, requests_per_unit: 12, overdraft: true}
  - key: owed
    rate_limit: {unit: minute, requests_per_unit: 9, algorithm: gcra, burst: 4, overdraft: true}
  - key: given
    rate_limit: {unit: minute, requests_per_unit: 8, refund: true}
  - key: back
    rate_limit: {unit: minute, requests_per_unit: 9, algorithm: gcra, burst: 4, refund: true}
  - key: bare
"""
CHOICES: list[list[tuple[str, str]]] = [
    *[
        [(key, value)]
        for key in ("sliding", "fixed", "bucket", "tokens", "owed", "given", "back")
        for value in ("a", "b")
    ],
    [("path", "/login"), ("sliding", "a")],
    [("path", "/login/x"), ("sliding", "a")],
    [("path", "/login")],
    [("path", "/other")],
    [("path", "/free")],
    [("watched", "a")],
    [("none", "1")],
    [("shared", "a1")],
    [("shared", "a2")],
    [("trial", "x")],
    [("bare", "a")],
    [("unknown", "a")],
]


class Both:
    """The real handler and the fake, on clocks that move together."""

    def __init__(self, directory: Path, request_limits: RequestLimits = RequestLimits.LOWER) -> None:
        (directory / "edge.yaml").write_text(RULES)
        rules = load_directory(directory)
        self.clock = ManualClock(1_700_000_040_000)
        self.fake = FakeServer(
            yaml.safe_load(RULES), clock=FakeClock(1_700_000_040), request_limits=request_limits.value
        )
        self._engine = Engine(self.clock, max_cells=1000)
        self._handler = RateLimitHandler(
            rules=lambda: rules,
            engine=self._engine,
            random=random.Random(1),
            settings=AnswerSettings(exact_reset=True, request_limits=request_limits),
        )

    def ask(self, request: RateLimitRequest) -> tuple[dict[str, Any], dict[str, Any]]:
        payload = request.SerializeToString()
        for counter in self._engine.counters:
            # A denial that is remembered may name an earlier time than what was charged since would give.
            counter.deny_until_ms = 0
        answer = self._handler.answer(payload)
        assert isinstance(answer, bytes)
        return as_dict(answer), as_dict(self.fake.answer(payload))


def as_dict(answer: bytes) -> dict[str, Any]:
    return MessageToDict(RateLimitResponse.FromString(answer))


def descriptor(chance: random.Random, entries: list[tuple[str, str]]) -> RateLimitDescriptor:
    found = RateLimitDescriptor()
    for key, value in entries:
        found.entries.add(key=key, value=value)
    if chance.random() < 0.2:
        found.hits_addend.CopyFrom(UInt64Value(value=chance.choice([0, 1, 2, 8, 40])))
    found.is_negative_hits = entries[0][0] in ("given", "back") and chance.random() < 0.3
    return found


def with_limit(chance: random.Random, made: RateLimitDescriptor) -> RateLimitDescriptor:
    """Now and then a limit of its own; what is given back has none."""
    if not made.is_negative_hits and chance.random() < 0.4:
        requests, unit = chance.choice([0, 1, 3, 5, 100]), chance.choice(["SECOND", "MINUTE", "HOUR"])
        made.limit.CopyFrom(RateLimitDescriptor.RateLimitOverride(requests_per_unit=requests, unit=unit))
    return made


@pytest.mark.parametrize("limited", [None, RequestLimits.LOWER, RequestLimits.ALLOW], ids=str)
@pytest.mark.parametrize("seed", range(8))
def test_every_answer_is_the_real_servers(tmp_path: Path, seed: int, limited: RequestLimits | None) -> None:
    """Without limits in requests, and with some, as the server takes them."""
    chance = random.Random(seed)
    both = Both(tmp_path, limited or RequestLimits.LOWER)
    codes = set()
    for number in range(600):
        moved_ms = chance.choice([0, 0, 1, 500, 7_000, 61_000])
        both.clock.advance(moved_ms)
        both.fake.clock.advance(moved_ms / 1000)
        chosen = chance.sample(CHOICES, chance.choice([1, 1, 1, 2, 3]))
        descriptors = [descriptor(chance, entries) for entries in chosen]
        if limited:
            descriptors = [with_limit(chance, made) for made in descriptors]
        real, fake = both.ask(
            RateLimitRequest(domain="edge", descriptors=descriptors, hits_addend=chance.choice([0, 1, 3]))
        )
        assert fake == real, f"request {number}: {descriptors}"
        codes.add(real["overallCode"])
    assert codes == {"OK", "OVER_LIMIT"}


@pytest.mark.parametrize(("key", "cost", "asks"), [("sliding", 2, 2), ("fixed", 3, 1), ("bucket", 3, 1)])
def test_a_descriptor_that_stands_in_a_request_twice_is_charged_twice(
    tmp_path: Path, key: str, cost: int, asks: int
) -> None:
    both = Both(tmp_path)
    twice = [RateLimitDescriptor(entries=[{"key": key, "value": "a"}]) for _ in range(2)]
    for _ in range(asks):
        real, fake = both.ask(RateLimitRequest(domain="edge", descriptors=twice, hits_addend=cost))
        assert fake == real
    assert real["overallCode"] == "OVER_LIMIT"


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ({"key": "a", "rate_limit": {"unit": "fortnight", "requests_per_unit": 1}}, "edge: a=: unit: one of second"),
        ({"key": "a", "rate_limit": {"unit": "day", "requests_per_unit": 1, "borrow": 1}}, "knows no 'borrow'"),
        ({"key": "a", "rate_limit": {"unit": "day", "requests_per_unit": 1, "algorithm": "x"}}, "algorithm: one of"),
        ({"key": "a", "rate_limit": {"unit": "day"}}, "no requests_per_unit"),
        ({"key": "a", "quota_mode": True}, "edge: a=: the fake knows no 'quota_mode'"),
    ],
)
def test_rules_that_the_fake_does_not_know_are_refused(rules: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        FakeServer({"domain": "edge", "descriptors": [rules]})
    with pytest.raises(ValueError, match="rate: like '5/minute', got 'often'"):
        FakeServer().limit("edge", "often", user="*")
