"""`headgate explain` on the command line: what it reads, prints and exits with."""

import io
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from headgate.cli import main
from headgate.console.output import printable
from headgate.console.times import in_zone, milliseconds, parse_time
from headgate.decision_log.commands import tail
from headgate.decision_log.json_lines import record_to_json
from headgate.errors import ConfigError
from headgate.v1 import decisions_pb2 as pb

from tests.support.clock import ManualClock
from tests.support.decision_log import LoggedNode, decisions

NOW_MS = 1_700_000_040_000  # 2023-11-14 22:14:00 UTC
RULES = "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 3}}\n"
ASK = ["--domain", "d", "user=ann", "--at", "2023-11-14T22:14:00Z"]


@pytest.fixture
def data_dir(tmp_path: Path) -> str:
    node = LoggedNode(tmp_path, RULES, ManualClock(NOW_MS))
    for _ in range(4):
        node.ask({"user": "ann"})
    node.stop()
    return str(node.data_dir)


def test_a_denial_is_explained_in_sentences(data_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--data-dir", data_dir, *ASK]) == 0
    text = capsys.readouterr().out
    assert "The request was denied at 2023-11-14T22:14:00.000Z by node one of region local" in text
    assert "Rule user of domain d applied" in text
    assert "Counted were 3 of 3: 3 by this node" in text
    assert "Evidence:" in text


def test_as_json(data_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--data-dir", data_dir, *ASK, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cause"] == "own_usage"


def test_a_time_before_now(data_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As the docs have it: argparse itself would take it for a flag."""
    assert main(["explain", "--data-dir", data_dir, *ASK[:-2], "--at", "-10m"]) == 1
    assert "Nothing of " in capsys.readouterr().out


def test_by_id(data_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    (record,) = decisions(Path(data_dir))
    assert main(["explain", "--data-dir", data_dir, "--id", record.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decision"]["id"] == record.id


def test_from_lines_on_stdin(
    data_dir: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "\n".join(json.dumps(record_to_json(record)) for record in decisions(Path(data_dir)))
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert main(["explain", "--log", "-", *ASK, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "denied"


def test_what_lines_call_a_descriptor(data_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For the query that finds them in a log store; no log is needed for it."""
    (record,) = decisions(Path(data_dir))
    assert main(["explain", "--domain", "d", "user=ann", "--who"]) == 0
    assert capsys.readouterr().out.strip() == record_to_json(record)["who"]


def test_nothing_found_is_said_and_ends_with_1(data_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["--domain", "d", "user=bob", "--at", "2023-11-14T22:14:00Z"]
    assert main(["explain", "--data-dir", data_dir, *ask]) == 1
    assert "no node whose log is here denied it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--id", "1f"], "nothing to read"),
        (["--id", "1f", "--data-dir", "/nowhere/at/all"], "no such file or directory"),
        (["--data-dir", "."], "give --domain and a descriptor (key=value), or --id"),
        (["--data-dir", ".", "--id", "xyz"], "expected 16 hex digits"),
        (["--data-dir", ".", "--domain", "d", "a=b", "--at", "noon"], "--at 'noon'"),
    ],
)
def test_questions_that_cannot_be_asked(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, NOW_MS),
        ("-10m", NOW_MS - 600_000),
        ("1700000040", NOW_MS),
        ("1700000040000", NOW_MS),
        ("2023-11-14T22:14:00Z", NOW_MS),
        ("2023-11-14T23:14:00+01:00", NOW_MS),
        ("2023-11-14 22:14", NOW_MS),
        ("22:13", NOW_MS - 60_000),
        ("22:15:30", NOW_MS + 90_000 - 86_400_000),
        ("9:13", NOW_MS - 46_860_000),
        ("23:13+01:00", NOW_MS - 60_000),
        ("22:13Z", NOW_MS - 60_000),
        ("00:13+02:00", NOW_MS - 60_000),
    ],
)
def test_times(text: str | None, expected: int) -> None:
    assert parse_time(text, NOW_MS) == expected


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("text", ["23:13", "23:13+01:00", "22:13Z", "2023-11-14 23:13", "2023-11-14T22:13:00Z"])
def test_local_times(text: str) -> None:
    """At 23:14 in Berlin: a time without a zone is of there, one with a zone of that."""
    assert parse_time(text, NOW_MS, None) == NOW_MS - 60_000
    assert parse_time("00:13", NOW_MS + 3_600_000, None) == NOW_MS + 3_540_000, "behind midnight there, not in UTC"


@pytest.mark.usefixtures("berlin")
def test_local_times_are_printed_with_their_offset(data_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--data-dir", data_dir, *ASK[:-2], "--at", "2023-11-14 23:14", "--local"]) == 0
    text = capsys.readouterr().out
    assert "denied at 2023-11-14T23:14:00.000+01:00" in text
    assert "Z " not in text
    assert in_zone("user=2023", None) == "user=2023"


def test_a_time_that_the_log_does_not_cover(data_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing that was not logged is said to have been decided."""
    for at in ("2023-11-14T03:47:00Z", "2023-11-15T03:47:00Z"):
        assert main(["explain", "--data-dir", data_dir, *ASK[:-2], "--at", at]) == 1
        text = capsys.readouterr().out
        assert text.startswith(f"Nothing of {at[:-1]}.000Z, or within 5 min of it, is in these logs: {data_dir} ")
        assert "covers 2023-11-14T22:14:00.000Z to 2023-11-14T22:14:00.000Z" in text
        assert "denied it" not in text
        assert "admitted" not in text


def test_a_log_that_covers_part_of_the_time(data_dir: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    later = tmp_path / "later"
    later.mkdir()
    other = LoggedNode(later, RULES, ManualClock(NOW_MS + 120_000), run=2, name="two")
    other.stop()
    ask = ["--domain", "d", "user=bob", "--at", "2023-11-14T22:14:00Z"]
    assert main(["explain", "--data-dir", data_dir, "--data-dir", str(other.data_dir), *ask]) == 1
    text = capsys.readouterr().out
    assert "no node whose log is here denied it" in text
    assert f"But {other.data_dir} covers 2023-11-14T22:16:00.000Z to" in text
    assert f"But {data_dir}" not in text


def test_a_directory_without_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--data-dir", str(tmp_path), *ASK]) == 2
    assert f"{tmp_path}: there is no decision log in it" in capsys.readouterr().err


def test_lines_without_an_entry(
    data_dir: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    assert main(["explain", "--log", "-", *ASK]) == 1
    assert "there is nothing of Headgate in them" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("domain", "descriptor", "hint"),
    [
        ("d", "path=/a,user=ann", "in another order a rule applies to it: user=ann,path=/a."),
        ("d", "usr=ann", "no rule with key `usr` on this level (there is: user); did you mean user?\n"),
        ("dd", "user=ann", "there is no domain `dd` (there is: d); did you mean d?\n"),
    ],
)
def test_a_descriptor_that_no_rule_applies_to(
    domain: str, descriptor: str, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "descriptors: [{key: path, rate_limit: {unit: minute, requests_per_unit: 3}}]"
    rules = RULES.replace("}}\n", f"}}, {path}}}\n")
    node = LoggedNode(tmp_path, rules, ManualClock(NOW_MS))
    node.stop()
    ask = ["--domain", domain, descriptor, "--at", "2023-11-14T22:14:00Z"]
    assert main(["explain", "--data-dir", str(node.data_dir), *ask]) == 1
    assert hint in capsys.readouterr().out


def test_stretches_of_time() -> None:
    assert [milliseconds(text) for text in ("250ms", "2s", "5m", "1h", "1d", "3")] == [
        250,
        2_000,
        300_000,
        3_600_000,
        86_400_000,
        3_000,
    ]
    with pytest.raises(ConfigError):
        parse_time("-soon", NOW_MS)


def test_callers_do_not_steer_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What they send is in the log as it is, where values are logged, and is followed and replayed."""
    node = LoggedNode(tmp_path, RULES, ManualClock(NOW_MS), values=True, allowances=1)
    data_dir, evil = str(node.data_dir), "\x1b[2J\r\nann"
    Path(data_dir).mkdir(exist_ok=True)
    for _ in range(4):
        node.ask({"user": evil})
    node.stop()
    assert main(["rules", "replay", str(node.rules_dir), "--log", data_dir]) == 0
    assert "user=\\x1b[2J\\r\\nann" in capsys.readouterr().out
    assert printable("user=\x1b[2J\nann\udcff") == "user=\\x1b[2J\\nann\\udcff"


def test_a_server_that_does_not_answer_is_said_once_until_it_does(
    data_dir: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever follows servers at night wants to read decisions, not the same line every second."""
    (denied, *_) = [one for one in decisions(Path(data_dir)) if not one.allowed]
    line = json.dumps(record_to_json(denied))
    away, refused = ConfigError("a:1: connection refused"), ConfigError("a:1: UNAUTHENTICATED")
    answers: Iterator[pb.TailResponse | ConfigError] = iter(
        [away, away, refused, refused, pb.TailResponse(lines=[line]), refused, pb.TailResponse(lines=[line])]
    )

    def answer(*_: object) -> pb.TailResponse:
        told = next(answers, None)
        if told is None:
            threading.Event().wait()  # the server has nothing more to say, and the thread ends with the process
        if isinstance(told, ConfigError):
            raise told
        return told or pb.TailResponse()

    monkeypatch.setattr(tail, "call", answer)
    monkeypatch.setattr(tail, "RETRY_S", 0)
    assert main(["tail", "--addr", "a:1", "--count", "2"]) == 0
    said = capsys.readouterr()
    assert said.out.count("DENIED") == 2
    assert [text.split()[3] for text in said.err.splitlines()] == ["connection", "UNAUTHENTICATED;", "UNAUTHENTICATED;"]
