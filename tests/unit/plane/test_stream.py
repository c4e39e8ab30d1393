"""Both sides of a stream, without a network: what is sent, what is taken, and what is asked for again."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from headgate.plane import rule_log
from headgate.plane.database import Sqlite
from headgate.plane.entry import (
    NOWHERE,
    Beat,
    FollowerHello,
    FollowerState,
    FromPlane,
    LogEntry,
    Position,
    Report,
    RuleChange,
)
from headgate.plane.following import AGAIN_S, MISSED_BEATS, REPEAT_S, Following
from headgate.plane.rule_log import Author, RuleLog
from headgate.plane.watching import Watching

ANN = Author("ann", "", 0)
OpenLog = Callable[[str], RuleLog]


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[OpenLog]:
    opened: list[RuleLog] = []

    def of(name: str) -> RuleLog:
        opened.append(RuleLog(Sqlite(tmp_path / name)))
        return opened[-1]

    yield of
    for log in opened:
        log.close()


@pytest.fixture
def root(open_log: OpenLog) -> RuleLog:
    log = open_log("root")
    log.name("a")
    return log


class Pair:
    """A plane and one follower, with the messages between them in the test's hands."""

    def __init__(self, root: RuleLog, copy: RuleLog, age_ms: int = 0) -> None:
        self.root = root
        self.watching = Watching(root, lambda: age_ms)
        self.following = Following(FollowerState("n1", "eu", "1.0", relay=False), copy)

    def connect(self, now_s: float = 0) -> None:
        self.following.connected(now_s)
        self.say(now_s)

    def say(self, now_s: float) -> list[FollowerHello | Report]:
        """Hand over what the follower has to say."""
        said = self.following.requests([FollowerState("n1", "eu", "1.0", False, self.copy.position)], now_s)
        for one in said:
            if isinstance(one, FollowerHello):
                self.watching.hello(one.follower.has)
        return list(said)

    def hear(self, now_s: float) -> list[FromPlane]:
        """Hand over what the plane sends."""
        sent = list(self.watching.outgoing(now_s))
        for one in sent:
            self.following.received(one, now_s)
        return sent

    @property
    def copy(self) -> RuleLog:
        copy = self.following.copy
        assert isinstance(copy, RuleLog)
        return copy


@pytest.fixture
def pair(root: RuleLog, open_log: OpenLog) -> Pair:
    return Pair(root, open_log("copy"))


@pytest.fixture
def far_pair(tmp_path: Path, open_log: OpenLog) -> Iterator[Pair]:
    """A pair whose follower gets all rules as soon as it misses an entry."""
    root = RuleLog(Sqlite(tmp_path / "near"), most_behind=0)
    root.name("a")
    yield Pair(root, open_log("copy"))
    root.close()


def change(log: RuleLog, name: str, rule: bytes | None = b"{}") -> LogEntry:
    entry = log.change([RuleChange("edge", (("user", name),), rule)], ANN)
    assert entry is not None
    return entry


def kinds(sent: list[FromPlane]) -> list[str]:
    return [type(one).__name__ for one in sent]


def test_one_that_has_nothing_gets_all_rules_and_no_history(pair: Pair) -> None:
    change(pair.root, "ann")
    change(pair.root, "bob")
    pair.connect()
    assert kinds(pair.hear(0)) == ["RulesPart", "Beat"]
    assert pair.copy.position == pair.root.position


def test_one_that_is_far_behind_gets_all_rules_and_then_entries(far_pair: Pair) -> None:
    pair = far_pair
    change(pair.root, "ann")
    pair.connect()
    assert kinds(pair.hear(0)) == ["RulesPart", "Beat"]
    assert pair.copy.position == pair.root.position
    change(pair.root, "bob")
    change(pair.root, "eve")
    assert kinds(pair.hear(0.1)) == ["LogEntry", "LogEntry"]
    assert pair.copy.position == pair.root.position
    assert kinds(pair.hear(1.0)) == ["Beat"]


def test_one_that_comes_back_gets_what_it_missed(pair: Pair) -> None:
    change(pair.root, "ann")
    pair.connect()
    pair.hear(0)
    change(pair.root, "bob")
    pair.connect(5)
    assert kinds(pair.hear(5)) == ["LogEntry", "Beat"]


def test_a_plane_without_rules_takes_nobodys_away(pair: Pair, open_log: OpenLog) -> None:
    change(pair.root, "ann")
    pair.connect()
    pair.hear(0)
    wiped = open_log("wiped")
    wiped.name("b")
    pair.watching = Watching(wiped, lambda: 0)
    pair.connect(5)
    assert kinds(pair.hear(5)) == ["Beat"]
    assert pair.copy.rules == 1
    assert pair.following.fresh_s == 0


def test_entries_that_come_twice_or_late_change_nothing(pair: Pair) -> None:
    first, second = change(pair.root, "ann"), change(pair.root, "bob")
    pair.connect()
    pair.hear(0)
    assert [pair.following.received(entry, 1) for entry in (second, first)] == [False, False]
    assert pair.copy.position == pair.root.position
    assert not [one for one in pair.say(20) if isinstance(one, FollowerHello)]


def test_a_lost_entry_is_asked_for(pair: Pair) -> None:
    change(pair.root, "ann")
    pair.connect()
    pair.hear(0)
    change(pair.root, "bob")
    list(pair.watching.outgoing(0.1))  # lost
    change(pair.root, "eve")
    pair.hear(0.2)
    assert pair.copy.position.index == 1
    assert [one for one in pair.say(0.2 + AGAIN_S) if isinstance(one, FollowerHello)]
    assert kinds(pair.hear(0.2 + AGAIN_S)) == ["LogEntry", "LogEntry", "Beat"]
    assert pair.copy.position == pair.root.position


def test_a_lost_entry_is_asked_for_though_none_follows(pair: Pair) -> None:
    change(pair.root, "ann")
    pair.connect()
    pair.hear(0)
    change(pair.root, "bob")
    list(pair.watching.outgoing(0.1))  # lost
    for second in range(1, 1 + MISSED_BEATS):
        assert kinds(pair.hear(second)) == ["Beat"]
    pair.say(second + AGAIN_S)
    pair.hear(second + AGAIN_S)
    assert pair.copy.position == pair.root.position


def test_an_entry_that_leads_elsewhere_has_all_rules_asked_for(pair: Pair) -> None:
    change(pair.root, "ann")
    pair.connect()
    pair.hear(0)
    entry = change(pair.root, "bob")
    changes = (RuleChange("edge", (("user", "eve"),), b"{}"),)
    assert not pair.following.received(LogEntry(entry.position, entry.predecessor, changes, "", "", 0), 1)
    assert "another version" in pair.following.error
    assert pair.copy.position.index == 1
    (hello,) = pair.say(1 + AGAIN_S)
    assert isinstance(hello, FollowerHello)
    assert hello.follower.has == NOWHERE
    assert "RulesPart" in kinds(pair.hear(1 + AGAIN_S))
    assert (pair.copy.position, pair.following.error) == (pair.root.position, "")


def test_a_snapshot_older_than_what_one_has_is_not_taken(pair: Pair) -> None:
    change(pair.root, "ann")
    (old,) = pair.root.parts()
    change(pair.root, "bob")
    pair.connect()
    pair.hear(0)
    assert not pair.following.received(old, 1)
    assert pair.copy.position.index == 2


def test_parts_out_of_order_are_dropped(far_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = far_pair
    monkeypatch.setattr(rule_log, "PART_RULES", 1)
    for name in ("ann", "bob", "eve"):
        change(pair.root, name)
    pair.connect()
    first, second, third, beat = pair.watching.outgoing(0)
    for part in (first, third, second, beat):
        pair.following.received(part, 0)
    assert pair.copy.position.index == 0
    pair.say(AGAIN_S)
    pair.hear(AGAIN_S)
    assert pair.copy.position == pair.root.position


def test_a_plane_behind_its_follower_sends_nothing_until_it_has_caught_up(pair: Pair, open_log: OpenLog) -> None:
    relay = open_log("relay")
    entries = [change(pair.root, name) for name in ("ann", "bob")]
    pair.connect()
    pair.hear(0)
    relay.replace(Position("a", 1, entries[0].position.version), [RuleChange("edge", (("user", "ann"),), b"{}")])
    pair.watching = Watching(relay, lambda: 0)
    pair.connect(5)
    assert kinds(pair.hear(5)) == ["Beat"]
    assert (pair.copy.position.index, pair.following.fresh_s) == (2, 0)
    relay.take(entries[1])
    relay.take(change(pair.root, "eve"))
    assert kinds(pair.hear(5.5)) == ["LogEntry"]
    assert pair.copy.position == pair.root.position


def test_a_later_log_is_followed_and_an_earlier_one_no_more(pair: Pair, open_log: OpenLog) -> None:
    """A relay that lagged becomes the root: nodes go on from the version that they have, or take its rules."""
    relay = open_log("relay")
    relay.take(change(pair.root, "ann"))
    change(pair.root, "bob")
    pair.connect()
    pair.hear(0)
    relay.name("b")
    old, pair.watching = pair.watching, Watching(relay, lambda: 0)
    pair.connect(5)
    assert kinds(pair.hear(5)) == ["RulesPart", "Beat"]
    assert pair.copy.position == relay.position
    assert pair.following.fresh_s == 5
    change(pair.root, "eve")
    pair.watching = old
    pair.connect(9)
    pair.hear(9)
    assert pair.copy.position == relay.position
    assert pair.following.fresh_s == 5


def test_a_log_that_goes_on_from_the_same_version_needs_no_snapshot(pair: Pair, open_log: OpenLog) -> None:
    relay = open_log("relay")
    relay.take(change(pair.root, "ann"))
    pair.connect()
    pair.hear(0)
    relay.name("b")
    pair.watching = Watching(relay, lambda: 0)
    pair.connect(5)
    assert kinds(pair.hear(5)) == ["Beat"]
    assert pair.following.fresh_s == 5, "the same rules, though of a later log"
    change(relay, "bob")
    assert kinds(pair.hear(5.1)) == ["LogEntry"]
    assert pair.copy.position == relay.position


def test_a_relay_that_is_sent_all_rules_sends_its_followers_all_rules(pair: Pair, open_log: OpenLog) -> None:
    relay = open_log("relay")
    relay.take(change(pair.root, "ann"))
    below = Pair(relay, open_log("below"))
    below.connect()
    below.hear(0)
    for name in ("bob", "eve"):
        change(pair.root, name)
    (part,) = pair.root.parts()
    relay.replace(part.position, part.rules)
    assert kinds(below.hear(0.5)) == ["RulesPart"]
    assert below.copy.position == pair.root.position


# Freshness


def test_a_copy_is_fresh_as_of_the_last_beat_that_knew_the_head(root: RuleLog, open_log: OpenLog) -> None:
    pair = Pair(root, open_log("copy"), age_ms=3_000)
    change(root, "ann")
    pair.connect(100)
    pair.hear(100)
    assert pair.following.fresh_s == 97, "its relay knew the root's head three seconds ago"


def test_a_beat_is_no_freshness_where_something_is_missing_or_refused(pair: Pair) -> None:
    change(pair.root, "ann")
    pair.connect(0)
    pair.hear(0)
    entry = change(pair.root, "bob")
    pair.following.received(Beat(entry.position), 1)
    assert pair.following.fresh_s == 0
    pair.following.received(entry, 2)
    pair.following.in_force = False
    pair.following.received(Beat(entry.position), 2)
    assert pair.following.fresh_s == 0
    pair.following.in_force = True
    pair.following.received(Beat(entry.position), 3)
    assert pair.following.fresh_s == 3


# Reports


def test_reports_come_at_most_once_a_second_and_are_repeated(pair: Pair) -> None:
    change(pair.root, "ann")
    pair.connect()
    pair.hear(0)
    assert kinds_of(pair.say(0.1)) == ["Report"]
    change(pair.root, "bob")
    pair.hear(0.2)
    assert kinds_of(pair.say(0.3)) == []
    assert kinds_of(pair.say(1.1)) == ["Report"]
    assert kinds_of(pair.say(5)) == []
    assert kinds_of(pair.say(1.1 + REPEAT_S)) == ["Report"]


def kinds_of(said: list[FollowerHello | Report]) -> list[str]:
    return [type(one).__name__ for one in said]


def test_a_stream_is_due_when_there_is_something_to_send(pair: Pair) -> None:
    watching = pair.watching
    pair.connect()
    pair.hear(0)
    assert not watching.is_due(0.5)
    change(pair.root, "ann")
    assert watching.is_due(0.5)
    pair.hear(0.5)
    assert not watching.is_due(0.6)
    assert watching.is_due(1.6)
