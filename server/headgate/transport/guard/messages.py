"""One call's body, read for the lengths of its messages. Pure.

Most bodies are one message in one frame and never come here. A message is let through
as it arrives, once its length is known to be allowed; one that is compressed is kept back
until it is whole and known not to expand beyond what is allowed.
"""

import zlib
from collections.abc import Callable

from headgate.transport.guard.frames import PREFIX
from headgate.transport.guard.refusals import Refusal

_GZIP = b"\x1f\x8b"
"""The first bytes of gzip; the front unpacks nothing else."""
_GZIP_FORMAT = 16 + zlib.MAX_WBITS
LEAST_PART_BYTES = 1024
"""Each part of gzip counts as if it unpacked to so many bytes, or there could be thousands of empty ones."""
PART_STEPS = 2
MAX_STEPS_PER_FRAME = 32
"""Steps after which no further message may begin in a frame, which is looked at as a whole: no method takes several."""
_STEP_BYTES = 4 * 1024
"""Bytes that are unpacked in the time of a step."""

Reserve = Callable[[int], bool]
"""Asks for so many bytes; False where they are not to be had."""


class Refuse(Exception):
    """The message that begins here must not reach the front."""

    def __init__(self, refusal: Refusal, size: int) -> None:
        super().__init__(refusal, size)
        self.refusal = refusal
        self.size = size


class TooManyMessages(Exception):
    """One frame has more messages than anybody has reason to send in one."""


class Body:
    """One stream's messages, as their bytes pass: their announced lengths, and what they expand to."""

    __slots__ = (
        "_compressed",
        "_max_bytes",
        "_prefix",
        "_remaining",
        "_reserve",
        "refused",
        "reserved",
        "since",
        "steps",
    )

    def __init__(self, max_bytes: int, reserve: Reserve, now: float) -> None:
        self.reserved = 0
        """Bytes that the front may hold for this call until it is complete."""
        self.refused = False
        """Answered already: whatever still comes is dropped."""
        self.since = now
        """Time at which the oldest byte came that was not answered yet."""
        self.steps = 0
        """Steps (share.py) that the last frames took here: messages that began, and what was unpacked."""
        self._max_bytes = max_bytes
        self._reserve = reserve
        self._prefix = b""
        self._remaining = 0
        self._compressed: bytearray | None = None

    @property
    def pending(self) -> bool:
        """The front holds, or waits for, something that it has not answered."""
        return not self.refused and bool(self.reserved or self._prefix)

    @property
    def kept_bytes(self) -> int:
        """Bytes that were received and not yet forwarded."""
        return len(self._prefix) + len(self._compressed or b"")

    def feed(self, content: bytes, passed: bytearray) -> None:
        """Add to `passed` what may be forwarded now. After Refuse nothing more of this body may be.

        Raises TooManyMessages, too.
        """
        position = 0
        while position < len(content):
            if self._remaining:
                part = content[position : position + self._remaining]
                self._remaining -= len(part)
            else:
                part = content[position : position + PREFIX.size - len(self._prefix)]
                self._prefix += part
            position += len(part)
            passed += self._take(part)

    def _take(self, part: bytes) -> bytes:
        if self._prefix:
            return self._begin() if len(self._prefix) == PREFIX.size else b""
        if self._compressed is None:
            return part
        self._compressed += part
        return self._unless_it_expands() if not self._remaining else b""

    def _begin(self) -> bytes:
        if self.steps > MAX_STEPS_PER_FRAME:
            raise TooManyMessages
        self.steps += 1
        prefix, self._prefix = self._prefix, b""
        compressed, length = PREFIX.unpack(prefix)
        if length > self._max_bytes:
            raise Refuse(Refusal.TOO_LARGE, length)
        size = length + PREFIX.size
        if not self._reserve(size):
            raise Refuse(Refusal.UNFINISHED, length)
        self.reserved += size
        self._remaining = length
        if compressed and length:
            self._compressed = bytearray(prefix)
            return b""
        return prefix

    def _unless_it_expands(self) -> bytes:
        message, self._compressed = bytes(self._compressed or b""), None
        packed = message[PREFIX.size :]
        if packed.startswith(_GZIP) and self._expands(packed):
            raise Refuse(Refusal.EXPANDS, len(packed))
        return message

    def _expands(self, packed: bytes) -> bool:
        """Say whether it is more than `max_bytes` unpacked; no more than that is ever unpacked here.

        The format allows several parts in a row, each of which counts.
        """
        room = self._max_bytes
        while packed:
            unpacking = zlib.decompressobj(_GZIP_FORMAT)
            try:
                unpacked = len(unpacking.decompress(packed, room + 1))
            except zlib.error:
                return False  # it is for the front to say so
            self.steps += PART_STEPS + unpacked // _STEP_BYTES
            packed = unpacking.unused_data
            # The last one may be as small as it likes.
            room -= max(unpacked, LEAST_PART_BYTES) if packed else unpacked
            if room < 0:
                return True
        return False
