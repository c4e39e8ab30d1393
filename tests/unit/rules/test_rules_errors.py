"""What is refused, and how it is said: the table of fixtures/errors.yaml, and files that YAML can't hold."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from headgate.rules import directory, reader, yaml_events
from headgate.rules.directory import DirectoryReader, load_directory
from headgate.rules.problems import RulesError
from headgate.rules.yaml_events import MAX_ALIAS_EVENTS

from tests.unit.rules.support import FIXTURES, problems_of, rules_text

CASES: list[dict[str, Any]] = yaml.safe_load((FIXTURES / "errors.yaml").read_text())
GOOD = rules_text("good", ("k", 1))


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_every_problem_is_named_with_its_line(case: dict[str, Any]) -> None:
    texts = case.get("files") or [case["rules"]]
    found = problems_of(*texts, merge_domains=case.get("merge_domains", False))
    assert found == case["problems"].splitlines()


def test_the_table_is_as_large_as_it_should_be() -> None:
    assert len(CASES) >= 40


def check(path: Path) -> list[str]:
    """Every problem of every file, in the order in which `headgate rules check` prints them."""
    try:
        load_directory(path)
    except RulesError as error:
        return [str(problem).removeprefix(f"{path}/") for problem in error.problems]
    return []


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"domain: d\n# caf\xe9\n")
    assert check(tmp_path) == ["a.yaml:2: not UTF-8: byte 0xe9 can't be decoded"]


def test_utf8_that_is_cut_off_in_a_character_or_spans_two_pieces(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"domain: caf\xc3")
    assert check(tmp_path) == ["a.yaml:1: not UTF-8: byte 0xc3 can't be decoded"]
    padding = b"#" * ((1 << 20) - 11)
    (tmp_path / "a.yaml").write_bytes(padding + b"\ndomain: caf\xc3\xa9\n")
    assert check(tmp_path) == []


def test_utf16_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes("domain: d\n".encode("utf-16"))
    assert check(tmp_path) == ["a.yaml:1: not UTF-8: byte 0xff can't be decoded"]


def test_a_byte_order_mark_is_fine(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert check(tmp_path) == []
    assert load_directory(tmp_path).has_domain("good")


def test_control_characters(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"domain: d\nx: \x00\n")
    assert check(tmp_path) == ["a.yaml:2: not valid YAML: control characters are not allowed"]


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    with open(tmp_path / "a.yaml", "wb") as file:
        file.truncate(reader.MAX_FILE_BYTES + 1)  # sparse: it takes no space
    assert check(tmp_path) == ["a.yaml:1: larger than 256 MiB"]


def test_a_file_that_grows_past_the_bound_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    monkeypatch.setattr(directory, "MAX_FILE_BYTES", len(GOOD) - 1)
    assert check(tmp_path) == ["a.yaml:1: larger than 0 MiB"]


@pytest.mark.slow
def test_aliases_as_a_bomb(tmp_path: Path) -> None:
    """Ten lines that would be a million million nodes."""
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    nested = ", ".join(levels)
    text = f"domain: d\ndescriptors:\n  - key: k\n    metadata: {{{nested}}}\n"
    (tmp_path / "a.yaml").write_text(text)
    reason = f"aliases expand to more than {MAX_ALIAS_EVENTS} YAML nodes; write fewer or smaller ones"
    assert check(tmp_path) == [f"a.yaml:4: {reason}"]


def test_a_bomb_of_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_events, "MAX_ALIAS_EVENTS", 10_000)
    lines = ["domain: d", "descriptors:", "  - key: k0", "    descriptors: &d0 [{key: a}, {key: b}]"]
    for n in range(1, 30):
        lines += [f"  - key: k{n}", f"    descriptors: &d{n}"]
        lines += [f"      - {{key: {key}, descriptors: *d{n - 1}}}" for key in "ab"]
    (tmp_path / "a.yaml").write_text("\n".join(lines))
    (problem,) = check(tmp_path)
    assert problem.endswith("aliases expand to more than 10000 YAML nodes; write fewer or smaller ones")


def test_an_anchor_of_half_the_file_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_events, "MAX_ALIAS_EVENTS", 1000)
    text = rules_text("d", *[(f"k=v{n}", 1) for n in range(200)]).replace("descriptors:", "descriptors: &all")
    (problem,) = problems_of(text)
    assert problem.endswith("anchors hold more than 1000 YAML nodes; write smaller ones")


def test_nesting_beyond_any_request() -> None:
    def nested(levels: int) -> str:
        return "domain: d\ndescriptors: " + "[{key: k, descriptors: " * levels + "[{key: k}]" + "}]" * levels

    assert problems_of(nested(63)) == []
    assert problems_of(nested(64)) == ["a.yaml:2: descriptors are nested deeper than 64 levels"]
    assert problems_of(nested(300)) == [
        "a.yaml:2: descriptors are nested deeper than 64 levels",
        "a.yaml:2: nested deeper than 200 levels of YAML",
    ]
    deep = "domain: d\ndescriptors: [{key: k, metadata: {a: " + "[" * 300 + "]" * 300 + "}}]"
    assert problems_of(deep) == [
        "a.yaml:2: metadata is nested deeper than 32 levels",
        "a.yaml:2: nested deeper than 200 levels of YAML",
    ]
    assert problems_of("[" * 100_000) == [
        "a.yaml:1: a rules file is a mapping with `domain` and `descriptors`, found a list",
        "a.yaml:1: nested deeper than 200 levels of YAML",
    ]


def test_very_many_problems_are_counted_not_listed() -> None:
    found = problems_of("domain: d\ndescriptors:\n" + "  - {}\n" * 1500)
    assert len(found) == reader.MAX_PROBLEMS + 1
    assert found[-1] == "a.yaml:1002: 500 more problems in this file are not shown"


def test_long_and_unprintable_values_are_shown_short() -> None:
    (problem,) = problems_of(f'domain: d\ndescriptors: [{{"{"x" * 500}": 1, key: k}}]')
    assert f"unknown key `{'x' * 60}…` in a descriptor" in problem
    (problem,) = problems_of('domain: d\ndescriptors: [{"a\\nb": 1, key: k}]')
    assert "unknown key `a\\nb` in a descriptor" in problem


# The directory


def test_only_yaml_files_count_and_dotfiles_do_not(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yml").write_text(GOOD.replace("good", "better"))
    for name in (".c.yaml", "d.yaml~", "e.json", "f.yaml.swp", "README"):
        (tmp_path / name).write_text("not: rules")
    rules = load_directory(tmp_path)
    assert sorted(rules.domains) == ["better", "good"]


def test_directories_inside_are_read_and_hidden_ones_are_not(tmp_path: Path) -> None:
    """As several ConfigMaps are mounted, one per team, each with the hidden directories that swap it; or a git-sync."""
    (tmp_path / "a.yaml").write_text(GOOD)
    for team in ("payments", "search"):
        hidden = tmp_path / team / "..2026_01_01"
        hidden.mkdir(parents=True)
        (hidden / "limits.yaml").write_text(GOOD.replace("good", team))
        (tmp_path / team / "..data").symlink_to(hidden.name)
        (tmp_path / team / "limits.yaml").symlink_to("..data/limits.yaml")
    checkout = tmp_path / ".worktrees" / "1" / "deep"
    checkout.mkdir(parents=True)
    (checkout / "limits.yaml").write_text(GOOD.replace("good", "synced"))
    (tmp_path / "current").symlink_to(".worktrees/1")
    rules = load_directory(tmp_path)
    assert sorted(rules.domains) == ["good", "payments", "search", "synced"]


def test_links_in_a_circle_are_followed_once(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "a.yaml").write_text(GOOD)
    (inner / "back").symlink_to(tmp_path)
    (inner / "self").symlink_to(inner)
    assert check(tmp_path) == []


def test_a_file_that_moves_between_directories_is_another_state(tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "a.yaml").write_text(GOOD)
    before = DirectoryReader(tmp_path).read()
    (tmp_path / "a.yaml").rename(tmp_path / "team" / "a.yaml")
    assert DirectoryReader(tmp_path).read() != before


def test_a_problem_in_a_directory_inside_is_named_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "a.yaml").write_text("domain:\n")
    with pytest.raises(RulesError) as raised:
        load_directory(tmp_path)
    assert str(raised.value) == f"{tmp_path}/team/a.yaml:1: `domain` is empty"


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(RulesError) as raised:
        load_directory(missing)
    assert str(raised.value) == f"{missing}:1: can't list the rules directory: No such file or directory"


def test_a_directory_without_rules(tmp_path: Path) -> None:
    assert check(tmp_path) == [f"{tmp_path}:1: no rules file (.yaml or .yml) in this directory"]


def test_files_that_can_not_be_read_are_named_beside_the_problems_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("domain:\n")
    (tmp_path / "b.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "c.yaml").mkdir()
    os.mkfifo(tmp_path / "d.yaml")
    assert check(tmp_path) == [
        "a.yaml:1: `domain` is empty",
        "b.yaml:1: No such file or directory",
        "c.yaml:1: Is a directory",
        "d.yaml:1: not a regular file",
    ]


def test_the_version_names_the_rules_and_not_their_text(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    first = load_directory(tmp_path).version
    assert load_directory(tmp_path).version == first
    (tmp_path / "ignored.txt").write_text("x")
    assert load_directory(tmp_path).version == first
    (tmp_path / "a.yaml").write_text(GOOD + "# changed\n")
    assert load_directory(tmp_path).version == first
    (tmp_path / "a.yaml").write_text(GOOD.replace("requests_per_unit: 1", "requests_per_unit: 2"))
    assert load_directory(tmp_path).version.digest != first.digest
