"""The matcher against a naive one that reads the rules as the grammar says it, over generated rules."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

import yaml
from headgate.rules.diff import differences
from headgate.rules.explain import explain
from headgate.rules.model import Match
from headgate.rules.overlaps import overlaps
from headgate.rules.ruleset import RuleSet
from headgate.rules.wildcards import WildcardIndex, matches
from hypothesis import given
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.unit.rules.support import FIXTURES, Entries, compile_text, problems_of, saved_and_read

KEYS = st.sampled_from(["a", "b", "a_b"])
VALUES = st.text("ab_", max_size=4)
PATTERNS = st.text("ab_*", max_size=5)


@dataclass
class Rule:
    key: str
    value: str
    limit: int | None
    shared: bool
    children: list["Rule"] = field(default_factory=list)

    def plain(self) -> dict[str, object]:
        rule: dict[str, object] = {"key": self.key, "value": self.value}
        if self.limit is not None:
            rule["rate_limit"] = {"unit": "second", "requests_per_unit": self.limit}
        if self.shared and "*" in self.value:
            rule["share_threshold"] = True
        if self.children:
            rule["descriptors"] = [child.plain() for child in self.children]
        return rule


def levels(depth: int) -> st.SearchStrategy[list[Rule]]:
    children = levels(depth - 1) if depth else st.just([])
    limit = st.none() | st.integers(0, 5)
    rule = st.builds(Rule, KEYS, PATTERNS, limit, st.booleans(), children)
    return st.lists(rule, max_size=5, unique_by=lambda item: (item.key, item.value))


REQUESTS = st.lists(st.lists(st.tuples(KEYS, VALUES), max_size=3), min_size=1, max_size=6)


def find(level: list[Rule], key: str, value: str) -> Rule | None:
    """One level, by the letter: exact, then wildcards in file order, then the key alone."""
    same_key = [rule for rule in level if rule.key == key]
    exact = [rule for rule in same_key if rule.value and "*" not in rule.value and rule.value == value]
    wild = [
        rule
        for rule in same_key
        if "*" in rule.value and re.fullmatch(".*".join(map(re.escape, rule.value.split("*"))), value)
    ]
    alone = [rule for rule in same_key if not rule.value]
    return next(iter(exact + wild + alone), None)


Counter = tuple[tuple[str, ...], ...]


def naive(level: list[Rule], entries: Entries) -> tuple[int, Counter] | None:
    """The limit and the identity of its counter."""
    limit, identity = None, []
    for key, value in entries:
        rule = find(level, key, value)
        if rule is None:
            return None
        own = () if rule.shared and "*" in rule.value else (value,)
        identity.append((rule.key, rule.value, *own))
        limit, level = rule.limit, rule.children
    return None if limit is None else (limit, tuple(identity))


def compile_rules(level: list[Rule]) -> RuleSet:
    return compile_text(yaml.safe_dump({"domain": "d", "descriptors": [rule.plain() for rule in level]}))


@examples(200)
@given(levels(2), REQUESTS)
def test_the_matcher_finds_what_a_naive_one_finds(level: list[Rule], requests: list[Entries]) -> None:
    rules = compile_rules(level)
    counters: dict[bytes, Counter] = {}
    keys: dict[Counter, bytes] = {}
    for entries in requests:
        expected = naive(level, entries)
        match = rules.match("d", entries)
        if expected is None:
            assert match is None
        else:
            assert match is not None
            assert match.limit.requests_per_unit == expected[0]
            assert counters.setdefault(match.key, expected[1]) == expected[1]
            assert keys.setdefault(expected[1], match.key) == match.key
        assert explain(rules, "d", entries).match == match


@given(levels(2), REQUESTS)
def test_a_snapshot_decides_as_its_rules_do(level: list[Rule], requests: list[Entries]) -> None:
    rules = compile_rules(level)
    again = saved_and_read(rules)
    for entries in requests:
        assert again.match("d", entries) == rules.match("d", entries)
    without_places = [(info.rule, info.limit) for info in rules.rules()]
    assert [(info.rule, info.limit) for info in again.rules()] == without_places


@examples(500)
@given(st.text("ab*", min_size=1, max_size=8).filter(lambda pattern: "*" in pattern), st.text("ab", max_size=10))
def test_stars_match_as_a_regular_expression_would(pattern: str, value: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert matches(pattern.split("*"), value) == bool(re.fullmatch(expression, value))


DOTTED = st.text("ab*", max_size=4)
FEW_VALUES = ["".join(letters) for length in range(5) for letters in product("ab", repeat=length)]


def short_levels(depth: int) -> st.SearchStrategy[list[Rule]]:
    """Levels of one key: their patterns overlap often, and their values can be gone through one by one."""
    children = short_levels(depth - 1) if depth else st.just([])
    rule = st.builds(Rule, st.just("a"), DOTTED, st.none() | st.integers(0, 3), st.booleans(), children)
    return st.lists(rule, max_size=4, unique_by=lambda item: item.value)


def side(match: Match | None) -> object:
    """What a caller notices of a match: the limit, and the rule whose counter it is."""
    return None if match is None else (match.limit, match.steps)


def changes(old: RuleSet, new: RuleSet) -> Iterator[tuple[Entries, object]]:
    """Every descriptor of short values that the two sets decide otherwise."""
    for depth in (1, 2):
        for values in product(FEW_VALUES, repeat=depth):
            entries = [("a", value) for value in values]
            before, after = old.match("d", entries), new.match("d", entries)
            if (before and (before.limit, before.key)) != (after and (after.limit, after.key)):
                yield entries, (side(before), side(after))


@examples(60)
@given(short_levels(1), short_levels(1))
def test_a_diff_finds_every_descriptor_that_is_decided_otherwise(one: list[Rule], other: list[Rule]) -> None:
    """Two sets that share nothing, and two that share some of their rules, in another order."""
    first, second, shared = (compile_rules(level) for level in (one, other, merged(other, one)))
    for old, new in ((first, second), (first, shared), (shared, first)):
        found = [(side(difference.before), side(difference.after)) for difference in differences(old, new)]
        for entries, change in changes(old, new):
            assert change in found, entries


def merged(level: list[Rule], more: list[Rule]) -> list[Rule]:
    """The rules of both, the first ones where both have one."""
    values = {rule.value for rule in level}
    return [*level, *(rule for rule in more if rule.value not in values)]


@examples(300)
@given(st.text("ab*", max_size=6), st.text("ab*", max_size=6))
def test_overlaps_match_what_both_patterns_match(left: str, right: str) -> None:
    common = list(overlaps(left, right))
    assert len(common) == len(set(common))
    for value in FEW_VALUES:
        both = all(fits(pattern, value) for pattern in (left, right))
        assert any(fits(pattern, value) for pattern in common) == both


def fits(pattern: str, value: str) -> bool:
    return bool(re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), value))


@dataclass(frozen=True)
class Pattern:
    pattern: str


@examples(300)
@given(st.lists(PATTERNS.filter(lambda pattern: "*" in pattern), max_size=12), VALUES)
def test_the_first_matching_wildcard_wins(patterns: list[str], value: str) -> None:
    index = WildcardIndex([Pattern(pattern) for pattern in patterns])
    expected = next((pattern for pattern in patterns if matches(pattern.split("*"), value)), None)
    found = index.find(value)
    assert (found and found.pattern) == expected


EXAMPLE = (FIXTURES.parents[3] / "examples/rules/edge.yaml").read_bytes()
WORDS = "domain key value descriptors rate_limit unit second requests_per_unit replaces name metadata 5 true ~ é"
MARKS = ("<<", "&a ", "*a", "*a ", "!!str ", "!x ", "- ", ": ", ":", "? ", "{", "}", "[", "]", ",", "'", '"', "#")
BREAKS = ("\n", "\n  ", "|\n ", "---\n", "...\n", "\t", "\x85", "%YAML 1.1\n")
TOKENS = st.sampled_from((*WORDS.split(), *MARKS, *BREAKS))


@examples(600)
@given(st.lists(TOKENS, max_size=40).map("".join))
def test_no_text_makes_the_reader_fail_otherwise_than_with_problems(text: str) -> None:
    problems_of(text)
    problems_of("domain: d\ndescriptors:\n  - key: k\n    " + text)
    problems_of("domain: d\ndescriptors: [{key: k, rate_limit: {" + text)


def test_a_file_cut_anywhere_gives_problems_or_rules() -> None:
    text = EXAMPLE + b"  - {key: a, rate_limit: &x {unit: day, requests_per_unit: 1}}\n  - {key: b, rate_limit: *x}\n"
    for length in range(len(text)):
        problems_of(text[:length])
