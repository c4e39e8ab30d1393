"""A directory of our own: it stays while anybody has it, and goes with the next start when nobody has."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from headgate.transport.private_directory import PrivateDirectory, remove_if_empty

HOLD = """
import os, sys
from headgate.transport.private_directory import PrivateDirectory
directory = PrivateDirectory()
(directory.path / "socket").touch()
print(directory.path, flush=True)
if sys.argv[1:] == ["child"]:
    os.set_inheritable(directory.lock_fd, True)
    os.execv(sys.executable, [sys.executable, "-c", "input()"])
input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def holder(*arguments: str) -> "tuple[subprocess.Popen[str], Path]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_only_we_may_enter_and_nothing_is_left(place: Path) -> None:
    directory = PrivateDirectory()
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    directory.remove()
    directory.remove()
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("arguments", [(), ("child",)])
def test_one_that_lives_is_kept_and_one_that_was_killed_is_not(place: Path, arguments: tuple[str, ...]) -> None:
    process, theirs = holder(*arguments)
    try:
        assert theirs.parent == place
        PrivateDirectory().remove()
        assert (theirs / "socket").exists(), "its process lives"
    finally:
        kill(process)
    assert theirs.exists()
    PrivateDirectory().remove()
    assert list(place.iterdir()) == []


def test_what_is_not_ours_is_left_alone(place: Path) -> None:
    (place / "headgate-x").mkdir()
    (place / "headgate-file").touch()
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "owner.lock").touch()
    (place / "headgate-link").symlink_to(place / "elsewhere")
    (place / "headgate-linked").mkdir()
    (place / "headgate-linked" / "owner.lock").symlink_to(place / "elsewhere" / "owner.lock")
    before = sorted(os.listdir(place))
    PrivateDirectory().remove()
    assert sorted(os.listdir(place)) == before
    assert (place / "elsewhere" / "owner.lock").exists()


def test_the_last_one_in_it_takes_it_along() -> None:
    directory = PrivateDirectory()
    (directory.path / "0").mkdir()
    remove_if_empty(directory.path)
    assert directory.path.exists()
    (directory.path / "0").rmdir()
    remove_if_empty(directory.path)
    assert not directory.path.exists()
    remove_if_empty(directory.path)
    directory.remove()
