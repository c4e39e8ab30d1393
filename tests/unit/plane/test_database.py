"""The embedded database's files: what a process that was killed left in its write-ahead log."""

import shutil
import sqlite3
from pathlib import Path

from headgate.plane.database import FILE_NAME, KEPT_LOG_BYTES, Sqlite

ROWS, ROW_BYTES = 5_000, 4_000
LOG_NAME = f"{FILE_NAME}-wal"


def fill(database: Sqlite) -> None:
    rule = b"x" * ROW_BYTES
    with database.writing() as connection:
        rows = [("edge", 0, str(number), rule, None) for number in range(ROWS)]
        connection.executemany("INSERT INTO rules (domain, kind, path, rule, slot) VALUES (?, ?, ?, ?, ?)", rows)


def change(database: Sqlite, path: int) -> None:
    with database.writing() as connection:
        connection.execute("UPDATE rules SET rule = ? WHERE path = ?", (b"y", str(path)))


def killed(directory: Path, into: Path) -> Path:
    """The files as they stand, as a process leaves them that is killed now."""
    shutil.copytree(directory, into, ignore=shutil.ignore_patterns("*-shm"))
    return into


def test_the_log_of_a_process_that_was_killed_is_in_the_file_before_the_first_change(tmp_path: Path) -> None:
    before = Sqlite(tmp_path / "before")
    fill(before)
    directory = killed(tmp_path / "before", tmp_path / "after")
    assert (directory / LOG_NAME).stat().st_size > ROWS * ROW_BYTES, "there is much to bring in"
    after = Sqlite(directory)
    assert not (directory / LOG_NAME).stat().st_size
    (tmp_path / "alone").mkdir()
    with sqlite3.connect(shutil.copy(directory / FILE_NAME, tmp_path / "alone")) as alone:
        assert alone.execute("SELECT COUNT(*) FROM rules").fetchone() == (ROWS,)
    alone.close()
    before.close()
    after.close()


def test_the_log_does_not_stay_as_large_as_the_file(tmp_path: Path) -> None:
    database = Sqlite(tmp_path)
    fill(database)
    change(database, 1)
    assert (tmp_path / LOG_NAME).stat().st_size <= KEPT_LOG_BYTES < ROWS * ROW_BYTES
    database.close()
