"""The surroundings of a relay: buffers, bounds, and who looks at what passes."""

import socket
from collections.abc import Callable
from dataclasses import dataclass

from headgate.transport.guard.budget import Backlog
from headgate.transport.guard.frames import MAX_FRAME_BYTES
from headgate.transport.guard.share import Turns

READ_BYTES = 64 * 1024
"""Read at once: what a busy caller sends between two turns of the loop."""
BUFFER_BYTES = READ_BYTES + 2 * MAX_FRAME_BYTES + 2048
"""Size with room for a frame, and a record of TLS, of which the beginning came before."""


class Scratch:
    """The loop's thread reads into one buffer, for all connections: what stays longer is copied."""

    def __init__(self) -> None:
        self.buffer = bytearray(BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.encrypted = bytearray(READ_BYTES)
        self.encrypted_view = memoryview(self.encrypted)


@dataclass(frozen=True, slots=True)
class GuardTimeouts:
    """Longest duration of each phase of a connection, in seconds."""

    handshake_s: float
    message_s: float
    idle_s: float
    age_s: float
    """This connection's: jitter included."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Things that relays share: the loop's turns, buffers, bounds, and the way to the front."""

    turns: Turns
    backlog: Backlog
    relieve: Callable[[], None]
    """Called when the backlog is over its bound."""
    scratch: Scratch
    timeouts: GuardTimeouts
    connect: Callable[[], tuple[socket.socket, str]]
    """Connects to the front, and says what the front calls the connection. Raises OSError."""
    now: float
