"""The overlay: which rules an entry names, which entry wins, what is refused, and where a field comes from."""

from typing import Any

import pytest
import yaml
from headgate.clock import SystemClock
from headgate.limiter.limit import Algorithm, Limit, OnError, Scope
from headgate.rules.compiling import compile_source
from headgate.rules.defaults import PROGRAM, Defaults
from headgate.rules.explain import explain
from headgate.rules.pace import Pace
from headgate.rules.problems import RulesError
from headgate.rules.ruleset import RuleSet
from headgate.rules.source import OVERLAY, SourceFile, source_of

from tests.unit.rules.support import FIXTURES, entries_of

ROUTE = "httproute/default/checkout/rule/0/match/0/*"
GATEWAY = f"""\
domain: default/eg/http
descriptors:
  - key: {ROUTE}
    value: {ROUTE}
    descriptors:
      - key: rule-0-match-0
        value: rule-0-match-0
        rate_limit: {{unit: minute, requests_per_unit: 10}}
      - key: masked_remote_address
        value: 10.0.0.0/8
        descriptors:
          - key: remote_address
            rate_limit: {{unit: hour, requests_per_unit: 5}}
  - key: httproute/default/home/rule/0/match/0/www.example.com
    value: httproute/default/home/rule/0/match/0/www.example.com
    rate_limit: {{unit: second, requests_per_unit: 3}}
"""
EDGE = """\
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 7}
  - key: user
    value: ann
    rate_limit: {unit: minute, requests_per_unit: 8, on_error: open}
  - key: path
    value: /api/*
    rate_limit: {unit: minute, requests_per_unit: 9}
    descriptors:
      - key: user
        rate_limit: {unit: minute, requests_per_unit: 4}
  - key: free
    rate_limit: {unlimited: true}
"""


def laid(overlay: str | dict[str, str], *rules: str, defaults: Defaults = PROGRAM, version: int = 1) -> RuleSet:
    """Rules with an overlay over them; files of rules are a.yaml, b.yaml, …, that of the overlay o.yaml."""
    overlays = {"o.yaml": overlay} if isinstance(overlay, str) else overlay
    files = [SourceFile(f"{chr(97 + n)}.yaml", text.encode(), f"{chr(97 + n)}.yaml") for n, text in enumerate(rules)]
    layers = source_of([SourceFile(name, text.encode(), OVERLAY + name) for name, text in overlays.items()]).files
    source = source_of(files).under((*layers, *defaults.to_file()))
    return compile_source(source, Pace(SystemClock()), merge_domains=False).numbered(version)


def refusals(overlay: str, *rules: str) -> list[str]:
    with pytest.raises(RulesError) as refused:
        laid(overlay, *rules)
    return [str(problem) for problem in refused.value.problems]


def entry(**fields: Any) -> str:
    lines = [f"{name}: {value}" for name, value in fields.items()]
    return "overlay:\n  - " + "\n    ".join(lines) + "\n"


def limits(rules: RuleSet) -> dict[str, Limit]:
    return {f"{rule.domain}: {rule.rule}": rule.limit for rule in rules.rules()}


def changed(overlay: str, *rules: str) -> set[int]:
    """The limits, by their size, that the overlay changes."""
    before, after = limits(laid("overlay: []\n", *rules)), limits(laid(overlay, *rules))
    return {limit.requests_per_unit for name, limit in after.items() if limit != before[name]}


# Matching


@pytest.mark.parametrize(
    ("where", "sizes"),
    [
        ({}, {10, 5, 3, 7, 8, 9, 4}),
        ({"domain": "edge"}, {7, 8, 9, 4}),
        ({"domain": "default/eg/http"}, {10, 5, 3}),
        ({"domain": "default/*"}, {10, 5, 3}),
        ({"domain": '"*/http"'}, {10, 5, 3}),
        ({"domain": "default/eg"}, set()),
        # A route as it is, with stars, and all that is below it.
        ({"path": f'"{ROUTE}"'}, {10, 5}),
        ({"path": "httproute/default/checkout/*"}, {10, 5}),
        ({"path": "httproute/default/*"}, {10, 5, 3}),
        ({"path": "httproute/default/checkout"}, set()),
        ({"path": f'"{ROUTE}={ROUTE} > rule-0-match-0=rule-0-match-0"'}, {10}),
        ({"path": '"* > rule-0-match-0"'}, {10}),
        ({"path": '"httproute/*/checkout/* > masked_remote_address=10.*"'}, {5}),
        ({"path": '"* > * > remote_address"'}, {5}),
        ({"path": '"* > remote_address"'}, set()),
        # A key with any value, with one, with a pattern, with none.
        ({"path": "user"}, {7, 8}),
        ({"path": "user=ann"}, {8}),
        ({"path": "user=a*"}, {8}),
        ({"path": "user="}, {7}),
        ({"path": "user=bob"}, set()),
        ({"path": "path=/api/*"}, {9, 4}),
        ({"path": '"path > user"'}, {4}),
        ({"path": "free"}, set()),
        ({"domain": "edge", "path": "httproute/*"}, set()),
    ],
)
def test_an_entry_names_the_rule_at_its_path_and_all_below(where: dict[str, str], sizes: set[int]) -> None:
    assert changed(entry(**where, shadow_mode="true"), GATEWAY, EDGE) == sizes


@pytest.mark.parametrize(
    ("overlays", "algorithm", "on_error"),
    [
        # Later in the file, field by field.
        ({"o.yaml": "overlay: [{on_error: closed}, {path: user=ann, algorithm: gcra}]"}, "gcra", "closed"),
        ({"o.yaml": "overlay: [{on_error: closed}, {path: user=ann, on_error: local}]"}, "sliding_window", "local"),
        # Not by how exact an entry is.
        ({"o.yaml": "overlay: [{path: user=ann, on_error: local}, {on_error: closed}]"}, "sliding_window", "closed"),
        # Files by their names, whoever lists them.
        ({"b.yaml": "overlay: [on_error: local]", "a.yaml": "overlay: [on_error: closed]"}, "sliding_window", "local"),
        # Nothing behind a field takes it away: that of an earlier entry, and the rule's own.
        ({"o.yaml": "overlay: [{algorithm: gcra, burst: 5}, {algorithm: , burst: }]"}, "sliding_window", "open"),
        ({"o.yaml": "overlay: [{on_error: }]"}, "sliding_window", "local"),
        # What a rule says itself stays: a class is weaker than it.
        ({"o.yaml": "overlay: [{class: abuse}]"}, "sliding_window", "open"),
    ],
)  # fmt: skip
def test_of_several_entries_the_later_wins_field_by_field(
    overlays: dict[str, str], algorithm: str, on_error: str
) -> None:
    limit = limits(laid(overlays, EDGE))["edge: user=ann"]
    assert (limit.algorithm.value, limit.on_error.value) == (algorithm, on_error)


def test_rules_with_an_equal_limit_are_apart_by_what_they_say() -> None:
    said = "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1, on_error: local}}\n"
    found = limits(
        laid("overlay: [class: abuse]", said + "- {key: b, rate_limit: {unit: day, requests_per_unit: 1}}\n")
    )
    assert [limit.on_error for limit in found.values()] == [OnError.LOCAL, OnError.CLOSED]


def test_every_field_is_laid() -> None:
    fields = {"algorithm": "fixed_window", "precision": "1%", "on_error": "closed", "class": "paid", "scope": "global"}
    flags = ("overdraft", "refund", "shadow_mode", "detailed_metric", "value_to_metric")
    fields |= {"name": "mine", **dict.fromkeys(flags, "true")}
    limit = limits(laid(entry(path="user=ann", **fields), EDGE))["edge: user=ann"]
    assert (limit.algorithm, limit.on_error, limit.precision_millionths) == ("fixed_window", "closed", 10_000)
    assert (limit.scope, limit.overdraft, limit.refund, limit.name) == (Scope.GLOBAL, True, True, "mine")
    assert (limit.shadow, limit.detailed_metric, limit.value_to_metric, limit.quota) == (True, True, True, False)
    assert limit.traffic_class is not None
    assert (limit.requests_per_unit, limit.window_ms) == (8, 60_000)
    bucket = limits(laid(entry(algorithm="gcra", burst=3), EDGE))["edge: user"]
    assert (bucket.algorithm, bucket.burst) == (Algorithm.GCRA, 3)
    forced = limits(laid(entry(scope="global", force_global="true", path="httproute/default/home/*"), GATEWAY))
    assert forced.popitem()[1].scope is Scope.GLOBAL


# Refusals


FIELDS = (
    "algorithm, burst, precision, on_error, class, scope, force_global, overdraft, refund, name, shadow_mode, "
    "detailed_metric, value_to_metric"
)
CASES: list[dict[str, Any]] = yaml.safe_load((FIXTURES / "overlay_errors.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_what_an_overlay_refuses_is_named_with_its_line(case: dict[str, Any]) -> None:
    assert refusals(case["overlay"]) == case["problems"].replace("FIELDS", FIELDS).splitlines()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"overlay:\n- path: {' > '.join('k' * 65)}\n  on_error: open", "o.yaml:2: `path` has more than 64 steps"),
        (
            "overlay:\n" + "- on_error: open\n" * 1_001,
            "o.yaml:1002: more than 1000 entries in all overlay files together",
        ),
        ("#" * (1024 * 1024 + 1), "o.yaml:1: larger than 1024 KiB"),
    ],
)
def test_an_overlay_is_bounded(text: str, problem: str) -> None:
    assert refusals(text) == [problem]


def test_problems_of_rules_and_of_the_overlay_are_named_together() -> None:
    assert len(refusals("overlay: [{on_error: shut}]", "domain: edge\ndescriptors: {}\n")) == 2


def test_an_entry_that_makes_no_sense_with_a_rule_names_both_places_and_leaves_the_rule_as_it_is() -> None:
    rules = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: hour, requests_per_unit: 5, scope: global}\n"
    overlay = "overlay:\n- on_error: closed\n- domain: d\n  algorithm: gcra\n- precision: 1%\n"
    both = laid(overlay, rules, EDGE)
    (clash,) = both.overlay.clashes
    assert str(clash) == (
        "o.yaml:4: scope: global can't be used with algorithm: gcra, whose state is not a counter; "
        "accepted with gcra: region, quota, cell; this lies over `d: k` at a.yaml:3"
    )
    assert limits(both)["d: k"] == limits(laid("overlay: []", rules))["d: k"]
    assert limits(both)["edge: user"].on_error is OnError.CLOSED


@pytest.mark.parametrize(
    ("fields", "rate_limit", "reason"),
    [
        ("algorithm: gcra", "0, unit: hour", "algorithm: gcra needs a `requests_per_unit` of at least 1"),
        ("algorithm: fixed_window", "5, unit: hour, algorithm: gcra, burst: 5", "`burst` has a meaning with"),
        ("burst: 5", "5, unit: hour", "`burst` has a meaning with algorithm: gcra only"),
        ("scope: quota", "5, unit: hour", "scope: quota needs a `requests_per_unit` of at least 10"),
        ("scope: global", "5, unit: second", "scope: global needs a window of at least 60 seconds"),
        ("force_global: true", "5, unit: hour", "`force_global` has a meaning with scope: global only"),
    ],
)  # fmt: skip
def test_clashes(fields: str, rate_limit: str, reason: str) -> None:
    rules = f"domain: d\ndescriptors:\n- key: k\n  rate_limit: {{requests_per_unit: {rate_limit}}}\n"
    (clash,) = laid(f"overlay:\n- {fields}\n", rules).overlay.clashes
    assert (clash.file, clash.line) == ("o.yaml", 2)
    assert clash.reason.startswith(reason)
    assert clash.reason.endswith("; this lies over `d: k` at a.yaml:3")


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ({"domain": "default/eg/htp"}, "no domain matches `default/eg/htp`; did you mean `default/eg/http`?"),
        ({"domain": "xyz"}, "no domain matches `xyz`"),
        ({"path": "usr"}, "no rule matches the step `usr` of its path; did you mean `user`?"),
        ({"path": "user=anne"}, "no rule matches the step `user=anne` of its path; did you mean `user=ann`?"),
        ({"path": '"path > usr"'}, "no rule matches the step `usr` of its path; did you mean `user`?"),
        ({"path": '"user > path"'}, "no rule matches the step `path` of its path"),
        ({"path": "free"}, "no rule that it names has a limit"),
    ],
)
def test_an_entry_that_names_nothing_says_what_may_have_been_meant(where: dict[str, str], reason: str) -> None:
    rules = laid(entry(**where, on_error="closed"), GATEWAY, EDGE)
    assert [str(problem) for problem in rules.overlay.unmatched] == [f"o.yaml:2: {reason}"]


# Origins


def explained(rules: RuleSet, domain: str, line: str) -> list[str]:
    return [text.strip() for text in explain(rules, domain, entries_of(line)).lines if text.startswith("   ")]


def test_explanations_say_where_a_field_comes_from() -> None:
    overlay = "overlay:\n- path: user=ann\n  on_error: closed\n  shadow_mode: true\n- path: user=ann\n  name: ann\n"
    rules = laid(overlay, EDGE)
    assert explained(rules, "edge", "user=ann") == [
        "on_error from overlay o.yaml:3",
        "shadow_mode from overlay o.yaml:4",
        "name from overlay o.yaml:6",
    ]
    assert explained(rules, "edge", "user=bob") == []


@pytest.mark.parametrize(
    ("rate_limit", "algorithm", "on_error", "origins"),
    [
        ("", "gcra", "closed", ["algorithm from setting default_algorithm", "on_error from setting default_on_error"]),
        (", algorithm: fixed_window", "fixed_window", "closed", ["on_error from setting default_on_error"]),
        (", algorithm: gcra, on_error: local", "gcra", "local", []),
        (", class: paid", "gcra", "open", ["algorithm from setting default_algorithm"]),
        (", burst: 3", "gcra", "closed",
         ["algorithm from setting default_algorithm", "on_error from setting default_on_error"]),
        (", scope: global", "sliding_window", "closed", ["on_error from setting default_on_error"]),
    ],
)  # fmt: skip
def test_defaults_of_the_server_are_for_rules_that_say_nothing(
    rate_limit: str, algorithm: str, on_error: str, origins: list[str]
) -> None:
    rules_text = f"domain: d\ndescriptors:\n- key: k\n  rate_limit: {{unit: hour, requests_per_unit: 5{rate_limit}}}\n"
    defaults = Defaults(Algorithm.GCRA, OnError.CLOSED)
    rules = laid({}, rules_text, defaults=defaults)
    limit = limits(rules)["d: k"]
    assert (limit.algorithm.value, limit.on_error.value) == (algorithm, on_error)
    assert explained(rules, "d", "k=v") == origins


def test_a_limit_of_nothing_and_no_limit_need_no_default() -> None:
    text = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: hour, requests_per_unit: 0}\n" \
        "- key: u\n  rate_limit: {unlimited: true}\n"  # fmt: skip
    rules = laid({}, text, defaults=Defaults(Algorithm.GCRA, OnError.CLOSED))
    assert limits(rules)["d: k"].algorithm is Algorithm.SLIDING_WINDOW
    assert explained(rules, "d", "u=v") == []


def test_an_overlay_lies_over_the_defaults() -> None:
    rules = laid(entry(path="user", on_error="local"), EDGE, defaults=Defaults(Algorithm.GCRA, OnError.CLOSED))
    assert explained(rules, "edge", "user=bob") == [
        "on_error from overlay o.yaml:3",
        "algorithm from setting default_algorithm",
    ]
    assert limits(rules)["edge: user"].on_error is OnError.LOCAL


def test_the_version_names_what_overlay_and_defaults_come_to() -> None:
    sets = [
        laid({}, EDGE),
        laid("overlay: [{domain: edge, path: user, on_error: closed}]", EDGE),
        laid({}, EDGE, defaults=Defaults(Algorithm.GCRA)),
        laid({}, EDGE, defaults=Defaults(on_error=OnError.OPEN)),
    ]
    assert len({rules.version.digest for rules in sets}) == len(sets)
    assert laid("overlay: []", EDGE).version == sets[0].version
    assert laid({"p.yaml": "overlay: [{domain: edge, path: user, on_error: closed}]"}, EDGE).version == sets[1].version
