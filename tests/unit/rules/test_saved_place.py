"""A domain with many changes is written as a whole beside the changes that come meanwhile, and no kill is noticed."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headgate.rules import saved_place, snapshot
from headgate.rules.changes import Delete, Put, changed
from headgate.rules.private_files import STALE_S

from tests.unit.rules.saving import Appending, minute

FEW_BYTES = 2_000
"""Size of changes that is many, here: some eight of them."""


@pytest.fixture
def appending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Appending:
    monkeypatch.setattr(saved_place, "LEAST_CHANGES_BYTES", FEW_BYTES)
    return Appending(tmp_path / "data")


def nothing() -> None: ...


def put(number: int) -> Put:
    return Put("d", (("user", f"u{number}"),), minute(number))


def change_until_due(appending: Appending, first: int = 0) -> int:
    """Change rules until the domain has to be written as a whole; return the next number."""
    number = first
    while not appending.writer.is_due:
        appending.change(put(number))
        number += 1
        assert number < first + 100
    return number


def is_whole(appending: Appending) -> bool:
    """Say if the disk comes to the last version, by one file and at most one of changes."""
    return appending.loaded().version.digest == appending.rules.version.digest and len(appending.changes_files) <= 1


def test_many_changes_become_a_whole_again(appending: Appending) -> None:
    before, number = appending.whole_file.stat().st_ino, 0
    for _ in range(3):
        number = change_until_due(appending, number)
        assert sum(path.stat().st_size for path in appending.changes_files) <= 2 * FEW_BYTES
        assert appending.loaded().version.digest == appending.rules.version.digest
        appending.writer.rewrite()
        assert is_whole(appending)
        assert not appending.writer.is_due
    assert appending.whole_file.stat().st_ino != before
    appending.change(put(number))
    assert is_whole(appending)


def test_changes_go_on_while_it_is_written(appending: Appending) -> None:
    """`pause` is called in the middle of writing; changes are made there."""
    number = change_until_due(appending)
    made: list[str] = []

    def change_meanwhile() -> None:
        if len(made) < 5:
            appending.change(put(number + len(made)), Delete("d", (("user", f"u{len(made)}"),)))
            made.append(appending.loaded().version.digest)
            assert made[-1] == appending.rules.version.digest, "saved at once, and before the domain is written"

    appending.writer.rewrite(change_meanwhile)
    assert len(made) == 5
    assert is_whole(appending)
    appending.restart()
    appending.change(put(100))
    assert is_whole(appending)
    assert not appending.writer.is_due


class Disk:
    """Keeps a copy of the directory from before each thing that is done to it: what a kill there would leave."""

    def __init__(self, appending: Appending, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.appending = appending
        self.copies = copies
        self.kept: list[tuple[Path, set[str]]] = []
        self.saved = appending.rules.version.digest
        """The version that was saved last; the next one may be there too."""
        for name in ("replace", "unlink", "fsync", "write", "open"):
            monkeypatch.setattr(os, name, self._cut(name, getattr(os, name)))

    def _cut(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def cut(*arguments: Any, **named: Any) -> Any:
            # Reading is no step.
            if name != "open" or arguments[1] & (os.O_WRONLY | os.O_RDWR):
                self.keep()
            return work(*arguments, **named)

        return cut

    def keep(self) -> None:
        copy = self.copies / str(len(self.kept))
        self.kept.append((copy, {self.saved, self.appending.rules.version.digest}))
        os.system(f"cp -a {self.appending.directory} {copy}")  # noqa: S605 - nothing of this process's own


def test_a_kill_at_any_step_leaves_the_last_version(
    appending: Appending, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = change_until_due(appending) - 1
    appending.writer.rewrite()
    (tmp_path / "copies").mkdir()
    with monkeypatch.context() as patched:
        disk = Disk(appending, tmp_path / "copies", patched)
        for _ in range(2):
            meanwhile = 4

            def change(number: int) -> None:
                appending.change(put(number))
                disk.saved = appending.rules.version.digest

            def change_meanwhile() -> None:
                nonlocal number, meanwhile
                if meanwhile:
                    meanwhile, number = meanwhile - 1, number + 1
                    change(number)

            while not appending.writer.is_due:
                number += 1
                change(number)
            appending.writer.rewrite(change_meanwhile)
            disk.keep()
    assert len(disk.kept) > 40
    for copy, versions in disk.kept:
        assert snapshot.load(copy).rules.version.digest in versions, copy
        # And a process that begins there goes on.
        appending.directory = copy
        appending.restart()
        appending.writer.rewrite()
        assert appending.loaded().version.digest == appending.rules.version.digest
        # What nobody could remove is removed when it is old.
        for path in appending.changes_files:
            os.utime(path, (0, 0))
        change_until_due(appending, 1_000)
        appending.writer.rewrite()
        assert is_whole(appending)
        shutil.rmtree(copy)


def test_a_process_that_begins_beside_a_half_written_domain_writes_it_again(appending: Appending) -> None:
    change_until_due(appending)
    assert len(appending.changes_files) == 2
    appending.restart()
    assert appending.writer.is_due
    appending.writer.rewrite()
    assert is_whole(appending)
    assert not appending.writer.is_due


def test_rules_that_come_as_a_whole_meanwhile_stay(appending: Appending) -> None:
    change_until_due(appending)

    def save_meanwhile() -> None:
        appending.rules = changed(appending.rules, [put(77)])
        appending.writer.save(appending.rules, 5)

    appending.writer.rewrite(save_meanwhile)
    assert is_whole(appending)


def test_a_domain_that_goes_meanwhile_stays_away(appending: Appending) -> None:
    change_until_due(appending)
    appending.writer.rewrite(lambda: appending.change(Delete("d")) if appending.rules.domains else None)
    assert not appending.whole_file.exists()
    assert not appending.changes_files
    assert not appending.loaded().domains


def test_what_is_back_at_the_version_of_the_whole_is_not_written_again(
    appending: Appending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limits that go up and down."""
    before = appending.whole_file.stat().st_ino
    for number in range(4):
        appending.change(put(number))
        appending.change(Delete("d", (("user", f"u{number}"),)))
    monkeypatch.setattr(saved_place, "LEAST_CHANGES_BYTES", 0)
    appending.change(put(9))
    assert not appending.writer.is_due
    assert appending.changes_file.stat().st_size < FEW_BYTES / 5
    assert is_whole(appending)
    assert appending.whole_file.stat().st_ino == before


def test_stale_changes_of_a_version_that_comes_again_do_not_count(appending: Appending) -> None:
    base = appending.rules.domains["d"]
    appending.change(put(1))
    stale = appending.changes_file.read_bytes()
    name = appending.changes_file.name
    change_until_due(appending, 2)
    appending.writer.rewrite()
    (appending.whole_file.parent / name).write_bytes(stale)
    (appending.whole_file.parent / name).chmod(0o600)
    appending.rules = appending.rules.with_domains({"d": base})
    appending.writer.save(appending.rules, 2)
    assert is_whole(appending)


def test_a_full_disk_keeps_what_it_has_and_is_tried_again_later(
    appending: Appending, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = change_until_due(appending)
    saved = appending.rules.version.digest

    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    for _ in range(3):
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fails)
            with pytest.raises(OSError, match="No space left"):
                appending.writer.rewrite()
        for _ in range(20):
            appending.change(put(number))
            number += 1
        assert appending.loaded().version.digest == saved, "no changes are saved that nothing leads to"
        assert not appending.writer.is_due
        assert len(appending.changes_files) <= 2
        appending.now_ms += saved_place.RETRY_MS
        for _ in range(2):
            appending.change(put(number))
            number += 1
        assert appending.writer.is_due
    appending.writer.rewrite()
    assert is_whole(appending)


def test_changes_that_outrun_the_writing_are_bounded_and_saved_with_the_next(appending: Appending) -> None:
    number = change_until_due(appending)

    def flood() -> None:
        nonlocal number
        if number < 100:
            for _ in range(30):
                appending.change(put(number))
                number += 1
            assert sum(path.stat().st_size for path in appending.changes_files) <= 2 * FEW_BYTES

    appending.writer.rewrite(flood)
    assert number >= 100
    assert is_whole(appending), "without another change"


def test_changes_that_another_process_left_are_removed_when_they_are_old(appending: Appending) -> None:
    folder = appending.whole_file.parent
    young, old, former = (folder / f"{appending.whole_file.stem}{name}.changes" for name in (".1", ".2", ""))
    other = folder / f"{'0' * 32}.3.changes"
    for path in (young, old, former, other):
        path.touch()
        if path is not young:
            os.utime(path, (path.stat().st_mtime - 2 * STALE_S,) * 2)
    change_until_due(appending)
    appending.writer.rewrite()
    assert [path.exists() for path in (young, old, former, other)] == [True, False, False, True]


def test_two_threads_may_write_at_a_time(appending: Appending) -> None:
    """Changes come as fast as they can while the domain is written, again and again."""
    over = threading.Event()

    def rewrite() -> None:
        while not over.is_set():
            appending.writer.rewrite()

    thread = threading.Thread(target=rewrite)
    thread.start()
    try:
        for number in range(300):
            appending.change(put(number))
    finally:
        over.set()
        thread.join()
    appending.writer.rewrite()
    assert is_whole(appending)


def test_changes_that_are_more_than_many_at_once_are_saved(appending: Appending) -> None:
    for first in range(0, 100, 20):
        appending.change(*map(put, range(first, first + 20)))
        assert appending.loaded().version.digest == appending.rules.version.digest
        appending.writer.rewrite()
        assert is_whole(appending)
