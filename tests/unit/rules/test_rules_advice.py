"""What is allowed and hardly meant: said with its place, and never a reason to refuse."""

import random

from headgate.rules.advice import advise
from headgate.rules.wildcards import matches

from tests.unit.rules.support import compile_text

LIMIT = "rate_limit: {unit: hour, requests_per_unit: 5}"


def advice(*texts: str, merge_domains: bool = False) -> list[str]:
    return [str(problem) for problem in advise(compile_text(*texts, merge_domains=merge_domains))]


def wildcards(*patterns: str) -> str:
    lines = [f"  - {{key: k, value: '{pattern}', {LIMIT}}}" for pattern in patterns]
    return "\n".join(["domain: d", "descriptors:", *lines]) + "\n"


def test_a_wildcard_behind_one_that_matches_all_it_would() -> None:
    assert advice(wildcards("/api/*", "/api/v1/*", "/other/*")) == [
        "a.yaml:4: warning: `k=/api/v1/*` can never match: `k=/api/*` at a.yaml:3 matches first whatever it would"
    ]
    assert advice(wildcards("/api/v1/*", "/api/*")) == []
    assert advice(wildcards("a*z", "a*b*z", "*a*")) == [
        "a.yaml:4: warning: `k=a*b*z` can never match: `k=a*z` at a.yaml:3 matches first whatever it would"
    ]


def test_a_key_without_a_value_behind_a_star() -> None:
    starred = wildcards("*") + f"  - {{key: k, {LIMIT}}}\n  - {{key: k, value: exact, {LIMIT}}}\n"
    assert advice(starred) == [
        "a.yaml:4: warning: `k` can never match: `k=*` at a.yaml:3 matches first whatever it would"
    ]
    assert advice(wildcards("a*") + f"  - {{key: k, {LIMIT}}}\n") == []


def test_what_is_below_a_rule_that_never_matches_is_not_named_again() -> None:
    text = f"""\
domain: d
descriptors:
- {{key: a, value: '*'}}
- key: a
  value: 'x*'
  descriptors:
  - {{key: b, value: '*', {LIMIT}}}
  - {{key: b, value: 'y*', {LIMIT}}}
- key: a
  value: exact
  descriptors:
  - {{key: c, value: '*', {LIMIT}}}
  - {{key: c, {LIMIT}}}
"""
    assert [line.split(":")[1] for line in advice(text)] == ["4", "13"]


def test_replaces_with_a_name_that_nobody_has() -> None:
    named = "- {key: a, rate_limit: {name: known, unit: hour, requests_per_unit: 5}}"
    replacing = "- {key: b, rate_limit: {unit: hour, requests_per_unit: 5, replaces: [{name: known}, {name: knwon}]}}"
    text = f"domain: d\ndescriptors:\n{named}\n{replacing}\n"
    expected = "warning: replaces `knwon`, and no rule of domain `d` has that name"
    assert advice(text) == [f"a.yaml:4: {expected}"]
    # A name in another domain is another rule's.
    elsewhere = f"domain: e\ndescriptors:\n{named.replace('known', 'knwon')}\n"
    assert advice(text, elsewhere) == [f"a.yaml:4: {expected}"]
    merged = f"domain: d\ndescriptors:\n{named.replace('known', 'knwon').replace('key: a', 'key: c')}\n"
    assert advice(text, merged, merge_domains=True) == []


def test_no_rule_that_is_said_never_to_match_matches_anything() -> None:
    """Against brute force: patterns and values of few letters, where most patterns overlap."""
    chooser = random.Random(5)

    def text(letters: str, longest: int) -> str:
        return "".join(chooser.choice(letters) for _ in range(chooser.randrange(longest + 1)))

    named = 0
    for _ in range(300):
        patterns = list(dict.fromkeys(text("ab*", 4) + "*" for _ in range(4)))
        rules = compile_text(wildcards(*patterns))
        never = {str(problem).split("`")[1].removeprefix("k=") for problem in advise(rules)}
        named += len(never)
        for value in (text("ab", 8) for _ in range(60)):
            first = next((pattern for pattern in patterns if matches(pattern.split("*"), value)), None)
            assert first not in never, (patterns, value)
    assert named > 50


def test_a_domain_without_a_limit() -> None:
    without = "domain: e\ndescriptors:\n  - key: a\n    descriptors: [{key: b}]\n"
    assert advice(wildcards("x"), without) == ["b.yaml:1: warning: domain `e` has no limit: nothing is denied by it"]


def test_values_that_look_like_regular_expressions() -> None:
    said = "looks like a regular expression, and is none: only `*` stands for anything"
    assert advice(wildcards("^/api/.*$", "/user/[0-9]+", "example.*", "*.jpg")) == [
        f"a.yaml:3: warning: `k=^/api/.*$` {said}",
        f"a.yaml:4: warning: `k=/user/[0-9]+` {said}",
    ]
    below = f"domain: d\ndescriptors:\n  - key: a\n    descriptors:\n      - {{key: b, value: 'v\\d', {LIMIT}}}\n"
    assert advice(below) == [f"a.yaml:5: warning: `b=v\\d` {said}"]


def test_a_limit_of_0_for_every_value_of_a_key_and_not_one_for_a_single_value() -> None:
    zero = "rate_limit: {unit: hour, requests_per_unit: 0}"
    said = "has a limit of 0: every request that meets it is denied"
    below = f"  - key: p\n    descriptors:\n      - {{key: u, {zero}}}\n"
    rules = [
        f"{{key: k, value: banned, {zero}}}",
        f"{{key: k, value: 'a*', {zero}}}",
        f"{{key: k, {zero}}}",
        f"{{key: watched, shadow_mode: true, {zero}}}",
        "{key: free, rate_limit: {unlimited: true}}",
    ]
    text = "domain: d\ndescriptors:\n" + "".join(f"  - {rule}\n" for rule in rules) + below
    assert advice(text) == [
        f"a.yaml:4: warning: `k=a*` {said}",
        f"a.yaml:5: warning: `k` {said}",
        f"a.yaml:10: warning: `u` {said}",
    ]
