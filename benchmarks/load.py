"""A small, fast gRPC load generator: unary calls as raw HTTP/2 frames over a few connections.

Two cores are enough for it and a server: what is measured is the server's CPU time, from
outside the server. It speaks just enough HTTP/2 for that (no header compression state, no
priorities). `run` calls as fast as it is answered; `run_paced` calls at a given rate,
whatever the answers do.
"""

import random
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 0x1, 0x1, 0x4
RECEIVE_WINDOW = 2**30
STALLED_S = 60
"""Without an answer: then there will be none. A busy machine takes seconds at most."""
MAX_STREAMS = 90
"""Under way per connection: servers allow about 100, and cut a connection that takes more."""


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """A header field without indexing: no state on either side."""
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


def request_headers(path: str, authority: str, token: str | None = None) -> bytes:
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", authority.encode()),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    ]
    if token is not None:
        fields.append((b"authorization", b"Bearer " + token.encode()))
    return b"".join(_literal(name, value) for name, value in fields)


@dataclass
class Outcome:
    answers: int = 0
    failures: int = 0
    """Answers without a message: a gRPC error, or a reset."""
    unanswered: int = 0
    seconds: float = 0.0
    waits_s: list[float] = field(default_factory=list)
    """Of `run_paced`: from when each call was due, not from when it could be sent, to its answer. A server that
    stands still makes all calls wait that were due meanwhile, and not only the one that was under way."""


OnAnswer = Callable[[int, bytes | None], None]
"""Called with the number of the call and its answer's message, or None where there is none."""


class Connection:
    """One connection: calls go out when told to, answers come in as they are received."""

    def __init__(
        self,
        address: str,
        path: str,
        tls: ssl.SSLContext | None = None,
        token: str | None = None,
        source: str = "",
    ) -> None:
        """`source`: the address that it comes from; empty: any."""
        if address.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(STALLED_S)
            self.socket.connect(address.removeprefix("unix:"))
        else:
            host, _, port = address.rpartition(":")
            self.socket = socket.create_connection(
                (host, int(port)), STALLED_S, source_address=(source, 0) if source else None
            )
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.socket.sendall(
            PREFACE
            + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 2**31 - 1))
            + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", RECEIVE_WINDOW))
        )
        self._headers = request_headers(path, "localhost" if address.startswith("unix:") else address, token)
        self._next_stream = 1
        self._buffer = b""
        self._calls: dict[int, int] = {}
        self._messages: dict[int, bytes] = {}
        self._outgoing: list[bytes] = []

    @property
    def under_way(self) -> int:
        return len(self._calls)

    def call(self, number: int, payload: bytes) -> None:
        """Have a call sent with the next `send`."""
        message = b"\x00" + struct.pack(">I", len(payload)) + payload
        self._outgoing.append(frame(HEADERS, END_HEADERS, self._next_stream, self._headers))
        self._outgoing.append(frame(DATA, END_STREAM, self._next_stream, message))
        self._calls[self._next_stream] = number
        self._next_stream += 2

    def send(self) -> None:
        if self._outgoing:
            self.socket.sendall(b"".join(self._outgoing))
            self._outgoing.clear()

    def receive(self, on_answer: OnAnswer) -> None:
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the server closed the connection")
        while isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            data += self.socket.recv(1 << 18)
        buffer, position = self._buffer + data, 0
        while len(buffer) - position >= 9:
            length = int.from_bytes(buffer[position : position + 3], "big")
            end = position + 9 + length
            if len(buffer) < end:
                break
            kind, flags = buffer[position + 3], buffer[position + 4]
            stream = int.from_bytes(buffer[position + 5 : position + 9], "big") & 0x7FFFFFFF
            self._frame(kind, flags, stream, buffer[position + 9 : end], on_answer)
            position = end
        self._buffer = buffer[position:]

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes, on_answer: OnAnswer) -> None:
        if kind == DATA and payload:
            self._messages[stream] = self._messages.get(stream, b"") + payload
        elif kind == RST_STREAM or (kind == HEADERS and flags & END_STREAM):
            number = self._calls.pop(stream, None)
            message = self._messages.pop(stream, None)
            if number is not None:
                on_answer(number, None if message is None else message[5:])
        elif kind == SETTINGS and not flags & ACK:
            self.socket.sendall(frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self.socket.sendall(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            raise ConnectionError("the server is going away")


def _counting(outcome: Outcome, on_answer: OnAnswer | None) -> OnAnswer:
    def count(number: int, message: bytes | None) -> None:
        if message is None:
            outcome.failures += 1
        else:
            outcome.answers += 1
        if on_answer is not None:
            on_answer(number, message)

    return count


def run(
    address: str,
    path: str,
    payloads: Iterator[bytes],
    *,
    connections: int = 4,
    streams: int = 16,
    tls: ssl.SSLContext | None = None,
    token: str | None = None,
    source: str = "",
    on_answer: OnAnswer | None = None,
) -> Outcome:
    """Call `path` once with each payload, as fast as it is answered; returns when all are."""
    outcome = Outcome()
    count = _counting(outcome, on_answer)
    numbered = enumerate(payloads)
    began = time.monotonic()
    with selectors.DefaultSelector() as selector:
        opened = [Connection(address, path, tls, token, source) for _ in range(connections)]
        for connection in opened:
            _fill(connection, numbered, streams)
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        while any(connection.under_way for connection in opened):
            ready = selector.select(timeout=STALLED_S)
            if not ready:
                raise TimeoutError(f"no answer for {STALLED_S} s")
            for key, _ in ready:
                key.data.receive(count)
                _fill(key.data, numbered, streams)
        for connection in opened:
            connection.socket.close()
    outcome.seconds = time.monotonic() - began
    return outcome


def _fill(connection: Connection, numbered: Iterator[tuple[int, bytes]], streams: int) -> None:
    while connection.under_way < streams:
        following = next(numbered, None)
        if following is None:
            break
        connection.call(*following)
    connection.send()


def run_paced(
    addresses: list[str],
    path: str,
    payload_of: Callable[[int], bytes],
    *,
    per_s: float,
    seconds: float,
    chooser: random.Random,
    on_answer: OnAnswer | None = None,
    connections: int = 2,
) -> Outcome:
    """Calls at random times, `per_s` on average, to random addresses, whatever is still unanswered.

    As many as `per_s` gives in `seconds`: where the machine is too busy for that it takes longer, and not fewer.
    """
    opened = [Connection(address, path) for address in addresses for _ in range(connections)]
    outcome = run_paced_on(opened, payload_of, per_s=per_s, seconds=seconds, chooser=chooser, on_answer=on_answer)
    for connection in opened:
        connection.socket.close()
    return outcome


def run_paced_on(
    opened: list[Connection],
    payload_of: Callable[[int], bytes],
    *,
    per_s: float,
    seconds: float,
    chooser: random.Random,
    on_answer: OnAnswer | None = None,
) -> Outcome:
    """Do the same on connections that are there already, and stay so."""
    calls = round(per_s * seconds)
    outcome = Outcome()
    dues: list[float] = []

    def answered(number: int, message: bytes | None) -> None:
        outcome.waits_s.append(time.monotonic() - dues[number])
        if on_answer is not None:
            on_answer(number, message)

    count = _counting(outcome, answered)
    began = time.monotonic()
    due, number, heard = began, 0, began
    with selectors.DefaultSelector() as selector:
        for connection in opened:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        while True:
            now = time.monotonic()
            while due <= now and number < calls:
                free = [connection for connection in opened if connection.under_way < MAX_STREAMS]
                if not free:
                    break
                chooser.choice(free).call(number, payload_of(number))
                number += 1
                dues.append(due)
                due += chooser.expovariate(per_s)
            for connection in opened:
                connection.send()
            over = number == calls
            if now > max(heard, due) + STALLED_S or (over and not any(c.under_way for c in opened)):
                break
            for key, _ in selector.select(timeout=0.05 if over or due <= now else due - now):
                key.data.receive(count)
                heard = now
        outcome.unanswered = sum(connection.under_way for connection in opened)
    outcome.seconds = time.monotonic() - began
    return outcome
