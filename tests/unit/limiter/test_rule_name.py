"""What rules are called: stable, apart from each other, fit for headers and labels."""

import string

from headgate.limiter.rule_name import MAX_ID_BYTES, REQUEST_RULE, Steps, rule_id, rule_name
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rules.support import compile_text

RULES = """
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 1}
    descriptors:
      - {key: path, value: /login, rate_limit: {unit: second, requests_per_unit: 2}}
      - {key: path, value: "/api/*", rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: plan, value: free, rate_limit: {unit: second, requests_per_unit: 4, name: free-plan}}
"""

PARTS = st.text(max_size=12)
STEPS = st.lists(st.tuples(PARTS.filter(bool), PARTS), min_size=1, max_size=4).map(tuple)


def test_a_rule_is_called_by_its_name_or_by_its_place_in_the_tree() -> None:
    rules = compile_text(RULES)
    assert {info.rule: info.id for info in rules.rules()} == {
        "user": "user",
        "user > path=/login": "user>path=/login",
        "user > path=/api/*": "user>path=/api/*",
        "plan=free": "free-plan",
    }


def test_a_request_finds_the_id_that_the_rules_show() -> None:
    rules = compile_text(RULES)
    shown = {info.id for info in rules.rules()}
    for entries in ([("user", "a")], [("user", "a"), ("path", "/login")], [("user", "b"), ("path", "/api/x")]):
        match = rules.match("edge", entries)
        assert match is not None
        assert match.name.domain == "edge"
        assert match.name.id in shown


def test_an_id_stays_when_the_rules_around_it_change() -> None:
    before = compile_text(RULES).match("edge", [("user", "a"), ("path", "/login")])
    changed = RULES.replace("requests_per_unit: 2", "requests_per_unit: 20").replace("value: free", "value: trial")
    after = compile_text(changed).match("edge", [("user", "a"), ("path", "/login")])
    assert before is not None
    assert after is not None
    assert before.name == after.name


@given(left=STEPS, right=STEPS)
def test_two_places_never_share_an_id(left: Steps, right: Steps) -> None:
    assert (rule_id("", left) == rule_id("", right)) == (left == right)


@given(steps=STEPS, name=PARTS)
def test_an_id_is_short_printable_and_not_that_of_a_limit_in_a_request(steps: Steps, name: str) -> None:
    made = rule_id(name, steps)
    assert 0 < len(made) <= MAX_ID_BYTES
    assert set(made) <= set(string.ascii_letters + string.digits + string.punctuation)
    assert made != REQUEST_RULE


def test_long_ids_are_cut_and_stay_apart() -> None:
    one, two = (rule_id("", (("path", "/x" * 100 + end),)) for end in ("a", "b"))
    assert one != two
    assert len(one) == len(two) == MAX_ID_BYTES


def test_a_name_is_made_once() -> None:
    assert rule_name("d", "", (("a", "b"),)) is rule_name("d", "", (("a", "b"),))
