"""Every test in this directory runs over all transports unless it says otherwise."""

from collections.abc import AsyncIterator

import grpc
import pytest
from headgate.transport import drain
from headgate.transport.shared_loop import SharedLoop

from tests.conformance.transport.harness import KINDS, Kind, Server, dialled, serving


def pytest_asyncio_loop_factories() -> dict[str, type[SharedLoop]]:
    """The loop that a process serves with: what needs nobody is decided where it is received."""
    return {"shared": SharedLoop}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    value: Kind = request.param
    return value


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers have more time to leave before connections are closed: on a busy machine they need it."""
    monkeypatch.setattr(drain, "FLUSH_S", 0.5)
    monkeypatch.setattr(drain, "_REFUSING_S", 5.0)


@pytest.fixture
async def server(kind: Kind) -> AsyncIterator[Server]:
    async with serving(kind) as running:
        yield running


@pytest.fixture
async def channel(server: Server) -> AsyncIterator[grpc.aio.Channel]:
    async with dialled(server.address) as opened:
        yield opened
