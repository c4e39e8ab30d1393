"""Every database that a plane can be kept in; the suite runs over each."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from headgate.plane.database import Database, Sqlite
from headgate.plane.postgresql import Postgresql

from tests.support.postgresql import PostgresqlServer

OpenDatabase = Callable[[], Database]


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresqlServer]:
    with PostgresqlServer() as server:
        yield server


@pytest.fixture
def url(server: PostgresqlServer) -> str:
    """An empty database of PostgreSQL."""
    return server.url(server.database())


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenDatabase]:
    """Opens the one database of a test, as often as it is asked to."""
    opened: list[Database] = []
    url = request.getfixturevalue("url") if request.param == "postgresql" else ""

    def again() -> Database:
        opened.append(Postgresql(url) if url else Sqlite(tmp_path))
        return opened[-1]

    yield again
    for one in opened:
        one.close()
