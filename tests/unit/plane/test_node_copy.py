"""A node's copy: what is noted, what is written, and where it is while that goes on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from headgate.plane.database import Sqlite
from headgate.plane.entry import LogEntry, RuleChange
from headgate.plane.node_copy import MOST_NOTED, NodeCopy
from headgate.plane.rule_log import Author, RuleLog, WrongVersion

ANN = Author("ann", "", 0)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[RuleLog]:
    log = RuleLog(Sqlite(tmp_path / "root"))
    log.name("a")
    yield log
    log.close()


@pytest.fixture
def log(tmp_path: Path, root: RuleLog) -> Iterator[RuleLog]:
    """The log of a node that has the first entry."""
    log = RuleLog(Sqlite(tmp_path / "node", is_copy=True), keeps_entries=False)
    log.name("a", own=False)
    log.take(made(root, "ann"))
    yield log
    log.close()


def made(root: RuleLog, user: str) -> LogEntry:
    entry = root.change([RuleChange("edge", (("user", user),), b"{}")], ANN)
    assert entry is not None
    return entry


def test_what_is_noted_counts_and_is_written_together(root: RuleLog, log: RuleLog) -> None:
    copy, before = NodeCopy(log), log.position
    entries = [made(root, "bob"), made(root, "cid")]
    for entry in entries:
        copy.take(entry)
    assert (copy.position, log.position) == (entries[1].position, before)
    assert copy.write() == (entries[1].position, entries)
    assert (copy.position, log.position, log.rules) == (entries[1].position, entries[1].position, 3)
    assert copy.write() == (entries[1].position, []), "once"


def test_an_entry_that_leads_elsewhere_is_dropped_with_all_behind_it(root: RuleLog, log: RuleLog) -> None:
    copy, before = NodeCopy(log), log.position
    good, bad, last = made(root, "bob"), made(root, "cid"), made(root, "dan")
    for entry in (good, replace(bad, changes=()), last):
        copy.take(entry)
    with pytest.raises(WrongVersion):
        copy.write()
    assert (copy.position, log.position, log.rules) == (before, before, 1)
    for entry in (good, bad, last):
        copy.take(entry)
    assert copy.write() == (last.position, [good, bad, last]), "it goes on from what was written"


def test_what_is_noted_while_it_writes_is_written_next(
    root: RuleLog, log: RuleLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = NodeCopy(log)
    first, second = made(root, "bob"), made(root, "cid")
    copy.take(first)
    take = log.take

    def taking(*entries: LogEntry) -> None:
        take(*entries)
        assert copy.position == first.position
        copy.take(second)
        assert copy.position == second.position

    with monkeypatch.context() as patched:
        patched.setattr(log, "take", taking)
        assert copy.write() == (first.position, [first])
    assert copy.position == second.position
    assert copy.write() == (second.position, [second])


def test_a_snapshot_takes_the_place_of_what_was_noted(root: RuleLog, log: RuleLog) -> None:
    copy = NodeCopy(log)
    copy.take(made(root, "bob"))
    head = made(root, "cid").position
    copy.replace(head, [rule for part in root.parts() for rule in part.rules])
    assert copy.position == head
    assert copy.write() == (head, None), "there are no entries to go by"
    copy.take(last := made(root, "dan"))
    assert copy.write() == (last.position, [last])


def test_more_than_can_be_noted_is_written_and_handed_over_as_a_whole(root: RuleLog, log: RuleLog) -> None:
    copy = NodeCopy(log)
    for number in range(MOST_NOTED):
        assert not copy.is_full
        copy.take(made(root, f"user-{number}"))
    assert copy.is_full
    copy.make_room()
    assert (copy.is_full, log.position) == (False, root.position)
    copy.take(last := made(root, "dan"))
    assert copy.write() == (last.position, None)
