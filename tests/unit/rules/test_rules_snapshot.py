"""Snapshots: what is saved comes back, and nothing but a whole snapshot is ever used."""

import contextlib
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
from headgate.rules import saved_place, snapshot
from headgate.rules.changes import Delete, DomainSettings, Put
from headgate.rules.private_files import STALE_S, checked, write_private
from headgate.rules.problems import SnapshotError
from headgate.rules.request_limits import RequestLimits
from headgate.rules.ruleset import RuleSet
from headgate.rules.snapshot import SnapshotWriter, domain_file

from tests.unit.rules.saving import EVERYTHING, Appending, minute
from tests.unit.rules.support import compile_text, rules_text, saved_and_read


def save(rules: RuleSet, directory: Path, saved_ms: int = 0) -> Path:
    """Save as a process that has saved nothing yet; the file of the domain, of which there is one."""
    SnapshotWriter(directory).save(rules, saved_ms)
    return domain_file(directory, "d")


def listed(rules: RuleSet) -> list[tuple[str, str, object]]:
    return [(info.domain, info.rule, info.limit) for info in rules.rules()]


def test_everything_comes_back() -> None:
    rules = compile_text(EVERYTHING, rules_text("other", ("k", 1)), "domain: empty\n")
    again = saved_and_read(rules)
    assert listed(again) == listed(rules)
    assert sorted(again.domains) == ["d", "empty", "other"]
    assert (again.version, again.count) == (rules.version, rules.count)
    for entries in ([("plain", "v")], [("rich", "axb"), ("inner", "x")], [("rich", "ab")], [("exempt", "y")]):
        assert again.match("d", entries) == rules.match("d", entries)
    assert {info.place for info in again.rules()} == {""}


def test_large_slots_on_any_level_come_back() -> None:
    many = ", ".join(
        f"{{key: k, value: v{n}, rate_limit: {{unit: second, requests_per_unit: {n}}}}}" for n in range(1200)
    )
    rules = compile_text(f"domain: d\ndescriptors: [{{key: top, descriptors: [{many}]}}, {many}]")
    again = saved_and_read(rules)
    assert sorted(listed(again), key=str) == sorted(listed(rules), key=str)
    assert again.count == 2400


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    rules = compile_text(EVERYTHING, rules_text("other", ("k", 1)))
    data_dir = tmp_path / "new" / "data"
    path = SnapshotWriter(data_dir, merge_domains=True).save(rules, saved_ms=1234)
    loaded = snapshot.load(data_dir)
    assert listed(loaded.rules) == listed(rules)
    assert (loaded.saved_ms, loaded.merge_domains, loaded.rules.version) == (1234, True, rules.version)
    assert loaded.rules.files() == rules.files()
    assert sorted(item.name for item in data_dir.iterdir()) == [snapshot.FOLDER, path.name]
    assert len(list((data_dir / snapshot.FOLDER).iterdir())) == 2


def test_it_is_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / snapshot.FOLDER).mkdir()
    path = domain_file(tmp_path, "d")
    left_behind = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    left_behind.touch(mode=0o666)
    left_behind.chmod(0o666)
    save(compile_text(EVERYTHING), tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / snapshot.FILE_NAME).stat().st_mode) == 0o600


def both_files(directory: Path) -> list[Path]:
    return [directory / snapshot.FILE_NAME, domain_file(directory, "d")]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("mode", [0o640, 0o602, 0o644, 0o666, 0o700])
def test_one_that_others_may_touch_is_not_used(tmp_path: Path, mode: int, which: int) -> None:
    save(compile_text(EVERYTHING), tmp_path)
    path = both_files(tmp_path)[which]
    path.chmod(mode)
    with pytest.raises(SnapshotError, match=f"{path}: not used: its mode is {mode:04o}"):
        snapshot.load(tmp_path)
    path.chmod(0o400)
    assert snapshot.load(tmp_path).rules.count == 3


def test_one_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(compile_text(EVERYTHING), tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(SnapshotError, match="not used: it belongs to user"):
        snapshot.load(tmp_path)


@pytest.mark.parametrize("which", [0, 1])
def test_one_that_is_a_link_or_no_file_is_not_used(tmp_path: Path, which: int) -> None:
    save(compile_text(EVERYTHING), tmp_path / "elsewhere")
    save(compile_text(EVERYTHING), tmp_path)
    path = both_files(tmp_path)[which]
    path.unlink()
    path.symlink_to(both_files(tmp_path / "elsewhere")[which])
    with pytest.raises(SnapshotError):
        snapshot.load(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SnapshotError, match="not used: it is not a plain file"):
        snapshot.load(tmp_path)


def test_what_a_domain_says_comes_back() -> None:
    rules = compile_text("domain: a\nshard_by: tenant\nrequest_limits: lower\n", "domain: b\n")
    again = saved_and_read(rules)
    assert (again.domains["a"].shard_by, again.domains["a"].request_limits) == ("tenant", RequestLimits.LOWER)
    assert again.domains["b"].request_limits is None


def test_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="there is no snapshot"):
        snapshot.load(tmp_path)


def test_every_cut_and_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    data = save(compile_text(EVERYTHING), tmp_path).read_bytes()
    for length in range(len(data)):
        with pytest.raises(SnapshotError):
            checked(data[:length])
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x04
        with pytest.raises(SnapshotError):
            checked(bytes(changed))


def test_a_domain_that_is_missing_is_named(tmp_path: Path) -> None:
    path = save(compile_text(EVERYTHING), tmp_path)
    path.unlink()
    with pytest.raises(SnapshotError, match=f"{path}: the file of domain 'd' is missing"):
        snapshot.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: b"", "not a snapshot of rules"),
        (lambda data: b"something else entirely\n", "not a snapshot of rules"),
        (lambda data: data.replace(b"snapshot 9 ", b"snapshot 8 ", 1), "format 8, this program reads format 9"),
        (lambda data: data[:-10], "incomplete: "),
        (lambda data: data + b"x", "incomplete: "),
        (lambda data: data.replace(b"plain", b"plein", 1), "damaged: the checksum differs"),
    ],
)
def test_the_reason_is_named(change: Callable[[bytes], bytes], reason: str, tmp_path: Path) -> None:
    path = save(compile_text(EVERYTHING), tmp_path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(SnapshotError, match=reason):
        snapshot.load(tmp_path)


EMPTY_HEAD = json.dumps(
    {
        "domain": "d",
        "shard_by": "",
        "request_limits": None,
        "total": "0",
        "count": 0,
        "layers": [],
        "clashes": [],
        "met": [],
    }
)


@pytest.mark.parametrize(
    "lines",
    [
        ["{}"],
        ["[]"],
        ["not json"],
        [EMPTY_HEAD],
        [EMPTY_HEAD.replace("[]", "[[1, 2]]"), "[true, []]"],
        [EMPTY_HEAD, '[true, [["k", 7, [], null]]]'],
        [EMPTY_HEAD, '[true, [["k", {"v": 3}, [], 0]]]'],
        [EMPTY_HEAD, "[" * 100_000],
    ],
)
def test_content_that_makes_no_sense_is_refused_even_with_a_right_checksum(lines: list[str], tmp_path: Path) -> None:
    path = save(compile_text(EVERYTHING), tmp_path)
    write_private(path, [f"{line}\n".encode() for line in lines])
    with pytest.raises(SnapshotError, match=f"{path}: not readable as a snapshot"):
        snapshot.load(tmp_path)


def test_what_a_killed_process_left_is_cleared_away_but_not_what_another_is_writing(tmp_path: Path) -> None:
    (tmp_path / snapshot.FOLDER).mkdir()
    for directory in (tmp_path, tmp_path / snapshot.FOLDER):
        old, new = directory / "x.1.tmp", directory / "x.2.tmp"
        old.write_bytes(b"half")
        new.write_bytes(b"half")
        long_ago = old.stat().st_mtime - 2 * STALE_S
        os.utime(old, (long_ago, long_ago))
    save(compile_text(EVERYTHING), tmp_path)
    assert not [*tmp_path.rglob("*.1.tmp")]
    assert len([*tmp_path.rglob("*.2.tmp")]) == 2


def test_a_write_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = compile_text(EVERYTHING)
    save(rules, tmp_path, 1)
    before = sorted(tmp_path.rglob("*"))

    def fails(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space left"):
        save(rules, tmp_path, 2)
    monkeypatch.undo()
    assert snapshot.load(tmp_path).saved_ms == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_whoever_looks_finds_a_whole_snapshot_at_every_moment(tmp_path: Path) -> None:
    rules = compile_text(rules_text("d", *[(f"k=v{n}", n) for n in range(1000)]))
    path = save(rules, tmp_path)

    def save_often() -> None:
        for saved in range(1, 60):
            save(rules, tmp_path, saved)

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
from headgate.rules.snapshot import SnapshotWriter
from tests.unit.rules.support import compile_text, rules_text
rules = compile_text(rules_text("d", *[(f"k=v{n}", n) for n in range(3000)]))
saved = 0
while True:
    saved += 1
    SnapshotWriter(Path(sys.argv[1])).save(rules, saved_ms=saved)
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
    rules = compile_text(EVERYTHING).numbered(41)
    save(rules, tmp_path)
    assert snapshot.load(tmp_path).rules.version == rules.version


# By change


def test_only_domains_that_changed_are_written(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path)
    first = compile_text(rules_text("d", ("k", 1)), rules_text("e", ("k", 1)), rules_text("gone", ("k", 1)))
    writer.save(first, saved_ms=0)
    before = {name: domain_file(tmp_path, name).stat().st_ino for name in ("d", "e")}
    changed = compile_text(rules_text("d", ("k", 2))).domains["d"]
    second = first.with_domains({"d": changed, "gone": None})
    writer.save(second, saved_ms=1)
    assert domain_file(tmp_path, "e").stat().st_ino == before["e"]
    assert domain_file(tmp_path, "d").stat().st_ino != before["d"]
    assert not domain_file(tmp_path, "gone").exists()
    loaded = snapshot.load(tmp_path)
    assert (loaded.rules.version, listed(loaded.rules)) == (second.version, listed(second))


def test_what_was_read_back_is_not_written_again(tmp_path: Path) -> None:
    path = save(compile_text(EVERYTHING), tmp_path)
    before = path.stat().st_ino
    writer, loaded = SnapshotWriter(tmp_path), snapshot.load(tmp_path)
    writer.loaded(loaded)
    writer.save(loaded.rules, saved_ms=1)
    assert path.stat().st_ino == before


@pytest.fixture
def appending(tmp_path: Path) -> Appending:
    return Appending(tmp_path)


def test_changes_of_single_rules_are_appended_and_come_back(appending: Appending) -> None:
    path = domain_file(appending.directory, "d")
    before = path.stat().st_ino
    appending.change(Put("d", (("user", "ann"),), minute(3)), Put("d", (("rich", "a*b"), ("inner", "y")), minute(4)))
    appending.change(Delete("d", (("plain", ""),)), DomainSettings("d", "tenant", RequestLimits.REFUSE))
    assert path.stat().st_ino == before
    assert appending.loaded().version.digest == appending.rules.version.digest
    assert sorted(listed(appending.loaded())) == sorted(listed(appending.rules))
    assert stat.S_IMODE(appending.changes_file.stat().st_mode) == 0o600


def test_a_line_that_was_cut_off_is_left_out_and_the_next_one_counts(appending: Appending) -> None:
    appending.change(Put("d", (("user", "ann"),), minute(3)))
    saved = appending.rules
    appending.change(Put("d", (("user", "bob"),), minute(3)))
    data = appending.changes_file.read_bytes()
    appending.changes_file.write_bytes(data[:-20])
    assert appending.loaded().version.digest == saved.version.digest
    appending.restart()
    assert appending.rules.version.digest == saved.version.digest
    appending.change(Put("d", (("user", "cay"),), minute(3)))
    assert appending.loaded().version.digest == appending.rules.version.digest


def test_lines_of_several_processes_do_no_harm(appending: Appending) -> None:
    appending.change(Put("d", (("user", "ann"),), minute(3)))
    line = appending.changes_file.read_bytes()
    appending.change(Put("d", (("user", "bob"),), minute(3)))
    with open(appending.changes_file, "ab") as file:
        file.write(line)
    assert appending.loaded().version.digest == appending.rules.version.digest


def test_domains_that_come_and_go_by_changes(appending: Appending) -> None:
    appending.change(Put("new", (("user", ""),), minute(3)))
    assert appending.loaded().version.digest == appending.rules.version.digest
    appending.change(Delete("new"))
    assert sorted(appending.loaded().domains) == ["d"]


def test_after_a_restart_a_change_is_a_line_too_and_not_the_domain_again(
    appending: Appending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size of the domain, by which lines are worth it, is that of its file."""
    monkeypatch.setattr(saved_place, "LEAST_CHANGES_BYTES", 10)
    path = domain_file(appending.directory, "d")
    appending.change(Put("d", (("user", "ann"),), minute(3)))
    appending.restart()
    before = path.stat().st_ino
    appending.change(Put("d", (("user", "bob"),), minute(3)))
    assert path.stat().st_ino == before
    assert appending.loaded().version.digest == appending.rules.version.digest
