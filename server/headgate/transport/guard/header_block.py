"""A call's headers as frames: bounded in bytes and frames, with nothing between them. Pure.

They are not unpacked here: the front shares their compression with its caller.
"""

from headgate.transport.guard.budget import BudgetShare
from headgate.transport.guard.frames import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    HEADERS,
    PROTOCOL_ERROR,
)
from headgate.transport.guard.violation import ProtocolViolation

MAX_HEADER_BLOCK_BYTES = 64 * 1024
"""Size as sent, over all its frames. The front refuses the call alone from 16 KiB unpacked."""
MAX_HEADER_BLOCK_FRAMES = 16
"""Frames may be empty, so their number needs a bound of its own."""


class HeaderBlock:
    """The header block that one connection is sending, if any."""

    __slots__ = ("_bytes", "_frames", "_share", "ends", "since", "stream")

    def __init__(self, share: BudgetShare) -> None:
        self.stream = 0
        """The stream whose headers have begun and not ended; 0: none."""
        self.ends = False
        """The call ends with its headers."""
        self.since = 0.0
        self._share = share
        self._bytes = 0
        self._frames = 0

    def take(self, kind: int, flags: int, stream: int, length: int, now: float) -> bool:
        """Take a frame; True if the block is complete with it. Raises ProtocolViolation."""
        if kind != (CONTINUATION if self.stream else HEADERS) or stream != (self.stream or stream):
            raise ProtocolViolation(PROTOCOL_ERROR, "protocol")
        if not self.stream:
            self.since = now
            self.ends = bool(flags & END_STREAM)
        self._frames += 1
        if self._frames > MAX_HEADER_BLOCK_FRAMES or self._bytes + length > MAX_HEADER_BLOCK_BYTES:
            raise ProtocolViolation(ENHANCE_YOUR_CALM, "header_block")
        if not self._share.take(length):
            raise ProtocolViolation(ENHANCE_YOUR_CALM, "header_block")
        self._bytes += length
        self.stream = stream
        if not flags & END_HEADERS:
            return False
        self.drop()
        return True

    def drop(self) -> None:
        """Forget it, and give back what is held for it."""
        self._share.give(self._bytes)
        self.stream = self._bytes = self._frames = 0
