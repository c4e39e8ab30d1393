"""Frames on their way between a caller and the front."""

import math

from headgate.transport.guard.share import Account


class Frames:
    """Frames that pass as they are: those of callers who are trusted by their address. Others have an Inspector."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.last_stream = 0
        self.answered_at = math.inf
        """Tick (its time) before the last answer; 0: there was none. Nobody knows it of frames that are not read."""
        self.has_more = False
        """After `from_caller`: whole frames are left for another turn."""
        self.to_caller = b""
        """Frames for the caller, to be sent at the next boundary."""
        self.to_front: list[bytes] = []
        """Not empty after `from_caller`: to be forwarded in place of what was received."""
        self.rewritten: list[bytes] = []
        """Not empty after `from_front`: to be forwarded in place of what was received."""

    def from_caller(self, buffer: bytearray, end: int) -> int:
        """Return how much of `buffer[:end]` to forward now."""
        return end

    def from_front(self, buffer: bytearray, end: int) -> int:
        """Return how much of `buffer[:end]` to forward now."""
        return end

    def settle_answers(self) -> None:
        """Add to the account what comes with the calls that were answered."""

    @property
    def is_blocked(self) -> bool:
        """A call comes next for which the front has no room until others have ended, as they will soon."""
        return False

    @property
    def busy(self) -> bool:
        """True if a call is under way, which nobody knows of frames that are not read."""
        return True

    @property
    def at_boundary(self) -> bool:
        """The caller has whole frames only, so that one of ours may follow."""
        return False

    def tick(self, now: float, timeout_s: float) -> bytes:
        """Once in a while: what to send to the front for calls that took too long to arrive."""
        return b""

    def close(self) -> None:
        """Give back what is held for the connection."""
