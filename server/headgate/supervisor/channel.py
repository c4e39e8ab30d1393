"""Messages between a supervisor and a worker: JSON lines over a socket pair.

Only the two of them hold its ends, so the end of one, however it came, closes the channel
for the other: a killed supervisor is noticed without asking.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

Message = Mapping[str, Any]

SEND_TIMEOUT_S = 5.0
"""Messages fit the socket's buffer. Only a long list of problems waits, for a reader that reads at once."""

_READ_BYTES = 64 * 1024


class Order(StrEnum):
    """Orders from the supervisor to a worker, after its settings."""

    STOP = "stop"
    HURRY = "hurry"
    SWITCH_LOG_LEVEL = "switch_log_level"


class Channel:
    """One end of the socket pair between a supervisor and a worker. Only `receive_first` blocks."""

    def __init__(self, end: socket.socket) -> None:
        self.ended = False
        """True once the other end is gone."""
        self._socket = end
        self._buffer = bytearray()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message; when the other end is gone it is dropped."""
        with contextlib.suppress(OSError):
            self._socket.settimeout(SEND_TIMEOUT_S)
            self._socket.sendall(_encode(message))

    def beat(self) -> None:
        """Send a heartbeat, or nothing if the other end does not read. A line this short goes whole or not at all."""
        self._socket.setblocking(False)
        with contextlib.suppress(OSError):
            self._socket.send(_BEAT)

    async def send_long(self, message: Message) -> None:
        """Send a message that may not fit the socket's buffer, while the loop goes on; dropped as in `send`."""
        self._socket.setblocking(False)
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(self._socket, _encode(message))

    def receive_first(self) -> Message | None:
        """Wait for one message; None when the other end is gone before."""
        self._socket.settimeout(None)
        while not (messages := self._take(1)) and not self.ended:
            self._read()
        return messages[0] if messages else None

    def receive(self) -> list[Message]:
        """All messages that have arrived by now."""
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while not self.ended:
                self._read()
        return self._take()

    def close(self) -> None:
        self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except ConnectionError:
            data = b""
        self._buffer += data
        self.ended = not data

    def _take(self, most: int = -1) -> list[Message]:
        *lines, rest = self._buffer.split(b"\n", most)
        self._buffer = bytearray(rest)
        return [json.loads(line) for line in lines]


KEPT = "kept"
"""In a message: an entry of the region's map that a worker keeps while the origin is away, for the other workers."""

_BEAT_KEY = "beat"


def is_beat(message: Message) -> bool:
    return _BEAT_KEY in message


def _encode(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


_BEAT = _encode({_BEAT_KEY: 1})
