"""Changes of single rules: what they come to, what they cost, and that their version is that of the content."""

import json

import pytest
from headgate.clock import SystemClock
from headgate.limiter.limit import Limit, Unit
from headgate.rules.changes import Change, Delete, DomainSettings, Put, changed, changes_between
from headgate.rules.compiling import content_total
from headgate.rules.content import added, canonical, fields_of, settings_number
from headgate.rules.grammar import RATE_LIMIT
from headgate.rules.model import RuleContent
from headgate.rules.one_rule import read_rule
from headgate.rules.pace import Pace
from headgate.rules.problems import RulesError
from headgate.rules.request_limits import RequestLimits
from headgate.rules.ruleset import MOST_TRAIL, NO_RULES, Domain, RuleSet
from headgate.rules.yaml_text import flow
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rules.saving import EVERYTHING
from tests.unit.rules.support import compile_text, rules_text, saved_and_read

STEPS = st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["", "x", "y", "x*", "*y", "*"]))
PATHS = st.lists(STEPS, min_size=1, max_size=3).map(tuple)
LIMITS = st.none() | st.sampled_from([Limit(number, Unit.MINUTE) for number in (1, 2, 3)])
PUTS = st.builds(lambda path, limit, shared: put(path, limit, shared=shared), PATHS, LIMITS, st.booleans())
DELETES = st.builds(lambda path: Delete("d", path), PATHS)
SETTINGS = st.builds(DomainSettings, st.just("d"), st.just(""), st.sampled_from([None, RequestLimits.REFUSE]))
CHANGES = st.lists(st.one_of(PUTS, PUTS, DELETES, SETTINGS), max_size=15)
REQUESTS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", "xy", "z"])), min_size=1, max_size=3)

Path = tuple[tuple[str, str], ...]


def put(path: Path, limit: Limit | None, *, shared: bool = False) -> Put:
    return Put("d", path, RuleContent(limit, shared and "*" in path[-1][1]))


def domain_of(rules: RuleSet) -> Domain:
    domain = rules.domain("d")
    assert domain is not None
    return domain


@given(CHANGES, REQUESTS)
def test_any_changes_come_to_what_their_rules_say(changes: list[Change], entries: list[tuple[str, str]]) -> None:
    rules = NO_RULES
    model: dict[Path, RuleContent] = {}
    for change in [DomainSettings("d"), *changes]:
        rules = changed(rules, [change])
        if isinstance(change, Put):
            model[change.path] = change.rule
        elif isinstance(change, Delete):
            model.pop(change.path, None)
    domain = domain_of(rules)
    assert dict(domain.rules()) == model
    assert domain.count == sum(rule.limit is not None for rule in model.values())
    whole = added(content_total(domain.level, Pace(SystemClock())), settings_number("", domain.request_limits))
    assert domain.total == whole, "the version is that of the content"
    again = saved_and_read(rules)
    assert again.version == rules.version
    assert again.match("d", entries) == rules.match("d", entries)


@given(CHANGES, PUTS)
def test_what_is_put_and_taken_back_leaves_all_as_it_was(changes: list[Change], extra: Put) -> None:
    rules = changed(NO_RULES, [DomainSettings("d"), *changes])
    before = dict(domain_of(rules).rules()).get(extra.path)
    with_it = changed(rules, [extra])
    back = Delete("d", extra.path) if before is None else Put("d", extra.path, before)
    assert changed(with_it, [back]).version.digest == rules.version.digest


@given(CHANGES, CHANGES)
def test_the_changes_between_two_states_lead_from_one_to_the_other(one: list[Change], other: list[Change]) -> None:
    old, new = (changed(NO_RULES, [DomainSettings("d"), *changes]) for changes in (one, other))
    between = list(changes_between("d", domain_of(old), domain_of(new)))
    assert changed(old, between).version.digest == new.version.digest
    assert bool(between) == (old.version.digest != new.version.digest)


@given(CHANGES, CHANGES, REQUESTS)
def test_changes_in_one_walk_come_to_what_they_come_to_one_by_one(
    first: list[Change], then: list[Change], entries: list[tuple[str, str]]
) -> None:
    together = one_by_one = changed(NO_RULES, [DomainSettings("d"), *first])
    together = changed(together, then)
    for change in then:
        one_by_one = changed(one_by_one, [change])
    assert together.version.digest == one_by_one.version.digest
    assert dict(domain_of(together).rules()) == dict(domain_of(one_by_one).rules())
    assert (together.count, together.match("d", entries)) == (one_by_one.count, one_by_one.match("d", entries))


def test_a_wildcard_that_goes_and_comes_again_in_one_call_stands_behind_the_others() -> None:
    first, second = put((("user", "a*"),), Limit(1, Unit.DAY)), put((("user", "*b"),), Limit(2, Unit.DAY))
    rules = changed(NO_RULES, [first, second])
    rules = changed(rules, [Delete("d", first.path), first])
    match = rules.match("d", [("user", "ab")])
    assert match is not None
    assert match.limit.requests_per_unit == 2


def test_many_rules_that_come_at_once_are_all_there() -> None:
    rules = changed(NO_RULES, [put((("user", f"u{number}"),), Limit(1, Unit.DAY)) for number in range(5_000)])
    rules = changed(rules, [Delete("d", (("user", f"u{number}"),)) for number in range(0, 5_000, 2)])
    assert rules.count == len(domain_of(rules).level["user"].values) == 2_500
    assert rules.match("d", [("user", "u4999")]) is not None
    assert rules.match("d", [("user", "u4998")]) is None


def test_changes_that_are_made_together_have_one_version_before_them() -> None:
    """Whoever goes back to that version has met all of their places."""
    before = changed(NO_RULES, [put((("user", "old"),), Limit(1, Unit.DAY))])
    paths = [(("user", "ann"),), (("path", "/x"), ("user", "bob")), (("user", "ann"), ("path", "y"))]
    after = changed(before, [put(path, Limit(1, Unit.DAY)) for path in paths])
    version = domain_of(before).version
    assert domain_of(after).trail[:2] == (("", "user", "ann"), (version, "path", "/x"))
    assert domain_of(after).trail[2:] == domain_of(before).trail
    many = changed(before, [put((("user", f"u{number}"),), Limit(1, Unit.DAY)) for number in range(MOST_TRAIL + 1)])
    assert domain_of(many).trail == (), "every plan is compared"


def test_a_rule_below_an_exempt_one_can_come_and_go() -> None:
    rules = changed(compile_text(rules_text("d", ("user", 5))), [put((("user", "ann"),), None)])
    assert rules.match("d", [("user", "ann")]) is None
    below = put((("user", "ann"), ("path", "/x")), Limit(1, Unit.MINUTE))
    taken_back = changed(changed(rules, [below]), [Delete("d", below.path)])
    assert taken_back.match("d", [("user", "ann")]) is None, "still exempt"


def test_files_and_single_rules_of_the_same_content_have_one_version() -> None:
    compiled = compile_text(EVERYTHING)
    one_by_one = NO_RULES
    for path, rule in domain_of(compiled).rules():
        one_by_one = changed(one_by_one, [Put("d", path, read_rule("d", path, fields_of(rule)))])
    assert one_by_one.version.digest == compiled.version.digest


def test_all_changes_are_made_or_none() -> None:
    rules = compile_text("domain: d\nshard_by: t\n")
    shared = Put("d", (("t", "x*"),), RuleContent(Limit(1, Unit.DAY), shared=True))
    with pytest.raises(RulesError, match="d: t=x\\*:1: `share_threshold: true` on `t=x\\*`"):
        changed(rules, [put((("user", ""),), None), shared])
    with pytest.raises(RulesError, match="one on each shard"):
        changed(rules, [DomainSettings("d"), shared, DomainSettings("d", "t")])


def test_a_change_shares_all_other_rules_and_domains() -> None:
    many = rules_text("d", *[(f"user=u{number}", 5) for number in range(20_000)])
    rules = compile_text(many, rules_text("e", ("k", 1)))
    after = changed(rules, [put((("user", "u7"),), Limit(6, Unit.MINUTE))])
    assert after.domains["e"] is rules.domains["e"]
    old, new = (every.domains["d"].level["user"].values for every in (rules, after))
    kept = {id(bucket) for row in old._rows for bucket in row}
    assert sum(id(bucket) not in kept for row in new._rows for bucket in row) == 1
    assert old.get("u7") is not new.get("u7")
    assert old.get("u8") is new.get("u8")


@pytest.mark.parametrize(
    ("path", "fields", "reason"),
    [
        ((), {}, "a path has 1 to 64 levels, found 0"),
        ((("", "x"),), {}, "`key` is empty"),
        ((("k", "x"),), {"descriptors": []}, "unknown field `descriptors`; accepted: rate_limit, "),
        ((("k", "x"),), {"share_threshold": True}, "`share_threshold: true` needs a `value` with a `*` in it"),
        ((("k", "x"),), {"rate_limit": {"unit": "fortnight", "requests_per_unit": 1}}, "`unit` must be one of"),
        ((("k", "x"),), {"rate_limit": {"unit": "day"}}, "rate_limit has no `requests_per_unit`"),
        ((("k", "x"),), {"rate_limit": {"unit": "day", "requests_per_unit": "1"}}, "found the quoted text `1`"),
    ],
)
def test_a_rule_by_itself_is_refused_for_whatever_a_file_is(path: Path, fields: dict[str, object], reason: str) -> None:
    with pytest.raises(RulesError) as raised:
        read_rule("d", path, fields)
    assert str(raised.value).startswith("d: ")
    assert reason in str(raised.value)


ODD = ["", "<<", "*", "yes", "null", "1e3", "&a", "!x", "\x00", "\u2028", "\U0001f600"]
TEXTS = st.text(max_size=12) | st.sampled_from(ODD)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


METADATA = st.dictionaries(TEXTS, PLAIN, max_size=3)
RATE_LIMITS = st.dictionaries(st.sampled_from(sorted(RATE_LIMIT.keys)), PLAIN, max_size=5)


@given(METADATA, RATE_LIMITS)
def test_a_rule_by_itself_says_what_it_says_in_a_file(metadata: dict[str, object], other: dict[str, object]) -> None:
    fields = {"rate_limit": {"unit": "day", "requests_per_unit": 3} | other, "metadata": metadata}
    descriptor = {"key": "k", "value": "v", **json.loads(json.dumps(fields))}
    text = flow({"domain": "d", "descriptors": [descriptor]})
    try:
        in_file = dict(domain_of(compile_text(text)).rules())[("k", "v"),]
    except RulesError:
        with pytest.raises(RulesError):
            read_rule("d", (("k", "v"),), fields)
    else:
        assert canonical(fields_of(read_rule("d", (("k", "v"),), fields))) == canonical(fields_of(in_file))


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(RulesError, match="text that is not Unicode"):
        read_rule("d", (("k", "v"),), {"metadata": {"name": "\ud800"}})


def test_a_rule_may_be_nested_as_deep_as_in_a_file_and_no_deeper() -> None:
    nested: object = "end"
    for _ in range(400):
        nested = [nested]
    with pytest.raises(RulesError, match="nested deeper than"):
        read_rule("d", (("k", "v"),), {"metadata": {"name": nested}})
