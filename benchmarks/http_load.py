"""Closed-loop HTTP/1.1 load from one thread: each connection sends its next request when it has its answer.

It looks at the status and at where an answer ends, and at nothing else, so that most
of two cores is left for the proxy and the server that are measured.
"""

import selectors
import socket
import time
from dataclasses import dataclass, field

STALLED_S = 20


@dataclass
class Outcome:
    seconds: float = 0.0
    statuses: dict[bytes, int] = field(default_factory=dict)

    @property
    def answers(self) -> int:
        return sum(self.statuses.values())

    @property
    def per_second(self) -> float:
        return self.answers / self.seconds


class Connection:
    def __init__(self, address: tuple[str, int], request: bytes) -> None:
        self.socket = socket.create_connection(address, timeout=STALLED_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._received = b""

    def send(self) -> None:
        self.socket.sendall(self._request)

    def receive(self) -> bytes | None:
        """The status of an answer that is complete."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the connection was closed")
        received = self._received = self._received + data if self._received else data
        head, end, body = received.partition(b"\r\n\r\n")
        if not end or len(body) < _length(head):
            return None
        self._received = b""
        return head[9:12]


def _length(head: bytes) -> int:
    place = head.find(b"content-length: ")
    return int(head[place + 16 :].partition(b"\r\n")[0]) if place >= 0 else 0


def run(address: str, requests: list[bytes], seconds: float) -> Outcome:
    """One connection for each request, which it repeats until the time is over."""
    host, _, port = address.rpartition(":")
    outcome = Outcome()
    with selectors.DefaultSelector() as selector:
        connections = [Connection((host, int(port)), request) for request in requests]
        began = time.monotonic()
        for connection in connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            connection.send()
        while (now := time.monotonic()) - began < seconds:
            ready = selector.select(timeout=STALLED_S)
            if not ready:
                raise TimeoutError(f"no answer for {STALLED_S} s")
            for key, _ in ready:
                status = key.data.receive()
                if status is not None:
                    outcome.statuses[status] = outcome.statuses.get(status, 0) + 1
                    key.data.send()
        outcome.seconds = now - began
        for connection in connections:
            connection.socket.close()
    return outcome
