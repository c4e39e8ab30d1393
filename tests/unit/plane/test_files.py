"""The files that a log's rules are for a rule store."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.plane.database import SqlConnection, Sqlite
from headgate.plane.entry import RuleChange
from headgate.plane.files import DomainFiles
from headgate.plane.rule_log import Author, RuleLog


def limit(user: str) -> RuleChange:
    return RuleChange("edge", (("user", user),), b'{"rate_limit":{"unit":"hour","requests_per_unit":7}}')


class Watched(Sqlite):
    """A database that calls somebody when a change is written, and not committed yet."""

    def __init__(self, directory: Path) -> None:
        self.before_commit: Callable[[], object] = lambda: None
        super().__init__(directory)

    @contextmanager
    def writing(self) -> Iterator[SqlConnection]:
        with super().writing() as connection:
            yield connection
            self.before_commit()


def test_files_that_are_read_while_a_change_is_written_have_it_afterwards(tmp_path: Path) -> None:
    """Files are kept by what their domain is known by: what that is and what they say is read at one moment."""
    database = Watched(tmp_path)
    log = RuleLog(database)
    files = DomainFiles(log)
    log.change([limit("ann")], Author("ops", "a test", 0))
    database.before_commit = files.current
    entry = log.change([limit("bob")], Author("ops", "a test", 0))
    assert entry is not None
    position, source = files.current()
    assert position == entry.position
    assert [b"bob" in file.data for file in source.files] == [True]
