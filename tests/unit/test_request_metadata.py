"""A request told back in an answer's dynamic metadata, as Envoy AI Gateway reads it."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.engine import Engine
from headgate.rules.directory import load_directory
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

from tests.support.clock import ManualClock

RULES = """
domain: ai-gateway-quota
descriptors:
- key: backend_name
  value: ns/fast
  descriptors:
  - key: model_name_override
    value: large
    descriptors:
    - key: tenant
      quota_mode: true
      rate_limit: {unit: hour, requests_per_unit: 2}
      metadata: {pool: {name: fast, tenant: true}, first: fast}
    - key: rule-1-match--1
      value: rule-1-match--1
      quota_mode: true
      rate_limit: {unit: hour, requests_per_unit: 1000}
      metadata: {pool: {name: shared, default: true}}
- key: backend_name
  value: ns/slow
  descriptors:
  - key: model_name_override
    value: small
    quota_mode: true
    rate_limit: {unit: hour, requests_per_unit: 4}
    metadata: {first: slow, last: slow}
- key: user
  rate_limit: {unit: hour, requests_per_unit: 1}
  metadata: {who: user}
- key: watched
  shadow_mode: true
  rate_limit: {unit: hour, requests_per_unit: 1}
  metadata: {watched: true}
- key: free
  rate_limit: {unlimited: true}
  metadata: {never: told}
"""
FAST, SLOW = (
    ("backend_name=ns/fast", "model_name_override=large"),
    ("backend_name=ns/slow", "model_name_override=small"),
)
TENANT, DEFAULT = (*FAST, "tenant=a"), (*FAST, "rule-1-match--1=rule-1-match--1")
FAST_MODEL = {"backend_name": "ns/fast", "model_name_override": "large"}
SLOW_MODEL = {"backend_name": "ns/slow", "model_name_override": "small"}

Ask = Callable[..., RateLimitResponse]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    (tmp_path / "rules.yaml").write_text(RULES)
    rules = load_directory(tmp_path)
    handler = RateLimitHandler(
        rules=lambda: rules,
        engine=Engine(ManualClock(1_700_000_040_000), max_cells=100),
        random=random.Random(1),
        settings=AnswerSettings(request_metadata=True),
    )

    def ask(*descriptors: tuple[str, ...], **fields: Any) -> RateLimitResponse:
        request = RateLimitRequest(**{"domain": "ai-gateway-quota", **fields})
        for entries in descriptors:
            request.descriptors.append(descriptor(*entries))
        answer = handler.answer(request.SerializeToString())
        assert isinstance(answer, bytes)
        return RateLimitResponse.FromString(answer)

    return ask


def descriptor(*entries: str) -> RateLimitDescriptor:
    pairs = [entry.split("=") for entry in entries]
    return RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key=key, value=value) for key, value in pairs])


def told(answer: RateLimitResponse) -> dict[str, Any]:
    return MessageToDict(answer.dynamic_metadata)


def without_request(answer: RateLimitResponse) -> dict[str, Any]:
    return {key: value for key, value in told(answer).items() if key not in ("domain", "descriptors")}


def test_the_request_is_told_back_with_what_passed(ask: Ask) -> None:
    assert told(ask(TENANT, DEFAULT, SLOW, hits_addend=2)) == {
        "domain": "ai-gateway-quota",
        "descriptors": [{"entries": list(entries)} for entries in (TENANT, DEFAULT, SLOW)],
        "hitsAddend": 2,
        "metadata": {"pool": {"name": "fast", "tenant": True, "default": True}, "first": "fast", "last": "slow"},
        "passedBackends": [FAST_MODEL, SLOW_MODEL],
    }


def test_a_model_with_one_quota_used_up_is_not_offered(ask: Ask) -> None:
    """The tenant's is used up and the model's own is not: nothing of that model is told."""
    ask(TENANT, hits_addend=2)
    for _ in range(3):
        answer = ask(TENANT, DEFAULT, SLOW)
        assert (answer.overall_code, [status.code for status in answer.statuses]) == (1, [2, 1, 1])
        assert without_request(answer) == {
            "metadata": {"first": "slow", "last": "slow"},
            "passedBackends": [SLOW_MODEL],
        }


def test_when_no_model_is_left_the_request_is_denied_and_nothing_offered(ask: Ask) -> None:
    ask(TENANT, hits_addend=2)
    ask(SLOW, hits_addend=4)
    answer = ask(TENANT, DEFAULT, SLOW)
    assert answer.overall_code == RateLimitResponse.OVER_LIMIT
    assert without_request(answer) == {}


def test_what_passed_changes_from_one_answer_to_the_next_like_it(ask: Ask) -> None:
    assert [without_request(ask(("user=a",), ("watched=w",))) for _ in range(2)] == [
        {"metadata": {"who": "user", "watched": True}},
        {"metadata": {"watched": True}},
    ]


@pytest.mark.parametrize("fields", [{}, {"domain": "unknown"}])
def test_a_request_that_nothing_limits_is_told_back_too(ask: Ask, fields: dict[str, str]) -> None:
    for _ in range(3):
        answer = ask(("free=1",), ("nobody=x",), **fields)
        assert told(answer) == {
            "domain": fields.get("domain", "ai-gateway-quota"),
            "descriptors": [{"entries": ["free=1"]}, {"entries": ["nobody=x"]}],
        }
        assert len(answer.statuses) == 2


def test_a_descriptors_own_cost_and_limit_are_told_back(ask: Ask) -> None:
    asked = descriptor("user=b")
    asked.hits_addend.value = 0
    asked.limit.requests_per_unit, asked.limit.unit = 5, 2  # type: ignore[assignment]
    assert told(ask(descriptors=[asked])) == {
        "domain": "ai-gateway-quota",
        "descriptors": [{"entries": ["user=b"], "limit": "requests_per_unit: 5 unit: MINUTE", "hitsAddend": 0}],
        "metadata": {"who": "user"},
    }
