"""Every database that a plane can be kept in; the suite runs over each."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from headgate.plane.database import Database, Sqlite

OpenDatabase = Callable[[], Database]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[OpenDatabase]:
    """Opens the one database of a test, as often as it is asked to."""
    opened: list[Database] = []

    def again() -> Database:
        opened.append(Sqlite(tmp_path))
        return opened[-1]

    yield again
    for one in opened:
        one.close()
