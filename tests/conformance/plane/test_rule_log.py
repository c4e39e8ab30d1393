"""The log of a plane in its database: what entries do, what is refused, and what can be read again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from headgate.errors import BadRequest, Misconfigured
from headgate.plane import rule_log
from headgate.plane.database import Database, SqlConnection, Sqlite
from headgate.plane.entry import NOWHERE, LogEntry, Position, RuleChange
from headgate.plane.rule_log import Author, RuleLog, WrongVersion

OpenDatabase = Callable[[], Database]
ANN = Author("ann", "because", 1_000)
TEN, TWENTY = b'{"shadow_mode":true}', b'{"quota_mode":true}'


def put(path: str, rule: bytes | None = TEN, domain: str = "edge") -> RuleChange:
    return RuleChange(domain, (("user", path),), rule)


def delete(path: str, domain: str = "edge") -> RuleChange:
    return put(path, None, domain)


@pytest.fixture
def log(database: OpenDatabase) -> RuleLog:
    log = RuleLog(database())
    log.name("a")
    return log


def made(entry: LogEntry | None) -> LogEntry:
    assert entry is not None
    return entry


def rules_in(log: RuleLog) -> set[tuple[str, object, bytes | None]]:
    return {(rule.domain, rule.path, rule.rule) for part in log.parts() for rule in part.rules}


def test_an_entry_says_what_it_leads_from_and_to(log: RuleLog) -> None:
    empty = log.position.version
    first = made(log.change([put("ann"), put("bob")], ANN))
    second = made(log.change([put("ann", TWENTY), delete("bob")], ANN))
    assert (first.position.index, first.predecessor) == (1, empty)
    assert (second.position.index, second.predecessor) == (2, first.position.version)
    assert log.position == second.position
    assert rules_in(log) == {("edge", (("user", "ann"),), TWENTY)}
    assert (log.rules, set(log.domains)) == (1, {"edge"})
    assert (second.who, second.why, second.made_ms) == ("ann", "because", 1_000)


def test_a_version_is_that_of_the_content_whichever_way_it_came_about(log: RuleLog) -> None:
    empty = log.position.version
    one = made(log.change([put("ann"), put("bob", TWENTY)], ANN)).position.version
    log.change([delete("ann")], ANN)
    log.change([put("bob", TEN)], ANN)
    log.change([put("bob", TWENTY)], ANN)
    assert made(log.change([put("ann")], ANN)).position.version == one
    assert made(log.change([delete("ann"), delete("bob")], ANN)).position.version == empty


@pytest.mark.parametrize(
    "other", [put("ann", TWENTY), put("bob"), put("ann", domain="other"), put("ann\x00"), put("", TEN)]
)
def test_other_content_has_another_version(log: RuleLog, other: RuleChange) -> None:
    one = made(log.change([put("ann")], ANN)).position.version
    log.change([delete("ann")], ANN)
    assert made(log.change([other], ANN)).position.version != one


def test_the_order_of_wildcards_is_part_of_the_content(log: RuleLog) -> None:
    first = [put("a*", b'{"place":0}'), put("*b", b'{"place":1}')]
    version = made(log.change(first, ANN)).position.version
    assert made(log.change([put("a*", b'{"place":2}')], ANN)).position.version != version
    log.change([delete("a*")], ANN)
    assert made(log.change([put("a*", b'{"place":0}')], ANN)).position.version == version
    assert made(log.change([put("*b", b'{"place":7}')], ANN)).position.version == version, "in the same order"


def test_a_domains_own_fields_are_part_of_its_content(log: RuleLog) -> None:
    version = made(log.change([put("ann")], ANN)).position.version
    own = RuleChange("edge", (), b'{"shard_by":"user"}')
    assert made(log.change([own], ANN)).position.version != version
    assert made(log.change([RuleChange("edge", (), b"{}")], ANN)).position.version == version


def test_what_is_so_already_is_no_change(log: RuleLog) -> None:
    log.change([put("ann")], ANN)
    assert log.change([put("ann"), delete("nobody")], ANN) is None
    entry = made(log.change([put("ann"), put("ann", TWENTY), put("bob")], ANN))
    assert entry.changes == (put("ann", TWENTY), put("bob"))


def test_another_head_than_expected_is_refused(log: RuleLog) -> None:
    first = made(log.change([put("ann")], ANN)).position.version
    log.change([put("bob")], ANN, expect=first)
    with pytest.raises(
        Misconfigured, match=f"and {first} was expected; since then: entry 2 by ann, of edge .because.$"
    ):
        log.change([put("eve")], ANN, expect=first)
    assert log.position.index == 2
    for number in range(6):
        log.change([put("bob", TEN if number % 2 else TWENTY)], Author("bob", "again", 5))
    with pytest.raises(Misconfigured, match=r"entry 8 by bob, of edge \(again\); .*entry 4 .*; and 2 more$"):
        log.change([put("eve")], ANN, expect=first)
    with pytest.raises(Misconfigured, match="the log does not have that version"):
        log.change([put("eve")], ANN, expect="abc")


def test_all_is_there_again_after_a_restart(log: RuleLog, database: OpenDatabase) -> None:
    log.change([put("ann"), put("bob", TWENTY, "other")], ANN)
    again = RuleLog(database())
    assert (again.position, again.rules, rules_in(again)) == (log.position, 2, rules_in(log))
    assert again.entries_after(0, 10, 1_000) == log.entries_after(0, 10, 1_000)


def test_two_processes_write_one_log(log: RuleLog, database: OpenDatabase) -> None:
    other = RuleLog(database())
    log.change([put("ann")], ANN)
    entry = made(other.change([put("bob")], ANN))
    assert entry.position.index == 2
    assert log.refresh() == entry.position
    assert made(log.change([put("eve")], ANN)).predecessor == entry.position.version


# Following


def copied(log: RuleLog, tmp: RuleLog) -> RuleLog:
    for entry in log.entries_after(tmp.position.index, 100, 10_000_000):
        tmp.take(entry)
    return tmp


@pytest.fixture
def follower(tmp_path_factory: pytest.TempPathFactory) -> RuleLog:
    return RuleLog(Sqlite(tmp_path_factory.mktemp("follower")))


def test_entries_lead_a_copy_to_the_same_version(log: RuleLog, follower: RuleLog) -> None:
    log.change([put("ann"), put("bob")], ANN)
    log.change([delete("bob"), put("ann", TWENTY)], ANN)
    copied(log, follower)
    assert (follower.position, rules_in(follower)) == (log.position, rules_in(log))


def test_an_entry_that_lost_something_changes_nothing(log: RuleLog, follower: RuleLog) -> None:
    log.change([put("ann")], ANN)
    copied(log, follower)
    entry = made(log.change([put("bob"), put("eve")], ANN))
    short = LogEntry(entry.position, entry.predecessor, entry.changes[:1], "ann", "", 0)
    before = follower.position, rules_in(follower)
    with pytest.raises(WrongVersion, match="leads to another version"):
        follower.take(short)
    assert (follower.position, rules_in(follower)) == before
    follower.take(entry)
    assert follower.position == log.position


def test_an_entry_is_taken_once_and_in_order(log: RuleLog, follower: RuleLog) -> None:
    first, second = (made(log.change([put(name)], ANN)) for name in ("ann", "bob"))
    with pytest.raises(WrongVersion, match="does not follow"):
        follower.take(second)
    follower.take(first)
    with pytest.raises(WrongVersion, match="does not follow"):
        follower.take(first)


def test_a_snapshot_is_taken_whole_or_not_at_all(
    log: RuleLog, follower: RuleLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_log, "PART_RULES", 2)
    log.change([put(f"user{number}") for number in range(5)], ANN)
    parts = list(log.parts())
    assert [(part.number, len(part.rules), part.last) for part in parts] == [(0, 2, False), (1, 2, False), (2, 1, True)]
    rules = [rule for part in parts for rule in part.rules]
    with pytest.raises(WrongVersion, match="have another one"):
        follower.replace(log.position, rules[:4])
    assert (follower.position.index, rules_in(follower)) == (0, set())
    follower.replace(log.position, rules)
    assert (follower.position, follower.rules) == (log.position, 5)
    follower.take(made(log.change([delete("user0")], ANN)))
    assert rules_in(follower) == rules_in(log)


def test_parts_are_of_one_moment(log: RuleLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_log, "PART_RULES", 1)
    at = made(log.change([put("ann"), put("bob")], ANN)).position
    parts = log.parts()
    first = next(parts)
    log.change([delete("ann"), delete("bob"), put("eve")], ANN)
    rest = list(parts)
    assert {part.position for part in (first, *rest)} == {at}
    assert sorted(rule.path[0][1] for part in (first, *rest) for rule in part.rules) == ["ann", "bob"]


def test_some_domains_are_read_alone(log: RuleLog) -> None:
    log.change([put("ann"), put("bob", domain="other"), put("eve", domain="third")], ANN)
    (part,) = log.parts(["other", "none"])
    assert part.rules == (put("bob", domain="other"),)


def test_where_a_follower_can_go_on(log: RuleLog, monkeypatch: pytest.MonkeyPatch) -> None:
    one = made(log.change([put("ann")], ANN)).position
    two = made(log.change([put("bob")], ANN)).position
    back = made(log.change([delete("bob")], ANN)).position
    assert back.version == one.version
    assert [log.begin_of(has) for has in (one, two, back)] == [1, 2, 3]
    assert log.begin_of(NOWHERE) is None
    assert log.begin_of(Position("a", 2, one.version)) is None
    assert log.begin_of(Position("0", 7, one.version)) == 3, "one of another log, by its version"
    assert log.begin_of(Position("0", 7, "unknown")) is None
    monkeypatch.setattr(rule_log, "KEPT_ENTRIES", 1)
    monkeypatch.setattr(rule_log, "TRIMMED_EVERY", 1)
    log.change([put("eve")], ANN)
    assert [log.begin_of(has) for has in (one, two, back)] == [None, None, 3]
    with pytest.raises(BadRequest, match="begins behind"):
        log.entries_after(1, 10, 1_000)


def test_a_copy_that_nobody_follows_keeps_rules_and_no_entries(log: RuleLog, tmp_path: Path) -> None:
    copy = RuleLog(Sqlite(tmp_path / "copy"), keeps_entries=False)
    made(log.change([put("ann")], ANN))
    copy.replace(log.position, [rule for part in log.parts() for rule in part.rules])
    later = [[put("ann", TWENTY), put("bob")], [delete("bob"), put("eve")], [put("ann"), put("eve", TWENTY)]]
    for changes in later:
        copy.take(made(log.change(changes, ANN)))
    assert copy.position == log.position
    assert rules_in(copy) == rules_in(log)
    assert (len(log.history(0, 10)[0]), copy.history(0, 10)[0]) == (4, [])
    copy.close()


class LateReader:
    """A database whose readers see, while one is held, what was there when it began."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held: SqlConnection | None = None
        self.writing, self.alone, self.close = database.writing, database.alone, database.close

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._database.reading() as self._held:
            self._held.execute("SELECT idx FROM place").fetchone()
            yield
        self._held = None

    @contextmanager
    def reading(self) -> Iterator[SqlConnection]:
        if self._held is not None:
            yield self._held
            return
        with self._database.reading() as connection:
            yield connection


def test_a_head_is_seen_when_it_is_written_and_not_before(log: RuleLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sees a head reads what is behind it, which must be there."""
    before, seen = log.position, list[Position]()
    monkeypatch.setattr(RuleLog, "_trim", lambda self, connection: seen.append(self.position))
    entry = made(log.change([put("ann")], ANN))
    assert (seen, log.position) == ([before], entry.position)


def test_a_reader_that_began_earlier_moves_no_head_back(database: OpenDatabase) -> None:
    late = LateReader(database())
    log = RuleLog(late)
    log.name("a")
    one = made(log.change([put("ann")], ANN)).position
    with late.held():
        two = made(log.change([put("bob")], ANN)).position
        assert log.begin_of(one) == 1
        assert log.position == two
    assert log.begin_of(one) == 1


def test_entries_are_bounded_in_bytes(log: RuleLog) -> None:
    for number in range(3):
        log.change([put(f"user{number}", b'{"metadata":{"x":"%s"}}' % (b"x" * 1_000))], ANN)
    assert [entry.position.index for entry in log.entries_after(0, 10, 2_500)] == [1, 2]
    assert [entry.position.index for entry in log.entries_after(0, 2, 10_000)] == [1, 2]
    assert [entry.position.index for entry in log.entries_after(2, 10, 1)] == [3]


# Looking back


def test_history_has_the_latest_first(log: RuleLog) -> None:
    for name, domain in (("ann", "edge"), ("bob", "other"), ("eve", "edge")):
        log.change([put(name, domain=domain)], ANN)
    entries, first = log.history(0, 10)
    assert ([entry.position.index for entry in entries], first) == ([3, 2, 1], 1)
    assert [entry.position.index for entry in log.history(0, 1, "other")[0]] == [2]
    assert [entry.position.index for entry in log.history(3, 10)[0]] == [2, 1]


def test_a_rollback_leads_back_to_the_very_version(log: RuleLog) -> None:
    one = made(log.change([put("ann"), put("bob")], ANN)).position
    log.change([put("ann", TWENTY), delete("bob"), put("eve")], ANN)
    log.change([put("ann", TEN), put("joe", domain="other")], ANN)
    (entry,) = log.rollback(one.version, ANN)
    assert (entry.position.index, entry.position.version) == (4, one.version)
    assert rules_in(log) == {("edge", (("user", name),), TEN) for name in ("ann", "bob")}


def test_a_rollback_without_a_version_undoes_the_last_entry(log: RuleLog) -> None:
    one = made(log.change([put("ann")], ANN)).position
    log.change([put("bob")], ANN)
    assert log.rollback("", ANN)[-1].position.version == one.version


def test_a_large_rollback_is_several_entries(log: RuleLog, monkeypatch: pytest.MonkeyPatch) -> None:
    one = made(log.change([put("ann")], ANN)).position
    log.change([put(f"user{number}") for number in range(5)], ANN)
    monkeypatch.setattr(rule_log, "MOST_CHANGES", 2)
    entries = log.rollback(one.version, ANN)
    assert [len(entry.changes) for entry in entries] == [2, 2, 1]
    assert log.position.version == one.version


def test_a_version_that_the_log_does_not_have_is_refused(log: RuleLog) -> None:
    log.change([put("ann")], ANN)
    with pytest.raises(BadRequest, match="no version 'unknown'"):
        log.rollback("unknown", ANN)


def test_a_relay_that_becomes_the_root_goes_on_with_another_name(log: RuleLog, follower: RuleLog) -> None:
    log.change([put("ann")], ANN)
    before = log.position
    copied(log, follower)
    follower.name("b")
    entry = made(follower.change([put("bob")], ANN))
    assert (entry.position.plane, entry.position.index, entry.predecessor) == ("b", 2, before.version)
    log.take(entry)
    assert (log.position, rules_in(log)) == (follower.position, rules_in(follower))
