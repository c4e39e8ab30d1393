"""The database of a plane: what the log asks of one, and sqlite, the embedded one.

Statements have `?` for values and are the same for every database. A write transaction is alone: nobody else writes
between its first reading and its end.
"""

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Protocol

from headgate.errors import ConfigError, NotReady

FILE_NAME: Final = "plane.sqlite"
_BUSY_S: Final = 10.0
"""Seconds to wait for another process that writes; there should be none."""
KEPT_LOG_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the write-ahead log that stay on disk once all of it is in the file: as many as changes need between two
such moments. After all rules were written at once it is as large as the file."""

TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS place (one INTEGER PRIMARY KEY, plane TEXT NOT NULL, idx BIGINT NOT NULL,"
    " version TEXT NOT NULL, own BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS domains (domain TEXT PRIMARY KEY, total {bytes} NOT NULL, rules BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS rules (domain TEXT NOT NULL, kind BIGINT NOT NULL, path TEXT NOT NULL,"
    " rule {bytes} NOT NULL, slot TEXT)",
    "CREATE INDEX IF NOT EXISTS rules_by_kind ON rules (kind) WHERE kind > 0",
    "CREATE TABLE IF NOT EXISTS entries (idx BIGINT PRIMARY KEY, version TEXT NOT NULL, entry {bytes} NOT NULL,"
    " undo {bytes} NOT NULL)",
    "CREATE INDEX IF NOT EXISTS entries_by_version ON entries (version)",
)
"""Tables of a plane. `own` is 1 where the log was named and written, 0 in a copy; `total` is a domain's sum,
`kind` a record's (RecordKind), `slot` the key of which a pattern is one, `undo` the changes that take an entry back. Of
a kind a path is in a domain once; it may be too long for some indexes, so these are each database's own."""

SCHEMA: Final = (
    *(statement.format(bytes="BLOB") for statement in TABLES),
    "CREATE UNIQUE INDEX IF NOT EXISTS rules_by_path ON rules (domain, kind, path)",
    "CREATE INDEX IF NOT EXISTS rules_by_slot ON rules (domain, slot) WHERE slot IS NOT NULL",
)
"""All of it for sqlite."""


class StoreUnavailable(NotReady):
    """A database that can't be reached, or does not answer in time: nothing can be changed, and all else goes on."""


class Rows(Protocol):
    """Rows that a statement gave."""

    def fetchone(self) -> Any:
        """Return the next row; None behind the last one."""

    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """A connection that runs statements."""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        """Run one statement."""

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement for each row."""


class Database(Protocol):
    """A database that holds one plane. Calls block: a thread makes them."""

    def writing(self) -> AbstractContextManager[SqlConnection]:
        """Begin a write transaction; it is undone if the block raises."""

    def reading(self) -> AbstractContextManager[SqlConnection]:
        """Begin reading one state, whatever is written meanwhile."""

    def alone(self) -> AbstractContextManager[None]:
        """Be the only one who writes, also between transactions. Looks that a change relies on are made within."""

    def close(self) -> None:
        """Close all connections."""


class SqliteConnection:
    """Implements `SqlConnection`."""

    def __init__(self, path: str) -> None:
        # Transactions are ours: Python's own begin too late, and not before reading.
        self._connection = sqlite3.connect(path, _BUSY_S, isolation_level=None, check_same_thread=False)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        return self._connection.execute(statement, values)

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._connection.executemany(statement, rows)

    def close(self) -> None:
        self._connection.close()


class Sqlite:
    """A file in the data directory; implements `Database`."""

    def __init__(self, directory: Path | None, *, is_copy: bool = False) -> None:
        """Open the file, and make it where there is none; without a directory it is gone with the process. Raises
        ConfigError.

        What is said to be written is on disk; of a copy, which others have too, a power cut may take the last entries.
        """
        self._scratch = None if directory is not None else tempfile.TemporaryDirectory(prefix="headgate-plane-")
        directory = directory or Path(self._scratch.name if self._scratch else "")
        self._path = directory / FILE_NAME
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            self._writer = SqliteConnection(str(self._path))
            self._prepare("NORMAL" if is_copy else "FULL")
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"data_dir {directory}: {FILE_NAME} can't be opened: {error}") from error

    def _prepare(self, synchronous: str) -> None:
        # With a write-ahead log readers see one state while others write.
        self._writer.execute("PRAGMA journal_mode=WAL")
        self._writer.execute(f"PRAGMA synchronous={synchronous}")
        self._writer.execute(f"PRAGMA journal_size_limit={KEPT_LOG_BYTES}")
        # A process that ended did not say how much of its log was in the file, and the first change would have to wait
        # until all of it is: after a fill that is as much as all rules.
        self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with self.writing() as connection:
            for statement in SCHEMA:
                connection.execute(statement)

    @contextmanager
    def writing(self) -> Iterator[SqlConnection]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield self._writer
        except BaseException:
            self._writer.execute("ROLLBACK")
            raise
        self._writer.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[SqlConnection]:
        connection = SqliteConnection(str(self._path))
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()

    def alone(self) -> AbstractContextManager[None]:
        # One process has the file, and one thread of it writes.
        return nullcontext()

    def close(self) -> None:
        self._writer.close()
        if self._scratch is not None:
            self._scratch.cleanup()
