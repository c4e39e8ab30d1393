"""PostgreSQL as the database of a plane that several roots write.

One writes at a time: whoever does holds an advisory lock, which ends with its session. An entry's index is a primary
key besides, so whatever a root believes, it can't write an index twice. A session that stalls while it holds the lock
is ended by the server: what it had not committed is undone, and it can't commit any more. What is committed is told to
all who listen.

Every wait ends: for a connection, for the lock, for an answer. The driver's errors become `StoreUnavailable` here, and
those that the values are to blame for `BadRequest`.
"""

import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict

from headgate.errors import BadRequest, ConfigError
from headgate.plane.database import TABLES, Rows, SqlConnection, StoreUnavailable

SCHEMA: Final = "headgate"
OLDEST: Final = 140_000
"""PostgreSQL 14: the first that ends idle sessions, on which it relies that a root that stalls gives up the lock."""
LOCK: Final = 0x_6865_6164_6761_7465
"""Number of the lock: `headgate`. It is the database's, not the cluster's."""
CHANNEL: Final = "headgate_entries"
LOCK_S: Final = 10
"""Seconds to wait until another root has written: an entry of 10,000 changes takes one or two."""
STALLED_S: Final = 10
"""Seconds without a statement after which a transaction is undone and its session ended, so that others can write."""
IDLE_S: Final = 20
"""Seconds without a statement after which a session that has the lock, and no transaction yet, is ended: the check of
10,000 rules takes one or two."""
STATEMENT_S: Final = 20
"""Seconds that one statement may take."""
ANSWER_S: Final = 25.0
"""Seconds to wait for an answer: more than a statement may take, so that only a server that stalls is given up."""
ROWS_READ: Final = 100
"""Rows that are read at a time: entries may have megabytes."""
ROWS_WRITTEN: Final = 5_000
"""Rows that are written at a time: fewer than a statement has time for."""
MOST_IDLE: Final = 2
"""Sessions that are kept for readers."""
MAX_REASON_CHARS: Final = 300
FILE_SCHEME: Final = "file:"
MAX_URL_CHARS: Final = 64 * 1024
"""Size of a file with a URL; more is another file."""
UNCERTAIN: Final = "it may have been written: `headgate rules history` shows it then"

_CONNECTING: Final = {
    "application_name": "headgate plane",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""Parameters that hold where the URL does not say them."""
_OPTIONS: Final = " ".join(
    f"-c {name}={value}"
    for name, value in (
        ("search_path", SCHEMA),
        ("client_encoding", "UTF8"),
        ("lock_timeout", f"{LOCK_S}s"),
        ("statement_timeout", f"{STATEMENT_S}s"),
        ("idle_in_transaction_session_timeout", f"{STALLED_S}s"),
    )
)

_INDEXES: Final = (
    # A path has up to four kilobytes, more than a sorted index takes.
    "CREATE INDEX IF NOT EXISTS rules_by_path ON rules USING hash (path)",
    "CREATE INDEX IF NOT EXISTS rules_by_slot ON rules USING hash (slot) WHERE slot IS NOT NULL",
    # Gone after a crash, and told again a second later.
    "CREATE UNLOGGED TABLE IF NOT EXISTS roots (root TEXT PRIMARY KEY, told TIMESTAMPTZ NOT NULL,"
    " report BYTEA NOT NULL)",
)

T = TypeVar("T")


class _Session(psycopg.Connection[Any]):
    """A connection that gives up a server that does not answer."""

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, ANSWER_S)
        except psycopg.OperationalError as error:
            if error.sqlstate is not None or self.closed:
                raise
            # Neither the server nor the connection has ended it: time has.
            self.close()
            raise psycopg.OperationalError(f"no answer within {ANSWER_S:g} s") from None

    @property
    def is_alive(self) -> bool:
        """False if it was ended, from either side: an idle server has nothing else to say."""
        if self.closed:
            return False
        looked = select.poll()
        looked.register(self.fileno(), select.POLLIN)
        return not looked.poll(0)


class _Found:
    """Rows of a query, which is run when they are wanted: one of them, or all in turns."""

    _numbers = count()

    def __init__(self, session: _Session, query: str, values: Sequence[Any]) -> None:
        self._session, self._query, self._values = session, query, values

    def fetchone(self) -> Any:
        return self._session.execute(self._query, self._values).fetchone()

    def __iter__(self) -> Iterator[Any]:
        with self._session.cursor(f"rows_{next(self._numbers)}") as cursor:
            cursor.itersize = ROWS_READ
            yield from cursor.execute(self._query, self._values)


class _Statements:
    """Implements `SqlConnection`."""

    def __init__(self, session: _Session) -> None:
        self._session = session

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        text = statement.replace("?", "%s")
        return _Found(self._session, text, values) if text.startswith("SELECT") else self._session.execute(text, values)

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._session.cursor() as cursor:
            for start in range(0, len(rows), ROWS_WRITTEN):
                cursor.executemany(statement.replace("?", "%s"), rows[start : start + ROWS_WRITTEN])


class Postgresql:
    """A database that several roots share; implements `Database`. It is connected to when it is first used."""

    def __init__(self, url: str) -> None:
        """`url` may be `file:` and the path of a file that holds it, read for each connection. Raises ConfigError."""
        _parameters(url)
        self._url = url
        self._prepared = False
        self._writer: _Session | None = None
        self._alone: _Session | None = None
        self._listener: _Session | None = None
        self._idle: list[_Session] = []

    # Transactions

    @contextmanager
    def writing(self) -> Iterator[SqlConnection]:
        session = self._alone or self._writing_session()
        committing = False
        try:
            with _named(), session.transaction():
                session.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
                yield _Statements(session)
                # Heard when it is committed, and only then.
                session.execute(f"NOTIFY {CHANNEL}")
                committing = True
        except StoreUnavailable as error:
            if committing:
                raise StoreUnavailable(f"{error}; {UNCERTAIN}") from error
            raise

    @contextmanager
    def alone(self) -> Iterator[None]:
        session = self._alone = self._writing_session()
        try:
            with _named():
                session.execute(
                    "SELECT set_config('idle_session_timeout', %s, false), pg_advisory_lock(%s)", (f"{IDLE_S}s", LOCK)
                )
                yield
        finally:
            self._alone = None
            self._unlock(session)

    def _unlock(self, session: _Session) -> None:
        """Give the lock back: with the session, where that can't be said."""
        try:
            session.execute("SELECT pg_advisory_unlock_all(), set_config('idle_session_timeout', '0', false)")
        except psycopg.Error:
            session.close()

    @contextmanager
    def reading(self) -> Iterator[SqlConnection]:
        with self._reader() as session, _named(), session.transaction():
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield _Statements(session)

    @contextmanager
    def beside(self) -> Iterator[SqlConnection]:
        """Begin a transaction that touches nothing of the log, and waits for nobody who writes it."""
        with self._reader() as session, _named(), session.transaction():
            yield _Statements(session)

    def listen(self, timeout_s: float) -> None:
        """Wait until something was written, or for that time. Another thread than those that write and read."""
        with _named():
            if self._listener is None or self._listener.closed:
                self._listener = self._connect()
                self._listener.execute(f"LISTEN {CHANNEL}")
                # Something may have been written before.
                return
            for _ in self._listener.notifies(timeout=timeout_s, stop_after=1):
                pass

    def close(self) -> None:
        for session in (self._writer, self._listener, *self._idle):
            if session is not None:
                session.close()
        self._writer = self._listener = None
        self._idle.clear()

    # Sessions

    def _writing_session(self) -> _Session:
        with _named():
            if self._writer is not None and not self._writer.is_alive:
                self._writer.close()
            if self._writer is None or self._writer.closed:
                self._writer = self._connect()
            return self._writer

    @contextmanager
    def _reader(self) -> Iterator[_Session]:
        with _named():
            session = self._idle_session() or self._connect()
        try:
            yield session
        finally:
            if session.closed or len(self._idle) >= MOST_IDLE:
                session.close()
            else:
                self._idle.append(session)

    def _idle_session(self) -> _Session | None:
        while self._idle:
            session = self._idle.pop()
            if session.is_alive:
                return session
            session.close()
        return None

    def _connect(self) -> _Session:
        try:
            parameters = _parameters(self._url)
        except ConfigError as error:
            raise StoreUnavailable(str(error)) from error
        session = _Session.connect(**parameters, autocommit=True)
        if not self._prepared:
            try:
                _prepare(session)
            except BaseException:
                session.close()
                raise
            self._prepared = True
        return session


def _parameters(url: str) -> dict[str, Any]:
    """Parameters of a connection. Raises ConfigError, which does not repeat the URL: there may be a password in it."""
    try:
        if url.startswith(FILE_SCHEME):
            with open(url.removeprefix(FILE_SCHEME), encoding="utf-8") as file:
                url = file.read(MAX_URL_CHARS).strip()
        given = conninfo_to_dict(url)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"plane_store: {error}") from error
    except psycopg.Error:
        raise ConfigError("plane_store: is no URL that PostgreSQL's libpq can read") from None
    return {**_CONNECTING, **given, "options": f"{_OPTIONS} {given.get('options', '')}"}


def _prepare(session: _Session) -> None:
    """Make the tables where there are none; one who may not make any needs those that are there."""
    if session.info.server_version < OLDEST:
        raise StoreUnavailable(f"PostgreSQL {session.info.server_version // 10_000}: 14 or later is needed")
    encoding = session.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreUnavailable(f"the database's encoding is {encoding}: UTF8 is needed")
    with session.transaction():
        session.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        if session.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.roots",)).fetchone() != (None,):
            return
        session.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        for statement in (*TABLES, *_INDEXES):
            session.execute(statement.format(bytes="BYTEA"))


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except psycopg.DataError as error:
        raise BadRequest(f"the plane's store can't hold this: {_reason(error)}") from error
    except psycopg.errors.LockNotAvailable as error:
        raise StoreUnavailable(f"another root has been writing for {LOCK_S} s: try again") from error
    except psycopg.Error as error:
        raise StoreUnavailable(f"the plane's store can't be used: {_reason(error)}") from error


def _reason(error: psycopg.Error) -> str:
    return " ".join(str(error).split())[:MAX_REASON_CHARS] or type(error).__name__
