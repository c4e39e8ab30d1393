"""Roots that share a real PostgreSQL, each with a copy: what is in which, and what is left when one of them is lost."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from headgate.clock import SystemClock
from headgate.errors import Misconfigured
from headgate.plane import rule_log
from headgate.plane.database import Sqlite, StoreUnavailable
from headgate.plane.entry import FollowerState, RuleChange
from headgate.plane.mirrored import Mirrored
from headgate.plane.postgresql import Postgresql
from headgate.plane.root_reports import RootReports
from headgate.plane.rule_log import Author, RuleLog

from tests.support.postgresql import PostgresqlServer

ANN = Author("ann", "because", 1_000)


class Root:
    """A root's log and where it is kept."""

    def __init__(self, url: str, directory: Path, *, promote: bool = False, plane: str = "a") -> None:
        copy = Sqlite(directory)
        self.mirrored = Mirrored(Postgresql(url), copy, SystemClock(), lambda: plane, promote=promote)
        self.log = RuleLog(self.mirrored)

    def put(self, *users: str) -> None:
        with self.log.alone():
            self.log.change([RuleChange("edge", (("user", user),), b"{}") for user in users], ANN)

    def look(self) -> list[str]:
        """Users that have rules, after a look at the store."""
        self.mirrored.catch_up()
        return self.served()

    def served(self) -> list[str]:
        self.log.refresh()
        return sorted(rule.path[0][1] for part in self.log.parts() for rule in part.rules)


OpenRoot = Callable[..., Root]


@pytest.fixture
def name(server: PostgresqlServer) -> str:
    return server.database()


@pytest.fixture
def root(server: PostgresqlServer, name: str, tmp_path: Path) -> Iterator[OpenRoot]:
    """Opens roots by their data directory's name, on the one store of a test or on another."""
    with ExitStack() as closing:

        def again(directory: str, database: str = name, *, promote: bool = False, plane: str = "a") -> Root:
            root = Root(server.url(database), tmp_path / directory, promote=promote, plane=plane)
            closing.callback(root.log.close)
            return root

        yield again


def test_an_entry_is_in_the_copy_of_who_wrote_it_and_in_others_after_a_look(root: OpenRoot) -> None:
    one, two = root("one"), root("two")
    one.put("ann")
    assert (one.served(), two.served()) == (["ann"], [])
    assert two.look() == ["ann"]
    two.put("bob")
    assert one.look() == two.served() == ["ann", "bob"]
    assert one.log.position == two.log.position
    assert one.log.history(0, 10) == two.log.history(0, 10)


def test_what_a_change_relies_on_is_what_the_last_one_left(root: OpenRoot) -> None:
    one, two = root("one"), root("two")
    one.put("ann")
    with two.log.alone():
        assert two.log.rule("edge", (("user", "ann"),)) == b"{}"


def test_a_new_root_takes_all_rules_where_the_log_does_not_reach_back(
    root: OpenRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_log, "KEPT_ENTRIES", 1)
    monkeypatch.setattr(rule_log, "TRIMMED_EVERY", 1)
    one = root("one")
    for user in ("ann", "bob", "eve"):
        one.put(user)
    assert root("two").look() == ["ann", "bob", "eve"]


def test_without_the_store_all_is_read_and_nothing_written(root: OpenRoot, server: PostgresqlServer) -> None:
    one = root("one")
    one.put("ann")
    fresh_s = one.mirrored.fresh_s
    server.stop()
    try:
        with pytest.raises(StoreUnavailable, match="refused"):
            one.mirrored.catch_up()
        assert (one.served(), one.mirrored.fresh_s) == (["ann"], fresh_s)
        with pytest.raises(StoreUnavailable, match="refused"):
            one.put("bob")
    finally:
        assert server.start()
    with pytest.raises(StoreUnavailable, match="refused"):
        one.put("bob")
    assert one.look() == ["ann"], "a look is what heals"
    one.put("bob")
    assert one.look() == ["ann", "bob"]


def lost_the_last(server: PostgresqlServer, name: str, one: Root, *users: str) -> str:
    """A database as it was before some entries, which the root has: its name."""
    one.mirrored.store.close()
    server.execute(f"CREATE DATABASE {name}_before TEMPLATE {name}")
    one.put(*users)
    one.put("last")
    one.log.close()
    return f"{name}_before"


def test_entries_that_a_standby_missed_are_given_back(root: OpenRoot, server: PostgresqlServer, name: str) -> None:
    one = root("one")
    one.put("ann")
    standby = lost_the_last(server, name, one, "bob")
    one, two = root("one", standby), root("two", standby)
    assert two.look() == ["ann"]
    position = one.log.position
    assert one.look() == ["ann", "bob", "last"]
    assert two.look() == ["ann", "bob", "last"]
    assert one.log.position == two.log.position == position


def test_a_store_that_was_set_back_and_written_is_not_followed_until_it_is_ahead(
    root: OpenRoot, server: PostgresqlServer, name: str
) -> None:
    one = root("one")
    one.put("ann")
    standby = lost_the_last(server, name, one, "bob")
    one, two = root("one", standby), root("two", standby)
    two.put("eve")
    with pytest.raises(Misconfigured, match=r"ends at entry 2 .* and data_dir has entry 3 .*: the store was set back"):
        one.look()
    assert one.served() == ["ann", "bob", "last"]
    with pytest.raises(StoreUnavailable, match="set back"):
        one.put("joe")
    two.put("fay")
    two.put("gus")
    assert one.look() == two.served() == ["ann", "eve", "fay", "gus"]


def test_a_log_of_its_own_is_not_given_up_for_another(root: OpenRoot, tmp_path: Path) -> None:
    own = RuleLog(Sqlite(tmp_path / "own"))
    own.name("a")
    own.change([RuleChange("edge", (("user", "old"),), b"{}")], ANN)
    own.close()
    with pytest.raises(Misconfigured, match="the plane's store is empty, and data_dir has entry 1: say --promote"):
        root("own").look()
    root("one").put("ann")
    with pytest.raises(Misconfigured, match="data_dir holds the log of a root of its own"):
        root("own", promote=True).look()


def test_an_empty_store_begins_with_what_is_promoted(root: OpenRoot, tmp_path: Path) -> None:
    own = RuleLog(Sqlite(tmp_path / "own"))
    own.name("a")
    own.change([RuleChange("edge", (("user", "old"),), b"{}")], ANN)
    own.close()
    one = root("own", promote=True, plane="b")
    assert one.look() == ["old"]
    assert (one.log.position.plane, one.log.position.index, one.log.is_copy) == ("b", 1, True)
    two = root("two")
    two.put("ann")
    assert one.look() == two.served() == ["ann", "old"]
    assert two.log.position.plane == "b"


def test_roots_tell_each_other_who_follows_them(root: OpenRoot) -> None:
    one, two = root("one"), root("two")
    states = [FollowerState(name, "eu", "1", relay=False) for name in ("n1", "n2", "n3")]
    reports = [RootReports(each.mirrored.store, name) for name, each in (("one", one), ("two", two))]
    assert reports[0].exchange(states[:1]) == []
    assert reports[1].exchange(states[1:]) == states[:1]
    assert reports[0].exchange(states[:1]) == states[1:]
    assert reports[1].exchange([]) == states[:1]
    assert reports[0].exchange([]) == []
    with two.mirrored.store.beside() as connection:
        connection.execute("UPDATE roots SET told = told - interval '16 s'")
    reports[0].exchange(states)
    assert reports[1].exchange([]) == states
    with two.mirrored.store.beside() as connection:
        connection.execute("UPDATE roots SET told = told - interval '16 s'")
    assert reports[1].exchange([]) == [], "a root that fell silent has nobody"
