"""`headgate simulate`: what it prints, and what it does with a history that fails."""

import re
from pathlib import Path

import pytest
from headgate.cli import main

from tests.simulation import mutations


def test_one_history_says_what_it_was_and_what_came_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seed", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("seed 2 (loss-2): ")
    assert re.search(r"^faults: .*flush \d", printed, re.MULTILINE)
    assert re.search(r"^decisions: .*degraded_local admitted \d+.* local admitted \d+", printed, re.MULTILINE)
    assert printed.endswith("violations: 0\n")


def test_many_histories_are_added_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--from-seed", "5", "--histories", "3"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("from seed 5\n")
    assert "to seed 7\n" in printed
    assert "| histories | 3 |" in printed
    requests = re.search(r"\| requests \| ([\d,]+) \|", printed)
    assert requests is not None
    assert int(requests[1].replace(",", "")) >= 3_000
    assert "| violations | 0 |" in printed


def test_a_run_for_some_time_begins_at_a_random_seed_and_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    begun = set()
    for _ in range(2):
        assert main(["simulate", "--seconds", "0.01"]) == 0
        begun.add(capsys.readouterr().out.splitlines()[0])
    assert len(begun) == 2
    assert all(re.fullmatch(r"from seed \d+", line) for line in begun)


@pytest.mark.pure("it plants a bug in a compiled class")
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_history_that_fails_is_made_smaller_and_written_down(
    many: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # where a trace goes that has no name
    mutations.forget_to_refill(monkeypatch)
    trace = tmp_path / "trace"
    which = ["--from-seed", "1", "--histories", "50"] if many else ["--seed", "2"]
    assert main(["simulate", *which, "--trace", str(trace)]) == 1
    printed = capsys.readouterr().out
    assert re.search(
        r"^ *\d+\.\d+ s  lost: node \d key\d+ in \d+: knows of \d+, the shard has \d+$", printed, re.MULTILINE
    )
    assert f"what happened is in {trace}" in printed
    again = re.search(r"^again: headgate (simulate --seed 2 --faults [\d,]+ --requests \d+)$", printed, re.MULTILINE)
    assert again is not None
    written = trace.read_text()
    assert again[0] in written, "how to see it again"
    assert re.search(r"^ +\d+\.\d+ s  fault +begins: flush, shard \d", written, re.MULTILINE), "what broke"
    assert re.search(r"^ +\d+\.\d+ s  node \d .*: admitted \(local\)$", written, re.MULTILINE), "what was decided"
    assert main(again[1].split()) == 1
    assert "lost: " in capsys.readouterr().out
    assert (tmp_path / "headgate-simulation-2.trace").exists()
    monkeypatch.undo()
    assert main(again[1].split()) == 0, "the bug is gone, and so is its history"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], r"which history\? give --seed, --seconds or --histories"),
        (["--seed", "1", "--histories", "2"], "leave --seed out: --seconds and --histories run whole histories"),
        (["--seed", "1", "--seconds", "2"], "leave --seed out: --seconds and --histories run whole histories"),
        (["--histories", "2", "--faults", "1"], "leave --faults out: --seconds and --histories run whole histories"),
        (["--seed", "1", "--from-seed", "2"], "leave --from-seed out: --seed runs one history"),
        (["--seed", "1", "--faults", "x"], "--faults: expected numbers with commas between them, or none, not 'x'"),
        (["--seed", "1", "--faults", "99"], r"--faults: seed 1 has faults 0 to \d+, and no 99"),
        (["--seed", "1", "--trace", "/nowhere/trace"], "the trace can't be written: .*'/nowhere/trace'"),
        (["--seed", "-1"], "expected a whole number, not '-1'"),
        (["--histories", "0"], "expected a whole number above 0, not '0'"),
        (["--seconds", "nan"], "expected seconds above 0, not 'nan'"),
        (["--seconds", "-3"], "expected seconds above 0, not '-3'"),
    ],
)
def test_bad_flags_are_named(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(["simulate", *flags])
    except SystemExit as end:
        status = int(str(end.code))
    assert status == 2
    assert re.search(message, capsys.readouterr().err)
