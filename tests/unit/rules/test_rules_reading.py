"""Reading: the parser without libyaml says the same, long loads speak up, and explanations read well."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from headgate.clock import SystemClock
from headgate.rules import pace, yaml_events
from headgate.rules.compiling import compile_source
from headgate.rules.directory import load_directory
from headgate.rules.explain import describe, explain
from headgate.rules.pace import LoadCancelledError, Pace
from headgate.rules.source import RulesSource, SourceFile

from tests.support.clock import ManualClock
from tests.unit.rules.support import FIXTURES, compile_text, entries_of, problems_of, rules_text

EXAMPLES = Path(__file__).parents[3] / "examples" / "rules"
MATCHING: list[dict[str, Any]] = yaml.safe_load((FIXTURES / "matching.yaml").read_text())
ERRORS: list[dict[str, Any]] = yaml.safe_load((FIXTURES / "errors.yaml").read_text())


@pytest.fixture
def without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_events, "USE_LIBYAML", False)


def test_libyaml_is_in_use_where_it_is_built() -> None:
    assert yaml.__with_libyaml__ == yaml_events.USE_LIBYAML


@pytest.mark.usefixtures("without_libyaml")
@pytest.mark.parametrize("group", MATCHING, ids=[group["name"] for group in MATCHING])
def test_without_libyaml_rules_are_the_same(group: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    slow = compile_text(group["rules"])
    monkeypatch.undo()
    fast = compile_text(group["rules"])
    assert list(slow.rules()) == list(fast.rules())


@pytest.mark.usefixtures("without_libyaml")
@pytest.mark.parametrize("case", ERRORS, ids=[case["name"] for case in ERRORS])
def test_without_libyaml_problems_are_the_same(case: dict[str, Any]) -> None:
    texts = case.get("files") or [case["rules"]]
    found = problems_of(*texts, merge_domains=case.get("merge_domains", False))
    expected = case["problems"].splitlines()
    if "not valid YAML" in case["problems"]:
        # The two parsers word a syntax error differently.
        assert [line.split(": ")[1] for line in found] == ["not valid YAML"]
    else:
        assert found == expected


@pytest.mark.usefixtures("without_libyaml")
def test_without_libyaml_odd_bytes_are_refused_too() -> None:
    (problem,) = problems_of(b"domain: d\nx: \x00\n")
    assert problem.startswith("a.yaml:2: not valid YAML: ")
    assert problems_of(b"domain: \xff\n") == ["a.yaml:1: not UTF-8: byte 0xff can't be decoded"]


# Long loads


def test_a_long_load_tells_how_far_it_is() -> None:
    clock = ManualClock()
    heard: list[tuple[str, int, float]] = []
    load = Pace(clock, progress=lambda *said: heard.append(said))
    load.begin_file("a.yaml", 1000)
    for position in range(8):
        load.tick(position)
    assert heard == []
    clock.advance(int(pace.QUIET_S * 1000))
    for position in range(100, 108):
        load.tick(position)
    assert heard == [("a.yaml", 16, 0.107)]
    for position in range(200, 208):
        load.tick(position)
    assert len(heard) == 1


def test_a_load_beside_a_serving_loop_stops_when_nobody_waits_for_it() -> None:
    clock = ManualClock()
    load = Pace(clock, polite=True, stopped=lambda: True)
    load.breathe()
    clock.advance(1)
    with pytest.raises(LoadCancelledError):
        load.breathe()


def test_a_load_gives_way_while_it_compiles() -> None:
    asked = 0

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        return False

    data = rules_text("d", *[(f"k=v{n}", 1) for n in range(2000)]).encode()
    source = RulesSource((SourceFile("a.yaml", data, "a.yaml"),))
    load = Pace(SystemClock(), polite=True, stopped=stopped)
    compile_source(source, load, merge_domains=False)
    assert asked > 10


# Explanations


RULES = """
domain: d
descriptors:
  - key: user
    rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 100, name: all}
  - key: user
    value: bob
    descriptors:
      - key: path
        value: /a*
        share_threshold: true
        shadow_mode: true
        rate_limit: {unit: second, requests_per_unit: 10, algorithm: gcra, burst: 30, class: abuse,
                     replaces: [{name: all}]}
  - key: path
    value: /x
    rate_limit: {unlimited: true}
"""


@pytest.mark.parametrize(
    ("request_line", "expected"),
    [
        (
            "user=al",
            [
                "domain `d`",
                "1. user=al: key without a value at a.yaml:4; each value has its own counter; not among 1 exact values",
                "rule `d: user`: 100 per 5 minutes, sliding_window, precision 5%, on_error local,"
                " scope region, name all, id all",
            ],
        ),
        (
            "user=bob",
            [
                "domain `d`",
                "1. user=bob: exact value at a.yaml:6",
                "matched, but no limit here: the rule has none, or only its children have",
            ],
        ),
        (
            "user=bob > path=/abc",
            [
                "domain `d`",
                "1. user=bob: exact value at a.yaml:6",
                "2. path=/abc: first wildcard that matches, `/a*` at a.yaml:9; one counter for all values",
                "rule `d: user=bob > path=/a*`: 10 per second, gcra, burst 30, precision 5%, on_error closed,"
                " scope region, class abuse, replaces all, shadow mode, id user=bob>path=/a*",
            ],
        ),
        (
            "user=bob > path=/b",
            [
                "domain `d`",
                "1. user=bob: exact value at a.yaml:6",
                "2. path=/b: none of 1 wildcards matches; no rule for the key without a value",
                "no rule, no limit",
            ],
        ),
        (
            "user=al > path=/b",
            [
                "domain `d`",
                "1. user=al: key without a value at a.yaml:4; each value has its own counter; not among 1 exact values",
                "2. path=/b: the rule before this entry has no children, and a limit applies only to the last entry",
                "no rule, no limit",
            ],
        ),
        (
            "ip=1",
            [
                "domain `d`",
                "1. ip=1: no rule with key `ip` on this level (there is: path, user)",
                "no rule, no limit",
            ],
        ),
        ("path=/x", ["domain `d`", "1. path=/x: exact value at a.yaml:15", "rule `d: path=/x`: unlimited, id path=/x"]),
    ],
)
def test_explanations(request_line: str, expected: list[str]) -> None:
    assert str(explain(compile_text(RULES), "d", entries_of(request_line))) == "\n".join(expected)


def test_an_unknown_domain_is_explained() -> None:
    explanation = explain(compile_text(RULES), "e", [("a", "b")])
    assert explanation.match is None
    assert str(explanation) == "no rule: there is no domain `e` (there is: d)"


# The examples


def test_the_examples_load_and_limit_a_user_to_100_a_minute() -> None:
    rules = load_directory(EXAMPLES)
    match = rules.match("edge", [("user", "alice")])
    assert match is not None
    assert describe(match.limit).startswith("100 per minute, sliding_window")
    assert {info.domain for info in rules.rules()} == {"edge", "api"}
