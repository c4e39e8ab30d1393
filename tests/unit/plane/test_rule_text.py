"""Rules as the plane holds them: one text per rule, files made of them, and what is refused before it is published."""

from pathlib import Path

import pytest
from headgate.limiter.rule_name import Steps
from headgate.plane.database import Sqlite
from headgate.plane.entry import RuleChange
from headgate.plane.files import rule_changes
from headgate.plane.rule_log import Author, RuleLog
from headgate.plane.rule_text import checked, domain_file, load, rules_of
from headgate.rules.changes import changed
from headgate.rules.ruleset import NO_RULES, RuleSet

from tests.unit.rules.saving import EVERYTHING
from tests.unit.rules.support import compile_text

ORDERED = """
domain: d
descriptors:
  - {key: path, value: /api/v1/*, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: path, value: "*", rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: path, value: /api/*, rate_limit: {unit: minute, requests_per_unit: 3}}
"""
OWN_FIELDS = """
domain: d
shard_by: tenant
request_limits: refuse
descriptors:
  - key: tenant
    descriptors:
      - {key: user, rate_limit: {unit: second, requests_per_unit: 9, scope: global, force_global: true}}
"""
STRANGE = """
domain: "d \\u2028"
descriptors:
  - {key: "k\\u0085\\u00e9", value: "\\ufeff\\x7f\\U0001F600\\"\\\\ ", rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: gcra, rate_limit: {unit: day, requests_per_unit: 7, algorithm: gcra, on_error: open, precision: 0%}}
"""


def again(rules: RuleSet, domain: str) -> RuleSet:
    texts = {change.path: load(change.rule or b"") for change in rules_of(rules, domain)}
    return compile_text(domain_file(domain, texts).text.decode())


LEADING = """
domain: d
descriptors:
  - {key: path, value: "*", rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: path, value: /api/*, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 3}}]}
  - {key: path, value: /a*, descriptors: [{key: user, value: x}]}
"""
TEXTS = (EVERYTHING, ORDERED, OWN_FIELDS, STRANGE, LEADING)


@pytest.mark.parametrize("text", TEXTS)
def test_rules_that_become_texts_and_a_file_again_are_the_same_rules(text: str) -> None:
    rules = compile_text(text)
    (domain,) = rules.domains
    other = again(rules, domain)
    assert dict(other.domains[domain].limits()) == dict(rules.domains[domain].limits())
    assert other.version.digest == rules.version.digest
    assert set(rules_of(other, domain)) == set(rules_of(rules, domain))
    assert (other.domains[domain].shard_by, other.domains[domain].request_limits) == (
        rules.domains[domain].shard_by,
        rules.domains[domain].request_limits,
    )


@pytest.mark.parametrize("text", TEXTS)
def test_a_plane_and_a_directory_name_one_version(text: str, tmp_path: Path) -> None:
    rules = compile_text(text, "domain: empty", "domain: other\ndescriptors: [{key: k}]")
    log = RuleLog(Sqlite(tmp_path))
    log.change([rule for domain in rules.domains for rule in rules_of(rules, domain)], Author("", "", 0))
    assert log.position.version == rules.version.digest
    log.close()


@pytest.mark.parametrize("text", TEXTS)
def test_rules_handed_over_one_by_one_are_the_same_rules(text: str, tmp_path: Path) -> None:
    """In the order of the file, in which the store puts wildcards that come one by one too."""
    rules = compile_text(text)
    (domain,) = rules.domains
    log = RuleLog(Sqlite(tmp_path))
    entry = log.change(list(rules_of(rules, domain)), Author("", "", 0))
    assert entry is not None
    came = changed(NO_RULES, rule_changes([entry], log, {}))
    assert dict(came.domains[domain].limits()) == dict(rules.domains[domain].limits())
    assert came.version.digest == log.position.version
    log.close()


def test_the_first_wildcard_of_the_file_stays_the_first() -> None:
    rules = compile_text(ORDERED)
    for other in (rules, again(rules, "d")):
        match = other.match("d", [("path", "/api/v2/x")])
        assert match is not None
        assert match.limit.requests_per_unit == 2


def put(path: Steps, rule: str) -> RuleChange:
    return RuleChange("d", path, rule.encode())


USER: Steps = (("user", "ann"),)
GOOD = '{"rate_limit": {"unit": "Minute", "requests_per_unit": 5}}'


def test_what_callers_write_becomes_canonical() -> None:
    (rule,), problems = checked("d", [put(USER, GOOD)], None)
    assert (rule.rule, problems) == (b'{"rate_limit":{"requests_per_unit":5,"unit":"minute"}}', [])
    (wildcard,), _ = checked("d", [put((("user", "a*"),), '{"place": 4, ' + GOOD[1:])], None)
    assert b'"place":4' in (wildcard.rule or b"")


def test_rules_of_one_call_on_one_way_are_checked_together() -> None:
    inner = (*USER, ("path", "/x"))
    rules, problems = checked("d", [put(inner, GOOD), put(USER, "{}"), put((), '{"shard_by": "user"}')], None)
    assert not problems
    assert [(rule.path, rule.rule) for rule in rules][1:] == [(USER, b"{}"), ((), b'{"shard_by":"user"}')]


@pytest.mark.parametrize(
    ("path", "rule", "reason"),
    [
        (USER, '{"rate_limit": {"unit": "fortnight", "requests_per_unit": 5}}', "`unit`"),
        (USER, '{"rate_limit": {"unit": "minute"}}', "no `requests_per_unit`"),
        (USER, '{"rate_limt": {}}', "unknown key"),
        (USER, '{"key": "user"}', "stands in the path"),
        (USER, '{"place": 1}', "a value with a `*`"),
        ((("user", "a*"),), '{"place": -1}', "whole number"),
        (USER, "[]", "a JSON object with"),
        (USER, "{", "is a JSON object"),
        (USER, '{"metadata": {"x": NaN}}', "is a JSON object"),
        ((("", "x"),), "{}", "no key"),
        ((), '{"shards": "x"}', "unknown key"),
        ((("tenant", "a*"),), '{"share_threshold": true, ' + GOOD[1:], "shard by another key"),
    ],
)
def test_nothing_is_accepted_that_a_check_of_files_would_refuse(path: Steps, rule: str, reason: str) -> None:
    other = put((("other", "x"),), GOOD)
    rules, problems = checked("d", [other, put(path, rule)], b'{"shard_by":"tenant"}')
    assert rules == []
    assert [(problem.path, reason in problem.reason) for problem in problems] == [(path, True)], problems
