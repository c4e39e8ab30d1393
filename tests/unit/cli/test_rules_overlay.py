"""`headgate rules check`, `explain` and `diff` with an overlay and with the server's defaults."""

import json
from pathlib import Path

import pytest
from headgate.cli import main

RULES = "domain: a\ndescriptors:\n- {key: x, rate_limit: {unit: day, requests_per_unit: 7}}\n"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


def overlay(tmp_path: Path, text: str, name: str = "overlay.yaml") -> str:
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def test_check_takes_an_overlay_with_rules_and_alone(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = overlay(tmp_path, "overlay:\n- on_error: closed\n")
    assert main(["rules", "check", str(rules), "--rules-overlay", good]) == 0
    assert capsys.readouterr().out == "ok: 1 limit in 1 domain\n"
    assert main(["rules", "check", "--rules-overlay", good]) == 0
    assert capsys.readouterr().out.startswith("ok: 1 entries; ")
    assert main(["rules", "check"]) == 2


def test_check_fails_on_mistakes_on_clashes_and_on_entries_that_name_nothing(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mistake = overlay(tmp_path, "overlay:\n- on_error: shut\n")
    for arguments in ([str(rules)], []):
        assert main(["rules", "check", *arguments, "--rules-overlay", mistake]) == 1
        assert capsys.readouterr().out.startswith(f"{mistake}:2: `on_error` must be one of")
    others = overlay(tmp_path, "overlay:\n- burst: 5\n- {domain: b, on_error: open}\n")
    assert main(["rules", "check", str(rules), "--rules-overlay", others]) == 1
    output = capsys.readouterr()
    assert [line.split(" ")[0] for line in output.out.splitlines()] == [f"{others}:2:", f"{others}:3:"]
    assert output.err == "headgate: 2 problems\n"


def test_explain_says_where_fields_come_from(rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    laid = overlay(tmp_path, "overlay:\n- on_error: closed\n")
    layers = ["--rules-overlay", laid, "--default-algorithm", "gcra", "--default-on-error", "open"]
    assert main(["rules", "explain", str(rules), *layers, "--domain", "a", "x=1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "7 per day, gcra, burst 7" in lines[-3]
    assert lines[-2:] == [
        f"   on_error from overlay {laid}:2",
        "   algorithm from setting default_algorithm",
    ]


def test_diff_shows_what_another_overlay_changes(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = overlay(tmp_path, "overlay: []\n", "old.yaml"), overlay(tmp_path, "overlay:\n- shadow_mode: true\n")
    both = ["rules", "diff", str(rules), str(rules), "--rules-overlay", new]
    assert main(both) == 0
    capsys.readouterr()
    assert main([*both, "--old-rules-overlay", old, "--json"]) == 1
    (difference,) = json.loads(capsys.readouterr().out)
    assert (difference["rule"], difference["effect"]) == ("x", "looser")
