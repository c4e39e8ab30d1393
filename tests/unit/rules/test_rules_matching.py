"""Which rule a request hits, and whose counter: the table of fixtures/matching.yaml."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml
from headgate.rules.explain import explain
from headgate.rules.ruleset import RuleSet

from tests.unit.rules.support import FIXTURES, compile_text, entries_of

GROUPS: dict[str, dict[str, Any]] = {
    group["name"]: group for group in yaml.safe_load((FIXTURES / "matching.yaml").read_text())
}


@cache
def rules_of(group: str) -> RuleSet:
    return compile_text(GROUPS[group]["rules"])


def cases() -> Iterator[tuple[str, str, str]]:
    for name, group in GROUPS.items():
        for line in group["cases"].splitlines():
            request, expected = line.split(" -> ")
            yield name, request, expected


def pairs(kind: str) -> Iterator[tuple[str, str, str]]:
    for name, group in GROUPS.items():
        for line in group.get(kind, "").splitlines():
            left, right = line.split(" | ")
            yield name, left, right


def counter(group: str, request: str) -> bytes:
    match = rules_of(group).match("d", entries_of(request))
    assert match is not None, request
    return match.key


@pytest.mark.parametrize(("group", "request_line", "expected"), list(cases()))
def test_a_request_hits_the_rule_that_the_table_names(group: str, request_line: str, expected: str) -> None:
    rules = rules_of(group)
    match = rules.match("d", entries_of(request_line))
    if expected == "none":
        assert match is None
    else:
        rule, _, requests = expected.rpartition(" ")
        assert match is not None
        assert match.rule == f"d: {rule}"
        assert match.limit.requests_per_unit == int(requests)
    assert explain(rules, "d", entries_of(request_line)).match == match


@pytest.mark.parametrize(("group", "left", "right"), list(pairs("same")))
def test_requests_that_share_a_counter(group: str, left: str, right: str) -> None:
    assert counter(group, left) == counter(group, right)


@pytest.mark.parametrize(("group", "left", "right"), list(pairs("apart")))
def test_requests_that_have_counters_of_their_own(group: str, left: str, right: str) -> None:
    assert counter(group, left) != counter(group, right)


def test_the_table_is_as_large_as_it_should_be() -> None:
    assert len(list(cases())) >= 120


def test_domains_are_apart() -> None:
    one = "domain: one\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 1}}]"
    rules: RuleSet = compile_text(one, one.replace("one", "two"), "domain: empty\n")
    first, second = rules.match("one", [("k", "v")]), rules.match("two", [("k", "v")])
    assert first is not None
    assert second is not None
    assert first.key != second.key
    assert rules.has_domain("one")
    assert rules.has_domain("empty")
    assert not rules.has_domain("three")
    assert rules.match("empty", [("k", "v")]) is None
    assert rules.match("three", [("k", "v")]) is None
    assert rules.match("one", []) is None


def test_merged_domains_hold_the_rules_of_all_their_files() -> None:
    one = "domain: d\ndescriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 1}}]"
    two = (
        "domain: d\ndescriptors: [{key: a, value: x, rate_limit: {unit: second, requests_per_unit: 2}},"
        " {key: a, value: 'y*', rate_limit: {unit: second, requests_per_unit: 3}},"
        " {key: b, value: 'z*', rate_limit: {unit: second, requests_per_unit: 4}}]"
    )
    rules = compile_text(one, two, merge_domains=True)
    found = {value: rules.match("d", [("a", value)]) for value in ("w", "x", "yy")}
    assert {value: match and match.limit.requests_per_unit for value, match in found.items()} == {
        "w": 1,
        "x": 2,
        "yy": 3,
    }
    zed = rules.match("d", [("b", "zz")])
    assert zed is not None
    assert zed.limit.requests_per_unit == 4
    assert {info.rule: info.place for info in rules.rules()} == {
        "a=x": "b.yaml:2",
        "a=y*": "b.yaml:2",
        "a": "a.yaml:2",
        "b=z*": "b.yaml:2",
    }


def test_equal_limits_are_one_object() -> None:
    rules = compile_text(
        "domain: d\ndescriptors:\n"
        "  - {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}\n"
        "  - {key: b, rate_limit: {requests_per_unit: 0xA, unit: MINUTE}}\n"
        "  - {key: c, shadow_mode: on, rate_limit: {unit: minute, requests_per_unit: 10}}\n"
    )
    limits = {info.rule: info.limit for info in rules.rules()}
    assert limits["a"] is limits["b"]
    assert limits["c"] != limits["a"]
