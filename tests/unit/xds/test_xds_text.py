"""A resource as source text: the same YAML for the same resource, read back as what it meant."""

import random

import pytest
import yaml
from google.protobuf.struct_pb2 import Struct
from headgate.clock import SystemClock
from headgate.rules.compiling import compile_source
from headgate.rules.pace import Pace
from headgate.rules.problems import RulesError
from headgate.rules.source import RulesSource, SourceFile
from headgate.xds.text import config_text, shown_name
from headgate.xds.wire.ratelimit_config_pb2 import (
    RateLimitConfig,
    RateLimitDescriptor,
    RateLimitPolicy,
    RateLimitReplace,
    RateLimitUnit,
)

ROUTE = "httproute/default/web/rule/0/match/0/*"


def _limit(unit: int, count: int) -> RateLimitPolicy:
    return RateLimitPolicy(unit=unit, requests_per_unit=count)  # type: ignore[arg-type]


GATEWAY = RateLimitConfig(
    name="default/eg/http",
    domain="default/eg/http",
    descriptors=[
        RateLimitDescriptor(
            key=ROUTE,
            value=ROUTE,
            descriptors=[
                RateLimitDescriptor(key="rule-0-match-0", value="rule-0-match-0", rate_limit=_limit(3, 3)),
                RateLimitDescriptor(key="rule-1-match--1", value="rule-1-match--1", rate_limit=_limit(1, 0)),
            ],
        )
    ],
)


def test_envoy_gateways_shape_is_this_text() -> None:
    assert config_text(GATEWAY).decode() == (
        'domain: "default/eg/http"\n'
        "descriptors:\n"
        f'- key: "{ROUTE}"\n'
        f'  value: "{ROUTE}"\n'
        "  descriptors:\n"
        '  - key: "rule-0-match-0"\n'
        '    value: "rule-0-match-0"\n'
        "    rate_limit:\n"
        "      unit: hour\n"
        "      requests_per_unit: 3\n"
        '  - key: "rule-1-match--1"\n'
        '    value: "rule-1-match--1"\n'
        "    rate_limit:\n"
        "      unit: second\n"
        "      requests_per_unit: 0\n"
    )


def _compiled(config: RateLimitConfig) -> int:
    files = (SourceFile("xds/x", config_text(config), "xds/x"),)
    rules = compile_source(RulesSource(files), Pace(SystemClock()), merge_domains=False)
    return rules.count


def test_every_field_is_read_back() -> None:
    metadata = Struct()
    metadata.update({"team": "a b", "n": 3, "x": 0.5, "deep": {"list": [True, None, "é\u2028"]}})
    policy = RateLimitPolicy(unlimited=True, name="all", replaces=[RateLimitReplace(name="other")])
    config = RateLimitConfig(
        domain="d",
        descriptors=[
            RateLimitDescriptor(key="a", rate_limit=policy),
            RateLimitDescriptor(
                key="b", rate_limit=_limit(7, 1), shadow_mode=True, detailed_metric=True, metadata=metadata
            ),
            RateLimitDescriptor(key="c", rate_limit=_limit(5, 1), quota_mode=True),
        ],
    )
    assert _compiled(config) == 3
    read = yaml.safe_load(config_text(config))["descriptors"]
    assert read[0]["rate_limit"] == {"name": "all", "unlimited": True, "replaces": [{"name": "other"}]}
    assert (read[1]["shadow_mode"], read[1]["detailed_metric"], read[2]["quota_mode"]) == (True, True, True)
    assert read[1]["metadata"] == {"deep": {"list": [True, None, "é\u2028"]}, "n": 3, "team": "a b", "x": 0.5}
    assert (read[1]["rate_limit"]["unit"], read[2]["rate_limit"]["unit"]) == ("week", "month")


def test_no_descriptors_are_a_domain_without_limits() -> None:
    assert config_text(RateLimitConfig(domain="d")) == b'domain: "d"\ndescriptors: []\n'
    assert _compiled(RateLimitConfig(domain="d")) == 0


@pytest.mark.parametrize(
    ("descriptor", "line", "reason"),
    [
        (RateLimitDescriptor(key="k", rate_limit=RateLimitPolicy(requests_per_unit=1)), 5, "unit"),
        (RateLimitDescriptor(key="k", rate_limit=_limit(99, 1)), 5, "unit"),
        (RateLimitDescriptor(rate_limit=_limit(1, 1)), 3, "`key` is empty"),
    ],
)
def test_what_rules_refuse_is_named_with_its_line(descriptor: RateLimitDescriptor, line: int, reason: str) -> None:
    text = config_text(RateLimitConfig(domain="d", descriptors=[descriptor]))
    source = RulesSource((SourceFile("xds/d", text, "xds/d"),))
    with pytest.raises(RulesError) as raised:
        compile_source(source, Pace(SystemClock()), merge_domains=False)
    (problem,) = raised.value.problems
    assert (problem.file, problem.line) == ("xds/d", line)
    assert reason in problem.reason


def test_any_text_comes_back_as_it_was() -> None:
    rng = random.Random(1)
    ranges = [(0, 0x100), (0x2000, 0x2100), (0xFE00, 0x10000), (0x1F600, 0x1F640)]
    texts = ["".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(8)) for _ in range(500)]
    for text in [*texts, '"', "\\", "a: b", "- x", "null", "1", "\ufeff", "\x85", " a "]:
        config = RateLimitConfig(domain=text, descriptors=[RateLimitDescriptor(key=text, value=text)])
        read = yaml.safe_load(config_text(config))
        assert (read["domain"], read["descriptors"]) == (text, [{"key": text, "value": text}])
        assert shown_name(text).isprintable()


def test_units_have_the_contracts_numbers() -> None:
    names = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"]
    assert {name: RateLimitUnit.Value(name) for name in names} == {name: number for number, name in enumerate(names)}
    assert GATEWAY.SerializeToString()[:17] == b"\n\x0fdefault/eg/http"
