"""Fixtures for tests of the client: a real server for a whole module, and clients of either kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from headgate_client.testing import FakeServer
from headgate_client.testing.fixtures import headgate_server

from tests.client.support import KINDS, Make, MakeBoth, fake_maker, maker
from tests.support.headgate import Headgate, serve, write_rules
from tests.support.source import ROOT

__all__ = ["headgate_server"]


@pytest.fixture(scope="session")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`user`: 5 a year; `bulk`: a million a year."""
    return write_rules(tmp_path_factory.mktemp("rules"))


@pytest.fixture(scope="session")
def headgate(rules: Path) -> Iterator[Headgate]:
    """One for all tests: each takes users of its own."""
    with serve(rules) as served:
        yield served


@pytest.fixture(scope="session")
def examples_server() -> Iterator[Headgate]:
    """With examples/rules, as `make run` has it."""
    with serve(ROOT / "examples" / "rules") as served:
        yield served


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    with maker(request.param) as made:
        yield made


@pytest.fixture
def make_both() -> Iterator[MakeBoth]:
    """One client of each kind, for tests whose server is dear."""
    with maker("threads") as threads, maker("asyncio") as tasks:
        yield lambda *args, **options: [threads(*args, **options), tasks(*args, **options)]


@pytest.fixture(params=KINDS)
def make_fake(request: pytest.FixtureRequest, headgate_server: FakeServer) -> Iterator[Make]:
    headgate_server.limit("edge", "5/minute", user="*")
    with fake_maker(request.param, headgate_server) as made:
        yield made
