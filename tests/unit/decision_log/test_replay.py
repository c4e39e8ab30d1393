"""A decision log run against other rules."""

import json
from pathlib import Path

import pytest
from headgate.cli import main
from headgate.decision_log.replay import replay

from tests.support.clock import ManualClock
from tests.support.decision_log import LoggedNode, decisions
from tests.unit.rules.support import compile_text

NOW_MS = 1_700_000_040_000
OLD = "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}\n"


def played(directory: Path, *, values: bool = True, allowances: int = 1) -> LoggedNode:
    """Ann asks eight times and is denied three times, Bob asks four times."""
    node = LoggedNode(directory, OLD, ManualClock(NOW_MS), values=values, allowances=allowances)
    for number in range(8):
        node.clock.advance(100)
        node.ask({"user": "ann"})
        if number % 2:
            node.ask({"user": "bob"})
    node.stop()
    return node


def test_the_same_rules_deny_the_same(tmp_path: Path) -> None:
    result = replay(decisions(played(tmp_path).data_dir), compile_text(OLD)).to_json()
    assert (result["requests"], result["callers"]) == (12, 2)
    assert (result["denied_before"], result["denied_after"]) == (3, 3)
    assert result["denied_by_rule"] == {"d: user": 3}


def test_a_lower_limit_says_how_many_callers_and_which(tmp_path: Path) -> None:
    rules = compile_text(OLD.replace("5}", "2}"))
    result = replay(decisions(played(tmp_path).data_dir), rules).to_json()
    assert (result["denied_after"], result["callers_denied_after"]) == (8, 2)
    assert result["top_denied"] == [
        {"domain": "d", "descriptor": [["user", "ann"]], "denied_after": 6, "denied_before": 3},
        {"domain": "d", "descriptor": [["user", "bob"]], "denied_after": 2, "denied_before": 0},
    ]


def test_a_rule_in_shadow_mode_denies_nobody_and_is_counted(tmp_path: Path) -> None:
    rules = compile_text(OLD.replace("{key: user,", "{key: user, shadow_mode: true,").replace("5}", "2}"))
    result = replay(decisions(played(tmp_path).data_dir), rules).to_json()
    assert result["denied_after"] == 0
    assert result["shadow_would_deny_by_rule"] == {"d: user": 8}


def test_sampled_allowances_stand_for_many(tmp_path: Path) -> None:
    result = replay(decisions(played(tmp_path, allowances=3).data_dir), compile_text(OLD)).to_json()
    assert result["sampled_one_of"] == 3
    assert result["requests"] == 3 + 9


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = played(tmp_path)
    candidate = tmp_path / "new.yaml"
    candidate.write_text(OLD.replace("5}", "2}"))
    assert main(["rules", "replay", str(candidate), "--log", str(node.data_dir)]) == 0
    assert "denied under these rules: 8 requests of 2 callers" in capsys.readouterr().out
    assert main(["rules", "replay", str(candidate), "--data-dir", str(node.data_dir), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["denied_after"] == 8


def test_nothing_is_published_that_would_have_denied_more_than_is_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = played(tmp_path)
    candidate = tmp_path / "new.yaml"
    candidate.write_text(OLD.replace("5}", "2}"))
    publish = ["rules", "publish", str(candidate), "--replay", str(node.data_dir), "--addr", "127.0.0.1:1"]
    assert main(publish) == 1
    said = capsys.readouterr().out
    assert "  d user=ann: 6 (then 3)" in said
    assert "% of requests would be denied in addition, and 1% is expected" in said
    assert main([*publish, "--expect-denials", "100%"]) == 2, "now a plane is asked, and there is none"
    candidate.write_text(OLD.replace("domain: d", "domain: other"))
    assert main(publish) == 2
    assert "no decision on these domains" in capsys.readouterr().err


def test_a_log_without_descriptors_can_not_be_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = played(tmp_path, values=False)
    assert main(["rules", "replay", str(node.rules_dir), "--log", str(node.data_dir)]) == 2
    assert "decision_log_values" in capsys.readouterr().err
