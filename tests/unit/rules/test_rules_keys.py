"""Limit keys: who shares a counter, and that no two different tuples share a string."""

from itertools import pairwise

import pytest
from headgate.limiter.limit import Algorithm
from headgate.rules.keys import encode_key, override_key
from headgate.rules.ruleset import RuleSet
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.unit.rules.support import compile_text


@st.composite
def cut_twice(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """One text, cut into parts in two ways: what a careless encoding would join again."""
    text = draw(st.text("a:1_", max_size=8))
    return draw(parts_of(text)), draw(parts_of(text))


@st.composite
def parts_of(draw: st.DrawFn, text: str) -> list[str]:
    ends = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[start:end] for start, end in pairwise([0, *ends, len(text)])]


ENTRIES = st.lists(st.tuples(st.text("ko1:", max_size=3), st.text("ko1:", max_size=3)), max_size=3)


@examples(500)
@given(cut_twice())
@example((["a", "b_c"], ["a_b", "c"]))
@example((["1:a"], ["a"]))
@example(([""], []))
@example((["1", "a"], ["1a"]))
@example((["é"], ["e"]))
def test_no_two_tuples_share_a_string(parts: tuple[list[str], list[str]]) -> None:
    left, right = parts
    assert (encode_key(left) == encode_key(right)) == (left == right)


def test_lone_surrogates_have_a_key_like_any_text() -> None:
    assert encode_key(["\ud800"]) != encode_key(["\udc00"])


def key_of(rules: RuleSet, *entries: tuple[str, str]) -> bytes:
    match = rules.match("d", entries)
    assert match is not None
    return match.key


def one_rule(rate_limit: str, descriptor: str = "key: k") -> RuleSet:
    return compile_text(f"domain: d\ndescriptors: [{{{descriptor}, rate_limit: {{{rate_limit}}}}}]")


BASE = "unit: minute, requests_per_unit: 10"


@pytest.mark.parametrize(
    "changed",
    [
        "unit: minute, requests_per_unit: 99",
        "unit: second, unit_multiplier: 60, requests_per_unit: 10",
        BASE + ", precision: 0",
        BASE + ", class: abuse, scope: cell, name: x",
    ],
)
def test_a_changed_limit_keeps_its_counter(changed: str) -> None:
    assert key_of(one_rule(BASE), ("k", "v")) == key_of(one_rule(changed), ("k", "v"))


@pytest.mark.parametrize(
    "changed",
    [
        "unit: hour, requests_per_unit: 10",
        "unit: minute, unit_multiplier: 2, requests_per_unit: 10",
        BASE + ", algorithm: fixed_window",
        BASE + ", algorithm: gcra",
    ],
)
def test_a_changed_window_or_algorithm_is_a_new_counter(changed: str) -> None:
    assert key_of(one_rule(BASE), ("k", "v")) != key_of(one_rule(changed), ("k", "v"))


def test_rules_of_different_kinds_never_share_a_counter() -> None:
    kinds = ["key: k", "key: k, value: v", "key: k, value: 'v*'", "key: k, value: 'v*', share_threshold: true"]
    keys = {key_of(one_rule(BASE, kind), ("k", "v")) for kind in kinds}
    keys.add(key_of(one_rule(BASE, "key: k, value: '*'"), ("k", "v")))
    keys.add(override_key("d", [("k", "v")], 60_000))
    assert len(keys) == 6


@given(ENTRIES, ENTRIES, st.sampled_from(["d", "1:", ""]), st.sampled_from(["d", "1:", ""]))
def test_overrides_have_counters_by_their_entries(
    left: list[tuple[str, str]], right: list[tuple[str, str]], left_domain: str, right_domain: str
) -> None:
    same = override_key(left_domain, left, 1000) == override_key(right_domain, right, 1000)
    assert same == ((left_domain, left) == (right_domain, right))


def test_overrides_of_another_window_or_algorithm_are_apart() -> None:
    entries = [("k", "v")]
    keys = {
        override_key("d", entries, 1000),
        override_key("d", entries, 60_000),
        override_key("d", entries, 1000, Algorithm.GCRA),
    }
    assert len(keys) == 3
