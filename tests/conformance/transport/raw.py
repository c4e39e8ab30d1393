"""A caller who speaks HTTP/2 frame by frame, and need not speak it well."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from headgate.transport.interface import RATE_LIMIT_METHOD

from tests.conformance.transport.harness import TIMEOUT_S

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# What every server takes in one frame.
_FRAME_BYTES = 16_384
Headers = list[tuple[str, str]]


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def message(payload: bytes, *, length: int | None = None, compressed: bool = False) -> bytes:
    """A gRPC message, with the length that it has or another one."""
    return bytes([compressed]) + struct.pack(">I", len(payload) if length is None else length) + payload


def call_headers(**changes: str | None) -> Headers:
    """A call's headers; underscores for dashes, None leaves one out."""
    headers: dict[str, str] = {
        ":method": "POST",
        ":scheme": "http",
        ":path": RATE_LIMIT_METHOD,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    for name, value in changes.items():
        key = name.replace("_", "-")
        if value is None:
            del headers[key]
        else:
            headers[key] = value
    return list(headers.items())


class RawClient:
    """Sends valid HTTP/2; what is inside is up to the test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        # It lets us send headers that no honest client would.
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                header_encoding="utf-8", validate_outbound_headers=False, normalize_outbound_headers=False
            )
        )
        self.h2.initiate_connection()

    async def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())
        await self.writer.drain()

    async def open(self, headers: Headers, body: bytes, *, end: bool = True) -> int:
        """Start a call whose body fits into the first window; its stream id."""
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, headers)
        for start in range(0, len(body), _FRAME_BYTES):
            self.h2.send_data(stream, body[start : start + _FRAME_BYTES])
        if end:
            self.h2.end_stream(stream)
        await self.flush()
        return stream

    async def outcome(self, stream: int) -> dict[str, str]:
        """All headers and trailers of a stream's answer; `reset` where it was cut, `gone` with the connection."""
        (outcome,) = await self.outcomes([stream])
        return outcome

    async def outcomes(self, streams: Sequence[int]) -> list[dict[str, str]]:
        """The outcome of each of these, in whichever order they end."""
        answers: dict[int, dict[str, str]] = {stream: {} for stream in streams}
        left = set(streams)
        async for event in self._events():
            stream = getattr(event, "stream_id", None)
            if stream not in left:
                continue
            if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                answers[stream].update({str(name): str(value) for name, value in event.headers})
            elif isinstance(event, h2.events.StreamReset):
                answers[stream]["reset"] = str(event.error_code)
                left.remove(stream)
            elif isinstance(event, h2.events.StreamEnded):
                left.remove(stream)
            if not left:
                break
        for stream in left:
            answers[stream]["gone"] = "yes"
        return list(answers.values())

    async def data(self) -> bytes:
        """What the first frame of DATA holds that comes, on whichever stream."""
        async for event in self._events():
            if isinstance(event, h2.events.DataReceived):
                return bytes(event.data or b"")
        return b""

    async def _events(self) -> AsyncIterator[h2.events.Event]:
        while data := await asyncio.wait_for(self._reader.read(65536), TIMEOUT_S):
            events: Sequence[h2.events.Event] = self.h2.receive_data(data)
            await self.flush()
            for event in events:
                yield event


@asynccontextmanager
async def raw_client(port: int, source: str = "127.0.0.1") -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        client = RawClient(reader, writer)
        await client.flush()
        yield client
    finally:
        writer.transport.abort()


async def send_bytes(port: int, data: bytes) -> bytes:
    """Send anything at all; what comes back until the server closes or falls silent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    try:
        writer.write(data)
        while part := await asyncio.wait_for(reader.read(65536), 0.2):
            received += part
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
    return received


class BlockingClient:
    """The same for a thread, for when the loop is busy."""

    def __init__(self, port: int) -> None:
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.pings = 0
        self.statuses: dict[int, str] = {}
        """By stream: the gRPC status, or how the stream was reset."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.h2.initiate_connection()

    def __enter__(self) -> "BlockingClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def read_until(self, done: Callable[[], bool]) -> None:
        """Send what is there to send, and take in what comes."""
        self._socket.sendall(self.h2.data_to_send())
        while not done():
            data = self._socket.recv(1 << 16)
            assert data, "the server closed the connection"
            for event in self.h2.receive_data(data):
                self._take(event)
            self._socket.sendall(self.h2.data_to_send())

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.PingAckReceived):
            self.pings += 1
        elif isinstance(event, h2.events.StreamReset):
            self.statuses.setdefault(event.stream_id, f"reset {event.error_code}")
        elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            for name, value in event.headers:
                if str(name) == "grpc-status":
                    self.statuses[event.stream_id] = str(value)
