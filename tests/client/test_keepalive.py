"""A connection that silently leads nowhere is noticed and made anew while nobody needs it."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator

import pytest
from headgate_client import channel

from tests.client.support import Make
from tests.support.waiting import wait_until

SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""An empty frame of HTTP/2: with it a connection is made, as gRPC sees it."""
SOON_MS = 500
KEEPALIVE = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")
BEFORE_GRPC_GIVES_UP_S = 50.0
"""Without keepalive gRPC ends a connection after a minute on which it is not told that its settings were heard."""


class Forgetful:
    """Makes connections, and then takes what comes and answers nothing: as a gateway that has forgotten them."""

    def __init__(self) -> None:
        self.connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.sendall(SETTINGS)
                self.connections.append(connection)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for one in itertools.chain([self._listener], self.connections):
            one.close()


@pytest.fixture
def forgetful() -> Iterator[Forgetful]:
    server = Forgetful()
    yield server
    server.close()


@pytest.mark.slow
def test_a_forgotten_connection_is_made_anew_without_a_call(
    forgetful: Forgetful, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = [(name, SOON_MS if name in KEEPALIVE else value) for name, value in channel.OPTIONS]
    assert sum(value == SOON_MS for _, value in quick) == len(KEEPALIVE)
    monkeypatch.setattr(channel, "OPTIONS", quick)
    client = make(forgetful.address, "edge", connect_timeout=0.1)
    assert client.check(user="alice").degraded, "nothing is answered here"
    wait_until(lambda: len(forgetful.connections) > 1, "another connection", timeout_s=BEFORE_GRPC_GIVES_UP_S)
    assert sum(client.counters.values()) == 1, "nobody called meanwhile"
