"""What changes for whom between two rule sets."""

from pathlib import Path

import pytest
from headgate.cli import main
from headgate.rules.diff import differences

from tests.unit.rules.support import compile_text


def text(*lines: str, domain: str = "d") -> str:
    return f"domain: {domain}\ndescriptors:\n" + "".join([f"  - {line}\n" for line in lines])


def rule(key: str, requests: int, value: str = "", unit: str = "minute", more: str = "") -> str:
    named = f"key: {key}" + (f", value: '{value}'" if value else "")
    return f"{{{named}, {more}rate_limit: {{unit: {unit}, requests_per_unit: {requests}}}}}"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param([rule("user", 3)], [rule("user", 3)], [], id="the same"),
        pytest.param([rule("user", 3)], [rule("user", 2)], [("user", "tighter")], id="lowered"),
        pytest.param([rule("user", 3)], [rule("user", 4)], [("user", "looser")], id="raised"),
        pytest.param([], [rule("user", 4)], [("user", "new limit")], id="added"),
        pytest.param([rule("user", 4)], [], [("user", "no limit any more")], id="removed"),
        pytest.param(
            [rule("user", 60)], [rule("user", 1, unit="second")], [("user", "counts anew")], id="the same rate, anew"
        ),
        pytest.param(
            [rule("user", 3)], [rule("user", 3, more="shadow_mode: true, ")], [("user", "looser")], id="shadow"
        ),
        pytest.param(
            [rule("user", 9)], [rule("user", 9), rule("user", 2, "ann")], [("user=ann", "tighter")], id="takes over"
        ),
        pytest.param(
            [rule("user", 9), rule("user", 2, "a*")], [rule("user", 9)], [("user=a*", "looser")], id="gives back"
        ),
    ],
)
def test_what_callers_meet_instead(old: list[str], new: list[str], expected: list[tuple[str, str]]) -> None:
    keep = rule("kept", 1)
    found = differences(compile_text(text(keep, *old)), compile_text(text(keep, *new)))
    assert [(difference.rule, difference.effect.value) for difference in found] == expected


def test_a_rule_that_takes_over_is_shown_with_what_it_takes_over_from() -> None:
    old, new = compile_text(text(rule("user", 9))), compile_text(text(rule("user", 9), rule("user", 2, "ann")))
    (found,) = differences(old, new)
    assert found.before is not None
    assert (found.before.name.id, found.before.limit.requests_per_unit) == ("user", 9)
    assert str(found) == "d: user=ann: 9 per minute [user] -> 2 per minute [user=ann] (tighter)"


def test_only_what_differs_is_said() -> None:
    old, new = (
        compile_text(text(f"{{key: user, rate_limit: {{unit: minute, {terms}}}}}"))
        for terms in ("requests_per_unit: 100", "requests_per_unit: 50, on_error: closed")
    )
    (found,) = differences(old, new)
    assert str(found) == "d: user: 100 per minute, on_error local -> 50 per minute, on_error closed (tighter)"


def test_a_domain_that_comes_or_goes() -> None:
    one, two = compile_text(text(rule("a", 1))), compile_text(text(rule("a", 1), domain="e"))
    assert [(found.domain, found.effect.value) for found in differences(one, two)] == [
        ("d", "no limit any more"),
        ("e", "new limit"),
    ]


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path
    old, new, bad = (directory / name for name in ("old.yaml", "new.yaml", "bad.yaml"))
    old.write_text(text(rule("user", 9)))
    new.write_text(text(rule("user", 3)))
    bad.write_text("domain: [")
    assert main(["rules", "diff", str(old), str(new)]) == 1
    assert "(tighter)\n1 difference\n" in capsys.readouterr().out
    assert main(["rules", "diff", str(old), str(old), "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"
    assert main(["rules", "diff", str(old), str(bad)]) == 2


def below(key: str, value: str, requests: int, *children: str) -> str:
    return rule(key, requests, value, more=f"descriptors: [{', '.join(children)}], ")


def test_what_changes_below_a_rule_that_changed_is_found() -> None:
    search = rule("endpoint", 12_000, "/search")
    kept = below("tenant", "", 600, rule("endpoint", 300))
    old, new = (compile_text(text(below("tenant", name, 12_000, search), kept)) for name in ("acme", "acme-*"))
    found = {difference.rule: difference for difference in differences(old, new)}
    assert str(found["tenant=acme > endpoint=/search"]) == (
        "d: tenant=acme > endpoint=/search: 12000 per minute [tenant=acme>endpoint=/search]"
        " -> 300 per minute [tenant>endpoint] (tighter)"
    )
    assert found["tenant=acme-* > endpoint"].effect.value == "no limit any more"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(["a*", "*b"], ["*b", "a*"], ["k=a*b"], id="another order"),
        pytest.param(["a*", "*a"], ["*a", "a*"], ["k=a*a"], id="one for all that both match"),
        pytest.param(["a*"], ["ab*", "a*"], ["k=ab*"], id="a narrower one before"),
        pytest.param(["ab*", "a*"], ["a*"], ["k=ab*"], id="a narrower one went"),
        pytest.param(["a*"], ["a*", "ab*"], [], id="one that nothing can match"),
    ],
)
def test_wildcards_that_overlap(old: list[str], new: list[str], expected: list[str]) -> None:
    limits = {"a*": 1, "*b": 2, "*a": 3, "ab*": 4}
    one, two = (compile_text(text(*(rule("k", limits[name], name) for name in names))) for names in (old, new))
    assert [difference.rule for difference in differences(one, two)] == expected
