"""Ways in which PostgreSQL fails, on a real server: who stalls can't write, every wait ends, and errors have names."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from headgate.errors import BadRequest, ConfigError
from headgate.plane import postgresql
from headgate.plane.database import SqlConnection, StoreUnavailable
from headgate.plane.entry import RuleChange
from headgate.plane.postgresql import Postgresql
from headgate.plane.rule_log import Author, RuleLog
from headgate.runtime.plane_store import open_postgresql

from tests.support.postgresql import PostgresqlServer
from tests.support.waiting import PATIENCE_S

ANN = Author("ann", "because", 1_000)
Open = Callable[..., RuleLog]


def put(user: str) -> RuleChange:
    return RuleChange("edge", (("user", user),), b"{}")


@pytest.fixture
def name(server: PostgresqlServer) -> str:
    return server.database()


@pytest.fixture
def opened(server: PostgresqlServer, name: str) -> Iterator[Open]:
    """Opens the one log of a test, each time as another root."""
    with ExitStack() as closing:

        def again(**parameters: str) -> RuleLog:
            database = Postgresql(server.url(name, **parameters))
            closing.callback(database.close)
            return RuleLog(database)

        yield again


def users(log: RuleLog) -> list[str]:
    log.refresh()
    return [entry.changes[0].path[0][1] for entry in log.entries_after(0, 100, 1_000_000)]


def test_a_root_that_stalls_with_the_lock_is_written_past_and_can_t_write(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "IDLE_S", 1)
    stalled, other = opened(), opened()
    with stalled.alone():
        other.change([put("bob")], ANN)
        with pytest.raises(StoreUnavailable, match="can't be used"):
            stalled.change([put("ann")], ANN)
    assert users(other) == ["bob"]
    stalled.change([put("ann")], ANN)
    assert users(other) == ["bob", "ann"], "it writes again, behind what it had missed"


def test_a_root_that_stalls_while_it_writes_is_undone(server: PostgresqlServer, name: str, opened: Open) -> None:
    other = opened()
    stalled = Postgresql(server.url(name, options="-c idle_in_transaction_session_timeout=1s"))
    with ExitStack() as transaction:
        connection = transaction.enter_context(stalled.writing())
        connection.execute("INSERT INTO entries (idx, version, entry, undo) VALUES (1, 'v', '', '')")
        other.change([put("bob")], ANN)
        with pytest.raises(StoreUnavailable, match="can't be used"):
            transaction.close()
    stalled.close()
    assert users(other) == ["bob"]


def test_an_index_is_written_once_even_by_two_who_both_have_a_lock(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fences in the end is the key of the table: here the two hold different locks."""
    late, other = opened(), opened()
    outcome = late._outcome

    def after_the_other(connection: SqlConnection, changes: list[RuleChange]) -> object:
        with monkeypatch.context() as another_lock:
            another_lock.setattr(postgresql, "LOCK", 7)
            other.change([put("bob")], ANN)
        return outcome(connection, changes)

    monkeypatch.setattr(late, "_outcome", after_the_other)
    with pytest.raises(StoreUnavailable, match="duplicate key"):
        late.change([put("ann")], ANN)
    assert users(other) == ["bob"]


def test_who_waits_too_long_for_another_is_told_so(opened: Open) -> None:
    one, other = opened(), opened(options="-c lock_timeout=100ms")
    with one.alone(), pytest.raises(StoreUnavailable, match="another root has been writing"):
        other.change([put("bob")], ANN)
    other.change([put("bob")], ANN)


def test_a_server_that_does_not_answer_is_given_up(
    server: PostgresqlServer, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "ANSWER_S", 0.3)
    log = opened(connect_timeout="2")
    log.change([put("ann")], ANN)
    server.pause()
    try:
        with pytest.raises(StoreUnavailable, match=r"no answer within 0.3 s"):
            log.change([put("bob")], ANN)
        with pytest.raises(StoreUnavailable, match="timeout"):
            log.change([put("bob")], ANN)
    finally:
        server.pause(go_on=True)
    monkeypatch.undo()
    log.change([put("eve")], ANN)
    assert users(log) in (["ann", "eve"], ["ann", "bob", "eve"]), "what was under way may have been written"


def test_sessions_that_the_server_ended_are_opened_again(server: PostgresqlServer, opened: Open) -> None:
    log = opened()
    log.change([put("ann")], ANN)
    server.stop()
    with pytest.raises(StoreUnavailable, match="refused"):
        log.change([put("bob")], ANN)
    assert server.start()
    log.change([put("bob")], ANN)
    assert users(log) == ["ann", "bob"]


def test_who_listens_hears_of_an_entry(server: PostgresqlServer, name: str, opened: Open) -> None:
    listener, other = Postgresql(server.url(name)), opened()
    listener.listen(0.0)
    began_s = time.monotonic()
    other.change([put("bob")], ANN)
    listener.listen(PATIENCE_S)
    assert time.monotonic() - began_s < PATIENCE_S / 2
    listener.close()


def test_a_long_path_has_its_place_and_a_nul_has_none(opened: Open) -> None:
    log = opened()
    long = "".join(chr(0x4E00 + number) for number in range(1_300))
    for rule in (b"{}", b'{"shadow_mode":true}', None):
        log.change([RuleChange("edge", (("user", long),), rule)], ANN)
    assert log.position.index == 3
    with pytest.raises(BadRequest, match=r"can't hold this: .*NUL"):
        log.change([RuleChange("a\0b", (), b"{}")], ANN)


def test_tables_that_are_there_are_enough(server: PostgresqlServer, name: str, opened: Open) -> None:
    """Its role need not be one that may make tables."""
    opened()
    for statement in (
        f"CREATE ROLE {name} LOGIN",
        f"GRANT USAGE ON SCHEMA headgate TO {name}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA headgate TO {name}",
    ):
        server.execute(statement, name)
    log = opened(user=name)
    log.change([put("ann")], ANN)
    assert users(log) == ["ann"]


def test_an_encoding_that_can_t_hold_every_name_is_refused(server: PostgresqlServer, name: str) -> None:
    server.execute(f"CREATE DATABASE {name}_latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(StoreUnavailable, match="LATIN1: UTF8 is needed"):
        RuleLog(Postgresql(server.url(f"{name}_latin")))


def test_a_url_in_a_file_is_read_for_each_connection(server: PostgresqlServer, name: str, tmp_path: Path) -> None:
    file = tmp_path / "url"
    with pytest.raises(ConfigError, match=f"plane_store: .*No such file.*{file}"):
        Postgresql(f"file:{file}")
    file.write_text(server.url(name, user="nobody") + "\n")
    store = Postgresql(f"file:{file}")
    with pytest.raises(StoreUnavailable, match='role "nobody" does not exist'):
        RuleLog(store)
    file.write_text(server.url(name) + "\n")
    RuleLog(store).change([put("ann")], ANN)
    store.close()


def test_a_url_that_is_none_and_a_driver_that_is_missing_are_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="plane_store: is no URL") as told:
        open_postgresql("postgresql://ann:secret@h/d?sslmod=x")
    assert "secret" not in str(told.value)
    monkeypatch.delitem(sys.modules, "headgate.plane.postgresql")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"pip install 'headgate\[postgresql\]'"):
        open_postgresql("postgresql://h/d")
