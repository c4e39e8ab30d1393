"""Which keys other regions may say something of: those that all regions count together, by the rules here."""

from typing import Final

import pytest
import yaml
from headgate.limiter.limit import Algorithm
from headgate.limiter.scopes import LimitsOfRegion
from headgate.rules.global_keys import GlobalKeys
from headgate.rules.keys import override_key, split_key
from headgate.rules.request_limits import RequestLimits
from headgate.rules.ruleset import RuleSet
from hypothesis import given
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.unit.rules.support import Entries, compile_text, entries_of
from tests.unit.rules.test_rules_properties import REQUESTS, Rule, levels

MINUTE_MS: Final = 60_000
LONG: Final = "x" * 300
RULES: Final = f"""
domain: edge
shard_by: tenant
descriptors:
- key: user
  rate_limit: {{unit: minute, requests_per_unit: 100}}
- key: user
  value: {LONG}
  rate_limit: {{unit: hour, requests_per_unit: 7}}
- key: {LONG}
  rate_limit: {{unit: minute, requests_per_unit: 7}}
- key: path
  value: /api/*
  rate_limit: {{unit: minute, requests_per_unit: 100}}
- key: path
  value: /all/*
  share_threshold: true
  rate_limit: {{unit: minute, requests_per_unit: 100}}
- key: tenant
  descriptors:
  - key: user
    rate_limit: {{unit: day, requests_per_unit: 100, algorithm: fixed_window}}
- key: region
  rate_limit: {{unit: minute, requests_per_unit: 100, scope: region}}
- key: cell
  rate_limit: {{unit: minute, requests_per_unit: 100, scope: cell}}
- key: quota
  rate_limit: {{unit: minute, requests_per_unit: 100, scope: quota}}
- key: short
  rate_limit: {{unit: second, requests_per_unit: 100}}
- key: forced
  rate_limit: {{unit: second, requests_per_unit: 100, scope: global, force_global: true}}
- key: bucket
  rate_limit: {{unit: minute, requests_per_unit: 100, algorithm: gcra}}
- key: free
  rate_limit: {{unlimited: true}}
- key: nothing
"""


def judge(rules: RuleSet, regions: int = 3, request_limits: RequestLimits = RequestLimits.LOWER) -> GlobalKeys:
    return GlobalKeys(lambda: rules, LimitsOfRegion(regions), request_limits)


@pytest.mark.parametrize(
    ("line", "window_ms", "shared"),
    [
        ("user=alice", MINUTE_MS, True),
        (f"user={LONG}", 60 * MINUTE_MS, True),
        (f"user={LONG}y", MINUTE_MS, True),
        (f"{LONG}=v", MINUTE_MS, True),
        ("path=/api/x", MINUTE_MS, True),
        ("path=/all/x", MINUTE_MS, True),
        ("tenant=t > user=u", 1440 * MINUTE_MS, True),
        ("forced=x", 1_000, True),
        ("region=x", MINUTE_MS, False),
        ("cell=x", MINUTE_MS, False),
        ("quota=x", MINUTE_MS, False),
        ("short=x", 1_000, False),
        ("bucket=x", MINUTE_MS, False),
    ],
)
def test_a_key_is_shared_where_its_rule_is_global(line: str, window_ms: int, shared: bool) -> None:
    rules = compile_text(RULES)
    match = rules.match("edge", entries_of(line))
    assert match is not None
    keys = judge(rules)
    assert keys.is_global(match.key, match.key, window_ms) is shared
    assert keys.is_global(match.key, match.key, window_ms) is shared, "also when it has been looked up before"
    assert not keys.is_global(match.key, match.key, window_ms + 1_000), "with its own window alone"
    assert not judge(rules, regions=1).is_global(match.key, match.key, window_ms), "there is nobody to share it with"


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"4:edge",
        b"4:edge1:t1:s5:60000",
        b"5:other1:k4:user5:alice1:t1:s5:60000",
        b"4:edge1:k4:nope5:alice1:t1:s5:60000",
        b"4:edge1:e4:user5:alice1:t1:s5:60000",
        b"4:edge1:k4:user5:alice1:t1:f5:60000",
        b"4:edge1:k4:user5:alice1:t1:s6:120000",
        b"4:edge1:k4:user5:alice1:t1:s5:600001:x",
        b"4:edge1:k4:user5:alice",
        b"4:edge1:k4:user5:alice1:k4:user5:alice1:t1:s5:60000",
        b"4:edge1:w4:path5:/no/*3:abc1:t1:s5:60000",
        b"4:edge1:k7:nothing1:x1:t1:s5:60000",
        b"4:edge1:k4:free1:x1:t1:s1:0",
        b"4:edge1:k4:user99:short",
        b"4:edge1:k4:user-1:x",
        b"nothing of the kind",
        b"\xff\xfe:",
    ],
)
def test_what_no_rule_could_have_made_is_nobodys(key: bytes) -> None:
    assert not judge(compile_text(RULES)).is_global(key, key, MINUTE_MS)


def test_a_key_lies_where_its_own_bytes_or_the_domains_shard_key_say() -> None:
    rules = compile_text(RULES, RULES.replace("edge", "plain").replace("shard_by: tenant", ""))
    for domain, elsewhere in (("edge", True), ("plain", False)):
        match = rules.match(domain, entries_of("tenant=t > user=u"))
        assert match is not None
        keys = judge(rules)
        assert keys.is_global(match.key, match.key, 1440 * MINUTE_MS)
        assert keys.is_global(match.key, rules.domains[domain].head + b"1:t", 1440 * MINUTE_MS) is elsewhere
        assert not keys.is_global(match.key, b"anywhere", 1440 * MINUTE_MS)


@pytest.mark.parametrize(
    ("policy", "window_ms", "shared"),
    [
        (RequestLimits.ALLOW, MINUTE_MS, True),
        (RequestLimits.LOWER, MINUTE_MS, True),
        (RequestLimits.REFUSE, MINUTE_MS, False),
        (RequestLimits.ALLOW, 1_000, False),
        (RequestLimits.ALLOW, 2 * MINUTE_MS, False),
        (RequestLimits.ALLOW, 10 * 365 * 86_400_000, False),
    ],
)
def test_limits_in_requests_are_shared_with_the_windows_that_those_can_have(
    policy: RequestLimits, window_ms: int, shared: bool
) -> None:
    keys = judge(compile_text(RULES), request_limits=policy)
    key = override_key("edge", [("user", "alice"), ("path", LONG)], window_ms)
    assert keys.is_global(key, key, window_ms) is shared
    assert not keys.is_global(key[:-1], key[:-1], window_ms)
    bucket = override_key("edge", [("user", "alice")], window_ms, Algorithm.GCRA)
    assert not keys.is_global(bucket, bucket, window_ms)


def test_the_rules_of_now_decide() -> None:
    sets = [compile_text(RULES), compile_text(RULES.replace("scope: region", "scope: global"))]
    keys = GlobalKeys(lambda: sets[0], LimitsOfRegion(2), RequestLimits.LOWER)
    match = sets[0].match("edge", entries_of("region=x"))
    assert match is not None
    assert not keys.is_global(match.key, match.key, MINUTE_MS)
    sets.pop(0)
    assert keys.is_global(match.key, match.key, MINUTE_MS)


@examples(200)
@given(levels(2), REQUESTS)
def test_every_key_leads_back_to_its_rule(level: list[Rule], requests: list[Entries]) -> None:
    text = yaml.safe_dump({"domain": "d", "descriptors": [rule.plain() for rule in level]})
    rules = compile_text(text.replace("unit: second", "unit: minute"))
    keys = judge(rules)
    for entries in requests:
        match = rules.match("d", entries)
        if match is not None:
            assert keys.is_global(match.key, match.key, match.limit.window_ms) is (match.limit.requests_per_unit > 0)


@examples(500)
@given(st.binary(max_size=80) | st.text("0123456789:ehkot", max_size=60).map(str.encode))
def test_any_bytes_are_split_or_refused(key: bytes) -> None:
    try:
        parts = split_key(key)
    except ValueError:
        parts = []
    assert b"".join(parts) in (key, b"")
    assert not judge(compile_text(RULES)).is_global(key, key, MINUTE_MS)
