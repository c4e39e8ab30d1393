"""Snapshots: what is saved comes back, and nothing but a whole snapshot is ever used."""

import contextlib
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from headgate.rules import snapshot
from headgate.rules.model import Version
from headgate.rules.problems import SnapshotError
from headgate.rules.request_limits import RequestLimits
from headgate.rules.ruleset import RuleSet

from tests.unit.rules.support import compile_text, rules_text

EVERYTHING = """
domain: d
descriptors:
  - key: plain
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: rich
    value: "a*b"
    share_threshold: true
    shadow_mode: true
    quota_mode: true
    detailed_metric: true
    value_to_metric: true
    metadata: {team: edge, list: [1, null, 2.5], é: 漢}
    rate_limit:
      unit: week
      unit_multiplier: 2
      requests_per_unit: 100
      name: rich
      replaces: [{name: one}, {name: two}]
      algorithm: gcra
      burst: 50
      precision: 0.5%
      class: abuse
      scope: cell
      overdraft: true
      refund: true
    descriptors:
      - {key: inner, value: x, rate_limit: {unlimited: true}}
      - {key: inner}
  - {key: exempt, value: y}
"""


def roundtrip(rules: RuleSet) -> RuleSet:
    return snapshot.decode(b"".join(snapshot.encode(rules, 7))).rules


def listed(rules: RuleSet) -> list[tuple[str, str, object]]:
    return [(info.domain, info.rule, info.limit) for info in rules.rules()]


def test_everything_comes_back() -> None:
    rules = compile_text(EVERYTHING, rules_text("other", ("k", 1)), "domain: empty\n")
    again = roundtrip(rules)
    assert listed(again) == listed(rules)
    assert sorted(again.domains) == ["d", "empty", "other"]
    assert (again.version, again.count) == (rules.version, rules.count)
    for entries in ([("plain", "v")], [("rich", "axb"), ("inner", "x")], [("rich", "ab")], [("exempt", "y")]):
        assert again.match("d", entries) == rules.match("d", entries)
    assert {info.place for info in again.rules()} == {""}


def test_large_slots_on_any_level_come_back_in_order() -> None:
    many = ", ".join(
        f"{{key: k, value: v{n}, rate_limit: {{unit: second, requests_per_unit: {n}}}}}" for n in range(1200)
    )
    rules = compile_text(f"domain: d\ndescriptors: [{{key: top, descriptors: [{many}]}}, {many}]")
    again = roundtrip(rules)
    assert listed(again) == listed(rules)
    assert again.count == 2400


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    rules = compile_text(EVERYTHING)
    data_dir = tmp_path / "new" / "data"
    path = snapshot.save(rules, data_dir, saved_ms=1234)
    loaded = snapshot.load(data_dir)
    assert listed(loaded.rules) == listed(rules)
    assert loaded.saved_ms == 1234
    assert [item.name for item in data_dir.iterdir()] == [path.name]


def test_it_is_for_its_owner_alone(tmp_path: Path) -> None:
    left_behind = tmp_path / f"{snapshot.FILE_NAME}.{os.getpid()}.tmp"
    left_behind.touch(mode=0o666)
    left_behind.chmod(0o666)
    path = snapshot.save(compile_text(EVERYTHING), tmp_path, saved_ms=0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o602, 0o644, 0o666, 0o700])
def test_one_that_others_may_touch_is_not_used(tmp_path: Path, mode: int) -> None:
    path = snapshot.save(compile_text(EVERYTHING), tmp_path, saved_ms=0)
    path.chmod(mode)
    with pytest.raises(SnapshotError, match=f"{path}: not used: its mode is {mode:04o}"):
        snapshot.load(tmp_path)
    path.chmod(0o400)
    assert snapshot.load(tmp_path).rules.count == 3


def test_one_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = snapshot.save(compile_text(EVERYTHING), tmp_path, saved_ms=0)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(SnapshotError, match="not used: it belongs to user"):
        snapshot.load(tmp_path)


def test_one_that_is_a_link_or_no_file_is_not_used(tmp_path: Path) -> None:
    elsewhere = snapshot.save(compile_text(EVERYTHING), tmp_path / "elsewhere", saved_ms=0)
    path = tmp_path / snapshot.FILE_NAME
    path.symlink_to(elsewhere)
    with pytest.raises(SnapshotError):
        snapshot.load(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SnapshotError, match="not used: it is not a plain file"):
        snapshot.load(tmp_path)


def test_what_a_domain_says_comes_back() -> None:
    rules = compile_text("domain: a\nshard_by: tenant\nrequest_limits: lower\n", "domain: b\n")
    again = roundtrip(rules)
    assert (again.domains["a"].shard_by, again.domains["a"].request_limits) == ("tenant", RequestLimits.LOWER)
    assert again.domains["b"].request_limits is None


def test_a_snapshot_of_other_content_is_not_what_was_asked_for(tmp_path: Path) -> None:
    snapshot.save(compile_text(EVERYTHING), tmp_path, saved_ms=0)
    assert snapshot.load(tmp_path, only_digest="digest").rules.count == 3
    with pytest.raises(SnapshotError, match="it holds other rules"):
        snapshot.load(tmp_path, only_digest="another")


def test_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="there is no snapshot"):
        snapshot.load(tmp_path)


def test_every_cut_and_every_changed_byte_is_noticed() -> None:
    data = b"".join(snapshot.encode(compile_text(EVERYTHING), 0))
    for length in range(len(data)):
        with pytest.raises(SnapshotError):
            snapshot.decode(data[:length])
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x04
        with pytest.raises(SnapshotError):
            snapshot.decode(bytes(changed))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: b"", "not a snapshot of rules"),
        (lambda data: b"something else entirely\n", "not a snapshot of rules"),
        (lambda data: data.replace(b"snapshot 7 ", b"snapshot 6 ", 1), "format 6, this program reads format 7"),
        (lambda data: data[:-10], "incomplete: "),
        (lambda data: data + b"x", "incomplete: "),
        (lambda data: data.replace(b"plain", b"plein", 1), "damaged: the checksum differs"),
    ],
)
def test_the_reason_is_named(change: Callable[[bytes], bytes], reason: str, tmp_path: Path) -> None:
    path = snapshot.save(compile_text(EVERYTHING), tmp_path, saved_ms=0)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(SnapshotError, match=reason):
        snapshot.load(tmp_path)


EMPTY_HEAD = json.dumps({"digest": "", "counter": 1, "count": 0, "saved_ms": 0, "limits": []})


@pytest.mark.parametrize(
    "lines",
    [
        ["{}"],
        ["[]"],
        ["not json"],
        [json.dumps({"digest": "", "counter": 1, "count": 0, "saved_ms": 0, "limits": [[1, 2]]})],
        [
            EMPTY_HEAD,
            '["d", [["k", 7, [], null]]]',
        ],
        [
            EMPTY_HEAD,
            '["d", [["k", {"v": 3}, [], 0]]]',
        ],
        [EMPTY_HEAD, "[" * 100_000],
    ],
)
def test_content_that_makes_no_sense_is_refused_even_with_a_right_checksum(lines: list[str]) -> None:
    body = "".join(f"{line}\n" for line in lines).encode()
    head = f"{snapshot.MAGIC} {snapshot.FORMAT} {hashlib.sha256(body).hexdigest()} {len(body)}\n".encode()
    with pytest.raises(SnapshotError, match="not readable as a snapshot"):
        snapshot.decode(head + body)


def test_what_a_killed_process_left_is_cleared_away_but_not_what_another_is_writing(tmp_path: Path) -> None:
    old, new = tmp_path / f"{snapshot.FILE_NAME}.1.tmp", tmp_path / f"{snapshot.FILE_NAME}.2.tmp"
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    long_ago = old.stat().st_mtime - 2 * snapshot.STALE_TEMP_S
    os.utime(old, (long_ago, long_ago))
    snapshot.save(compile_text(EVERYTHING), tmp_path, saved_ms=0)
    assert not old.exists()
    assert new.exists()


def test_a_write_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = compile_text(EVERYTHING)
    snapshot.save(rules, tmp_path, saved_ms=1)

    def fails(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space left"):
        snapshot.save(rules, tmp_path, saved_ms=2)
    monkeypatch.undo()
    assert snapshot.load(tmp_path).saved_ms == 1
    assert [item.name for item in tmp_path.iterdir()] == [snapshot.FILE_NAME]


@pytest.mark.slow
def test_whoever_looks_finds_a_whole_snapshot_at_every_moment(tmp_path: Path) -> None:
    rules = compile_text(rules_text("d", *[(f"k=v{n}", n) for n in range(1000)]))
    path = snapshot.save(rules, tmp_path, saved_ms=0)

    def save_often() -> None:
        for saved in range(1, 60):
            snapshot.save(rules, tmp_path, saved_ms=saved)

    writer = threading.Thread(target=save_often)
    writer.start()
    sizes = set()
    while writer.is_alive():
        sizes.add(len(path.read_bytes()))
        assert snapshot.load(tmp_path).rules.count == 1000
    writer.join()
    assert min(sizes) > 1000
    assert snapshot.load(tmp_path).saved_ms == 59


WRITER = """
import sys
from collections.abc import Callable
from pathlib import Path
from headgate.rules import snapshot
from tests.unit.rules.support import compile_text, rules_text
rules = compile_text(rules_text("d", *[(f"k=v{n}", n) for n in range(3000)]))
saved = 0
while True:
    saved += 1
    snapshot.save(rules, Path(sys.argv[1]), saved_ms=saved)
    print(saved, flush=True)
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_whole_snapshot(tmp_path: Path) -> None:
    last = 0
    for delay_s in (0.0, 0.001, 0.002, 0.004, 0.007):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        with contextlib.closing(writer.stdout):
            writer.stdout.readline()
            time.sleep(delay_s)  # not synchronisation: it only varies the moment of the kill
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        loaded = snapshot.load(tmp_path)
        assert loaded.rules.count == 3000
        last = max(last, loaded.saved_ms)
    assert last >= 1


def test_the_version_is_kept(tmp_path: Path) -> None:
    compiled = compile_text(EVERYTHING)
    rules = RuleSet(compiled.domains, compiled.nodes, Version(41, "abc"), compiled.count)
    snapshot.save(rules, tmp_path, saved_ms=0)
    assert snapshot.load(tmp_path).rules.version == Version(41, "abc")
